/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package agent

import (
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

func (a *Environment) event(i *volumesv1alpha1.VolumeAttachmentIntent, eventType, reason, action, note string) {
	a.Recorder.Eventf(i, nil, eventType, reason, action, "%s", shortened(note, longestNote))
}

// announceFailure sends an event for a failure that is new, or has repeated another power of two times.
func (a *Environment) announceFailure(v *volume, f facts, done act, failed *failure) {
	if failed.announced {
		return
	}
	failed.announced = true
	reason := eventReason(v, done, failed)
	a.Log.Info("operation failed", "volume", v.name, "operation", failed.Operation, "reason", failed.reason, "error", failed.Message, "attempts", failed.Attempts)
	for _, i := range f.intents {
		if done.intent == "" || done.intent == i.UID {
			a.event(i, corev1.EventTypeWarning, reason, actions[failed.Operation], failed.Message)
		}
	}
}

// actions name what was tried, for events.
var actions = map[string]string{"stage": "Stage", "publish": "Publish", "expand": "Expand", "unpublish": "Unpublish", "unstage": "Unstage"}

func eventReason(v *volume, done act, failed *failure) string {
	event := steps[done.verb].event
	switch {
	case failed.reason == volumesv1alpha1.ReasonFilesystemMismatch:
		return eventWrongFilesystem
	case event == eventFailedMount && v.record != nil && v.record.block():
		return eventFailedMap
	}
	return event
}
