/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package plan

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/hawser-io/hawser/internal/agent/record"
)

func TestTheGroupOfFilesIsSetWhereTheDriversPolicyAllowsIt(t *testing.T) {
	const once, oncePod, many, readers = corev1.ReadWriteOnce, corev1.ReadWriteOncePod, corev1.ReadWriteMany,
		corev1.ReadOnlyMany
	for _, c := range []struct {
		name   string
		policy storagev1.FSGroupPolicy
		fsType string
		modes  []corev1.PersistentVolumeAccessMode
		want   bool
	}{
		{"by default, a filesystem for one node", "", "ext4", []corev1.PersistentVolumeAccessMode{once}, true},
		{"by default, a filesystem for one pod", "", "ext4", []corev1.PersistentVolumeAccessMode{oncePod}, true},
		{"by default, a filesystem for one node among others", "", "ext4",
			[]corev1.PersistentVolumeAccessMode{many, once}, true},
		{"by default, a filesystem for many nodes", "", "ext4", []corev1.PersistentVolumeAccessMode{many, readers},
			false},
		{"by default, no type of filesystem", "", "", []corev1.PersistentVolumeAccessMode{once}, false},
		{"by default, no access mode", "", "ext4", nil, false},
		{"the default by its name", storagev1.ReadWriteOnceWithFSTypeFSGroupPolicy, "ext4",
			[]corev1.PersistentVolumeAccessMode{once}, true},
		{"the default by its name, for many nodes", storagev1.ReadWriteOnceWithFSTypeFSGroupPolicy, "ext4",
			[]corev1.PersistentVolumeAccessMode{many}, false},
		{"always", storagev1.FileFSGroupPolicy, "", []corev1.PersistentVolumeAccessMode{many}, true},
		{"never", storagev1.NoneFSGroupPolicy, "ext4", []corev1.PersistentVolumeAccessMode{once}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := record.VolumeSource{FSGroupPolicy: c.policy, FSType: c.fsType, AccessModes: c.modes}
			if got := ownable(s); got != c.want {
				t.Errorf("the files of %+v are given to a group: %t, want %t", s, got, c.want)
			}
		})
	}
}
