/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package report

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/handshake"
	"github.com/hawser-io/hawser/internal/machine"
	"github.com/hawser-io/hawser/internal/status"
)

// others are the lines of what other machines of the node's name use, as nvs has them before this report. They stay as
// they are, and before the own ones, until an administrator has ended the use. A use of which this agent has a record is
// its own.
func (n *Node) others(nvs *volumesv1alpha1.NodeVolumeState,
	reports map[string]VolumeReport) []volumesv1alpha1.NodeVolume {
	others := machine.Others(n.Machine, nvs, func(line *volumesv1alpha1.NodeVolume) bool {
		own := reports[line.VolumeName].Line
		return own.InUse && own.AttachmentUID == line.AttachmentUID
	})
	return slices.DeleteFunc(others, func(line volumesv1alpha1.NodeVolume) bool {
		view := handshake.NodeOf(nvs, line.VolumeName)
		view.Use = handshake.Use{UID: line.AttachmentUID, InUse: true, Foreign: true}
		return (handshake.Protocol{}).MayDropForeign(view) == handshake.GuardNone
	})
}

// setSameMachine sets the condition about the machines that use volumes under the node's name. While another one does,
// the node is not Ready: a person has to decide.
func (n *Node) setSameMachine(nvs *volumesv1alpha1.NodeVolumeState, others []volumesv1alpha1.NodeVolume) {
	c := metav1.Condition{Type: volumesv1alpha1.ConditionSameMachine, Status: metav1.ConditionTrue,
		Reason: volumesv1alpha1.ReasonAsExpected, Message: "no other machine uses a volume under this node name",
		ObservedGeneration: nvs.Generation}
	switch {
	case len(others) > 0:
		c.Status, c.Reason = metav1.ConditionFalse, volumesv1alpha1.ReasonAnotherMachine
		c.Message = status.Shorten(n.describeOthers(others), volumesv1alpha1.MaxConditionMessageLength)
	case machine.Compare(n.Machine, n.Machine) == machine.Undecidable:
		c.Status, c.Reason = metav1.ConditionUnknown, volumesv1alpha1.ReasonMachineUnknown
		c.Message = "the machine has neither a system UUID nor a machine ID; another machine under this node name would " +
			"be taken for this one"
	}
	meta.SetStatusCondition(&nvs.Status.Conditions, c)
	if c.Reason == volumesv1alpha1.ReasonAnotherMachine {
		c.Type = volumesv1alpha1.ConditionReady
		meta.SetStatusCondition(&nvs.Status.Conditions, c)
	}
	sortConditions(nvs.Status.Conditions)
}

// describeOthers names both machines, what is in use, and who ends the wait.
func (n *Node) describeOthers(others []volumesv1alpha1.NodeVolume) string {
	uses := make([]string, 0, len(others))
	for _, o := range others {
		uses = append(uses, fmt.Sprintf("%s (attachment %s)", o.VolumeName, o.AttachmentUID))
	}
	return fmt.Sprintf("another machine under this node name (%s) uses %d volumes that this one (%s) neither releases nor "+
		"takes: %s. Power the other machine off for good, then declare these attachments released "+
		"(kubectl hawser declare-released)", machine.Describe(*others[0].Machine), len(others),
		machine.Describe(n.identity()), Enumerate(uses))
}

// identity with the boot.
func (n *Node) identity() volumesv1alpha1.MachineIdentity {
	m := n.Machine
	m.BootID = n.BootID
	return m
}
