/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package agent

import (
	"fmt"
	"strings"

	"github.com/hawser-io/hawser/internal/mount"
)

// presence is what the mount table says of one path.
type presence string

const (
	// missing: nothing is mounted there.
	missing presence = "missing"
	// present: what was put there is there, or it is not known what was.
	present presence = "present"
	// foreign: something else is mounted there.
	foreign presence = "foreign"
)

// sourceOf names what a mount shows: the filesystem's device number and the part of it.
func sourceOf(e mount.Entry) string { return fmt.Sprintf("%d:%d%s", e.Major, e.Minor, e.Root) }

// shownBy is the mount that sourceOf named; false where it names none.
func shownBy(source string) (mount.Entry, bool) {
	numbers, root, _ := strings.Cut(source, "/")
	e := mount.Entry{Root: "/" + root}
	_, err := fmt.Sscanf(numbers, "%d:%d", &e.Major, &e.Minor)
	return e, err == nil
}

// presenceOf compares what is mounted at path with the source that was seen there.
func presenceOf(table *mount.Table, path, source string) presence {
	e, ok := table.At(path)
	switch {
	case path == "" || !ok:
		return missing
	case source != "" && sourceOf(e) != source:
		return foreign
	}
	return present
}
