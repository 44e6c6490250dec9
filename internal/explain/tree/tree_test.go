/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package tree

import (
	"reflect"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/explain/facts"
)

func TestPublicationsThatANodeStateDoesNotListAreCounted(t *testing.T) {
	const listed, all = 2, 10
	line := &volumesv1alpha1.NodeVolume{VolumeName: "v", PublicationCount: all,
		Publications: make([]volumesv1alpha1.Publication, listed)}
	branches := lineBranches(line)
	if last := branches[len(branches)-1].Text; last != "8 more, which are not listed" {
		t.Errorf("the tree ends with %q, want how many are not listed", last)
	}
}

func TestANodeWithoutANodeStateShowsItsAttachments(t *testing.T) {
	pv := &corev1.PersistentVolume{Spec: corev1.PersistentVolumeSpec{
		ClaimRef: &corev1.ObjectReference{Namespace: "shop", Name: "data"}}}
	pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "db-0"}, Spec: corev1.PodSpec{
		Volumes: []corev1.Volume{{VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}}}}}
	f := &facts.Facts{Subject: facts.Ref{Kind: facts.KindNode, Name: "node-a"}, Nodes: []facts.Node{{Name: "node-a"}}}
	f.Filling.Attachments.Items = []facts.Attachment{{Name: "csi-1", Driver: "disk", Volume: "pv-1", Attached: true}}
	f.Filling.Persistent = map[string]*corev1.PersistentVolume{"pv-1": pv}
	f.Filling.Pods.Items = []corev1.Pod{pod}
	want := Branch{Object: "Node node-a", Text: "attachments: 1; no node state", Children: []Branch{
		{Object: "VolumeAttachment csi-1", Text: "attached, driver disk", Children: []Branch{
			{Object: "PersistentVolume pv-1", Text: "claim shop/data", Children: []Branch{{Object: "Pod shop/db-0"}}}}}}}
	if got := Of(f); !reflect.DeepEqual(got, want) {
		t.Errorf("tree %+v, want %+v", got, want)
	}
}
