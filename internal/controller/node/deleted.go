/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package node

import (
	"context"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/handshake"
	"github.com/hawser-io/hawser/internal/status"
)

// EventDeletionWaits is the reason of an event on a NodeVolumeState that was deleted and that stays.
const EventDeletionWaits = "DeletionWaits"

// deletionReminder is how often that is reported as long as it lasts: an event expires after an hour.
const deletionReminder = 30 * time.Minute

// giveWay lets the state of a Node that stays go if it was deleted, once nothing is attached or in use.
// Another one is created then, under which everything counts as in use until the agent has reported.
func (c *Controller) giveWay(ctx context.Context, nvs *volumesv1alpha1.NodeVolumeState) (time.Duration, error) {
	if nvs.DeletionTimestamp.IsZero() || left(nvs) != nothing {
		return c.tellDeletion(ctx, nvs)
	}
	return never, c.release(ctx, nvs.Name, nothing)
}

// tellDeletion reports what a state that was deleted waits for. It returns when to report again.
func (c *Controller) tellDeletion(_ context.Context, nvs *volumesv1alpha1.NodeVolumeState) (time.Duration, error) {
	if nvs.DeletionTimestamp.IsZero() || left(nvs) == nothing {
		return never, nil
	}
	c.Events.Eventf(nvs, nil, corev1.EventTypeWarning, EventDeletionWaits, "Delete", "%s", status.ShortenNote(
		"this NodeVolumeState was deleted; "+
			"it works as before and is removed once nothing is attached to node "+nvs.Name+" or in use there. "+
			"To end that, delete the node's intents (kubectl get vai -A --field-selector spec.nodeName="+nvs.Name+
			") and drain it. Still there: "+strings.Join(volumesOf(nvs), ", ")))
	return deletionReminder, nil
}

// volumesOf names what is attached to the node or in use on it.
func volumesOf(nvs *volumesv1alpha1.NodeVolumeState) []string {
	var names []string
	for i := range nvs.Spec.Attachments {
		names = append(names, nvs.Spec.Attachments[i].VolumeName)
	}
	for i := range nvs.Status.Volumes {
		if v := &nvs.Status.Volumes[i]; v.InUse && handshake.AttachmentOf(nvs, v.VolumeName) == nil {
			names = append(names, v.VolumeName)
		}
	}
	return names
}
