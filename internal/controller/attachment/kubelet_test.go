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
	"github.com/hawser-io/hawser/internal/controller/volume"
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
	c.Lister = volumesattached.New(c.Client, c.Reader, c.Writer, nil)
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

// afterAReboot is a forced detach from node a, which has booted since and where a pod waits for the volume.
func afterAReboot(n *Node) {
	n.State.Entry = handshake.Entry{State: handshake.Detaching, UID: "1", Forced: true, Detached: true, Boot: "boot-1"}
	n.State.Use, n.State.Boot = handshake.Use{UID: "1", InUse: true}, "boot-2"
	n.Lists.InUse = true
}

func TestTheAgentOfANodeThatRebootedIsAskedOnceMoreWhenTheVolumeMayComeBack(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*Facts, *Node)
		want   string
	}{
		{"a pod waits", func(*Facts, *Node) {}, "Ask a"},
		{"nobody waits", func(_ *Facts, n *Node) { n.Wanted = nil }, ""},
		{"the node has not booted since", func(_ *Facts, n *Node) { n.State.Boot = "boot-1" }, ""},
		{"it was asked", func(_ *Facts, n *Node) { n.State.Entry.Asked = true }, ""},
		{"it is not detached", func(_ *Facts, n *Node) { n.State.Entry.Detached = false }, "Forget a"},
		{"the kubelet has let go", func(_ *Facts, n *Node) { n.State.Use, n.State.Looked = handshake.Use{}, true }, "Forget a"},
		{"the volume is somewhere else", func(f *Facts, _ *Node) {
			f.Exclusive = true
			f.Nodes = append(f.Nodes, on("b", wanted("j"), va("2", "held", "attached"), entry(handshake.Attached, "2")))
		}, ""},
		{"it is free everywhere else", func(f *Facts, _ *Node) { f.Exclusive = true }, "Ask a"},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := on("a", wanted("i"), entry(handshake.Detaching, "1"), afterAReboot)
			n.Entry.UnlistedGeneration = 1
			f := &Facts{Volume: "v", AttachRequired: true, Replace: true, Nodes: []*Node{n}}
			c.change(f, n)
			got := ""
			for _, s := range electAndDecide(f, handshake.Protocol{Kubelet: true}) {
				got += describeStep(s)
			}
			if got != c.want {
				t.Errorf("decided %q, want %q", got, c.want)
			}
		})
	}
}

func TestBesideAKubeletThatWaitsTheNameIsFreedOnceTheVolumeIsTheNodes(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*Facts, *Node)
		want   string
	}{
		{"the lock names the node", func(f *Facts, _ *Node) { f.Lock = lockOn("a") }, "FreeName a 1"},
		{"it is shared", func(f *Facts, _ *Node) { f.Exclusive = false }, "FreeName a 1"},
		{"the lock names another", func(f *Facts, _ *Node) { f.Lock = lockOn("b") }, "Ask a 1"},
		{"it is on its way", func(f *Facts, _ *Node) { f.Lock = handshake.Lock{Exists: true, Holder: "a", MovedFrom: "b"} }, "Ask a 1"},
		{"nobody wants the volume there", func(f *Facts, n *Node) { f.Lock, n.Wanted = lockOn("b"), nil }, ""},
		{"the kubelet has let go", func(f *Facts, n *Node) { f.Lock, n.State.Use = lockOn("b"), handshake.Use{} }, "FreeName a 1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := on("a", wanted("i"), va("1", "terminating", "name", "unpublished"), entry(handshake.Detaching, "1"), afterAReboot)
			n.State.Entry.Asked, n.State.LookedAgain, n.State.Use = true, true, handshake.Use{InUse: true, Waiting: true}
			f := &Facts{Volume: "v", AttachRequired: true, Replace: true, Exclusive: true, Nodes: []*Node{n}}
			c.change(f, n)
			got := ""
			for _, s := range electAndDecide(f, handshake.Protocol{Kubelet: true}) {
				got += describeStep(s)
			}
			if got != c.want {
				t.Errorf("decided %q, want %q", got, c.want)
			}
		})
	}
}

// TestTheBootInWhichAVolumeWasUnlistedIsWrittenDown also where the kubelet lists the volume in use, when no look is asked for.
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
	f, n := &Facts{Volume: "v", Replace: true}, on("a", entry(handshake.Detaching, "1"), forced)
	unlist := func() *volumesv1alpha1.NodeAttachment {
		t.Helper()
		if err := c.unlist(t.Context(), f, n); err != nil {
			t.Fatal(err)
		}
		return n.Entry
	}
	if e := unlist(); e.UnlistedBootID != "boot-1" || e.UnlistedGeneration > 0 || n.Wait != nil {
		t.Errorf("entry %+v, waits for %v", e, n.Wait)
	}
	if toUnlist(f, c.Protocol, n) {
		t.Error("unlisted again and again while the kubelet lists the volume in use")
	}
	if err := c.Client.Get(t.Context(), client.ObjectKeyFromObject(node), node); err != nil {
		t.Fatal(err)
	}
	node.Status.NodeInfo.BootID = "boot-2"
	if err := c.Client.Status().Update(t.Context(), node); err != nil {
		t.Fatal(err)
	}
	if e := unlist(); e.UnlistedBootID != "boot-1" {
		t.Errorf("the boot is %s, but the volume was unlisted before", e.UnlistedBootID)
	}
}

func TestTheLockIsTakenBeforeTheAgentIsAskedOnceMore(t *testing.T) {
	pv := intentNamed("i").Volume
	name := volume.UniqueNameOf(pv)
	state := reported("a")
	state.Status.BootID = "boot-2"
	state.Spec.Attachments = []volumesv1alpha1.NodeAttachment{{
		VolumeName: name, AttachmentUID: "1", AttachmentName: "va", State: volumesv1alpha1.AttachmentDetaching, UnlistedBootID: "boot-1",
		DetachedTime: ptr.To(metav1.Now()), Evidence: &volumesv1alpha1.DetachEvidence{Type: volumesv1alpha1.EvidenceOutOfServiceTaint},
	}}
	c, _ := over(t, pv, state)
	c.Protocol.Kubelet = true
	n := on("a", wanted("i"))
	f := &Facts{Volume: name, Exclusive: true, Replace: true, Nodes: []*Node{n}}
	n.takeOver(state, name)
	if err := c.ask(t.Context(), f, n); err != nil {
		t.Fatal(err)
	}
	if lock, err := c.Locks.Read(t.Context(), name); err != nil || lock.Holder != "a" {
		t.Errorf("lock %+v, %v", lock, err)
	}
	nvs, err := c.readState(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	if e := handshake.AttachmentOf(nvs, name); e.RebootGeneration == 0 || nvs.Spec.Fences != 1 {
		t.Errorf("entry %+v, fences %d", e, nvs.Spec.Fences)
	}
}
