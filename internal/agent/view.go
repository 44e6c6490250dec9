/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package agent

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/status"
)

// view is what the agent has to say of one intent.
type view struct {
	// skip: nothing.
	skip bool
	// keep leaves conditions, path, capacity and error as they are.
	keep bool
	// ready computes Ready.
	ready bool
	// Nil removes the condition.
	staged, published, expanded *verdict
	path, device                string
	capacity                    *resource.Quantity
	failure                     *failure
}

func failed(f *failure) *verdict { return &verdict{reason: f.reason, message: f.Message} }

// viewOf decides what to say of the intent after a look.
func viewOf(v snapshot, f facts, i *volumesv1alpha1.VolumeAttachmentIntent) view {
	var u *Use
	if v.record != nil {
		u = v.record.use(i.UID)
	}
	switch {
	case i.Spec.Publisher == volumesv1alpha1.PublisherKubelet:
		return view{skip: true}
	case !i.DeletionTimestamp.IsZero():
		return viewOfDeleting(v, f, i, u)
	case level(i.Spec.DesiredState) == 0:
		return viewOfLowered(v, f, i, u)
	case u == nil:
		return viewOfWaiting(v, f, i)
	}
	return viewOfUse(v, f, i, u)
}

// viewOfDeleting says that the intent's part is undone where the volume stays, and otherwise only what fails: the
// controller sees in the node's state that the volume has gone.
func viewOfDeleting(v snapshot, f facts, i *volumesv1alpha1.VolumeAttachmentIntent, u *Use) view {
	failure := v.releaseFailure(i, u)
	switch {
	case failure != nil:
		return view{ready: true, failure: failure, staged: keptStage(f, u), published: failed(failure)}
	case u == nil && !f.unsaved && v.record != nil && v.record.held(f.now) && (f.kept() || f.released()):
		return view{published: &verdict{reason: volumesv1alpha1.ReasonReleased, message: "nothing of this intent is left on the node; others use the volume"}}
	}
	return view{skip: true}
}

// keptStage is Staged while an intent is released.
func keptStage(f facts, u *Use) *verdict {
	if u == nil || f.record == nil || !f.staged() {
		return nil
	}
	return stagedTrue(f)
}

// viewOfLowered undoes what an intent for Attached has said before; then Ready is the controller's.
func viewOfLowered(v snapshot, f facts, i *volumesv1alpha1.VolumeAttachmentIntent, u *Use) view {
	if u == nil && !status.AgentConditionsPresent(i) {
		return view{skip: true}
	}
	failure := v.releaseFailure(i, u)
	if failure != nil {
		return view{ready: true, failure: failure, staged: keptStage(f, u), published: failed(failure)}
	}
	if u != nil || f.unsaved {
		return view{skip: true}
	}
	return view{ready: true}
}

// viewOfWaiting speaks of an intent that is not carried out yet.
func viewOfWaiting(v snapshot, f facts, i *volumesv1alpha1.VolumeAttachmentIntent) view {
	if f.overdue && f.waitsForSession() && slices.Contains(f.wanting(), i) {
		return view{ready: true, staged: sessionUnconfirmed}
	}
	if failure := v.failures[act{verb: doTake}]; failure != nil {
		return view{ready: true, failure: failure, staged: failed(failure)}
	}
	if status.AgentConditionsPresent(i) {
		gone := &verdict{reason: volumesv1alpha1.ReasonMountLost, message: "the volume is not attached to the node any more"}
		s := view{ready: true, staged: gone}
		if i.Spec.DesiredState == volumesv1alpha1.DesiredPublished {
			s.published = gone
		}
		return s
	}
	return view{skip: !lookedAt(i), keep: true, ready: true}
}

func viewOfUse(v snapshot, f facts, i *volumesv1alpha1.VolumeAttachmentIntent, u *Use) view {
	s := view{ready: true, device: v.record.Stage.Device, capacity: v.record.Capacity}
	s.staged, s.failure = v.stagedVerdict(f)
	if s.capacity == nil && i.Status.Capacity == nil && f.entry != nil && f.staged() {
		s.capacity = f.entry.Capacity
	}
	if u.Device != "" {
		s.device = u.Device
	}
	if i.Spec.DesiredState != volumesv1alpha1.DesiredPublished && i.Spec.DesiredState != "" {
		if failure := v.releaseFailure(i, u); failure != nil {
			s.published, s.failure = failed(failure), failure
		}
	} else {
		failure := v.publicationFailure(i)
		s.published = v.publishedVerdict(f, *u, failure)
		if s.failure == nil {
			s.failure = failure
		}
		if f.published(*u) {
			s.path = u.Path
		}
	}
	s.expanded = v.expandedVerdict(f, i)
	if s.failure == nil {
		s.failure = v.failures[act{verb: doExpand}]
	}
	return s
}

var sessionUnconfirmed = &verdict{
	reason:  volumesv1alpha1.ReasonSessionUnconfirmed,
	message: "the manager has not confirmed yet that it has heard this agent and all others; until then no volume is taken into use",
}

func stagedTrue(f facts) *verdict {
	return &verdict{ok: true, reason: volumesv1alpha1.ReasonStaged, message: "staged at " + f.record.Stage.Path}
}

func (v snapshot) stagedVerdict(f facts) (*verdict, *failure) {
	if f.stale() {
		gone := &verdict{reason: volumesv1alpha1.ReasonForcedAway, message: "the attachment that the volume was staged on was taken away"}
		for _, failed := range v.failures.ordered(f) {
			return gone, failed
		}
		return gone, nil
	}
	for _, verb := range []verb{doTake, doStage} {
		if failure := v.failures[act{verb: verb}]; failure != nil {
			return failed(failure), failure
		}
	}
	switch {
	case f.staged():
		return stagedTrue(f), v.failures[act{verb: doRefer}]
	case f.overdue:
		return sessionUnconfirmed, nil
	case v.slow != "":
		return &verdict{reason: volumesv1alpha1.ReasonStaging, message: v.slow}, nil
	case !f.attached():
		return &verdict{reason: volumesv1alpha1.ReasonMountLost, message: "the volume is not attached to the node any more"}, nil
	}
	return &verdict{reason: volumesv1alpha1.ReasonStaging, message: "waiting for the volume to be staged"}, nil
}

func (v snapshot) publishedVerdict(f facts, u Use, failure *failure) *verdict {
	switch {
	case failure != nil:
		return failed(failure)
	case f.published(u) && !f.stale():
		return &verdict{ok: true, reason: volumesv1alpha1.ReasonPublished, message: "published at " + u.Path}
	case v.slow != "" && f.staged():
		return &verdict{reason: volumesv1alpha1.ReasonPublishing, message: v.slow}
	}
	return &verdict{reason: volumesv1alpha1.ReasonPublishing, message: "waiting for the volume to be published"}
}

// expandedVerdict is Expanded, which is absent while the volume has not grown under the intent.
func (v snapshot) expandedVerdict(f facts, i *volumesv1alpha1.VolumeAttachmentIntent) *verdict {
	capacity := v.record.Capacity
	if failure := v.failures[act{verb: doExpand}]; failure != nil {
		return failed(failure)
	}
	if capacity == nil {
		return nil
	}
	if f.entry != nil && f.entry.Capacity != nil && compare(*f.entry.Capacity, *capacity) > 0 && f.expands {
		return &verdict{reason: volumesv1alpha1.ReasonExpanding, message: fmt.Sprintf("growing from %s to %s", text(capacity), text(f.entry.Capacity))}
	}
	grew := i.Status.Capacity != nil && compare(*capacity, *i.Status.Capacity) > 0
	if grew || meta.FindStatusCondition(i.Status.Conditions, volumesv1alpha1.ConditionExpanded) != nil {
		return &verdict{ok: true, reason: volumesv1alpha1.ReasonExpanded, message: "the node sees " + text(capacity)}
	}
	return nil
}

// apply writes the view into the intent's status.
func (s view) apply(i *volumesv1alpha1.VolumeAttachmentIntent, now metav1.MicroTime) {
	if !s.keep {
		if s.set(i, volumesv1alpha1.ConditionStaged, s.staged) {
			timeline(i).Staged = &now
		}
		if s.set(i, volumesv1alpha1.ConditionPublished, s.published) {
			timeline(i).Published = &now
		}
		s.set(i, volumesv1alpha1.ConditionExpanded, s.expanded)
		i.Status.Path, i.Status.DevicePath = s.path, s.device
		if s.capacity != nil {
			q := s.capacity.DeepCopy()
			i.Status.Capacity = &q
		}
		s.applyFailure(i)
	}
	if s.ready {
		status.SetReady(i)
	}
}

// set sets or removes the condition and says whether it has become True.
func (s view) set(i *volumesv1alpha1.VolumeAttachmentIntent, conditionType string, c *verdict) bool {
	if c == nil {
		meta.RemoveStatusCondition(&i.Status.Conditions, conditionType)
		return false
	}
	was := meta.IsStatusConditionTrue(i.Status.Conditions, conditionType)
	value := metav1.ConditionFalse
	if c.ok {
		value = metav1.ConditionTrue
	}
	status.Set(i, conditionType, value, c.reason, c.message)
	return c.ok && !was
}

func timeline(i *volumesv1alpha1.VolumeAttachmentIntent) *volumesv1alpha1.Timeline {
	if i.Status.Timeline == nil {
		i.Status.Timeline = &volumesv1alpha1.Timeline{}
	}
	return i.Status.Timeline
}

// applyFailure sets lastError and Stalled; an error of the controller's phases stays.
func (s view) applyFailure(i *volumesv1alpha1.VolumeAttachmentIntent) {
	if s.failure == nil {
		if e := i.Status.LastError; e != nil && failedReason[e.Operation] != "" {
			i.Status.LastError = nil
		}
		meta.RemoveStatusCondition(&i.Status.Conditions, volumesv1alpha1.ConditionStalled)
		return
	}
	i.Status.LastError = s.failure.DeepCopy()
	if s.failure.stalled && s.failure.Operation != "expand" {
		status.Set(i, volumesv1alpha1.ConditionStalled, metav1.ConditionTrue, s.failure.reason, s.failure.Message)
		return
	}
	meta.RemoveStatusCondition(&i.Status.Conditions, volumesv1alpha1.ConditionStalled)
}

// lookedAt says whether the cluster controller has said anything of the intent.
func lookedAt(i *volumesv1alpha1.VolumeAttachmentIntent) bool {
	return meta.FindStatusCondition(i.Status.Conditions, volumesv1alpha1.ConditionResolved) != nil ||
		meta.FindStatusCondition(i.Status.Conditions, volumesv1alpha1.ConditionAttached) != nil
}

// releaseFailure is what keeps the intent from being released.
func (v snapshot) releaseFailure(i *volumesv1alpha1.VolumeAttachmentIntent, u *Use) *failure {
	if v.record == nil {
		return nil
	}
	acts := []act{{verb: doUnpublish, intent: i.UID}}
	if u == nil {
		acts = []act{{verb: doRecord}, {verb: doUnstage}, {verb: doClear}, {verb: doShutdown}}
	}
	for _, a := range acts {
		if failed := v.failures[a]; failed != nil {
			return failed
		}
	}
	return nil
}

func (v snapshot) publicationFailure(i *volumesv1alpha1.VolumeAttachmentIntent) *failure {
	for _, a := range []act{{verb: doUnpublish, intent: i.UID}, {verb: doPublish, intent: i.UID}, {verb: doJoin}} {
		if failure := v.failures[a]; failure != nil {
			return failure
		}
	}
	return nil
}
