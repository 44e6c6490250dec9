/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package attachment

import (
	"slices"
	"testing"

	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/handshake"
)

func declared(uids ...types.UID) func(*Node) {
	return func(n *Node) {
		for _, uid := range uids {
			n.State.Declared = append(n.State.Declared, handshake.Declaration{UID: uid, Reason: "scrapped"})
		}
	}
}

func TestDecideOnWhatWasDeclaredReleased(t *testing.T) {
	attached := []func(*Node){va("1", "held", "attached"), entry(handshake.Attached, "1"), inUse("1")}
	for _, test := range []struct {
		name    string
		node    *Node
		replace bool
		want    Act
	}{
		{"what is in use and nobody wants is detached", on("a", append(attached, declared("1"))...), false, MarkDetaching},
		{"also what is wanted", on("a", append(attached, wanted("i"), declared("1"))...), false, MarkDetaching},
		{"also what pods use", on("a", append(attached, pods, declared("1"))...), false, MarkDetaching},
		{"a word on another says nothing", on("a", append(attached, declared("2"))...), false, ""},
		{"an attachment that no entry speaks of is detached", on("a", va("1", "attached"), declared("1")), false, MarkDetaching},
		{"a foreign one beside it is not", on("a", va("1", "attached"), declared("2")), false, ""},
		{"one that terminates is waited out", on("a", va("1", "attached", "terminating"), declared("1")), false, ""},
		{"a detach comes to rest on it", on("a", va("1", "held"), entry(handshake.Detaching, "1"), pods, declared("1")), false, MarkDetaching},
		{"once", on("a", va("1", "held"), entry(handshake.Detaching, "1"), forced, declared("1")), false, Delete},
		{"its name is freed", on("a", va("1", "terminating", "name", "unpublished"), entry(handshake.Detaching, "1"), forced, detached, inUse("1"), declared("1")), false, FreeName},
		{"its entry stays until the agent reports", on("a", entry(handshake.Detaching, "1"), forced, detached, inUse("1"), declared("1")), false, ""},
		{"and goes then", on("a", entry(handshake.Detaching, "1"), forced, detached, declared("1")), false, Forget},
		{"its entry stays where the agent never reported", on("a", entry(handshake.Detaching, "1"), forced, detached, unreported, declared("1")), false, ""},
		{"the node does not get the volume again while its agent says that it uses it", on("a", wanted("i"), inUse("1"), declared("1")), false, ""},
		{"nor while the earlier attachment's entry stands", on("a", wanted("i"), entry(handshake.Detaching, "1"), forced, detached, inUse("1"), declared("1")), false, ""},
		{"but after that", on("a", wanted("i"), declared("1")), false, Attach},
		{"a detach that waits for a look comes to rest on evidence", on("a", va("1", "held"), entry(handshake.Detaching, "1"), tainted), true, MarkDetaching},
		{"and not beside upstream, where it needs no look", on("a", va("1", "held"), entry(handshake.Detaching, "1"), tainted), false, Delete},
	} {
		t.Run(test.name, func(t *testing.T) {
			steps := electAndDecide(&Facts{Volume: "v", AttachRequired: true, Replace: test.replace, Nodes: []*Node{test.node}}, handshake.Protocol{Kubelet: test.replace})
			var got Act
			if len(steps) > 0 {
				got = steps[0].Act
			}
			if len(steps) > 1 || got != test.want {
				t.Errorf("got %v, want %q", steps, test.want)
			}
			if got == MarkDetaching && !steps[0].Evidence {
				t.Error("the detach rests on the agent's release")
			}
		})
	}
}

// declaredState is a node's state in which attachments 1 to 5 are declared released.
func declaredState() *volumesv1alpha1.NodeVolumeState {
	nvs := reported("a")
	nvs.Annotations = map[string]string{"other": "1"}
	for _, uid := range []string{"1", "2", "3", "4", "5"} {
		nvs.Annotations[volumesv1alpha1.DeclaredReleasedPrefix+uid] = "scrapped"
	}
	nvs.Spec.Attachments = []volumesv1alpha1.NodeAttachment{{VolumeName: "v1", AttachmentUID: "1", State: volumesv1alpha1.AttachmentDetaching}}
	nvs.Status.Volumes = []volumesv1alpha1.NodeVolume{{VolumeName: "v2", AttachmentUID: "2", InUse: true}}
	return nvs
}

func attachmentWithUID(uid types.UID, node string) *storagev1.VolumeAttachment {
	return &storagev1.VolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{Name: "va-" + string(uid), UID: uid},
		Spec:       storagev1.VolumeAttachmentSpec{NodeName: node, Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: ptr.To("pv")}},
	}
}

func TestADeclarationWakesItsVolume(t *testing.T) {
	pv := intentNamed("i").Volume.DeepCopy()
	c, _ := over(t, pv, attachmentWithUID("3", "a"))
	without := func(uid string) *volumesv1alpha1.NodeVolumeState {
		nvs := declaredState()
		delete(nvs.Annotations, volumesv1alpha1.DeclaredReleasedPrefix+uid)
		return nvs
	}
	for uid, want := range map[string][]string{
		"1": {"v1"}, "2": {"v2"}, "3": {"kubernetes.io/csi/d^h"}, "4": nil,
	} {
		if got := woken(t, c.stateChanged, without(uid), declaredState()); !slices.Equal(got, want) {
			t.Errorf("the declaration of %s wakes %v, want %v", uid, got, want)
		}
	}
	other := declaredState()
	other.Annotations["other"] = "2"
	if got := woken(t, c.stateChanged, declaredState(), other); got != nil {
		t.Errorf("another annotation wakes %v", got)
	}
}
