/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

// Package version holds the version that the programs report.
package version

// Version is set when the programs are linked.
var Version = "v0.0.0-unversioned"
