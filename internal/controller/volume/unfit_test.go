/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package volume

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
)

func TestASourceThatANodeStateDoesNotTakeIsDescribed(t *testing.T) {
	of := func(length int) string { return strings.Repeat("x", length) }
	for want, change := range map[string]func(s *Source, more int){
		"the driver's name has 64 bytes": func(s *Source, more int) {
			s.Driver = of(volumesv1alpha1.MaxDriverNameLength + more)
		},
		"the volume's handle has 2049 bytes": func(s *Source, more int) {
			s.Handle = of(volumesv1alpha1.MaxVolumeHandleLength + more)
		},
		"fsType has 256 bytes": func(s *Source, more int) { s.FSType = of(volumesv1alpha1.MaxFSTypeLength + more) },
		"the longest of mountOptions has 4097 bytes": func(s *Source, more int) {
			s.MountOptions = []string{"ro", of(volumesv1alpha1.MaxMountOptionLength + more), "sync"}
		},
		"it has 257 mountOptions": func(s *Source, more int) {
			s.MountOptions = make([]string, volumesv1alpha1.MaxMountOptions+more)
		},
		"it has 65 accessModes": func(s *Source, more int) {
			s.AccessModes = make([]corev1.PersistentVolumeAccessMode, volumesv1alpha1.MaxAccessModes+more)
		},
	} {
		for more, want := range []string{"", want} {
			s := &Source{Driver: "loop.csi.hawser.io", Handle: "vol-1", FSType: "ext4"}
			change(s, more)
			if got := s.Unfit(); !strings.HasPrefix(got, want) || want == "" && got != "" {
				t.Errorf("a source that is %d above the limit: %q, want %q", more, got, want)
			}
		}
	}
}
