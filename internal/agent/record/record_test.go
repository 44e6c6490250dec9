/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package record

import (
	"testing"

	"github.com/hawser-io/hawser/internal/mount"
)

func TestAMountWhosePathIsUnlinkedIsTheSame(t *testing.T) {
	table, err := mount.Parse([]byte("30 22 0:5 /sdb//deleted /p rw - devtmpfs devtmpfs rw\n"))
	if err != nil {
		t.Fatal(err)
	}
	for source, want := range map[string]Presence{
		"0:5/sdb": Present, "0:5/sdb//deleted": Present, "0:5/sdc": Foreign, "0:6/sdb": Foreign, "": Present,
	} {
		if got := PresenceOf(table, "/p", source); got != want {
			t.Errorf("mount of an unlinked node where %q was seen: %s, want %s", source, got, want)
		}
	}
	e, _ := table.At("/p")
	if was, known := ParseSource("0:5/sdb//deleted"); !known || !e.PartOf(was) || SourceOf(e) != "0:5/sdb" {
		t.Errorf("mount of an unlinked node: source %s, want one that is part of %+v", SourceOf(e), was)
	}
}

func TestAVolumeIsOnItsOwnDeviceIfAllThatWasSeenOfItIs(t *testing.T) {
	device := mount.Device{Path: "/dev/a"}
	for name, c := range map[string]struct {
		seen func(*Record)
		want bool
	}{
		"nothing":                     {func(*Record) {}, false},
		"a device":                    {func(r *Record) { r.AddDevice(device, "boot") }, true},
		"a device of an earlier boot": {func(r *Record) { r.AddDevice(device, "earlier") }, false},
		"a mount without a device":    {func(r *Record) { r.AddDevice(mount.Device{}, "boot") }, false},
		"both": {func(r *Record) {
			r.AddDevice(device, "boot")
			r.AddDevice(mount.Device{}, "boot")
		}, false},
	} {
		r := &Record{}
		c.seen(r)
		if got := r.OnOwnDevice("boot"); got != c.want {
			t.Errorf("volume of which %s was seen is on its own device: %t, want %t", name, got, c.want)
		}
	}
}
