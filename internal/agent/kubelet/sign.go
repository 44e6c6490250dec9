/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

// Package kubelet finds out which CSI volumes a node's kubelet has mounted or mapped: from the mount table, and from
// the records that the kubelet keeps beside its mounts. It reads and decides; it changes nothing, and never reads
// inside of what is mounted.
package kubelet

import (
	"fmt"
	"strings"

	"github.com/hawser-io/hawser/internal/agent/record"
	"github.com/hawser-io/hawser/internal/mount"
)

// Sign is one trace of the kubelet's use of a volume.
type Sign struct {
	// Path of the record, the mount, the link, or the directory that cannot be read.
	Path string
	// Driver and Handle as in the record; empty where there is none.
	Driver, Handle string
	// HashDriver and Hash of the handle come from the path of a stage.
	HashDriver, Hash string
	// PersistentVolume comes from the path, or else from the record, in the form that it has in paths.
	PersistentVolume string
	// Life distinguishes this record or mount from a later one at the same path.
	Life string
	// Written distinguishes the last write of a record from every other.
	Written string
	// Source of a mount.
	Source *Source
	// SubPathOf is the directory of the volume, for a mount of a part of it for one container.
	SubPathOf string
	// DevicePath of the device behind a mount, where the mount table names it.
	DevicePath string

	// Record: the kubelet wrote it.
	Record bool
	// Shared: the agent mounts at such a path too, so it proves nothing where the agent has the volume.
	Shared bool
	// Published: it belongs to a pod.
	Published bool
	// Weak: it means something only where it can be attributed.
	Weak bool
	// Ephemeral: an inline volume that lives and dies with its pod, and is attached to no node.
	Ephemeral bool
	// Block: of a volume without a filesystem.
	Block bool
	// Err is why it cannot be read.
	Err error
}

// Volume is the unique name of the volume that the record speaks of; empty where none does.
func (s Sign) Volume() string {
	if s.Driver == "" || s.Handle == "" {
		return ""
	}
	return record.UniqueName(s.Driver, s.Handle)
}

// Reason is why the sign is reported when no volume is found for it.
func (s Sign) Reason() string {
	if s.Err != nil {
		return s.Err.Error()
	}
	return "no volume is known for it"
}

// Source names what a mount shows.
type Source struct {
	Major int    `json:"major"`
	Minor int    `json:"minor"`
	Root  string `json:"root"`
}

// SourceOf returns the source of a mount that has a block device; what has none shares numbers with others.
func SourceOf(e mount.Entry) *Source {
	if e.Major == 0 {
		return nil
	}
	return &Source{Major: e.Major, Minor: e.Minor, Root: e.Root}
}

// Covers reports whether o shows what s shows, or a part of it.
func (s Source) Covers(o Source) bool {
	return s.Major == o.Major && s.Minor == o.Minor &&
		(s.Root == o.Root || strings.HasPrefix(o.Root, strings.TrimSuffix(s.Root, "/")+"/"))
}

// FindSigns finds every sign of the kubelet's use below its directory. It calls watch with the directory of each record
// before it reads the record for good, so that no later change goes unnoticed. sources are those of filesystems that
// were in use before, whose other mounts are signs too.
func FindSigns(dir string, table *mount.Table, sources []Source, watch func(dir string) error) []Sign {
	r := &reader{root: dir, watch: watch}
	signs := Mounts(dir, table, sources)
	r.stages()
	r.devices()
	r.pods()
	return append(signs, r.signs...)
}

func lifeOfMount(e mount.Entry) string {
	return fmt.Sprintf("mount %d %d:%d%s %s", e.ID, e.Major, e.Minor, e.Root, e.Path)
}
