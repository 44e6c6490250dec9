/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package record

import (
	"fmt"
	"strings"

	"github.com/hawser-io/hawser/internal/mount"
)

// Presence is what the mount table says of one path.
type Presence string

const (
	// Missing: nothing is mounted there.
	Missing Presence = "missing"
	// Present: what was put there is there, or it is not known what was.
	Present Presence = "present"
	// Foreign: something else is mounted there.
	Foreign Presence = "foreign"
)

// SourceOf names what a mount shows: the filesystem's device number and the part of it.
func SourceOf(e mount.Entry) string { return fmt.Sprintf("%d:%d%s", e.Major, e.Minor, e.Root) }

// ParseSource is the mount that sourceOf named; false where it names none.
func ParseSource(source string) (mount.Entry, bool) {
	numbers, root, _ := strings.Cut(linked(source), "/")
	e := mount.Entry{Root: "/" + root}
	_, err := fmt.Sscanf(numbers, "%d:%d", &e.Major, &e.Minor)
	return e, err == nil
}

// linked is the source without the mark of an unlinked path, which records of earlier releases may have.
func linked(source string) string { return strings.TrimSuffix(source, mount.Unlinked) }

// SubPath is the part of the volume that users see; empty for all of it.
func (u Use) SubPath() string {
	if u.Mount == nil {
		return ""
	}
	return u.Mount.SubPath
}

// PresenceOfPart is PresenceOf for a part of a volume. Its users may rename the directory that is mounted, which
// changes the root that the mount table shows; the filesystem stays.
func PresenceOfPart(table *mount.Table, path, source string) Presence {
	e, ok := table.At(path)
	was, known := ParseSource(source)
	switch {
	case path == "" || !ok:
		return Missing
	case known && (e.Major != was.Major || e.Minor != was.Minor):
		return Foreign
	}
	return Present
}

// PresenceOf compares what is mounted at path with the source that was seen there.
func PresenceOf(table *mount.Table, path, source string) Presence {
	e, ok := table.At(path)
	switch {
	case path == "" || !ok:
		return Missing
	case source != "" && SourceOf(e) != linked(source):
		return Foreign
	}
	return Present
}
