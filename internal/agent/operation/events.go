/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package operation

import (
	corev1 "k8s.io/api/core/v1"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/agent/failure"
	"github.com/hawser-io/hawser/internal/agent/plan"
	"github.com/hawser-io/hawser/internal/status"
)

// Reasons of events, as upstream has them.
const (
	eventFailedMount     = "FailedMount"
	eventFailedMap       = "FailedMapVolume"
	EventMounted         = "SuccessfulMountVolume"
	eventFailedUnmount   = "FailedUnmountVolume"
	eventResizeFailed    = "VolumeResizeFailed"
	EventResized         = "FileSystemResizeSuccessful"
	eventWrongFilesystem = "FailedMountOnFilesystemMismatch"
)

// Reasons of the events on intents and pods about the health that a driver reports of a volume.
const (
	EventVolumeUnhealthy = "VolumeUnhealthy"
	EventVolumeHealthy   = "VolumeHealthy"
)

// Event sends an event about the intent. A note that is too long is cut. The reference has no resourceVersion, because
// client-go counts only events about the same reference as repetitions.
func (env *Environment) Event(i *volumesv1alpha1.VolumeAttachmentIntent, eventType, reason, action, note string) {
	regarding := IntentObject(volumesv1alpha1.IntentReference{Namespace: i.Namespace, Name: i.Name, UID: i.UID})
	env.Recorder.Eventf(regarding, nil, eventType, reason, action, "%s", status.ShortenNote(note))
}

// IntentObject refers to the intent in an event.
func IntentObject(i volumesv1alpha1.IntentReference) *corev1.ObjectReference {
	return &corev1.ObjectReference{APIVersion: volumesv1alpha1.GroupVersion.String(), Kind: "VolumeAttachmentIntent",
		Namespace: i.Namespace, Name: i.Name, UID: i.UID}
}

// announceFailure sends an event for a failure that is new, or has repeated another power of two times.
func (env *Environment) announceFailure(v *Volume, f plan.Facts, done plan.Step, failed *failure.Failure) {
	if failed.Announced {
		return
	}
	failed.Announced = true
	reason := eventReason(v, done, failed)
	env.Log.Info("operation failed", "volume", v.Name, "operation", failed.Operation, "reason", failed.Reason, "error",
		failed.Message, "attempts", failed.Attempts)
	for _, i := range f.Intents {
		if done.Intent == "" || done.Intent == i.UID {
			env.Event(i, corev1.EventTypeWarning, reason, actions[failed.Operation], failed.Message)
		}
	}
}

// actions name what was tried, for events.
var actions = map[string]string{"stage": "Stage", "publish": "Publish", "expand": "Expand", "unpublish": "Unpublish",
	"unstage": "Unstage"}

func eventReason(v *Volume, done plan.Step, failed *failure.Failure) string {
	event := steps[done.Kind].event
	switch {
	case failed.Reason == volumesv1alpha1.ReasonFilesystemMismatch:
		return eventWrongFilesystem
	case event == eventFailedMount && v.Record != nil && v.Record.Block():
		return eventFailedMap
	}
	return event
}

// LogStep logs what is about to be done: always where it changes a mount, otherwise at a higher verbosity. The node is
// in every line. It logs names only, never the content of a Secret or of a volume's attributes.
func (env *Environment) LogStep(v *Volume, f plan.Facts, next plan.Step) {
	log := env.Log
	if !steps[next.Kind].logged {
		log = log.V(1)
	}
	if !log.Enabled() {
		return
	}
	intents := make([]string, 0, len(f.Intents))
	for _, i := range f.Intents {
		if next.Intent == "" || next.Intent == i.UID {
			intents = append(intents, i.Namespace+"/"+i.Name)
		}
	}
	log.Info("running step", "step", next.Kind, "volume", v.Name, "intents", intents)
}
