/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

// Package report writes what the cluster side has to say on an intent: status, one update at a time under
// the resourceVersion that was decided on, and events.
package report

import (
	"context"
	"fmt"
	"math/bits"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/resolve"
	"github.com/hawser-io/hawser/internal/status"
)

// +kubebuilder:rbac:groups=volumes.hawser.io,resources=volumeattachmentintents/status,verbs=update
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// Reasons of events, as upstream has them.
const (
	EventFailedAttach     = "FailedAttachVolume"
	EventSuccessfulAttach = "SuccessfulAttachVolume"
)

// Reporter writes intents' status and events.
type Reporter struct {
	Client client.Client
	Events events.EventRecorder
	Clock  clock.PassiveClock

	seen    sync.Map // namespace and name of an intent -> time.Time
	written sync.Map // namespace and name of an intent -> resourceVersion that was last written upon
}

// Saw remembers when an intent was first seen, for its timeline, until something is written of it.
func (r *Reporter) Saw(intent *volumesv1alpha1.VolumeAttachmentIntent) {
	if intent.Status.Timeline == nil {
		r.seen.LoadOrStore(client.ObjectKeyFromObject(intent), r.Clock.Now())
	}
}

// Forget drops an intent that is gone.
func (r *Reporter) Forget(key client.ObjectKey) {
	r.seen.Delete(key)
	r.written.Delete(key)
}

// Timeline of the intent, which is made where there is none.
func Timeline(intent *volumesv1alpha1.VolumeAttachmentIntent) *volumesv1alpha1.Timeline {
	if intent.Status.Timeline == nil {
		intent.Status.Timeline = &volumesv1alpha1.Timeline{}
	}
	return intent.Status.Timeline
}

// Update applies change to a copy of the cached intent and writes its status if anything differs. A conflict
// is no error: it means that a newer intent is on its way to the cache and will be looked at.
func (r *Reporter) Update(ctx context.Context, cached *volumesv1alpha1.VolumeAttachmentIntent, change func(*volumesv1alpha1.VolumeAttachmentIntent)) error {
	key := client.ObjectKeyFromObject(cached)
	if version, ok := r.written.Load(key); ok && version == cached.ResourceVersion {
		return nil
	}
	intent := cached.DeepCopy()
	change(intent)
	if equality.Semantic.DeepEqual(cached.Status, intent.Status) {
		return nil
	}
	if at, ok := r.seen.Load(key); ok && Timeline(intent).Requested == nil {
		requested := metav1.NewMicroTime(at.(time.Time))
		intent.Status.Timeline.Requested = &requested
	}
	err := r.Client.Status().Update(ctx, intent)
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("updating the status of intent %s/%s: %w", intent.Namespace, intent.Name, err)
	}
	r.seen.Delete(key)
	r.written.Store(key, cached.ResourceVersion)
	r.tell(cached, intent)
	return nil
}

// tell records events for what changed.
func (r *Reporter) tell(before, after *volumesv1alpha1.VolumeAttachmentIntent) {
	if c := turned(before, after, volumesv1alpha1.ConditionResolved); c != nil && (c.Status == metav1.ConditionFalse || c.Reason != volumesv1alpha1.ReasonResolved) {
		r.Events.Eventf(after, nil, corev1.EventTypeWarning, c.Reason, "Resolve", "%s", c.Message)
	}
	c := turned(before, after, volumesv1alpha1.ConditionAttached)
	switch {
	case c != nil && c.Status == metav1.ConditionTrue:
		r.Events.Eventf(after, nil, corev1.EventTypeNormal, EventSuccessfulAttach, "Attach", "volume %s: %s", after.Status.VolumeName, c.Message)
	case c != nil && c.Reason != volumesv1alpha1.ReasonAttaching:
		r.Events.Eventf(after, nil, corev1.EventTypeWarning, EventFailedAttach, "Attach", "%s: %s", c.Reason, c.Message)
	case c == nil && attemptsDoubled(before, after):
		e := after.Status.LastError
		r.Events.Eventf(after, nil, corev1.EventTypeWarning, EventFailedAttach, "Attach", "attempt %d: %s", e.Attempts, e.Message)
	}
}

// turned returns the condition of that type if its status, reason or message changed.
func turned(before, after *volumesv1alpha1.VolumeAttachmentIntent, conditionType string) *metav1.Condition {
	is := meta.FindStatusCondition(after.Status.Conditions, conditionType)
	was := meta.FindStatusCondition(before.Status.Conditions, conditionType)
	if is == nil || was != nil && was.Status == is.Status && was.Reason == is.Reason && was.Message == is.Message {
		return nil
	}
	return is
}

// attemptsDoubled keeps a failure that goes on and on from flooding: it is told at attempts 1, 2, 4, 8 ...
func attemptsDoubled(before, after *volumesv1alpha1.VolumeAttachmentIntent) bool {
	e := after.Status.LastError
	if e == nil || e.Operation != "attach" && e.Operation != "detach" {
		return false
	}
	if was := before.Status.LastError; was != nil && was.Operation == e.Operation && was.Attempts == e.Attempts {
		return false
	}
	return bits.OnesCount32(uint32(max(e.Attempts, 0))) == 1
}

// Resolved sets what resolving came to: the condition, the pins, and Stalled.
func Resolved(intent *volumesv1alpha1.VolumeAttachmentIntent, r resolve.Result) {
	if !r.OK {
		status.Set(intent, volumesv1alpha1.ConditionResolved, metav1.ConditionFalse, r.Reason, r.Message)
		SetError(intent, OperationResolve, r.Reason, r.Message)
		if r.Stalled {
			status.Set(intent, volumesv1alpha1.ConditionStalled, metav1.ConditionTrue, r.Reason, r.Message)
		} else {
			unstall(intent)
		}
		return
	}
	message := r.Message
	if message == "" {
		message = "the claim is bound to volume " + r.Pins.VolumeName
	}
	status.Set(intent, volumesv1alpha1.ConditionResolved, metav1.ConditionTrue, r.Reason, message)
	ClearError(intent, OperationResolve)
	unstall(intent)
}

// Pin holds the intent to the volume that it resolved to.
func Pin(intent *volumesv1alpha1.VolumeAttachmentIntent, p resolve.Pins) {
	s := &intent.Status
	s.ClaimUID, s.VolumeName, s.VolumeUID = p.ClaimUID, p.VolumeName, p.VolumeUID
	s.UniqueVolumeName, s.VolumeMode = p.UniqueVolumeName, p.VolumeMode
}

// unstall takes Stalled back if resolving had set it.
func unstall(intent *volumesv1alpha1.VolumeAttachmentIntent) {
	c := meta.FindStatusCondition(intent.Status.Conditions, volumesv1alpha1.ConditionStalled)
	if c == nil {
		return
	}
	switch c.Reason {
	case volumesv1alpha1.ReasonClaimReplaced, volumesv1alpha1.ReasonVolumeReplaced, volumesv1alpha1.ReasonVolumeNotSupported,
		volumesv1alpha1.ReasonVolumeModeMismatch, volumesv1alpha1.ReasonAccessModeMismatch:
		meta.RemoveStatusCondition(&intent.Status.Conditions, volumesv1alpha1.ConditionStalled)
	}
}
