/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package history

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/explain/facts"
)

func TestTheHistoryHasTheEvidenceOfADetachBetweenItsEvents(t *testing.T) {
	at := func(minutes int) metav1.Time {
		return metav1.NewTime(time.Date(2026, 11, 25, 12, minutes, 0, 0, time.UTC))
	}
	pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv-1", CreationTimestamp: at(0)}}
	const unique = "kubernetes.io/csi/disk.example.com^handle-1"
	s := volumesv1alpha1.NodeVolumeState{ObjectMeta: metav1.ObjectMeta{Name: "node-a"}}
	s.Spec.Attachments = []volumesv1alpha1.NodeAttachment{{VolumeName: unique, Evidence: &volumesv1alpha1.DetachEvidence{
		Type: volumesv1alpha1.EvidenceOutOfServiceTaint, Time: at(2), Message: "the taint"}}}
	ref := facts.Ref{Kind: facts.KindState, Name: "node-a"}
	f := &facts.Facts{Volumes: []facts.Volume{{UniqueName: unique}}, Nodes: []facts.Node{{Name: "node-a"}}}
	f.Volumes[0].Volume.Value, f.Volumes[0].Volume.Found = pv, true
	f.Volumes[0].Volume.Ref = facts.Ref{Kind: facts.KindVolume, Name: "pv-1"}
	f.Nodes[0].State = facts.Object[*volumesv1alpha1.NodeVolumeState]{Ref: ref, Value: &s, Found: true}
	got := Of(f, map[facts.Ref][]facts.Event{ref: {
		{Reason: "DetachingVolume", Message: "detaching " + unique, Last: at(3).Time},
		{Reason: "DetachingVolume", Message: "detaching another volume", Last: at(1).Time}}})
	want := []string{"created", "OutOfServiceTaint", "DetachingVolume: detaching " + unique}
	if len(got) != len(want) {
		t.Fatalf("history %+v, want %d moments: nothing about another volume", got, len(want))
	}
	for i, m := range got {
		if !strings.Contains(m.What, want[i]) {
			t.Errorf("moment %d is %q, want %q", i, m.What, want[i])
		}
	}
}
