/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package explain

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/hawser-io/hawser/internal/explain/catalog"
	"github.com/hawser-io/hawser/internal/explain/facts"
)

// Sizes are the size that a claim asks for, and the present one.
func Sizes(claim *corev1.PersistentVolumeClaim) string {
	asked, has := claim.Spec.Resources.Requests[corev1.ResourceStorage], claim.Status.Capacity[corev1.ResourceStorage]
	return fmt.Sprintf("%s asked, %s there", asked.String(), has.String())
}

// ResizeFailure is the reason of an expansion that fails: on the node, once the storage has expanded the volume, or
// before that.
func ResizeFailure(claim *corev1.PersistentVolumeClaim) string {
	switch claim.Status.AllocatedResourceStatuses[corev1.ResourceStorage] {
	case corev1.PersistentVolumeClaimNodeResizePending, corev1.PersistentVolumeClaimNodeResizeInProgress:
		return catalog.NodeResizeFailed
	}
	return catalog.ResizeFailed
}

// conflict is what the API server answers to a write of an object that has changed meanwhile.
const conflict = "please apply your changes to the latest version"

// ResizeError is why the expansion of a claim fails, and since when; empty if it does not fail. Resizers before 2.0 set
// no condition, so that only their event has the error. The newest event about the outcome counts.
func ResizeError(claim *corev1.PersistentVolumeClaim, events []facts.Event) (string, time.Time) {
	for _, c := range claim.Status.Conditions {
		if (c.Type == corev1.PersistentVolumeClaimControllerResizeError ||
			c.Type == corev1.PersistentVolumeClaimNodeResizeError) && c.Status == corev1.ConditionTrue {
			return c.Message, c.LastTransitionTime.Time
		}
	}
	for i := len(events) - 1; i >= 0; i-- {
		switch e := events[i]; e.Reason {
		case "VolumeResizeFailed":
			if strings.Contains(e.Message, conflict) {
				continue // the resizer writes again at once
			}
			return repeated(e), e.First
		case "VolumeResizeSuccessful", "FileSystemResizeRequired", "FileSystemResizeSuccessful":
			return "", time.Time{}
		}
	}
	return "", time.Time{}
}
