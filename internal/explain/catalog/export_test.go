/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package catalog

import "slices"

// All entries, in the order of their codes.
func All() []Entry { return slices.Concat(groups...) }
