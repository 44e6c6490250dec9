/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package attachment

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/volumesattached"
	"github.com/hawser-io/hawser/internal/handshake"
)

func TestALeaderThatKnowsNothingOfTheForceDoesNotAskForALookWhileTheKubeletGoesOn(t *testing.T) {
	state := reported("a")
	state.Spec.Attachments = []volumesv1alpha1.NodeAttachment{{
		VolumeName: "v", AttachmentUID: "1", AttachmentName: "va", State: volumesv1alpha1.AttachmentDetaching,
		Evidence: &volumesv1alpha1.DetachEvidence{Type: volumesv1alpha1.EvidenceOutOfServiceTaint},
	}}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "node"}}
	node.Status.VolumesAttached = []corev1.AttachedVolume{{Name: "v"}}
	node.Status.VolumesInUse = []corev1.UniqueVolumeName{"v"}
	c, _ := over(t, state, node)
	c.Lister = &volumesattached.Writer{Client: c.Client, Reader: c.Reader}
	// The cache still shows what the detach rested on before.
	stale := on("a", entry(handshake.Detaching, "1"))
	if err := c.unlist(t.Context(), &Facts{Volume: "v", Replace: true}, stale); err != nil {
		t.Fatal(err)
	}
	nvs, err := c.readState(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	if e := handshake.AttachmentOf(nvs, "v"); e.UnlistedGeneration > 0 {
		t.Error("the next look would count, although the kubelet may go on to a call that it was about to make")
	}
}
