/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package main

import (
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
)

func TestTheJudgeFindsWhatOneMachineReleasesOfAnother(t *testing.T) {
	first := volumesv1alpha1.MachineIdentity{SystemUUID: "1"}
	by := func(reporter string, inUse bool, user *volumesv1alpha1.MachineIdentity,
		change func(*volumesv1alpha1.NodeVolumeState)) *volumesv1alpha1.NodeVolumeState {
		s := nodeState("a", "u", volumesv1alpha1.AttachmentAttached, inUse, nil)
		s.Status.Machine.SystemUUID, s.Status.Volumes[0].Machine = reporter, user
		if change != nil {
			change(s)
		}
		return s
	}
	declared := func(s *volumesv1alpha1.NodeVolumeState) {
		s.Annotations = map[string]string{volumesv1alpha1.DeclaredReleasedPrefix + "u": "scrapped"}
	}
	away := func(evidence volumesv1alpha1.EvidenceType) func(*volumesv1alpha1.NodeVolumeState) {
		return func(s *volumesv1alpha1.NodeVolumeState) {
			s.Spec.Attachments[0].DetachedTime = ptr.To(metav1.Now())
			s.Spec.Attachments[0].Evidence = &volumesv1alpha1.DetachEvidence{Type: evidence, Time: metav1.Now()}
		}
	}
	gone := func(s *volumesv1alpha1.NodeVolumeState) { s.Spec.Attachments, s.Status.Volumes = nil, nil }
	for _, c := range []struct {
		name  string
		after []*volumesv1alpha1.NodeVolumeState
		want  int
	}{
		{"its own machine releases it", []*volumesv1alpha1.NodeVolumeState{by("1", false, nil, nil)}, 0},
		{"another machine releases it with its first report",
			[]*volumesv1alpha1.NodeVolumeState{by("2", false, nil, nil)}, 1},
		{"another machine takes it over", []*volumesv1alpha1.NodeVolumeState{by("2", true, nil, nil)}, 1},
		{"another machine carries it on", []*volumesv1alpha1.NodeVolumeState{by("2", true, &first, nil)}, 0},
		{"another machine drops it later",
			[]*volumesv1alpha1.NodeVolumeState{by("2", true, &first, nil), by("2", false, nil, nil)}, 1},
		{"it drops what was declared",
			[]*volumesv1alpha1.NodeVolumeState{by("2", true, &first, declared), by("2", false, nil, gone)}, 0},
		{"it drops what a taint has ended", []*volumesv1alpha1.NodeVolumeState{
			by("2", true, &first, away(volumesv1alpha1.EvidenceOutOfServiceTaint)), by("2", false, nil, gone)}, 0},
		{"it drops what time has forced away", []*volumesv1alpha1.NodeVolumeState{
			by("2", true, &first, away(volumesv1alpha1.EvidenceForcedAfterTimeout)), by("2", false, nil, gone)}, 1},
		{"the first machine is back, and releases it", []*volumesv1alpha1.NodeVolumeState{
			by("2", true, &first, nil), by("1", true, nil, nil), by("1", false, nil, nil)}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			states := append([]*volumesv1alpha1.NodeVolumeState{by("1", true, nil, nil)}, c.after...)
			_, wrong := judgeOf(t, true, states...)
			found := slices.DeleteFunc(*wrong, func(w string) bool { return !strings.Contains(w, "which machine 1 uses") })
			if len(found) != c.want {
				t.Errorf("violations: %q, want %d", found, c.want)
			}
		})
	}
}
