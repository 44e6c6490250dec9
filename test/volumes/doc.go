/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

// Package volumes has the tests of pkg/volumes on a real API server. The module of pkg/volumes itself requires little,
// so that its importers do too.
package volumes
