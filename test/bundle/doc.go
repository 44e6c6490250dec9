/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

// Package bundle has the tests of the OLM bundle and the Helm chart: what they contain, and that what OLM and helm make
// of them comes up.
package bundle
