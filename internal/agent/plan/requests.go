/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package plan

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/agent/failure"
	"github.com/hawser-io/hawser/internal/agent/record"
)

// allowedOptions are the mount options that an intent may ask for. None of them lets its author do more on the node.
var allowedOptions = []string{"noexec", "nodev", "nosuid", "noatime", "nodiratime", "relatime", "lazytime"}

// Refused returns why the use must not be published. The API server refuses such an intent, but may have stored it
// under an earlier rule.
func Refused(u record.Use) error {
	if u.Mount == nil {
		return nil
	}
	notAllowed := func(option string) bool { return !slices.Contains(allowedOptions, option) }
	if i := slices.IndexFunc(u.Mount.Options, notAllowed); i >= 0 {
		key, _, _ := strings.Cut(u.Mount.Options[i], "=") // the value may be a password
		return &failure.Problem{Reason: volumesv1alpha1.ReasonMountNotAllowed, Stalled: true, Message: fmt.Sprintf(
			"an intent may not ask for the mount option %q, only for %s; an administrator can set others in "+
				"mountOptions of the PersistentVolume or StorageClass",
			key, strings.Join(allowedOptions, ", "))}
	}
	return nil
}

// Group is the fsGroup that publishing the use gives the volume's files; nil where it gives them none.
func (f Facts) Group(u record.Use) *int64 {
	if u.Mount == nil || Refused(u) != nil || !f.DriverSetsGroup && (u.ReadOnly || !ownable(f.VolumeSource())) {
		return nil
	}
	return u.Mount.FSGroup
}

// GroupHolder is the use that decides the group of the volume's files, or nil. What is published holds over what is
// not; then the first one in the record holds, which is the one whose intent was created first.
func (f Facts) GroupHolder() *record.Use {
	var holder *record.Use
	for k := range f.Record.Uses {
		u := &f.Record.Uses[k]
		if f.Group(*u) != nil && (holder == nil || holder.Phase == record.PhaseNone && u.Phase != record.PhaseNone) {
			holder = u
		}
	}
	return holder
}

// HeldGroup is the group of the volume's files that the uses decide; nil where none does.
func (f Facts) HeldGroup() *int64 {
	if holder := f.GroupHolder(); holder != nil {
		return f.Group(*holder)
	}
	return nil
}

// GroupConflict returns why the use must not be published: another use has given the volume's files to another group.
// It waits for a change of what groupHolder returns.
func (f Facts) GroupConflict(u record.Use) error {
	wanted, held := f.Group(u), f.HeldGroup()
	if wanted == nil || *wanted == *held {
		return nil
	}
	first := f.GroupHolder().Intent
	return &failure.Problem{Reason: volumesv1alpha1.ReasonFSGroupConflict, AwaitsEvent: true, Message: fmt.Sprintf(
		"intent %s/%s has given the volume's files on this node to fsGroup %d, so this intent cannot give them to "+
			"%d; it waits until that one is gone or names the same group",
		first.Namespace, first.Name, *held, *wanted)}
}

// ownable reports whether the CSIDriver's policy lets the group of the files be changed.
func ownable(s record.VolumeSource) bool {
	switch s.FSGroupPolicy {
	case storagev1.FileFSGroupPolicy:
		return true
	case storagev1.NoneFSGroupPolicy:
		return false
	}
	return s.FSType != "" && slices.ContainsFunc(s.AccessModes, func(m corev1.PersistentVolumeAccessMode) bool {
		return m == corev1.ReadWriteOnce || m == corev1.ReadWriteOncePod
	})
}
