/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package attachment

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/attachment/decision"
	"github.com/hawser-io/hawser/internal/controller/volume"
	"github.com/hawser-io/hawser/internal/controller/volumesattached"
	"github.com/hawser-io/hawser/internal/handshake"
)

func TestALeaderThatDoesNotKnowOfTheForceAsksForNoCheckWhileTheKubeletContinues(t *testing.T) {
	state := reported("a")
	state.Spec.Attachments = []volumesv1alpha1.NodeAttachment{{
		VolumeName: "v", AttachmentUID: "1", AttachmentName: "va", State: volumesv1alpha1.AttachmentDetaching,
		Evidence: &volumesv1alpha1.DetachEvidence{Type: volumesv1alpha1.EvidenceOutOfServiceTaint},
	}}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "node"}}
	node.Status.VolumesAttached = []corev1.AttachedVolume{{Name: "v"}}
	node.Status.VolumesInUse = []corev1.UniqueVolumeName{"v"}
	c, _ := over(t, state, node)
	c.Lister = volumesattached.New(c.Client, c.Reader, c.Writer, nil)
	// The cache still shows what the detach rested on before.
	stale := on("a", entry(handshake.Detaching, "1"))
	if err := c.unlistVolume(t.Context(), &decision.Facts{Volume: "v", Replace: true}, stale); err != nil {
		t.Fatal(err)
	}
	nvs, err := c.readState(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	if e := handshake.AttachmentOf(nvs, "v"); e.Protocol.UnlistedGeneration > 0 {
		t.Errorf("entry of volume v on node a: %+v; want no check asked for, as the kubelet may still make a call", e)
	}
}

// TestTheBootInWhichAVolumeWasUnlistedIsWrittenDown also where the kubelet lists the volume in use, when no look is
// asked for.
func TestTheBootInWhichAVolumeWasUnlistedIsWrittenDown(t *testing.T) {
	state := reported("a")
	state.Spec.Attachments = []volumesv1alpha1.NodeAttachment{{
		VolumeName: "v", AttachmentUID: "1", AttachmentName: "va", State: volumesv1alpha1.AttachmentDetaching,
		Evidence: &volumesv1alpha1.DetachEvidence{Type: volumesv1alpha1.EvidenceOutOfServiceTaint},
	}}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "node"}}
	node.Status.VolumesAttached = []corev1.AttachedVolume{{Name: "v"}}
	node.Status.VolumesInUse = []corev1.UniqueVolumeName{"v"}
	node.Status.NodeInfo.BootID = "boot-1"
	c, _ := over(t, state, node)
	c.Protocol.Kubelet = true
	c.Lister = volumesattached.New(c.Client, c.Reader, c.Writer, nil)
	c.Lister.Protocol = c.Protocol
	f, n := &decision.Facts{Volume: "v", Replace: true}, on("a", entry(handshake.Detaching, "1"), forced)
	unlist := func() *volumesv1alpha1.NodeAttachment {
		t.Helper()
		if err := c.unlistVolume(t.Context(), f, n); err != nil {
			t.Fatal(err)
		}
		return n.Entry
	}
	if e := unlist(); e.Protocol.UnlistedBootID != "boot-1" || e.Protocol.UnlistedGeneration > 0 || n.Wait != nil {
		t.Errorf("entry of volume v on node a: %+v, wait %v; want unlisted in boot-1, without a generation and a wait", e,
			n.Wait)
	}
	if decision.ToUnlist(f, c.Protocol, n) {
		t.Error("volume v is to be unlisted again while the kubelet of node a has it in use, want it unlisted once")
	}
	if err := c.Reader.Get(t.Context(), client.ObjectKeyFromObject(node), node); err != nil {
		t.Fatal(err)
	}
	node.Status.NodeInfo.BootID = "boot-2"
	if err := c.Client.Status().Update(t.Context(), node); err != nil {
		t.Fatal(err)
	}
	if e := unlist(); e.Protocol.UnlistedBootID != "boot-1" {
		t.Errorf("boot in which volume v was unlisted: %s, want boot-1", e.Protocol.UnlistedBootID)
	}
}

func TestTheLockIsTakenBeforeTheAgentIsAskedOnceMore(t *testing.T) {
	pv := persistentVolume()
	name := volume.UniqueNameOf(pv)
	state := reported("a")
	state.Status.BootID = "boot-2"
	state.Spec.Attachments = []volumesv1alpha1.NodeAttachment{{
		VolumeName: name, AttachmentUID: "1", AttachmentName: "va", State: volumesv1alpha1.AttachmentDetaching,
		Protocol:     volumesv1alpha1.AttachmentProtocol{UnlistedBootID: "boot-1"},
		DetachedTime: ptr.To(metav1.Now()),
		Evidence:     &volumesv1alpha1.DetachEvidence{Type: volumesv1alpha1.EvidenceOutOfServiceTaint},
	}}
	c, _ := over(t, pv, state)
	c.Protocol.Kubelet = true
	n := on("a", wanted("i"))
	f := &decision.Facts{Volume: name, Exclusive: true, Replace: true, Nodes: []*decision.Node{n}}
	n.TakeOver(state, name)
	if err := c.askAgent(t.Context(), f, n); err != nil {
		t.Fatal(err)
	}
	if lock, err := c.Locks.Read(t.Context(), name); err != nil || lock.Holder != "a" {
		t.Errorf("lock of volume %s: %+v, error %v; want holder a", name, lock, err)
	}
	nvs, err := c.readState(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	if e := handshake.AttachmentOf(nvs, name); e.Protocol.RebootGeneration == 0 || nvs.Spec.Protocol.Fences != 1 {
		t.Errorf("entry of volume %s on node a: %+v, %d fences; want a reboot generation and 1", name, e,
			nvs.Spec.Protocol.Fences)
	}
}
