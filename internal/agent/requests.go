/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package agent

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
)

// allowedOptions are the mount options that an intent may ask for. None of them lets its author do more on the node.
var allowedOptions = []string{"noexec", "nodev", "nosuid", "noatime", "nodiratime", "relatime", "lazytime"}

// refused tells why the use must not be published. The API server refuses such an intent, but may have stored it under an earlier rule.
func refused(u Use) error {
	if u.Mount == nil {
		return nil
	}
	if u.Mount.SELinuxOptions != nil {
		return &problem{reason: volumesv1alpha1.ReasonSELinuxOptions, stalled: true,
			message: "seLinuxOptions have no effect in this version; take them out of the intent"}
	}
	notAllowed := func(option string) bool { return !slices.Contains(allowedOptions, option) }
	if i := slices.IndexFunc(u.Mount.Options, notAllowed); i >= 0 {
		key, _, _ := strings.Cut(u.Mount.Options[i], "=") // the value may be a password
		return &problem{reason: volumesv1alpha1.ReasonMountNotAllowed, stalled: true, message: fmt.Sprintf(
			"an intent may not ask for the mount option %q, only for %s; others are for administrators, in mountOptions of the PersistentVolume or StorageClass",
			key, strings.Join(allowedOptions, ", "))}
	}
	return nil
}

// group is the fsGroup that publishing the use gives the volume's files; nil where it gives them none.
func (f facts) group(u Use) *int64 {
	if u.Mount == nil || refused(u) != nil || !f.mountsGroup && (u.ReadOnly || !ownable(f.entry)) {
		return nil
	}
	return u.Mount.FSGroup
}

// groupHolder is the use that decides the group of the volume's files, or nil. What is published holds over what is not; then
// the first one in the record holds, which is the one whose intent was created first.
func (f facts) groupHolder() *Use {
	var holder *Use
	for k := range f.record.Uses {
		u := &f.record.Uses[k]
		if f.group(*u) != nil && (holder == nil || holder.Phase == PhaseNone && u.Phase != PhaseNone) {
			holder = u
		}
	}
	return holder
}

// heldGroup is the group of the volume's files that the uses decide; nil where none does.
func (f facts) heldGroup() *int64 {
	if holder := f.groupHolder(); holder != nil {
		return f.group(*holder)
	}
	return nil
}

// groupConflict tells why the use must not be published: another use has given the volume's files to another group. It waits for
// a change of what groupHolder returns.
func (f facts) groupConflict(u Use) error {
	wanted, held := f.group(u), f.heldGroup()
	if wanted == nil || *wanted == *held {
		return nil
	}
	first := f.groupHolder().Intent
	return &problem{reason: volumesv1alpha1.ReasonFSGroupConflict, waits: true, message: fmt.Sprintf(
		"intent %s/%s has given the volume's files on this node to fsGroup %d, so this intent cannot give them to %d; it waits until that one is gone or names the same group",
		first.Namespace, first.Name, *held, *wanted)}
}

// ownable says whether the CSIDriver's policy lets the group of the files be changed.
func ownable(e *volumesv1alpha1.NodeAttachment) bool {
	switch e.FSGroupPolicy {
	case storagev1.FileFSGroupPolicy:
		return true
	case storagev1.NoneFSGroupPolicy:
		return false
	}
	return e.FSType != "" && slices.ContainsFunc(e.AccessModes, func(m corev1.PersistentVolumeAccessMode) bool {
		return m == corev1.ReadWriteOnce || m == corev1.ReadWriteOncePod
	})
}
