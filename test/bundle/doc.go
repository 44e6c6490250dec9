/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

// Package bundle has the tests of the OLM bundle: what it contains, and that what OLM makes of it comes up.
package bundle
