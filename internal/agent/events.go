/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package agent

import (
	"strings"

	corev1 "k8s.io/api/core/v1"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
)

// Reasons of events, as upstream has them.
const (
	eventFailedMount     = "FailedMount"
	eventFailedMap       = "FailedMapVolume"
	eventMounted         = "SuccessfulMountVolume"
	eventFailedUnmount   = "FailedUnmountVolume"
	eventResizeFailed    = "VolumeResizeFailed"
	eventResized         = "FileSystemResizeSuccessful"
	eventWrongFilesystem = "FailedMountOnFilesystemMismatch"
)

// longestNote is what the API server takes.
const longestNote = 1024

func (a *Agent) event(i *volumesv1alpha1.VolumeAttachmentIntent, eventType, reason, action, note string) {
	a.Recorder.Eventf(i, nil, eventType, reason, action, "%s", shortened(note, longestNote))
}

// shortened cuts a text that is too long, between two characters.
func shortened(s string, longest int) string {
	if len(s) <= longest {
		return s
	}
	return strings.ToValidUTF8(s[:longest-3], "") + "..."
}

// announceFailure sends an event for a failure that is new, or has repeated another power of two times.
func (a *Agent) announceFailure(v *volume, f facts, failed *failure) {
	if failed.announced {
		return
	}
	failed.announced = true
	reason := eventReason(v, failed)
	a.Log.Info("operation failed", "volume", v.name, "operation", failed.Operation, "reason", failed.reason, "error", failed.Message, "attempts", failed.Attempts)
	for _, i := range f.intents {
		if failed.act.intent == "" || failed.act.intent == i.UID {
			a.event(i, corev1.EventTypeWarning, reason, actions[failed.Operation], failed.Message)
		}
	}
}

// actions name what was tried, for events.
var actions = map[string]string{"stage": "Stage", "publish": "Publish", "expand": "Expand", "unpublish": "Unpublish", "unstage": "Unstage"}

func eventReason(v *volume, failed *failure) string {
	block := v.record != nil && v.record.block()
	switch {
	case failed.reason == volumesv1alpha1.ReasonFilesystemMismatch:
		return eventWrongFilesystem
	case failed.Operation == "expand":
		return eventResizeFailed
	case failed.Operation == "unpublish" || failed.Operation == "unstage":
		return eventFailedUnmount
	case block:
		return eventFailedMap
	}
	return eventFailedMount
}

func (a *Agent) announcePublished(_ *volume, f facts, u Use) {
	if i := f.intent(u.Intent.UID); i != nil {
		a.event(i, corev1.EventTypeNormal, eventMounted, "Publish", "published at "+u.Path)
	}
}

func (a *Agent) announceExpanded(v *volume, f facts) {
	for _, i := range f.wanting() {
		a.event(i, corev1.EventTypeNormal, eventResized, "Expand", "the node sees "+text(v.record.Capacity))
	}
}
