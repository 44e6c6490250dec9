/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package explain

import (
	"slices"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/explain/catalog"
	"github.com/hawser-io/hawser/internal/explain/facts"
)

func TestTheClockOfANodeDoesNotDecideWhetherItsAgentIsAlive(t *testing.T) {
	now := time.Date(2026, 11, 25, 12, 0, 0, 0, time.UTC)
	written := func(ago time.Duration, fields string) metav1.ManagedFieldsEntry {
		return metav1.ManagedFieldsEntry{Time: &metav1.Time{Time: now.Add(-ago)},
			FieldsV1: metav1.NewFieldsV1(fields)}
	}
	const renewing, annotating = `{"f:spec":{"f:renewTime":{}}}`, `{"f:metadata":{"f:annotations":{"f:a":{}}}}`
	for name, c := range map[string]struct {
		// renewed: as the node's clock has it.
		renewed time.Duration
		writes  []metav1.ManagedFieldsEntry
		expired bool
	}{
		"the node is 51 seconds behind": {
			51 * time.Second, []metav1.ManagedFieldsEntry{written(3*time.Second, renewing)}, false},
		"the node is an hour ahead, and dead": {
			-time.Hour, []metav1.ManagedFieldsEntry{written(time.Minute, renewing)}, true},
		"somebody else wrote another field since": {time.Minute, []metav1.ManagedFieldsEntry{
			written(time.Minute, renewing), written(time.Second, annotating)}, true},
		"the Lease has ended a second ago":                            {41 * time.Second, nil, true},
		"the API server's record is missing":                          {time.Second, nil, false},
		"the API server's record is missing, and the Lease has ended": {time.Minute, nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{ManagedFields: c.writes}}
			lease.Spec.RenewTime = &metav1.MicroTime{Time: now.Add(-c.renewed)}
			w := &nodes{builder: newBuilder(&facts.Facts{Now: now})}
			if got := w.overdue(facts.Object[*coordinationv1.Lease]{Found: true, Value: lease}) > 0; got != c.expired {
				t.Errorf("Lease renewed %s ago by the node's clock, written %v: expired %t, want %t",
					c.renewed, c.writes, got, c.expired)
			}
		})
	}
}

func TestWhatTheDeletionOfANodeWaitsForIsNamedFirst(t *testing.T) {
	deleted := metav1.Now()
	intent := func(
		name string, change func(*volumesv1alpha1.VolumeAttachmentIntent),
	) volumesv1alpha1.VolumeAttachmentIntent {
		i := volumesv1alpha1.VolumeAttachmentIntent{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}}
		i.Status.Conditions = []metav1.Condition{{Type: volumesv1alpha1.ConditionReady, Status: metav1.ConditionTrue}}
		change(&i)
		return i
	}
	entry := func(name string, is volumesv1alpha1.EvidenceType, detached *metav1.Time) volumesv1alpha1.NodeAttachment {
		return volumesv1alpha1.NodeAttachment{VolumeName: name, AttachmentName: name,
			State: volumesv1alpha1.AttachmentDetaching, DetachedTime: detached,
			Evidence: &volumesv1alpha1.DetachEvidence{Type: is}}
	}
	f := &facts.Facts{Now: deleted.Time, Installed: true, Subject: facts.Ref{Kind: facts.KindNode, Name: "a"}}
	f.NodeIntents.Items = []volumesv1alpha1.VolumeAttachmentIntent{
		intent("stays", func(*volumesv1alpha1.VolumeAttachmentIntent) {}),
		intent("goes", func(i *volumesv1alpha1.VolumeAttachmentIntent) {
			i.Spec.OnNodeDeletion = volumesv1alpha1.OnNodeDeletionRelease
		}),
		intent("leaves", func(i *volumesv1alpha1.VolumeAttachmentIntent) { i.DeletionTimestamp = &deleted }),
		intent("of-a-pod", func(i *volumesv1alpha1.VolumeAttachmentIntent) {
			i.OwnerReferences = []metav1.OwnerReference{{Kind: "Pod", Controller: ptr.To(true)}}
		}),
	}
	n := facts.Node{Name: "a"}
	n.Node.Ref, n.Node.Found = f.Subject, true
	n.Node.Value = &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a", DeletionTimestamp: &deleted}}
	n.State.Found, n.State.Value = true, &volumesv1alpha1.NodeVolumeState{}
	n.State.Value.Spec.Attachments = []volumesv1alpha1.NodeAttachment{
		entry("forced", volumesv1alpha1.EvidenceOutOfServiceTaint, &deleted),
		entry("being-forced", volumesv1alpha1.EvidenceOutOfServiceTaint, nil),
		entry("released", volumesv1alpha1.EvidenceAgentReleased, &deleted),
	}
	renewed := &coordinationv1.Lease{Spec: coordinationv1.LeaseSpec{RenewTime: &metav1.MicroTime{Time: deleted.Time}}}
	n.Lease.Found, n.Lease.Value, f.ManagerLease.Found, f.ManagerLease.Value = true, renewed, true, renewed
	f.Nodes = []facts.Node{n}
	var keepers []string
	for _, finding := range Explain(f).Findings {
		if finding.Reason == catalog.IntentKeepsNode || finding.Reason == catalog.ForcedAwayKeepsNode {
			keepers = append(keepers, finding.Object.Name)
		}
	}
	if !slices.Equal(keepers, []string{"stays", "forced"}) {
		t.Errorf("what the deletion of node a waits for: %v, want intent stays and attachment forced", keepers)
	}
	if first := Explain(f).Findings[0]; first.Reason != catalog.IntentKeepsNode {
		t.Errorf("first finding about node a, which is being deleted: %s, want %s", first.Reason, catalog.IntentKeepsNode)
	}
	f.Nodes[0].Node.Value.DeletionTimestamp = nil
	for _, finding := range Explain(f).Findings {
		if finding.Reason == catalog.IntentKeepsNode || finding.Reason == catalog.ForcedAwayKeepsNode {
			t.Errorf("finding about node a, which stays: %s of %s, want none", finding.Reason, finding.Object.Name)
		}
	}
}
