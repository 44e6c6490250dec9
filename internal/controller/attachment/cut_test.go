/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package attachment

import (
	"context"
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/exclusive"
	"github.com/hawser-io/hawser/internal/controller/fences"
	"github.com/hawser-io/hawser/internal/fencing"
	"github.com/hawser-io/hawser/internal/handshake"
)

// network is what is known of fences that cut access, and what is read of them.
type network struct {
	*fences.Watcher
	known []volumesv1alpha1.FenceReference
	cuts  map[string]bool
	err   error
	// before, if any, runs before an answer.
	before func()
}

func (w *network) Cutting(context.Context, *corev1.Node, *volumesv1alpha1.NodeVolumeState,
	fencing.Volume) []volumesv1alpha1.FenceReference {
	return w.known
}

func (w *network) Cuts(_ context.Context, ref volumesv1alpha1.FenceReference, _ *corev1.Node,
	_ *volumesv1alpha1.NodeVolumeState, _ fencing.Volume) (bool, error) {
	return w.cuts[ref.Name], w.err
}

func (w *network) StillCuts(_ context.Context, ref volumesv1alpha1.FenceReference, _ string, _ fencing.Volume,
) (bool, error) {
	if w.before != nil {
		w.before()
	}
	return w.cuts[ref.Name], w.err
}

func cutBy(name string) volumesv1alpha1.FenceReference {
	return volumesv1alpha1.FenceReference{Source: "net", Name: name, Proves: volumesv1alpha1.FenceAccessCut}
}

func TestAccessThatIsCutIsEvidenceOnlyIfItIsReadLive(t *testing.T) {
	down := errors.New("down")
	known := []volumesv1alpha1.FenceReference{cutBy("f"), cutBy("g")}
	for _, c := range []struct {
		name string
		net  network
		node []client.Object
		// foreign: another machine of the node's name uses the volume.
		foreign bool
		want    string
		again   bool
	}{
		{name: "it holds", net: network{known: known, cuts: map[string]bool{"f": true}}, want: "f"},
		{name: "only the second one does", net: network{known: known, cuts: map[string]bool{"g": true}}, want: "g"},
		{name: "it was lifted", net: network{known: known}, again: true},
		{name: "it cannot be read", net: network{known: known, cuts: map[string]bool{"f": true}, err: down}, again: true},
		{name: "none is known", net: network{cuts: map[string]bool{"f": true}}},
		{name: "another machine uses the volume", net: network{known: known, cuts: map[string]bool{"f": true}},
			foreign: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			nvs := usedIn(entryIn(reported("a"), isThere, "1", ""), "1")
			controller, _ := over(t, nvs, readyNode("a"), attachedTo("va-1", "1"))
			controller.Fences = &c.net
			f, n := factsOf(t, controller)
			state := handshake.NodeOf(nvs, "v")
			state.Use.Foreign, n.State.Use.Foreign = c.foreign, c.foreign
			evidence, err := controller.confirmCut(t.Context(), f, n, nvs, state)
			if err != nil || (evidence != nil) != (c.want != "") ||
				evidence != nil && (evidence.Type != volumesv1alpha1.EvidenceFenced || *evidence.Fence != cutBy(c.want)) {
				t.Errorf("evidence %+v, error %v; want that of fence %q", evidence, err, c.want)
			}
			if again := n.EvidenceDue == fenceAgain; again != c.again {
				t.Errorf("it is read again after %s, want %s: %t", n.EvidenceDue, fenceAgain, c.again)
			}
			n.Evidence = nil
			if err := controller.gatherCut(t.Context(), f, n, nvs); err != nil ||
				(n.Evidence != nil) != (c.net.known != nil && !c.foreign) {
				t.Errorf("evidence from what is known: %+v, error %v; want it where a fence is known", n.Evidence, err)
			}
		})
	}
}

func TestOtherEvidenceComesBeforeAccessThatIsCut(t *testing.T) {
	nvs := entryIn(reported("a"), isThere, "1", "")
	c, _ := over(t, nvs, readyNode("a"), attachedTo("va-1", "1"))
	c.Fences = &network{known: []volumesv1alpha1.FenceReference{cutBy("f")}}
	f, n := factsOf(t, c)
	tainted(n)
	if err := c.gatherCut(t.Context(), f, n, nvs); err != nil ||
		n.Evidence.Type != volumesv1alpha1.EvidenceOutOfServiceTaint {
		t.Errorf("evidence %+v, error %v; want that of the taint", n.Evidence, err)
	}
}

// cutAway is a node from which a volume in use was forced away by a fence that cuts access.
func cutAway(name string) *volumesv1alpha1.NodeVolumeState {
	nvs := usedIn(entryIn(reported(name), leavesIt, "1", volumesv1alpha1.EvidenceFenced), "1")
	fence := cutBy("f")
	nvs.Spec.Attachments[0].Evidence.Fence = &fence
	return nvs
}

func liftsOf(c *Controller, net *network) {
	c.Lifts = &fences.Lifts{Fences: net, Client: c.Client, Writer: c.Writer, Events: events.NewFakeRecorder(10)}
}

func TestWhatRestsOnAFenceIsDeletedOnlyWhileTheFenceHolds(t *testing.T) {
	down := errors.New("down")
	for name, c := range map[string]struct {
		net network
		// marked: another writer has marked the lift while this one reads the fence.
		marked          bool
		deleted, lifted bool
		err             error
	}{
		"it holds":                      {net: network{cuts: map[string]bool{"f": true}}, deleted: true},
		"it was lifted":                 {lifted: true},
		"another one has found it so":   {marked: true, lifted: true},
		"whether it holds is not known": {net: network{err: down}, err: down},
	} {
		t.Run(name, func(t *testing.T) {
			va := attachedTo("va-1", "1")
			va.Finalizers = []string{"driver", volumesv1alpha1.ForcedAwayFinalizer}
			controller, _ := over(t, cutAway("a"), readyNode("a"), va)
			net := &c.net
			liftsOf(controller, net)
			f, n := factsOf(t, controller)
			n.Live, n.Attachments[0].NameHeld = true, true
			if c.marked {
				net.before = func() {
					net.before = nil
					nvs := liveState(t, controller, "a")
					nvs.Spec.Attachments[0].Evidence.Unprotected = true
					if err := controller.Client.Update(t.Context(), nvs); err != nil {
						t.Error(err)
					}
				}
			}
			if err := controller.deleteAttachment(t.Context(), f, n, &n.Attachments[0]); !errors.Is(err, c.err) {
				t.Errorf("error %v, want %v", err, c.err)
			}
			if deleted := liveAttachment(t, controller, "va-1").DeletionTimestamp != nil; deleted != c.deleted {
				t.Errorf("attachment va-1 is deleted: %t, want %t", deleted, c.deleted)
			}
			if shown := liveState(t, controller, "a").Spec.Attachments[0].Evidence.Unprotected; shown != c.lifted {
				t.Errorf("evidence is unprotected: %t, want %t", shown, c.lifted)
			}
		})
	}
}

func TestALockLeavesWhatRestsOnAFenceOnlyWhileTheFenceHolds(t *testing.T) {
	for name, c := range map[string]struct {
		lock              exclusive.Lock
		holds             bool
		taken             bool
		holder, movedFrom string
	}{
		"it holds":      {lock: exclusive.Lock{Holder: "b"}, holds: true, taken: true, holder: "a"},
		"it was lifted": {lock: exclusive.Lock{Holder: "b"}, holder: "b"},
		"the move is under way, and it holds": {lock: exclusive.Lock{Holder: "a", MovedFrom: "b"}, holds: true, taken: true,
			holder: "a"},
		"the move is under way, and it was lifted": {lock: exclusive.Lock{Holder: "a", MovedFrom: "b"}, holder: "a",
			movedFrom: "b"},
	} {
		t.Run(name, func(t *testing.T) {
			controller, _ := over(t, cutAway("b"), lockOf("v", c.lock))
			refuseNoName(controller)
			liftsOf(controller, &network{cuts: map[string]bool{"f": c.holds}})
			f, n := factsOf(t, controller)
			f.Exclusive, f.Lock = true, c.lock.Handshake()
			taken, err := controller.takeLock(t.Context(), f, n)
			lock, failure := controller.Locks.Read(t.Context(), "v")
			if err != nil || failure != nil || taken != c.taken || lock.Holder != c.holder || lock.MovedFrom != c.movedFrom {
				t.Errorf("taken %t, lock %+v, errors %v, %v; want taken %t, holder %q, moved from %q", taken, lock, err, failure,
					c.taken, c.holder, c.movedFrom)
			}
			nvs := liveState(t, controller, "b")
			if shown := nvs.Spec.Attachments[0].Evidence.Unprotected; shown == c.holds {
				t.Errorf("evidence is unprotected: %t, want %t", shown, !c.holds)
			}
			if (nvs.Spec.Protocol.Fences == 1) != c.taken || (n.Wait != nil) == c.taken {
				t.Errorf("node state b is fenced %d times, node a waits for %+v; want a fence or a wait", nvs.Spec.Protocol.Fences,
					n.Wait)
			}
		})
	}
}
