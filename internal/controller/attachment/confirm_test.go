/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package attachment

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/attachment/decision"
	"github.com/hawser-io/hawser/internal/controller/exclusive"
	"github.com/hawser-io/hawser/internal/controller/nodestate"
	"github.com/hawser-io/hawser/internal/handshake"
)

// usableBy is the volume of the intents in the facts, as the API server has it.
func usableBy(mode corev1.PersistentVolumeAccessMode) *corev1.PersistentVolume {
	pv := persistentVolume()
	pv.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{mode}
	return pv
}

func TestWhatIsCheckedBeforeANodeMayUseAVolume(t *testing.T) {
	foreign := attachedTo("va-1", "1")
	foreign.Annotations = nil
	pending := attachedTo("va-1", "1")
	pending.Status.Attached = false
	shared, oneNode := usableBy(corev1.ReadWriteMany), usableBy(corev1.ReadWriteOnce)
	inThePod := func(_ *decision.Facts, n *decision.Node) { n.Wanted[0].Result.Source.PersistentVolume = "" }
	exclusively := func(f *decision.Facts, _ *decision.Node) { f.Exclusive, f.Lock = true, lockOn("a") }
	for _, test := range []struct {
		name    string
		objects []client.Object
		given   func(*decision.Facts, *decision.Node)
		want    bool
	}{
		{"a shared volume that is attached", []client.Object{reported("a"), shared, attachedTo("va-1", "1")}, nil, true},
		{"one whose PersistentVolume is gone, which nobody can change any more",
			[]client.Object{reported("a"), attachedTo("va-1", "1")}, nil, true},
		{"one in the pod itself", []client.Object{reported("a"), attachedTo("va-1", "1")}, inThePod, true},
		{"one that is another node's now", []client.Object{reported("a"), oneNode, attachedTo("va-1", "1")}, nil, false},
		{"not while it is on its way", []client.Object{reported("a"), shared, pending}, nil, false},
		{"nor once it is gone", []client.Object{reported("a"), shared}, nil, false},
		{"nor without a hold", []client.Object{reported("a"), shared, foreign}, nil, false},
		{"nor before the agent has reported",
			[]client.Object{&volumesv1alpha1.NodeVolumeState{ObjectMeta: reported("a").ObjectMeta}, shared,
				attachedTo("va-1", "1")}, nil, false},
		{"nor on a node without a state", []client.Object{shared, attachedTo("va-1", "1")}, nil, false},
		{"one for one node",
			[]client.Object{reported("a"), oneNode, attachedTo("va-1", "1"), lockObject("v", exclusive.Lock{Holder: "a"})},
			exclusively, true},
		{"not without its lock, whatever its access modes say by now",
			[]client.Object{reported("a"), shared, attachedTo("va-1", "1")}, exclusively, false},
		{"not while another node uses it, as after a restore",
			[]client.Object{reported("a"), usedIn(reported("b"), "2"), oneNode, attachedTo("va-1", "1"), lockObject("v",
				exclusive.Lock{Holder: "a"})}, exclusively, false},
		{"not while another node has the lock",
			[]client.Object{reported("a"), entryIn(reported("b"), isThere, "2", ""), oneNode, attachedTo("va-1", "1"),
				lockObject("v", exclusive.Lock{Holder: "b"})},
			func(f *decision.Facts, _ *decision.Node) { f.Exclusive, f.Lock = true, lockOn("b") }, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			c, _ := over(t, test.objects...)
			refuseNoName(c)
			n := on("a", wanted("i"), va("1", "held", "attached"))
			f := &decision.Facts{Volume: "v", Driver: "d", VolumeHandle: "h", AttachRequired: true, Nodes: []*decision.Node{n}}
			if test.given != nil {
				test.given(f, n)
			}
			if err := c.confirmAttached(t.Context(), f, n, &n.Attachments[0]); err != nil {
				t.Fatal(err)
			}
			if attached := n.State.Entry.State == handshake.Attached && n.State.Entry.UID == "1"; attached != test.want {
				t.Errorf("node a may use volume v: %t, want %t", attached, test.want)
			}
			if waits := n.Wait != nil; waits == test.want {
				t.Errorf("volume v on node a: wait %+v, want one: %t", n.Wait, !test.want)
			}
		})
	}
}

// TestTheAccessModesCountAsTheyAre, and not as the cache still shows them.
func TestTheAccessModesCountAsTheyAre(t *testing.T) {
	c, _ := over(t, reported("a"), usableBy(corev1.ReadWriteOnce), attachedTo("va-1", "1"))
	behind(t, c, reported("a"), usableBy(corev1.ReadWriteMany), attachedTo("va-1", "1"))
	n := on("a", wanted("i"), va("1", "held", "attached"))
	if err := c.confirmAttached(t.Context(),
		&decision.Facts{Volume: "v", AttachRequired: true, Nodes: []*decision.Node{n}}, n,
		&n.Attachments[0]); err != nil || n.State.Entry.State != handshake.Absent {
		t.Errorf("entry of volume v on node a: %+v, error %v; want none, as the live access modes allow one node",
			n.State.Entry, err)
	}
}

func TestARefusedNodeGetsTheHolderOfTheLock(t *testing.T) {
	c, _ := over(t, reported("a"), usableBy(corev1.ReadWriteOnce), attachedTo("va-1", "1"), lockObject("v",
		exclusive.Lock{Holder: "b"}))
	n := on("a", wanted("i"), va("1", "held", "attached"))
	f := &decision.Facts{Volume: "v", Exclusive: true, AttachRequired: true, Lock: lockOn("a"), Nodes: []*decision.Node{n}}
	if err := c.confirmAttached(t.Context(), f, n, &n.Attachments[0]); err != nil || f.Lock.Holder != "b" {
		t.Errorf("lock of volume v in the facts: %+v, error %v; want holder b", f.Lock, err)
	}
}

func TestAnEntryIsWrittenOnlyIfItChanges(t *testing.T) {
	for _, changed := range []bool{false, true} {
		state := entryIn(reported("a"), isThere, "1", "")
		if changed {
			state.Spec.Attachments[0].FSType = "earlier"
		}
		c, _ := over(t, state, usableBy(corev1.ReadWriteMany), attachedTo("va-1", "1"))
		before := liveState(t, c, "a").ResourceVersion
		f, n := factsOf(t, c)
		if err := c.confirmAttached(t.Context(), f, n, &n.Attachments[0]); err != nil || n.Wait != nil {
			t.Fatalf("confirming volume v on node a: error %v, wait %+v; want neither", err, n.Wait)
		}
		after := liveState(t, c, "a")
		if written := after.ResourceVersion != before; written != changed || after.Spec.Attachments[0].FSType != "" {
			t.Errorf("node state a after an entry with change %t: written %t, entries %+v; want it written only for a change",
				changed, written, after.Spec.Attachments)
		}
	}
}

func TestAConfirmThatTheCacheDoesNotShowYetIsNotRepeated(t *testing.T) {
	now := attachedTo("va-1", "1")
	now.Status.AttachmentMetadata = map[string]string{"device": "as it is"}
	c, _ := over(t, reported("a"), usableBy(corev1.ReadWriteMany), now)
	f, n := factsOf(t, c)
	n.Attachments[0].PublishContext = map[string]string{"device": "as it was"}
	if err := c.confirmAttached(t.Context(), f, n, &n.Attachments[0]); err != nil || n.Wait == nil ||
		n.Entry.PublishContext["device"] != "as it is" {
		t.Errorf("volume v on node a: wait %+v, entry %+v, error %v; want a wait and the live publish context", n.Wait,
			n.Entry, err)
	}
}

func TestAFullNodeStateIsReported(t *testing.T) {
	full := reported("a")
	full.Annotations = map[string]string{"large": strings.Repeat("x", nodestate.SizeLimit)}
	c, _ := over(t, full, usableBy(corev1.ReadWriteMany), attachedTo("va-1", "1"))
	f, n := factsOf(t, c)
	err := c.confirmAttached(t.Context(), f, n, &n.Attachments[0])
	if err != nil || n.Wait == nil || n.Wait.Reason != volumesv1alpha1.ReasonNodeStateTooLarge ||
		!strings.Contains(n.Wait.Message, "node a") {
		t.Errorf("volume v on node a, whose node state is full: wait %+v, error %v; want reason %s and the name of the node",
			n.Wait, err, volumesv1alpha1.ReasonNodeStateTooLarge)
	}
}

func TestWhileADriverGetsVolumesAttachedTheOthersAreNotCalledSlow(t *testing.T) {
	c, now := over(t, reported("a"), usableBy(corev1.ReadWriteMany), attachedTo("va-1", "1"))
	f, n := factsOf(t, c)
	next := intentNamed("next").Object
	c.attachTimes.left(next, "d", true, now.Now())
	now.SetTime(now.Now().Add(slow))
	if err := c.confirmAttached(t.Context(), f, n, &n.Attachments[0]); err != nil {
		t.Fatal(err)
	}
	if c.attachTimes.left(next, "d", true, now.Now()) == 0 {
		t.Error("intent next, which waits for driver d, has no time left, want it not slow yet")
	}
}

func TestADriverWithoutAttachIsConfirmedUnderAUIDThatStays(t *testing.T) {
	madeUp := func(state *volumesv1alpha1.NodeVolumeState) *volumesv1alpha1.NodeVolumeState {
		state.Spec.Attachments[0].AttachmentName, state.Spec.Attachments[0].FSType = "", "earlier"
		return state
	}
	for _, test := range []struct {
		name  string
		state *volumesv1alpha1.NodeVolumeState
		// uid that the entry has then; any where it is empty.
		uid       types.UID
		confirmed bool
	}{
		{"for the first time", reported("a"), "", true},
		{"once more", madeUp(entryIn(reported("a"), isThere, "1", "")), "1", true},
		{"not while the last stay ends", madeUp(entryIn(reported("a"), leavesIt, "1", byAgent)), "1", false},
		{"not over an attachment of the time when the driver had attach",
			entryIn(reported("a"), isThere, "1", ""), "1", false},
	} {
		t.Run(test.name, func(t *testing.T) {
			c, _ := over(t, test.state, usableBy(corev1.ReadWriteMany))
			f, n := factsOf(t, c)
			f.AttachRequired = false
			if err := c.confirmAttached(t.Context(), f, n, nil); err != nil {
				t.Fatal(err)
			}
			e := handshake.AttachmentOf(liveState(t, c, "a"), "v")
			if e == nil || e.AttachmentUID == "" || test.uid != "" && e.AttachmentUID != test.uid {
				t.Errorf("entry of volume v on node a: %+v, want one with UID %q, or any if that is empty", e, test.uid)
			}
			if confirmed := e.FSType == "" && e.AttachmentName == ""; confirmed != test.confirmed {
				t.Errorf("entry of volume v on node a: confirmed %t, want %t: %+v", confirmed, test.confirmed, e)
			}
		})
	}
}

func TestADriverWithoutAttachIsNotConfirmedOnANodeWithoutAState(t *testing.T) {
	c, _ := over(t, usableBy(corev1.ReadWriteMany))
	f, n := factsOf(t, c)
	f.AttachRequired = false
	if err := c.confirmAttached(t.Context(), f, n, nil); err != nil || n.State.Exists || n.Wait == nil {
		t.Errorf("node a without a state: %+v, wait %+v, error %v; want no state and a wait", n.State, n.Wait, err)
	}
}

func TestAVolumeIsNotUsedOnOneNodeWhileItIsAttachedToAnother(t *testing.T) {
	for _, test := range []struct {
		name      string
		elsewhere *storagev1.VolumeAttachment
		want      bool
	}{
		{"nothing is attached there", nil, true},
		{"the attachment there is on its way out", func() *storagev1.VolumeAttachment {
			va := attachedTo("va-2", "2")
			va.Finalizers = []string{"driver"}
			return va
		}(), false},
	} {
		t.Run(test.name, func(t *testing.T) {
			objects := []client.Object{reported("a"), usableBy(corev1.ReadWriteOnce), attachedTo("va-1", "1"), lockObject("v",
				exclusive.Lock{Holder: "a"})}
			if test.elsewhere != nil {
				objects = append(objects, test.elsewhere)
			}
			c, _ := over(t, objects...)
			if test.elsewhere != nil {
				remove(t, c, test.elsewhere)
			}
			n := on("a", wanted("i"), va("1", "held", "attached"))
			f := &decision.Facts{Volume: "v", Exclusive: true, AttachRequired: true, Lock: lockOn("a"),
				Nodes: []*decision.Node{n, on("b",
					va("2", "terminating"))}}
			if err := c.confirmAttached(t.Context(), f, n, &n.Attachments[0]); err != nil {
				t.Fatal(err)
			}
			if attached := n.State.Entry.State == handshake.Attached; attached != test.want {
				t.Errorf("node a may use volume v: %t, want %t", attached, test.want)
			}
		})
	}
}

func TestANodeDoesNotGetAVolumeThatStillHasAnotherSingleUser(t *testing.T) {
	other := intentNamed("other").Object
	other.UID = "uid-other"
	lock := exclusive.Lock{Holder: "a", User: exclusive.User{Namespace: "default", Name: "other", UID: "uid-other"}}
	c, _ := over(t, reported("a"), usableBy(corev1.ReadWriteOncePod), attachedTo("va-1", "1"), lockOf("v", lock), other)
	f, n := factsOf(t, c)
	f.Exclusive, f.SingleUser, f.Lock = true, true, lock.Handshake()
	n.Wanted[0].Object.UID = "uid-i"
	err := c.confirmAttached(t.Context(), f, n, &n.Attachments[0])
	if err != nil || n.State.Entry.State != handshake.Absent || n.Wait == nil {
		t.Errorf("volume v, whose single user is intent other: entry %+v, wait %+v, error %v; want no entry and a wait",
			n.State.Entry, n.Wait, err)
	}
}
