/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package attachment

import (
	"context"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/attachment/decision"
	"github.com/hawser-io/hawser/internal/controller/batch"
	"github.com/hawser-io/hawser/internal/handshake"
)

const (
	byAgent  = volumesv1alpha1.EvidenceAgentReleased
	byTaint  = volumesv1alpha1.EvidenceOutOfServiceTaint
	byLoss   = volumesv1alpha1.EvidenceAttachmentLost
	isThere  = volumesv1alpha1.AttachmentAttached
	leavesIt = volumesv1alpha1.AttachmentDetaching
)

func TestWhatBecomesOfAnAttachmentThatIsToBeDeleted(t *testing.T) {
	released := func() *volumesv1alpha1.NodeVolumeState { return entryIn(reported("a"), leavesIt, "1", byAgent) }
	forcedAway := func() *volumesv1alpha1.NodeVolumeState {
		return usedIn(entryIn(reported("a"), leavesIt, "1", byTaint), "1")
	}
	listing := nodeNamed("a")
	listing.Status.VolumesInUse = []corev1.UniqueVolumeName{"v"}
	notHeld := func(_ *decision.Facts, n *decision.Node) { n.Attachments[0].Held = false }
	inPlace := func(f *decision.Facts, _ *decision.Node) { f.Replace = true }
	for _, test := range []struct {
		name  string
		state *volumesv1alpha1.NodeVolumeState
		node  *corev1.Node
		given func(*decision.Facts, *decision.Node)
		// deleted, unheld, held by name: what becomes of it.
		deleted, unheld, nameHeld, waits bool
	}{
		{name: "beside upstream it goes at once, though the node's state was not read live",
			state: released(), node: nodeNamed("a"), deleted: true, waits: true},
		{name: "while the kubelet lists the volume it is left to upstream", state: released(), node: listing, unheld: true},
		{name: "and stays there", state: released(), node: listing, given: notHeld, waits: true},
		{name: "without a Node it stays, held, where the kubelet may have mounted it",
			state: released(), given: func(_ *decision.Facts, n *decision.Node) { missing(n) }, waits: true},
		{name: "also while the cache has the Node, and what its kubelet listed last is not known yet",
			state: released(), given: func(_ *decision.Facts, n *decision.Node) { covered(n) }, waits: true},
		{name: "and goes where it had not",
			state: released(), given: func(_ *decision.Facts, n *decision.Node) {
				missing(n)
				covered(n)
			}, deleted: true, waits: true},
		{name: "not before Detaching stands for it",
			state: entryIn(reported("a"), isThere, "1", ""), node: nodeNamed("a"), waits: true},
		{name: "not while the volume is in use", state: usedIn(released(), "1"), node: nodeNamed("a"), waits: true},
		{name: "in place of upstream not before the agent has looked",
			state: released(), node: nodeNamed("a"), given: inPlace, waits: true},
		{name: "and then at once", state: released(), node: listing, given: func(f *decision.Facts, n *decision.Node) {
			inPlace(f, n)
			n.State.Looked = true
		}, deleted: true, waits: true},
		{name: "a forced detach rests on the node's state as it is", state: forcedAway(), node: nodeNamed("a")},
		{name: "and holds the name first",
			state: forcedAway(), node: nodeNamed("a"), given: func(_ *decision.Facts, n *decision.Node) {
				n.Live = true
			}, nameHeld: true},
	} {
		t.Run(test.name, func(t *testing.T) {
			va := attachedTo("va-1", "1")
			va.Finalizers = []string{"driver"}
			objects := []client.Object{test.state, va}
			if test.node != nil {
				objects = append(objects, test.node)
			}
			c, _ := over(t, objects...)
			f, n := factsOf(t, c)
			if test.given != nil {
				test.given(f, n)
			}
			if err := c.deleteAttachment(t.Context(), f, n, &n.Attachments[0]); err != nil {
				t.Fatal(err)
			}
			va = liveAttachment(t, c, "va-1")
			if deleted := va.DeletionTimestamp != nil; deleted != test.deleted {
				t.Errorf("attachment va-1 is deleted: %t, want %t", deleted, test.deleted)
			}
			if unheld := !decision.IsHeld(va); unheld != test.unheld {
				t.Errorf("hold of attachment va-1 is removed: %t, want %t", unheld, test.unheld)
			}
			if held := slices.Contains(va.Finalizers, volumesv1alpha1.ForcedAwayFinalizer); held != test.nameHeld ||
				!slices.Contains(va.Finalizers, "driver") {
				t.Errorf("finalizers of attachment va-1: %v, name held %t, want %t", va.Finalizers, held, test.nameHeld)
			}
			if waits := n.Wait != nil; waits != test.waits {
				t.Errorf("volume v on node a waits: %t, want %t", waits, test.waits)
			}
			if n.State.Entry.Forced && !n.Live {
				t.Error("node state a was not read live before a forced detach, want it read")
			}
		})
	}
}

func TestADeleteCarriesWhatItWasDecidedOn(t *testing.T) {
	resource := schema.GroupResource{Group: "storage.k8s.io", Resource: "volumeattachments"}
	for name, answer := range map[string]error{
		"it is deleted": nil, "it changed meanwhile": apierrors.NewConflict(resource, "va-1", nil),
		"it is gone": apierrors.NewNotFound(resource, "va-1"),
	} {
		t.Run(name, func(t *testing.T) {
			va := attachedTo("va-1", "1")
			c, _ := over(t, va)
			_, n := factsOf(t, c)
			var sent client.DeleteOptions
			c.Client = interceptor.NewClient(c.Client.(client.WithWatch), interceptor.Funcs{
				Delete: func(_ context.Context, _ client.WithWatch, _ client.Object, opts ...client.DeleteOption) error {
					sent.ApplyOptions(opts)
					return answer
				},
			})
			a := n.Attachments[0]
			if err := c.sendDelete(t.Context(), n, &a); err != nil {
				t.Error(err)
			}
			if p := sent.Preconditions; p == nil || ptr.Deref(p.UID, "") != a.UID || ptr.Deref(p.ResourceVersion,
				"") != a.ResourceVersion {
				t.Errorf("preconditions of the delete of attachment va-1: %+v, want UID %s and version %s", p, a.UID,
					a.ResourceVersion)
			}
			if n.Wait == nil {
				t.Error("no wait after the delete of attachment va-1, want one, so that it is sent once")
			}
		})
	}
}

func TestADeletedAttachmentCountsAsTerminatingBeforeTheCacheShowsIt(t *testing.T) {
	va := attachedTo("va-1", "1")
	va.Finalizers = []string{"driver"}
	va.Status.DetachError = &storagev1.VolumeError{Message: "on fire"}
	c, now := over(t, va)
	_, n := factsOf(t, c)
	want := n.Attachments[0]
	if err := c.sendDelete(t.Context(), n, &want); err != nil {
		t.Fatal(err)
	}
	known := c.ownWrites.newer("va-1", want.ResourceVersion)
	if known == nil {
		t.Fatal("own delete of attachment va-1 is not known to the next pass, want it known before the cache has it")
	}
	later := &decision.Node{}
	later.AddAttachment(known)
	a := later.Attachments[0]
	if a.Name != want.Name || a.ResourceVersion != want.ResourceVersion || a.UID != "1" || !a.Terminating ||
		a.Unpublished || !a.Attached ||
		!slices.Equal(a.Finalizers, want.Finalizers) || a.DetachError == nil || !a.Deleted.Equal(now.Now()) {
		t.Errorf("attachment va-1 in the next pass: %+v, want it terminating, else as before: %+v", a, want)
	}
}

// exactClock is of a process to which every answer takes just as long as it may.
type exactClock struct{ slowClock }

func (e exactClock) Since(t time.Time) time.Duration {
	e.SetTime(e.Now().Add(freshness))
	return e.FakePassiveClock.Since(t)
}

func TestADeleteMayUseAReadThatIsJustFreshEnough(t *testing.T) {
	c, now := over(t, entryIn(reported("a"), leavesIt, "1", byAgent), attachedTo("va-1", "1"), nodeNamed("a"))
	f, n := factsOf(t, c)
	c.Clock = exactClock{slowClock{now}}
	if err := c.deleteAttachment(t.Context(), f, n, &n.Attachments[0]); err != nil ||
		liveAttachment(t, c, "va-1") != nil {
		t.Errorf("attachment va-1 after its delete: error %v, want none and the attachment gone", err)
	}
}

// TestADeleteMayUseAReadThatHasWaitedForItsTurn: with many nodes, a read waits for those of others before it is made.
func TestADeleteMayUseAReadThatHasWaitedForItsTurn(t *testing.T) {
	c, now := over(t, entryIn(reported("a"), leavesIt, "1", byAgent), attachedTo("va-1", "1"), nodeNamed("a"))
	f, n := factsOf(t, c)
	c.users = batch.NewReads(nil, func(ctx context.Context, key string) (*users, error) {
		now.SetTime(now.Now().Add(time.Minute))
		return c.readUsers(ctx, key)
	})
	if err := c.deleteAttachment(t.Context(), f, n, &n.Attachments[0]); err != nil ||
		liveAttachment(t, c, "va-1") != nil {
		t.Errorf("attachment va-1 after its delete: error %v, want none and the attachment gone", err)
	}
}

func TestWhatBecomesOfTheEntryOfADetach(t *testing.T) {
	detachedBefore := func(nvs *volumesv1alpha1.NodeVolumeState) *volumesv1alpha1.NodeVolumeState {
		handshake.AttachmentOf(nvs, "v").DetachedTime = ptr.To(metav1.NewTime(noon.Time))
		return nvs
	}
	unanswered := func() *volumesv1alpha1.NodeVolumeState {
		return usedIn(entryIn(reported("a"), leavesIt, "1", byTaint), "1")
	}
	for _, test := range []struct {
		name                              string
		state                             *volumesv1alpha1.NodeVolumeState
		attachment                        *storagev1.VolumeAttachment
		stays, detached, unchanged, waits bool
	}{
		{name: "it goes with the attachment", state: entryIn(reported("a"), leavesIt, "1", byAgent)},
		{name: "not while that is there",
			state: entryIn(reported("a"), leavesIt, "1", byAgent), attachment: attachedTo("va-1", "1"), stays: true,
			unchanged: true, waits: true},
		{name: "another one of its name says nothing",
			state: entryIn(reported("a"), leavesIt, "1", byAgent), attachment: attachedTo("va-1", "2")},
		{name: "after a forced detach it stays until the agent has answered",
			state: unanswered(), stays: true, detached: true},
		{name: "and says since when", state: detachedBefore(unanswered()), stays: true, detached: true, unchanged: true},
		{name: "an entry that was written anew stays",
			state: entryIn(reported("a"), isThere, "2", ""), stays: true, unchanged: true, waits: true},
		{name: "where there is none nothing is to do", state: reported("a"), unchanged: true},
	} {
		t.Run(test.name, func(t *testing.T) {
			state := test.state
			state.Annotations = map[string]string{volumesv1alpha1.DeclaredReleasedPrefix + "9": "another's"}
			if !test.stays && len(state.Spec.Attachments) > 0 {
				state.Annotations[volumesv1alpha1.DeclaredReleasedPrefix+"1"] = "scrapped"
			}
			state.Spec.Attachments = append(state.Spec.Attachments, volumesv1alpha1.NodeAttachment{VolumeName: "other",
				AttachmentUID: "7", State: isThere})
			objects := []client.Object{state}
			if test.attachment != nil {
				objects = append(objects, test.attachment)
			}
			c, now := over(t, objects...)
			before := liveState(t, c, "a")
			n := on("a", entry(handshake.Detaching, "1"))
			now.SetTime(now.Now().Add(time.Hour))
			if err := c.forgetEntry(t.Context(), &decision.Facts{Volume: "v", Nodes: []*decision.Node{n}}, n); err != nil {
				t.Fatal(err)
			}
			after := liveState(t, c, "a")
			e := handshake.AttachmentOf(after, "v")
			if stays := e != nil; stays != test.stays || stays && (e.DetachedTime != nil) != test.detached {
				t.Errorf("entry of volume v on node a: %+v, want it there %t, with a detach time %t", e, test.stays, test.detached)
			}
			if unchanged := before.ResourceVersion == after.ResourceVersion; unchanged != test.unchanged {
				t.Errorf("node state a is unchanged: %t, want %t", unchanged, test.unchanged)
			}
			if handshake.AttachmentOf(after, "other") == nil {
				t.Error("entry of volume other on node a is gone, want it kept")
			}
			if _, declared := after.Annotations[volumesv1alpha1.DeclaredReleasedPrefix+"1"]; declared ||
				len(after.Annotations) != 1 {
				t.Errorf("annotations of node state a: %v, want the declaration of attachment 9 alone", after.Annotations)
			}
			if waits := n.Wait != nil; waits != test.waits {
				t.Errorf("volume v on node a waits: %t, want %t", waits, test.waits)
			}
			if !n.Live || (n.State.Entry.State != handshake.Absent) != test.stays {
				t.Errorf("node a in the facts: %+v, read live %t; want read live, with an entry: %t", n.State, n.Live, test.stays)
			}
		})
	}
}

func TestAnEntryIsGoneWithItsNodeState(t *testing.T) {
	c, _ := over(t)
	n := on("a", entry(handshake.Detaching, "1"))
	if err := c.forgetEntry(t.Context(), &decision.Facts{Volume: "v", Nodes: []*decision.Node{n}}, n); err != nil ||
		n.State.Exists ||
		n.Wait != nil {
		t.Errorf("node a, which has no state: %+v, wait %+v, error %v; want no state, no wait and no error", n.State, n.Wait,
			err)
	}
}

func TestOnlyOurFinalizerFreesTheName(t *testing.T) {
	va := attachedTo("va-1", "1")
	va.Finalizers = []string{"another", volumesv1alpha1.ForcedAwayFinalizer}
	c, _ := over(t, entryIn(reported("a"), leavesIt, "1", byTaint), va)
	f, n := factsOf(t, c)
	if err := c.freeName(t.Context(), f, n, &n.Attachments[0]); err != nil {
		t.Fatal(err)
	}
	if got := liveAttachment(t, c, "va-1").Finalizers; !n.Live || len(got) != 2 {
		t.Errorf("finalizers of attachment va-1: %v, node read live %t; want both while the node is read", got, n.Live)
	}
	if err := c.freeName(t.Context(), f, n, &n.Attachments[0]); err != nil {
		t.Fatal(err)
	}
	if got := liveAttachment(t, c, "va-1").Finalizers; !slices.Equal(got, []string{"another"}) || n.Wait == nil {
		t.Errorf("finalizers of attachment va-1: %v, wait %+v; want another alone and a wait", got, n.Wait)
	}
}

func TestWhereTheKubeletMountsAForcedDetachIsOverOnceTheAgentHasCheckedAfterTheUnlisting(t *testing.T) {
	for _, checked := range []bool{true, false} {
		state := entryIn(reported("a"), leavesIt, "1", byTaint)
		state.Spec.Attachments[0].Protocol.UnlistedGeneration = 5
		if state.Status.ObservedGeneration = 4; checked {
			state.Status.ObservedGeneration = 5
		}
		c, _ := over(t, state)
		c.Protocol.Kubelet = true
		n := on("a", entry(handshake.Detaching, "1"))
		if err := c.forgetEntry(t.Context(), &decision.Facts{Volume: "v", Nodes: []*decision.Node{n}}, n); err != nil {
			t.Fatal(err)
		}
		if stays := handshake.AttachmentOf(liveState(t, c, "a"), "v") != nil; stays == checked {
			t.Errorf("entry of volume v on node a, agent has checked %t: there %t, want %t", checked, stays, !checked)
		}
	}
}
