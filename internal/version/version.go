/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

// Package version holds the version that the programs report.
package version

import "regexp"

// Version is set when the programs are linked.
var Version = "v0.0.0-unversioned"

// released is the form of versions that have a tag in the repository.
var released = regexp.MustCompile(`^v\d+\.\d+\.\d+(-(alpha|beta|rc)\.\d+)?$`)

// Ref is what the repository calls this version, for addresses of its pages: the tag, or main for anything between.
func Ref() string {
	if released.MatchString(Version) {
		return Version
	}
	return "main"
}
