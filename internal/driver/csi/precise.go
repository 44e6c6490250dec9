/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package csi

import (
	"strings"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
)

// precise returns a more exact cause of a failed stage or publish than the gRPC code, or "". CSI has no codes for
// these causes. The phrases are from k8s.io/mount-utils, which most drivers use to format and mount, and from os/exec
// and mount(8).
func precise(message string) string {
	says := func(phrases ...string) bool {
		for _, phrase := range phrases {
			if !strings.Contains(message, phrase) {
				return false
			}
		}
		return true
	}
	switch {
	case says("already contains"):
		return volumesv1alpha1.ReasonFilesystemMismatch
	case says("mkfs.", "executable file not found"), says("mkfs.", "not installed"):
		return volumesv1alpha1.ReasonFormatToolMissing
	case says("unknown filesystem type"):
		return volumesv1alpha1.ReasonUnknownFSType
	}
	return ""
}
