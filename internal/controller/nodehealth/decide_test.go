/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package nodehealth

import (
	"strings"
	"testing"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
)

func expectProblem(t *testing.T, got *Problem, reason string, parts ...string) {
	t.Helper()
	if reason == "" {
		if got != nil {
			t.Errorf("problem: %+v, want none", *got)
		}
		return
	}
	if got == nil || got.Reason != reason {
		t.Fatalf("problem: %+v, want reason %s", got, reason)
	}
	for _, part := range parts {
		if !strings.Contains(got.Message, part) {
			t.Errorf("message of %s: %q, want %q in it", reason, got.Message, part)
		}
	}
}

func TestWhatExplainsTheOthersIsReportedFirst(t *testing.T) {
	fails := Attachment{Name: "va-1", Driver: "d", DetachError: "no route to host", Reported: true}
	silent := Attachment{Name: "va-2", Driver: "d", DetachError: "the attacher of driver d is silent"}
	renamed := Attachment{Name: "va-3", Volume: "v", UsedBy: "new"}
	otherID := Attachment{Name: "va-4", Volume: "v", Driver: "d", AttachedID: "i-1", RegisteredID: "i-2"}
	for _, test := range []struct {
		name   string
		facts  Facts
		reason string
		parts  []string
	}{
		{"nothing", Facts{}, "", nil},
		{"attachments in order", Facts{Attachments: []Attachment{
			{Name: "va", Driver: "d", AttachedID: "i", RegisteredID: "i"},
			{Name: "va", AttachedID: "i"}, {Name: "va", RegisteredID: "i"}}}, "", nil},
		{"all at once", Facts{Attachments: []Attachment{renamed, silent, fails, otherID}, Silent: []string{"s"}},
			volumesv1alpha1.ReasonNodeIDChanged, []string{"VolumeAttachment va-4", "the new ID"}},
		{"a detach that fails", Facts{Attachments: []Attachment{renamed, silent, fails}, Silent: []string{"s"}},
			volumesv1alpha1.ReasonDetachFailed, []string{"driver d does not detach VolumeAttachment va-1"}},
		{"a silent attacher of a detach and one of an attach", Facts{Attachments: []Attachment{renamed, silent},
			Silent: []string{"waits for va-9"}}, volumesv1alpha1.ReasonAttacherSilent,
			[]string{"the attacher of driver d is silent", "waits for va-9"}},
		{"the volume is in use under another name", Facts{Node: "old", Attachments: []Attachment{renamed}},
			volumesv1alpha1.ReasonNodeRenamed, []string{"node new reports v in use by VolumeAttachment va-3 of node old"}},
		{"the driver registered another ID", Facts{Attachments: []Attachment{otherID}}, volumesv1alpha1.ReasonNodeIDChanged,
			[]string{"driver d registers the node as i-2", "VolumeAttachment va-4 attached v to node ID i-1"}},
		{"many", Facts{Silent: []string{"a", "b", "c", "d", "e", "f", "g", "g"}}, volumesv1alpha1.ReasonAttacherSilent,
			[]string{"a; b; c; d; e; and 2 more"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			expectProblem(t, Health(test.facts), test.reason, test.parts...)
		})
	}
}
