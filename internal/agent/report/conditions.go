/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package report

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/agent/record"
	"github.com/hawser-io/hawser/internal/status"
)

// mostOfDetach is how much of a detach error a condition has, in bytes. The entry has all of it.
const mostOfDetach = 300

// ConditionValue is a condition's value with its reason and message.
type ConditionValue struct {
	OK              bool
	reason, Message string
	// unknown: the agent cannot know.
	unknown bool
}

func (c ConditionValue) status() metav1.ConditionStatus {
	switch {
	case c.unknown:
		return metav1.ConditionUnknown
	case c.OK:
		return metav1.ConditionTrue
	}
	return metav1.ConditionFalse
}

// SetConditions sets the node's conditions by the reports, in the order of names: those that the node state lists.
// others are the lines of other machines of the node's name. While there are any, the node is not Ready: a person has
// to decide. A volume that fails leaves the node Ready, because the others are not affected.
func (n *Node) SetConditions(nvs *volumesv1alpha1.NodeVolumeState, reports map[string]VolumeReport, names []string,
	others []volumesv1alpha1.NodeVolume) {
	drivers, healthy := DriversReady(nvs), volumesHealthy(nvs, reports, names)
	consistent, same := n.mountsConsistent(reports, names), n.sameMachine(others)
	ready := ConditionValue{OK: true, reason: volumesv1alpha1.ReasonReady, Message: "the agent is at work"}
	for _, c := range []ConditionValue{same, drivers, consistent} {
		if !c.OK {
			ready = c
			break
		}
	}
	released := n.volumesReleased(len(nvs.Spec.Attachments), len(reports)+len(others), len(reports)-len(names))
	if failing := releasesFailing(reports, names); len(failing) > 0 {
		released.reason = volumesv1alpha1.ReasonReleaseFailing
		released.Message += "; the release fails and is retried, of " + Enumerate(failing)
	}
	conditions := map[string]ConditionValue{
		volumesv1alpha1.ConditionReady: ready, volumesv1alpha1.ConditionDriversReady: drivers,
		volumesv1alpha1.ConditionVolumesHealthy: healthy, volumesv1alpha1.ConditionMountsConsistent: consistent,
		volumesv1alpha1.ConditionVolumesReleased: released, volumesv1alpha1.ConditionSameMachine: same,
	}
	storage, asked := n.storageHealthy(nvs.Status.Drivers)
	if storage != nil {
		conditions[volumesv1alpha1.ConditionStorageHealthy] = *storage
	} else if !asked { // otherwise what an earlier agent has reported stays until a driver answers
		meta.RemoveStatusCondition(&nvs.Status.Conditions, volumesv1alpha1.ConditionStorageHealthy)
	}
	for t, c := range conditions {
		meta.SetStatusCondition(&nvs.Status.Conditions, metav1.Condition{
			Type: t, Status: c.status(), Reason: c.reason, ObservedGeneration: nvs.Generation,
			Message: status.Shorten(c.Message, volumesv1alpha1.MaxConditionMessageLength),
		})
	}
	// The manager wrote it in the agent's stead, as it marks the agent unreachable.
	meta.RemoveStatusCondition(&nvs.Status.Conditions, volumesv1alpha1.ConditionDetachPossible)
	slices.SortFunc(nvs.Status.Conditions, func(x, y metav1.Condition) int { return strings.Compare(x.Type, y.Type) })
}

// volumesReleased: the node may be removed. Something that belongs to no volume that is known may be any volume.
func (n *Node) volumesReleased(attached, used, unlisted int) ConditionValue {
	strange := len(n.unattributed())
	if attached+used+strange == 0 {
		return ConditionValue{OK: true, reason: volumesv1alpha1.ReasonReleased,
			Message: "no volume is attached or in use"}
	}
	message := fmt.Sprintf("%d attached, %d in use", attached, used)
	if unlisted > 0 {
		message += fmt.Sprintf(" (%d of them not listed, because the volume's name has more than %d bytes)", unlisted,
			volumesv1alpha1.MaxVolumeNameLength)
	}
	if strange > 0 {
		message += fmt.Sprintf(", and %d of no known volume", strange)
	}
	return ConditionValue{reason: volumesv1alpha1.ReasonVolumesPresent, Message: message}
}

// releasesFailing are the volumes that the agent cannot unpublish or unstage.
func releasesFailing(reports map[string]VolumeReport, names []string) []string {
	var failing []string
	for _, name := range names {
		if l := reports[name].Line; status.ReleaseFails(&l) {
			failing = append(failing, fmt.Sprintf("%s (attachment %s): %s %s", name, l.AttachmentUID, l.Error.Operation,
				l.Error.Code))
		}
	}
	return failing
}

// unattributed is what belongs to a volume that is not known: unreadable records, of the agent and of the kubelet, and
// mounts.
func (n *Node) unattributed() []string {
	looked, trouble := n.Observer.Latest()
	all := append(slices.Clone(n.BrokenRecords()), looked.Unattributed...)
	if trouble != "" {
		all = append(all, "what the kubelet uses is not known: "+trouble)
	}
	return all
}

// DriversReady is False while a driver of an attached volume is not registered.
func DriversReady(nvs *volumesv1alpha1.NodeVolumeState) ConditionValue {
	var absent []string
	for _, e := range nvs.Spec.Attachments {
		needed := record.VolumeSourceOf(&e).Driver
		known := slices.ContainsFunc(nvs.Status.Drivers,
			func(d volumesv1alpha1.NodeDriver) bool { return d.Name == needed })
		if needed != "" && !known && !slices.Contains(absent, needed) {
			absent = append(absent, needed)
		}
	}
	if len(absent) > 0 {
		return ConditionValue{reason: volumesv1alpha1.ReasonDriversMissing,
			Message: "not registered on the node: " + strings.Join(absent, ", ")}
	}
	return ConditionValue{OK: true, reason: volumesv1alpha1.ReasonAsExpected,
		Message: "every driver that is needed is registered"}
}

// volumesHealthy is False while a step of the agent fails or a driver reports a problem of a volume, and while the
// driver's attacher cannot detach a volume. The manager writes that into the entry; no intent need be left that could
// have it in a condition.
func volumesHealthy(nvs *volumesv1alpha1.NodeVolumeState, reports map[string]VolumeReport, names []string,
) ConditionValue {
	var failing []string
	for i := range nvs.Spec.Attachments {
		if e := &nvs.Spec.Attachments[i]; e.DetachError != "" {
			failing = append(failing, fmt.Sprintf("%s: detach: %s", e.VolumeName, status.Shorten(e.DetachError, mostOfDetach)))
		}
	}
	for _, name := range names {
		switch r := reports[name]; {
		case r.Line.Error != nil:
			failing = append(failing, fmt.Sprintf("%s: %s %s", name, r.Line.Error.Operation, r.Line.Error.Code))
		case r.Sick != "":
			failing = append(failing, fmt.Sprintf("%s: sick: %s", name, r.Sick))
		case r.Line.Health != nil:
			failing = append(failing, fmt.Sprintf("%s: %s", name, DescribeHealth(r.Line.Health)))
		}
	}
	if len(failing) > 0 {
		return ConditionValue{reason: volumesv1alpha1.ReasonVolumesFailing, Message: Enumerate(failing)}
	}
	return ConditionValue{OK: true, reason: volumesv1alpha1.ReasonAsExpected, Message: "no volume fails"}
}

func (n *Node) mountsConsistent(reports map[string]VolumeReport, names []string) ConditionValue {
	differ := n.unattributed()
	for _, name := range names {
		if r := reports[name]; r.Differs != "" {
			differ = append(differ, name+": "+r.Differs)
		} else if r.Sick != "" {
			differ = append(differ, fmt.Sprintf("%s: sick: %s", name, r.Sick))
		} else if r.Orphan {
			differ = append(differ, name+": in use, but its intent or its attachment is not there")
		}
	}
	if len(differ) > 0 {
		return ConditionValue{reason: volumesv1alpha1.ReasonMountsDiffer, Message: Enumerate(differ)}
	}
	return ConditionValue{OK: true, reason: volumesv1alpha1.ReasonAsExpected,
		Message: "the mount table agrees with the records"}
}

// Enumerate names the first few and counts the others: a condition's message is to be read.
func Enumerate(what []string) string {
	const shown = 3
	if len(what) <= shown {
		return strings.Join(what, "; ")
	}
	return fmt.Sprintf("%s; and %d more", strings.Join(what[:shown], "; "), len(what)-shown)
}

// SetStopped sets the conditions of a node whose agent was stopped.
func SetStopped(nvs *volumesv1alpha1.NodeVolumeState) {
	meta.SetStatusCondition(&nvs.Status.Conditions, metav1.Condition{
		Type: volumesv1alpha1.ConditionReady, Status: metav1.ConditionUnknown,
		Reason:  volumesv1alpha1.ReasonAgentStopped,
		Message: "the agent was stopped; what is mounted stays", ObservedGeneration: nvs.Generation,
	})
}
