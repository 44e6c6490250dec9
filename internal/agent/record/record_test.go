/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package record

import (
	"testing"

	"github.com/hawser-io/hawser/internal/mount"
)

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
