/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package nodehealth

import (
	"fmt"
	"slices"
	"strings"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
)

// Facts of one node.
type Facts struct {
	Node string
	// Attachments are those that the node state lists.
	Attachments []Attachment
	// Silent are the messages of intents whose attacher does not answer.
	Silent []string
}

// Attachment is one entry with what is known of its VolumeAttachment.
type Attachment struct {
	Name, Volume, Driver string
	// DetachError is why it is not detached, and Reported whether that is what the attacher reported.
	DetachError string
	Reported    bool
	// AttachedID is the node's ID in the driver by which it was attached, RegisteredID the present one. Either may be
	// unknown.
	AttachedID, RegisteredID string
	// Refused: it counts as attached, but its attacher was asked again and fails. An attacher that compares with the
	// driver's list does so, and replaces AttachedID before.
	Refused bool
	// UsedBy is another node that uses the volume by this attachment.
	UsedBy string
}

// Problem is what is wrong.
type Problem struct{ Reason, Message string }

// most problems that a message lists.
const most = 5

func problem(reason string, all []string) *Problem {
	slices.Sort(all)
	all = slices.Compact(all)
	message := strings.Join(all[:min(len(all), most)], "; ")
	if more := len(all) - most; more > 0 {
		message += fmt.Sprintf("; and %d more", more)
	}
	return &Problem{Reason: reason, Message: message}
}

// Health is what is wrong with the attachments: nil if nothing is. What keeps data from its user comes first.
func Health(f Facts) *Problem {
	silent := slices.Clone(f.Silent)
	var failed, refused, renamed, moved []string
	for _, a := range f.Attachments {
		switch {
		case a.DetachError == "":
		case a.Reported:
			// Without the error, which may differ each time that a driver is called.
			failed = append(failed, fmt.Sprintf("driver %s does not detach VolumeAttachment %s; spec.attachments has its error",
				a.Driver, a.Name))
		default:
			silent = append(silent, a.DetachError)
		}
		if a.Refused {
			refused = append(refused, fmt.Sprintf("the attacher of driver %s was asked again to attach VolumeAttachment %s, "+
				"and fails; status.attachError has its error", a.Driver, a.Name))
		}
		if a.UsedBy != "" {
			renamed = append(renamed, fmt.Sprintf("node %s reports %s in use by VolumeAttachment %s of node %s, "+
				"as it does when a node is renamed", a.UsedBy, a.Volume, a.Name, f.Node))
		}
		if a.AttachedID != "" && a.RegisteredID != "" && a.AttachedID != a.RegisteredID {
			moved = append(moved, fmt.Sprintf("VolumeAttachment %s attached %s to node ID %s, and driver %s registers the node "+
				"as %s now: it is not attached there, and a detach is for the new ID", a.Name, a.Volume, a.AttachedID, a.Driver,
				a.RegisteredID))
		}
	}
	for _, found := range []struct {
		reason string
		all    []string
	}{
		{volumesv1alpha1.ReasonNodeIDChanged, moved}, // it explains calls that fail
		{volumesv1alpha1.ReasonDetachFailed, failed},
		{volumesv1alpha1.ReasonAttacherSilent, silent},
		{volumesv1alpha1.ReasonAttachFailed, refused},
		{volumesv1alpha1.ReasonNodeRenamed, renamed},
	} {
		if len(found.all) > 0 {
			return problem(found.reason, found.all)
		}
	}
	return nil
}
