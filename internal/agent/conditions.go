/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package agent

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
)

// verdict is a condition's value with its reason and message.
type verdict struct {
	ok              bool
	reason, message string
}

func (n *nodeReport) setConditions(nvs *volumesv1alpha1.NodeVolumeState, reports map[string]report, names []string) {
	drivers, healthy := driversReady(nvs), volumesHealthy(reports, names)
	consistent := n.mountsConsistent(reports, names)
	ready := verdict{ok: true, reason: volumesv1alpha1.ReasonReady, message: "the agent is at work"}
	for _, c := range []verdict{drivers, consistent, healthy} {
		if !c.ok {
			ready = c
			break
		}
	}
	released := n.volumesReleased(len(nvs.Spec.Attachments), len(reports))
	for t, c := range map[string]verdict{
		volumesv1alpha1.ConditionReady: ready, volumesv1alpha1.ConditionDriversReady: drivers,
		volumesv1alpha1.ConditionVolumesHealthy: healthy, volumesv1alpha1.ConditionMountsConsistent: consistent,
		volumesv1alpha1.ConditionVolumesReleased: released,
	} {
		value := metav1.ConditionFalse
		if c.ok {
			value = metav1.ConditionTrue
		}
		meta.SetStatusCondition(&nvs.Status.Conditions, metav1.Condition{
			Type: t, Status: value, Reason: c.reason, Message: c.message, ObservedGeneration: nvs.Generation,
		})
	}
	slices.SortFunc(nvs.Status.Conditions, func(x, y metav1.Condition) int { return strings.Compare(x.Type, y.Type) })
}

// volumesReleased: the node may be removed. Something that belongs to no volume that is known may be any volume.
func (n *nodeReport) volumesReleased(attached, used int) verdict {
	strange := len(n.strange())
	if attached+used+strange == 0 {
		return verdict{ok: true, reason: volumesv1alpha1.ReasonReleased, message: "no volume is attached or in use"}
	}
	message := fmt.Sprintf("%d attached, %d in use", attached, used)
	if strange > 0 {
		message += fmt.Sprintf(", and %d that cannot be told", strange)
	}
	return verdict{reason: volumesv1alpha1.ReasonVolumesPresent, message: message}
}

// strange is what speaks of a volume that is not known: unreadable records, of the agent and of the kubelet, and mounts.
func (n *nodeReport) strange() []string {
	looked, trouble := n.Observer.lastSeen()
	all := append(slices.Clone(n.brokenRecords()), looked.strange...)
	if trouble != "" {
		all = append(all, "what the kubelet uses is not known: "+trouble)
	}
	return all
}

func driversReady(nvs *volumesv1alpha1.NodeVolumeState) verdict {
	var absent []string
	for _, e := range nvs.Spec.Attachments {
		known := slices.ContainsFunc(nvs.Status.Drivers, func(d volumesv1alpha1.NodeDriver) bool { return d.Name == e.Driver })
		if e.Driver != "" && !known && !slices.Contains(absent, e.Driver) {
			absent = append(absent, e.Driver)
		}
	}
	if len(absent) > 0 {
		return verdict{reason: volumesv1alpha1.ReasonDriversMissing, message: "not registered on the node: " + strings.Join(absent, ", ")}
	}
	return verdict{ok: true, reason: volumesv1alpha1.ReasonAsExpected, message: "every driver that is needed is registered"}
}

func volumesHealthy(reports map[string]report, names []string) verdict {
	var failing []string
	for _, name := range names {
		switch r := reports[name]; {
		case r.line.Error != nil:
			failing = append(failing, fmt.Sprintf("%s: %s %s", name, r.line.Error.Operation, r.line.Error.Code))
		case r.abnormal != "":
			failing = append(failing, fmt.Sprintf("%s: %s", name, r.abnormal))
		}
	}
	if len(failing) > 0 {
		return verdict{reason: volumesv1alpha1.ReasonVolumesFailing, message: enumerate(failing)}
	}
	return verdict{ok: true, reason: volumesv1alpha1.ReasonAsExpected, message: "no volume fails"}
}

func (n *nodeReport) mountsConsistent(reports map[string]report, names []string) verdict {
	differ := n.strange()
	for _, name := range names {
		if r := reports[name]; r.differs != "" {
			differ = append(differ, name+": "+r.differs)
		} else if r.orphan {
			differ = append(differ, name+": in use, but its intent or its attachment is not there")
		}
	}
	if len(differ) > 0 {
		return verdict{reason: volumesv1alpha1.ReasonMountsDiffer, message: enumerate(differ)}
	}
	return verdict{ok: true, reason: volumesv1alpha1.ReasonAsExpected, message: "the mount table agrees with the records"}
}

// enumerate names the first few and counts the others: a condition's message is to be read.
func enumerate(what []string) string {
	const shown = 3
	if len(what) <= shown {
		return strings.Join(what, "; ")
	}
	return fmt.Sprintf("%s; and %d more", strings.Join(what[:shown], "; "), len(what)-shown)
}

// stopped is what a node's state says once its agent was told to end.
func stopped(nvs *volumesv1alpha1.NodeVolumeState) {
	meta.SetStatusCondition(&nvs.Status.Conditions, metav1.Condition{
		Type: volumesv1alpha1.ConditionReady, Status: metav1.ConditionUnknown, Reason: volumesv1alpha1.ReasonAgentStopped,
		Message: "the agent was stopped; what is mounted stays", ObservedGeneration: nvs.Generation,
	})
}
