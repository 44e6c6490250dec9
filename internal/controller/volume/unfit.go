/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package volume

import (
	"fmt"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
)

// Unfit describes what of the source a NodeVolumeState does not take; empty if all of it fits. Kubernetes restricts
// none of these lengths but the driver's. The API server would refuse the node state with all its other volumes.
func (s *Source) Unfit() string {
	for _, l := range []struct {
		what        string
		is, allowed int
	}{
		{"the driver's name", len(s.Driver), volumesv1alpha1.MaxDriverNameLength},
		{"the volume's handle", len(s.Handle), volumesv1alpha1.MaxVolumeHandleLength},
		{"fsType", len(s.FSType), volumesv1alpha1.MaxFSTypeLength},
		{"the longest of mountOptions", longest(s.MountOptions), volumesv1alpha1.MaxMountOptionLength},
	} {
		if l.is > l.allowed {
			return fmt.Sprintf("%s has %d bytes, and at most %d are supported", l.what, l.is, l.allowed)
		}
	}
	if n := len(s.MountOptions); n > volumesv1alpha1.MaxMountOptions {
		return fmt.Sprintf("it has %d mountOptions, and at most %d are supported", n, volumesv1alpha1.MaxMountOptions)
	}
	if n := len(s.AccessModes); n > volumesv1alpha1.MaxAccessModes {
		return fmt.Sprintf("it has %d accessModes, and at most %d are supported", n, volumesv1alpha1.MaxAccessModes)
	}
	return ""
}

func longest(texts []string) int {
	n := 0
	for _, t := range texts {
		n = max(n, len(t))
	}
	return n
}
