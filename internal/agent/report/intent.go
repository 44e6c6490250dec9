/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package report

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/agent/failure"
	"github.com/hawser-io/hawser/internal/agent/plan"
	"github.com/hawser-io/hawser/internal/agent/record"
	"github.com/hawser-io/hawser/internal/status"
)

// IntentReport is what the agent has to report of one intent.
type IntentReport struct {
	// Skip: nothing.
	Skip bool
	// Keep leaves conditions, path, capacity and error as they are.
	Keep bool
	// Ready computes Ready.
	Ready bool
	// Nil removes the condition.
	staged, Published, expanded *ConditionValue
	path, device                string
	capacity                    *resource.Quantity
	failure                     *failure.Failure
}

func failed(f *failure.Failure) *ConditionValue {
	return &ConditionValue{reason: f.Reason, Message: f.Message}
}

// NewIntentReport decides what to report of the intent after a reconcile.
func NewIntentReport(v Snapshot, f plan.Facts, i *volumesv1alpha1.VolumeAttachmentIntent) IntentReport {
	f.Record = v.Record // a step that failed may have made it after the facts were gathered
	var u *record.Use
	if v.Record != nil {
		u = v.Record.UseOf(i.UID)
	}
	switch {
	case i.Spec.Publisher == volumesv1alpha1.PublisherKubelet:
		return IntentReport{Skip: true}
	case !i.DeletionTimestamp.IsZero():
		return deletingReport(v, f, i, u)
	case plan.Level(i.Spec.DesiredState) == 0:
		return loweredReport(v, f, i, u)
	case u == nil:
		return waitingReport(v, f, i)
	}
	return useReport(v, f, i, u)
}

// deletingReport says that the intent's part is undone where the volume stays, and otherwise only what fails: the
// controller sees in the node's state that the volume has gone.
func deletingReport(v Snapshot, f plan.Facts, i *volumesv1alpha1.VolumeAttachmentIntent, u *record.Use) IntentReport {
	failure := v.releaseFailure(f, i, u)
	switch {
	case failure != nil:
		return IntentReport{Ready: true, failure: failure, staged: v.keptStage(f, u), Published: v.unreleased(failure)}
	case u == nil && !f.Unsaved && v.Record != nil && v.Record.CountsAsInUse(f.Now) && (f.Kept() || f.Released()):
		return IntentReport{Published: &ConditionValue{reason: volumesv1alpha1.ReasonReleased,
			Message: "nothing of this intent is left on the node; others use the volume"}}
	}
	return IntentReport{Skip: true}
}

// keptStage is Staged while an intent is released.
func (v Snapshot) keptStage(f plan.Facts, u *record.Use) *ConditionValue {
	switch {
	case u == nil || f.Record == nil || !f.Staged():
		return nil
	case f.Record.Sick != nil:
		return v.sick(f)
	}
	return stagedTrue(f)
}

// unreleased is Published of an intent whose release fails. Where the driver hangs because the volume does not answer,
// that is the cause.
func (v Snapshot) unreleased(failure *failure.Failure) *ConditionValue {
	if !v.Record.Hangs() || failure.Reason != volumesv1alpha1.ReasonOutcomeUncertain {
		return failed(failure)
	}
	return &ConditionValue{reason: volumesv1alpha1.ReasonVolumeSick, Message: fmt.Sprintf(
		"it is released once it answers again: %s; the driver's last call: %s", v.Record.Sick,
		failure.Message)}
}

// loweredReport undoes what an intent for Attached has said before; then Ready is the controller's.
func loweredReport(v Snapshot, f plan.Facts, i *volumesv1alpha1.VolumeAttachmentIntent, u *record.Use) IntentReport {
	if u == nil && !status.AgentConditionsPresent(i) {
		return IntentReport{Skip: true}
	}
	failure := v.releaseFailure(f, i, u)
	if failure != nil {
		return IntentReport{Ready: true, failure: failure, staged: v.keptStage(f, u), Published: v.unreleased(failure)}
	}
	if u != nil || f.Unsaved || f.Bare() {
		return IntentReport{Skip: true}
	}
	return IntentReport{Ready: true}
}

// waitingReport speaks of an intent that is not carried out yet.
func waitingReport(v Snapshot, f plan.Facts, i *volumesv1alpha1.VolumeAttachmentIntent) IntentReport {
	if f.Overdue && f.WaitsForSession() && slices.Contains(f.Wanting(), i) {
		return IntentReport{Ready: true, staged: sessionUnconfirmed}
	}
	if failure := v.Failures[plan.Step{Kind: plan.MarkInUse}]; failure != nil {
		return IntentReport{Ready: true, failure: failure, staged: failed(failure)}
	}
	if status.AgentConditionsPresent(i) {
		gone := &ConditionValue{reason: volumesv1alpha1.ReasonMountLost,
			Message: "the volume is not attached to the node any more"}
		s := IntentReport{Ready: true, staged: gone}
		if i.Spec.DesiredState == volumesv1alpha1.DesiredPublished {
			s.Published = gone
		}
		return s
	}
	return IntentReport{Skip: !ReportedByManager(i), Keep: true, Ready: true}
}

func useReport(v Snapshot, f plan.Facts, i *volumesv1alpha1.VolumeAttachmentIntent, u *record.Use) IntentReport {
	s := IntentReport{Ready: true, device: v.Record.Stage.Device, capacity: v.Record.Capacity}
	s.staged, s.failure = v.stagedVerdict(f)
	if s.capacity == nil && i.Status.Capacity == nil && f.Entry != nil && f.Staged() {
		s.capacity = f.VolumeSource().Capacity
	}
	if u.Device != "" {
		s.device = u.Device
	}
	if i.Spec.DesiredState != volumesv1alpha1.DesiredPublished && i.Spec.DesiredState != "" {
		if failure := v.releaseFailure(f, i, u); failure != nil {
			s.Published, s.failure = failed(failure), failure
		}
	} else {
		failure := v.publicationFailure(i)
		s.Published = v.publishedVerdict(f, *u, failure)
		if s.failure == nil {
			s.failure = failure
		}
		if f.Published(*u) {
			s.path = u.Path
		}
	}
	s.expanded = v.ExpandedVerdict(f, i)
	if s.failure == nil {
		s.failure = v.Failures[plan.Step{Kind: plan.Expand}]
	}
	return s
}

var sessionUnconfirmed = &ConditionValue{
	reason: volumesv1alpha1.ReasonSessionUnconfirmed,
	Message: "the manager has not yet confirmed the reports of this agent and of all others; no volume is used " +
		"before that",
}

func stagedTrue(f plan.Facts) *ConditionValue {
	return &ConditionValue{OK: true, reason: volumesv1alpha1.ReasonStaged, Message: "staged at " + f.Record.Stage.Path}
}

func (v Snapshot) stagedVerdict(f plan.Facts) (*ConditionValue, *failure.Failure) {
	if f.Stale() {
		gone := &ConditionValue{reason: volumesv1alpha1.ReasonForcedAway,
			Message: "the attachment that the volume was staged on was taken away"}
		for _, failed := range v.Failures.Ordered(f) {
			return gone, failed
		}
		return gone, nil
	}
	if f.Record.Sick != nil {
		return v.sick(f), v.Failures[plan.Step{Kind: plan.Remount}]
	}
	for _, verb := range []plan.Kind{plan.MarkInUse, plan.Stage} {
		if failure := v.Failures[plan.Step{Kind: verb}]; failure != nil {
			return failed(failure), failure
		}
	}
	switch {
	case f.Staged():
		return stagedTrue(f), v.Failures[plan.Step{Kind: plan.Reference}]
	case f.Overdue:
		return sessionUnconfirmed, nil
	case v.Slow != "":
		return &ConditionValue{reason: volumesv1alpha1.ReasonStaging, Message: v.Slow}, nil
	case !f.Attached():
		return &ConditionValue{reason: volumesv1alpha1.ReasonMountLost,
			Message: "the volume is not attached to the node any more"}, nil
	}
	return &ConditionValue{reason: volumesv1alpha1.ReasonStaging, Message: "waiting for the volume to be staged"}, nil
}

func (v Snapshot) publishedVerdict(f plan.Facts, u record.Use, failure *failure.Failure) *ConditionValue {
	switch {
	case f.Record.Sick != nil && !f.Stale():
		return v.sick(f)
	case failure != nil:
		return failed(failure)
	case f.Published(u) && !f.Stale():
		return &ConditionValue{OK: true, reason: volumesv1alpha1.ReasonPublished, Message: "published at " + u.Path}
	case v.Slow != "" && f.Staged():
		return &ConditionValue{reason: volumesv1alpha1.ReasonPublishing, Message: v.Slow}
	}
	return &ConditionValue{reason: volumesv1alpha1.ReasonPublishing, Message: "waiting for the volume to be published"}
}

// sick is Staged and Published of a volume that works no more.
func (v Snapshot) sick(f plan.Facts) *ConditionValue {
	s := f.Record.Sick
	until := "it is unmounted and staged again"
	failed := v.Failures[plan.Step{Kind: plan.Remount}]
	switch pods := f.PodsOfVolume(); {
	case !s.Remountable:
		until = "the agent waits until it answers again"
	case len(pods) > 0:
		until = "it is staged again once these pods have ended: " + Enumerate(pods)
	case f.Kubelet != nil:
		until = "it is staged again once the kubelet has unmounted it"
	case failed != nil:
		until = failed.Message
	}
	return &ConditionValue{reason: volumesv1alpha1.ReasonVolumeSick,
		Message: fmt.Sprintf("what is mounted works no more: %s; nothing new is published of it; %s", s, until)}
}

// ExpandedVerdict is Expanded, which is absent while the volume has not grown under the intent.
func (v Snapshot) ExpandedVerdict(f plan.Facts, i *volumesv1alpha1.VolumeAttachmentIntent) *ConditionValue {
	capacity := v.Record.Capacity
	if failure := v.Failures[plan.Step{Kind: plan.Expand}]; failure != nil {
		return failed(failure)
	}
	if capacity == nil {
		return nil
	}
	wanted := f.VolumeSource().Capacity
	if wanted != nil && plan.CompareQuantities(*wanted, *capacity) > 0 && f.Expands {
		grows := fmt.Sprintf("growing from %s to %s", plan.QuantityText(capacity), plan.QuantityText(wanted))
		if f.ExpandPath() == "" {
			grows += ", once it is published for writing"
		}
		return &ConditionValue{reason: volumesv1alpha1.ReasonExpanding, Message: grows}
	}
	grew := i.Status.Capacity != nil && plan.CompareQuantities(*capacity, *i.Status.Capacity) > 0
	if grew || meta.FindStatusCondition(i.Status.Conditions, volumesv1alpha1.ConditionExpanded) != nil {
		return &ConditionValue{OK: true, reason: volumesv1alpha1.ReasonExpanded,
			Message: "the node sees " + plan.QuantityText(capacity)}
	}
	return nil
}

// apply writes the view into the intent's status.
func (s IntentReport) apply(i *volumesv1alpha1.VolumeAttachmentIntent, now metav1.MicroTime) {
	if !s.Keep {
		if s.set(i, volumesv1alpha1.ConditionStaged, s.staged) {
			timeline(i).Staged = &now
		}
		if s.set(i, volumesv1alpha1.ConditionPublished, s.Published) {
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
	if s.Ready {
		status.SetReady(i)
	}
}

// set sets or removes the condition, and reports whether it has become True.
func (s IntentReport) set(i *volumesv1alpha1.VolumeAttachmentIntent, conditionType string, c *ConditionValue) bool {
	if c == nil {
		meta.RemoveStatusCondition(&i.Status.Conditions, conditionType)
		return false
	}
	was := meta.IsStatusConditionTrue(i.Status.Conditions, conditionType)
	value := metav1.ConditionFalse
	if c.OK {
		value = metav1.ConditionTrue
	}
	status.Set(i, conditionType, value, c.reason, c.Message)
	return c.OK && !was
}

func timeline(i *volumesv1alpha1.VolumeAttachmentIntent) *volumesv1alpha1.Timeline {
	if i.Status.Timeline == nil {
		i.Status.Timeline = &volumesv1alpha1.Timeline{}
	}
	return i.Status.Timeline
}

// applyFailure sets lastError and Stalled; an error of the controller's phases stays.
func (s IntentReport) applyFailure(i *volumesv1alpha1.VolumeAttachmentIntent) {
	if s.failure == nil {
		if e := i.Status.LastError; e != nil && failure.Reasons[e.Operation] != "" {
			i.Status.LastError = nil
		}
		meta.RemoveStatusCondition(&i.Status.Conditions, volumesv1alpha1.ConditionStalled)
		return
	}
	i.Status.LastError = s.failure.DeepCopy()
	if s.failure.Stalled && s.failure.Operation != "expand" {
		status.Set(i, volumesv1alpha1.ConditionStalled, metav1.ConditionTrue, s.failure.Reason, s.failure.Message)
		return
	}
	meta.RemoveStatusCondition(&i.Status.Conditions, volumesv1alpha1.ConditionStalled)
}

// ReportedByManager reports whether the manager has written the intent's status.
func ReportedByManager(i *volumesv1alpha1.VolumeAttachmentIntent) bool {
	return meta.FindStatusCondition(i.Status.Conditions, volumesv1alpha1.ConditionResolved) != nil ||
		meta.FindStatusCondition(i.Status.Conditions, volumesv1alpha1.ConditionAttached) != nil
}

func (v Snapshot) publicationFailure(i *volumesv1alpha1.VolumeAttachmentIntent) *failure.Failure {
	for _, operation := range []string{"unpublish", "publish"} {
		if failure := v.Failures.OfIntent(i.UID, operation); failure != nil {
			return failure
		}
	}
	return v.Failures[plan.Step{Kind: plan.Join}]
}
