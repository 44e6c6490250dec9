/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package report

import (
	"fmt"
	"slices"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/handshake"
	"github.com/hawser-io/hawser/internal/machine"
)

// others are the lines of what other machines of the node's name use, as nvs has them before this report. They stay as
// they are, and before the own ones, until an administrator has ended the use. A use of which this agent has a record
// is its own.
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

// sameMachine is True while every use on the node is of this machine.
func (n *Node) sameMachine(others []volumesv1alpha1.NodeVolume) ConditionValue {
	switch {
	case len(others) > 0:
		return ConditionValue{reason: volumesv1alpha1.ReasonAnotherMachine, Message: n.describeOthers(others)}
	case len(n.unknownUser) > 0:
		return ConditionValue{OK: true, unknown: true, reason: volumesv1alpha1.ReasonMachineUnknown,
			Message: fmt.Sprintf("an agent that did not report its machine had %d volumes in use before the last boot, and "+
				"they were taken for volumes of this machine: %s. If that was another machine, power it off; the condition "+
				"ends with this agent's process", len(n.unknownUser), Enumerate(n.unknownUser))}
	case machine.Compare(n.Machine, n.Machine) == machine.Undecidable:
		return ConditionValue{OK: true, unknown: true, reason: volumesv1alpha1.ReasonMachineUnknown,
			Message: "the machine has neither a system UUID nor a machine ID; another machine under this node name would " +
				"be taken for this one"}
	}
	return ConditionValue{OK: true, reason: volumesv1alpha1.ReasonAsExpected,
		Message: "no other machine uses a volume under this node name"}
}

// NoteUnknownUser has the conditions name volumes of which it is not known what machine used them.
func (n *Node) NoteUnknownUser(volumes []string) { n.unknownUser = volumes }

// describeOthers names both machines, what is in use, and who ends the wait.
func (n *Node) describeOthers(others []volumesv1alpha1.NodeVolume) string {
	uses := make([]string, 0, len(others))
	for _, o := range others {
		uses = append(uses, fmt.Sprintf("%s (attachment %s)", o.VolumeName, o.AttachmentUID))
	}
	return fmt.Sprintf("another machine under this node name (%s) uses %d volumes that this one (%s) neither releases "+
		"nor takes: %s. Power the other machine off for good, then declare these attachments released "+
		"(kubectl hawser declare-released)", machine.Describe(*others[0].Machine), len(others),
		machine.Describe(n.identity()), Enumerate(uses))
}

// identity with the boot.
func (n *Node) identity() volumesv1alpha1.MachineIdentity {
	m := n.Machine
	m.BootID = n.BootID
	return m
}
