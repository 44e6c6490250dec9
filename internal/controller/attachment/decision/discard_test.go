/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package decision

import (
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/handshake"
)

// naming is va of a PersistentVolume; how may have begun besides: an attacher has a finalizer on it.
func naming(pv string, uid types.UID, how ...string) func(*Node) {
	return func(n *Node) {
		va(uid, how...)(n)
		a := &n.Attachments[len(n.Attachments)-1]
		a.PersistentVolume = pv
		if slices.Contains(how, "begun") {
			a.Finalizers = []string{"attacher"}
		}
	}
}

// saying is naming of an attachment that was created for this volume.
func saying(volume, pv string, uid types.UID, how ...string) func(*Node) {
	return func(n *Node) {
		naming(pv, uid, how...)(n)
		n.Attachments[len(n.Attachments)-1].Volume = volume
	}
}

func podsOf(pv string) func(*Node) {
	return func(n *Node) { n.Pods, n.PodVolumes = true, append(n.PodVolumes, pv) }
}

// handles are facts of volume v with PersistentVolumes pv and other; old is gone, and moved is of volume w.
func handles(replace bool, options ...func(*Node)) Facts {
	return Facts{
		Replace: replace, Claims: map[string]*types.NamespacedName{"pv": nil, "other": nil},
		Others: map[string]string{"moved": "w"}, Nodes: []*Node{on("a", options...)},
	}
}

func TestAnAttachmentInTheWayIsDiscarded(t *testing.T) {
	pv := wanted("x*")
	checkDecisions(t, []decision{
		{name: "its PersistentVolume is gone", want: "Discard a 1", facts: handles(false, pv, naming("old", "1", "held"))},
		{name: "nothing is for its PersistentVolume", want: "Discard a 1",
			facts: handles(false, pv, naming("other", "1", "held"))},
		{name: "it is the one that is wanted", want: "", facts: handles(false, pv, naming("pv", "1", "held"))},
		{name: "it has the volume in itself", want: "", facts: handles(false, pv, naming("", "1", "held"))},
		{name: "it is attached", want: "Confirm a 1", facts: handles(false, pv, naming("other", "1", "held", "attached"))},
		{name: "an attacher has begun", want: "", facts: handles(false, pv, naming("old", "1", "held", "begun"))},
		{name: "it goes already", want: "", facts: handles(false, pv, naming("old", "1", "held", "terminating"))},
		{name: "it is not held yet", want: "Hold a 1", facts: handles(false, pv, naming("old", "1"))},
		{name: "a pod is for its PersistentVolume", want: "",
			facts: handles(false, pv, podsOf("other"), naming("other", "1", "held"))},
		{name: "pods alone wait", want: "Discard a 1", facts: handles(false, podsOf("pv"), naming("old", "1", "held"))},
		{name: "an earlier attachment is in use", want: "",
			facts: handles(false, pv, naming("old", "1", "held"), inUse("0"))},
		{name: "the agent has yet to report", want: "",
			facts: handles(false, pv, naming("old", "1", "held"), unreported)},
		{name: "the kubelet lists what its pods wait for", want: "Discard a 1",
			facts: handles(true, pv, naming("old", "1", "held"), listedInUse)},
		{name: "the kubelet may use it", want: "",
			facts: handles(true, pv, naming("old", "1", "held"), listedInUse, listedAttached)},
		{name: "Detaching is written and other pods wait", want: "Delete a 1",
			facts: handles(false, pv, podsOf("pv"), naming("old", "1", "held"), entry(handshake.Detaching, "1"))},
		{name: "Detaching is written and a pod is for it", want: "",
			facts: handles(false, pv, podsOf("other"), naming("other", "1", "held"), entry(handshake.Detaching, "1"))},
	})
}

func TestAnAttachmentThatAttachesAnotherVolumeIsOfNoUse(t *testing.T) {
	pv := wanted("x*")
	checkDecisions(t, []decision{
		{name: "it attaches another volume", want: "Discard a 1",
			facts: handles(false, pv, saying("v", "moved", "1", "held", "attached", "begun"))},
		{name: "it attaches another volume and nobody wants this one", want: "MarkDetaching a 1",
			facts: handles(false, saying("v", "moved", "1", "held", "attached", "begun"))},
		{name: "it is not held and attaches another volume", want: "",
			facts: handles(false, pv, naming("moved", "1", "attached", "begun"))},
		{name: "it was created for another volume", want: "",
			facts: handles(false, pv, saying("w", "pv", "1", "held", "attached", "begun"))},
		{name: "it was created for another volume and nobody wants this one", want: "",
			facts: handles(true, byController, saying("w", "pv", "1", "held", "attached", "begun"))},
		{name: "it was created for another volume, and counted for this one in an earlier release", want: "",
			facts: handles(false, pv, saying("w", "pv", "1", "held", "attached"), entry(handshake.Attached, "1"))},
		{name: "it was created for another volume, which was forced away", want: "",
			facts: handles(true, byController, saying("w", "pv", "1", "terminating"), forcedAway)},
	})
}

// forcedAway: only our finalizer keeps the name of the attachment.
func forcedAway(n *Node) {
	a := &n.Attachments[len(n.Attachments)-1]
	a.NameHeld, a.Unpublished = true, true
}

func TestTheKubeletUsesWhatNoAgentUses(t *testing.T) {
	other := &volumesv1alpha1.MachineIdentity{SystemUUID: "other"}
	line := func(p volumesv1alpha1.Publisher, m *volumesv1alpha1.MachineIdentity) volumesv1alpha1.NodeVolume {
		return volumesv1alpha1.NodeVolume{VolumeName: "v", InUse: true, PublishedBy: p, Machine: m}
	}
	for _, c := range []struct {
		name  string
		lines []volumesv1alpha1.NodeVolume
		want  bool
	}{
		{"nothing", nil, false},
		{"the kubelet", []volumesv1alpha1.NodeVolume{line(volumesv1alpha1.PublisherKubelet, nil)}, true},
		{"the agent", []volumesv1alpha1.NodeVolume{line("", nil)}, false},
		{"the agent, and the kubelet of another machine", []volumesv1alpha1.NodeVolume{
			line(volumesv1alpha1.PublisherKubelet, other), line("", nil)}, false},
		{"the kubelet, and the agent of another machine", []volumesv1alpha1.NodeVolume{line("", other),
			line(volumesv1alpha1.PublisherKubelet, nil)}, false},
	} {
		n := &Node{}
		n.TakeOver(&volumesv1alpha1.NodeVolumeState{Status: volumesv1alpha1.NodeVolumeStateStatus{Volumes: c.lines}}, "v")
		if n.KubeletUses != c.want {
			t.Errorf("%s uses the volume: the kubelet alone %t, want %t", c.name, n.KubeletUses, c.want)
		}
	}
}

func TestAFindingNamesTheAttachmentThatIsOfNoUse(t *testing.T) {
	for _, c := range []struct {
		volume, pv string
		want       []string
	}{
		{"v", "moved", []string{"PersistentVolume moved", "created again as another volume, w"}},
		{"w", "pv", []string{"created for another volume, w", "PersistentVolume pv has another handle"}},
	} {
		f := handles(false, wanted("x*"), saying(c.volume, c.pv, "1", "held", "attached", "begun"))
		f.Volume, f.Driver, f.AttachRequired = "v", "d", true
		n := f.Nodes[0]
		found := FindingOf(&f, n, n.Wanted[0])
		if found == nil || found.Reason != volumesv1alpha1.ReasonDetaching {
			t.Errorf("finding beside an attachment of volume %s for PersistentVolume %s: %+v, want Detaching", c.volume, c.pv,
				found)
			continue
		}
		for _, want := range c.want {
			if !strings.Contains(found.Message, want) {
				t.Errorf("finding beside an attachment of volume %s for PersistentVolume %s: %q, want it to contain %q",
					c.volume, c.pv, found.Message, want)
			}
		}
	}
}
