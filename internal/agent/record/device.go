/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package record

import (
	"slices"

	"github.com/hawser-io/hawser/internal/mount"
)

// SeenDevice is a block device that belongs to the volume alone.
type SeenDevice struct {
	mount.Device
	BootID string `json:"bootID"`
	// Held: the kernel said last that something still holds it.
	Held bool `json:"held,omitempty"`
	// ReadOnly: the agent has, or is about to have, the kernel refuse writes to it.
	ReadOnly bool `json:"readOnly,omitempty"`
}

// AddDevice notes a device that the volume is on; d has no path where there is none. Those of an earlier boot are gone.
func (r *Record) AddDevice(d mount.Device, boot string) {
	if d.Path == "" {
		r.MountTableOnly = true
		return
	}
	r.Devices = slices.DeleteFunc(r.Devices, func(o SeenDevice) bool { return o.BootID != boot })
	if !slices.ContainsFunc(r.Devices, func(o SeenDevice) bool { return o.Device == d }) {
		r.Devices = append(r.Devices, SeenDevice{Device: d, BootID: boot})
	}
}

// OnOwnDevice reports whether all that was seen of the volume in this boot is on block devices of its own, which the
// kernel is asked about before the release.
func (r *Record) OnOwnDevice(boot string) bool {
	return !r.MountTableOnly && slices.ContainsFunc(r.Devices, func(d SeenDevice) bool { return d.BootID == boot })
}

// RefusesWrites reports whether the agent has made a device of the volume read-only.
func (r *Record) RefusesWrites(bootID string) bool {
	return slices.ContainsFunc(r.Devices, func(d SeenDevice) bool { return d.ReadOnly && d.BootID == bootID })
}

// SeqAt is the sequence number of the disk whose node was seen at path, the staging path or one of a publication; 0
// where none is known.
func (r *Record) SeqAt(path string) uint64 {
	if path == r.Stage.Path {
		return r.Stage.Seq
	}
	for _, u := range r.Uses {
		if path == u.Target || path == u.Path {
			return u.Seq
		}
	}
	return 0
}
