/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package attachment

import (
	"context"
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/attachment/decision"
	"github.com/hawser-io/hawser/internal/controller/exclusive"
	"github.com/hawser-io/hawser/internal/controller/fences"
	"github.com/hawser-io/hawser/internal/controller/liveness"
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

func (w *network) Lifted(_ context.Context, _ string, kept []fences.Kept) ([]string, error) {
	if w.before != nil {
		w.before()
	}
	causes := make([]string, len(kept))
	for i, k := range kept {
		if !w.cuts[k.By.Name] {
			causes[i] = "was lifted"
		}
	}
	return causes, w.err
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
			controller, now := over(t, nvs, readyNode("a"), attachedTo("va-1", "1"))
			controller.Tracker.Silence("a")
			now.SetTime(now.Now().Add(liveness.DefaultDuration))
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

// TestAFenceThatWasLiftedDoesNotCountAgain for the volume that was detached on it: storage may have been opened since.
func TestAFenceThatWasLiftedDoesNotCountAgain(t *testing.T) {
	for fence, want := range map[string]bool{"f": false, "g": true} {
		nvs := cutAway("a")
		nvs.Spec.Attachments[0].Evidence.Unprotected = true
		c, now := over(t, nvs, readyNode("a"), attachedTo("va-1", "1"))
		c.Tracker.Silence("a")
		now.SetTime(now.Now().Add(liveness.DefaultDuration))
		c.Fences = &network{known: []volumesv1alpha1.FenceReference{cutBy(fence)}, cuts: map[string]bool{fence: true}}
		f, n := factsOf(t, c)
		if err := c.gatherCut(t.Context(), f, n, nvs); err != nil || (n.Evidence != nil) != want {
			t.Errorf("fence %s after f was lifted: evidence %+v, error %v; want it: %t", fence, n.Evidence, err, want)
		}
		evidence, err := c.confirmCut(t.Context(), f, n, nvs, handshake.NodeOf(nvs, "v"))
		if err != nil || (evidence != nil) != want {
			t.Errorf("fence %s, read live: evidence %+v, error %v; want it: %t", fence, evidence, err, want)
		}
	}
}

// TestACacheThatLagsBehindALiftIsNoFault: the fence is still known only to the newest state.
func TestACacheThatLagsBehindALiftIsNoFault(t *testing.T) {
	newest := cutAway("a")
	newest.Spec.Attachments[0].Evidence.Unprotected = true
	cached := usedIn(entryIn(reported("a"), isThere, "1", ""), "1")
	c, now := over(t, cached, readyNode("a"), attachedTo("va-1", "1"))
	c.Tracker.Silence("a")
	now.SetTime(now.Now().Add(liveness.DefaultDuration))
	c.Fences = &network{known: []volumesv1alpha1.FenceReference{cutBy("f")}}
	f, n := factsOf(t, c)
	n.TakeOver(newest, "v")
	if err := c.gatherCut(t.Context(), f, n, cached); err != nil || n.Evidence != nil {
		t.Errorf("evidence %+v, error %v; want none, for fence f was lifted", n.Evidence, err)
	}
}

// TestPodsKeepAVolumeWhoseAccessIsCut, and what their kubelet lists does not: it is as silent as the agent.
func TestPodsKeepAVolumeWhoseAccessIsCut(t *testing.T) {
	listing := nodeNamed("a")
	listing.Status.VolumesInUse = []corev1.UniqueVolumeName{"v"}
	for name, c := range map[string]struct {
		objects []client.Object
		want    bool
	}{
		"a pod":               {[]client.Object{nodeNamed("a"), podOn("default", "data")}, false},
		"its kubelet's list":  {[]client.Object{listing}, true},
		"nothing but the cut": {[]client.Object{nodeNamed("a")}, true},
	} {
		controller, _ := over(t, c.objects...)
		n := on("a", forced)
		n.Entry = &cutAway("a").Spec.Attachments[0]
		free, _, err := controller.freeOfPods(t.Context(), &decision.Facts{Volume: "v",
			Bound: []client.ObjectKey{{Namespace: "default", Name: "data"}}}, n)
		if err != nil || free != c.want {
			t.Errorf("%s: free %t, error %v; want %t", name, free, err, c.want)
		}
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
		holds  bool
		holder string
	}{
		"it holds":      {holds: true, holder: "a"},
		"it was lifted": {holder: "b"},
	} {
		t.Run(name, func(t *testing.T) {
			before := exclusive.Lock{Holder: "b"}
			controller, _ := over(t, cutAway("b"), lockOf("v", before))
			refuseNoName(controller)
			liftsOf(controller, &network{cuts: map[string]bool{"f": c.holds}})
			f, n := factsOf(t, controller)
			f.Exclusive, f.Lock = true, before.Handshake()
			taken, err := controller.takeLock(t.Context(), f, n)
			lock, failure := controller.Locks.Read(t.Context(), "v")
			if err != nil || failure != nil || taken != c.holds || lock.Holder != c.holder {
				t.Errorf("taken %t, lock %+v, errors %v, %v; want taken %t, holder %q", taken, lock, err, failure, c.holds,
					c.holder)
			}
			if shown := liveState(t, controller, "b").Spec.Attachments[0].Evidence.Unprotected; shown == c.holds {
				t.Errorf("evidence is unprotected: %t, want %t", shown, !c.holds)
			}
			if (n.Wait != nil) == c.holds {
				t.Errorf("node a waits for %+v, want that it does: %t", n.Wait, !c.holds)
			}
		})
	}
}

// handedOver is an exclusive volume whose lock has moved from node b, where the access is cut, to node a, and that is
// attached there. The state of node b may have been changed since.
func handedOver(t *testing.T, net *network, changes ...func(*volumesv1alpha1.NodeVolumeState)) (
	*Controller, *decision.Facts, *decision.Node,
) {
	t.Helper()
	lock := exclusive.Lock{Holder: "a"}
	away, now := cutAway("b"), metav1.Now()
	e := &away.Spec.Attachments[0]
	e.DetachedTime, e.AttachmentUID, e.AttachmentName = &now, "0", "va-0"
	away.Status.Volumes[0].AttachmentUID = "0"
	for _, change := range changes {
		change(away)
	}
	c, _ := over(t, reported("a"), away, usableBy(corev1.ReadWriteOnce), attachedTo("va-1", "1"), lockObject("v", lock))
	liftsOf(c, net)
	n, from := on("a", wanted("i"), va("1", "held", "attached")), on("b")
	from.TakeOver(liveState(t, c, "b"), "v")
	return c, &decision.Facts{Volume: "v", Driver: "d", VolumeHandle: "h", AttachRequired: true, Exclusive: true,
		Lock: lock.Handshake(), Nodes: []*decision.Node{n, from}}, n
}

// TestAnExclusiveVolumeIsConfirmedForANodeOnlyWhileTheCutHolds: the fence may be lifted after the lock has moved, while
// the driver attaches.
func TestAnExclusiveVolumeIsConfirmedForANodeOnlyWhileTheCutHolds(t *testing.T) {
	down := errors.New("down")
	for name, c := range map[string]struct {
		net     network
		changes []func(*volumesv1alpha1.NodeVolumeState)
		err     error
		want    bool
	}{
		"it holds":                      {net: network{cuts: map[string]bool{"f": true}}, want: true},
		"it was lifted":                 {},
		"whether it holds is not known": {net: network{err: down}, err: down},
		"another manager has marked that it was lifted": {net: network{cuts: map[string]bool{"f": true}},
			changes: []func(*volumesv1alpha1.NodeVolumeState){func(nvs *volumesv1alpha1.NodeVolumeState) {
				nvs.Spec.Attachments[0].Evidence.Unprotected = true
			}}},
		"it was lifted, and the agent has reported": {want: true,
			changes: []func(*volumesv1alpha1.NodeVolumeState){func(nvs *volumesv1alpha1.NodeVolumeState) {
				nvs.Status.Volumes = nil
			}}},
	} {
		t.Run(name, func(t *testing.T) {
			controller, f, n := handedOver(t, &c.net, c.changes...)
			if err := controller.confirmAttached(t.Context(), f, n, &n.Attachments[0]); !errors.Is(err, c.err) {
				t.Fatalf("error %v, want %v", err, c.err)
			}
			if got := n.State.Entry.State == handshake.Attached; got != c.want {
				t.Errorf("node a may use volume v: %t, want %t", got, c.want)
			}
			if c.err != nil {
				return
			}
			if shown := liveState(t, controller, "b").Spec.Attachments[0].Evidence.Unprotected; shown == c.want {
				t.Errorf("evidence of node b is unprotected: %t, want %t", shown, !c.want)
			}
			if (n.Wait == nil) != c.want {
				t.Errorf("node a waits for %+v; want that it does: %t", n.Wait, !c.want)
			}
		})
	}
}

// TestANodeThatHasAnExclusiveVolumeKeepsItWhenACutIsLifted: it was handed over, and cannot be taken back.
func TestANodeThatHasAnExclusiveVolumeKeepsItWhenACutIsLifted(t *testing.T) {
	c, f, n := handedOver(t, &network{})
	nvs := liveState(t, c, "a")
	nvs.Spec.Attachments = []volumesv1alpha1.NodeAttachment{{VolumeName: "v", AttachmentUID: "1", AttachmentName: "va-1",
		State: volumesv1alpha1.AttachmentAttached}}
	if err := c.Client.Update(t.Context(), nvs); err != nil {
		t.Fatal(err)
	}
	n.TakeOver(nvs, "v")
	if err := c.confirmAttached(t.Context(), f, n, &n.Attachments[0]); err != nil || n.Wait != nil ||
		liveState(t, c, "a").Spec.Attachments[0].Driver != f.Driver {
		t.Errorf("node a, which has volume v, waits for %+v, error %v; want its entry brought up to date", n.Wait, err)
	}
}

func TestAVolumeIsNotDeletedOnAFenceThatWasReadTooLongAgo(t *testing.T) {
	va := attachedTo("va-1", "1")
	va.Finalizers = []string{"driver", volumesv1alpha1.ForcedAwayFinalizer}
	c, now := over(t, cutAway("a"), readyNode("a"), va)
	net := &network{cuts: map[string]bool{"f": true}}
	net.before = func() { now.SetTime(now.Now().Add(2 * cutFreshness)) }
	liftsOf(c, net)
	for _, replaces := range []bool{false, true} {
		f, n := factsOf(t, c)
		f.Replace, n.Live, n.Attachments[0].NameHeld = replaces, true, true
		if err := c.deleteAttachment(t.Context(), f, n, &n.Attachments[0]); !errors.Is(err, errOutdated) ||
			liveAttachment(t, c, "va-1").DeletionTimestamp != nil {
			t.Errorf("error %v, want %v and no delete", err, errOutdated)
		}
	}
}

// TestAccessThatIsCutIsAskedForOnceTheAgentFallsSilent, whichever manager marks it then: that wakes no volume.
func TestAccessThatIsCutIsAskedForOnceTheAgentFallsSilent(t *testing.T) {
	nvs := usedIn(entryIn(reported("a"), isThere, "1", ""), "1")
	c, now := over(t, nvs, readyNode("a"), attachedTo("va-1", "1"))
	c.Tracker.Silence("a") // heard for the first time
	now.SetTime(now.Now().Add(10 * time.Second))
	known := []volumesv1alpha1.FenceReference{cutBy("f")}
	c.Fences = &network{known: known, cuts: map[string]bool{"f": true}}
	f, n := factsOf(t, c)
	wanted := n.Wanted
	n.Wanted = nil
	err := c.gatherCut(t.Context(), f, n, nvs)
	if due := decision.EvidenceDue(f, c.Protocol, n); err != nil || n.Evidence != nil || due != 30*time.Second {
		t.Errorf("an agent that was heard 10s ago: evidence %+v, error %v, next look in %s; want none, in 30s", n.Evidence,
			err, due)
	}
	n.EvidenceDue = 0
	evidence, err := c.confirmCut(t.Context(), f, n, nvs, n.State)
	if err != nil || evidence != nil || n.EvidenceDue != 30*time.Second {
		t.Errorf("an agent that is heard while a fence is confirmed: evidence %+v, error %v, next look in %s; want none, in "+
			"30s", evidence, err, n.EvidenceDue)
	}
	n.Wanted = wanted
	if due := decision.EvidenceDue(f, c.Protocol, n); due != 0 {
		t.Errorf("a volume that is wanted where it is: next look in %s, want none", due)
	}
	c.Fences = &network{}
	n.EvidenceDue = 0
	if err := c.gatherCut(t.Context(), f, n, nvs); err != nil || n.EvidenceDue != 0 {
		t.Errorf("no access is cut: next look in %s, error %v; want none", n.EvidenceDue, err)
	}
}

// TestAccessThatIsCutForcesNothingWhileTheAgentIsHeard, which it is until this manager has listened for long enough:
// after a restore the fence, and what is reported of the node, may be of the past, as the node's state may.
func TestAccessThatIsCutForcesNothingWhileTheAgentIsHeard(t *testing.T) {
	nvs := usedIn(entryIn(reported("a"), isThere, "1", ""), "1")
	meta.SetStatusCondition(&nvs.Status.Conditions, metav1.Condition{Type: volumesv1alpha1.ConditionReady,
		Status: metav1.ConditionUnknown, Reason: volumesv1alpha1.ReasonAgentUnreachable}) // by another manager
	c, _ := over(t, nvs, readyNode("a"), attachedTo("va-1", "1"))
	c.Events = events.NewFakeRecorder(10)
	c.Fences = &network{known: []volumesv1alpha1.FenceReference{cutBy("f")}, cuts: map[string]bool{"f": true}}
	f, n := factsOf(t, c)
	if err := c.gatherCut(t.Context(), f, n, nvs); err != nil || n.Evidence != nil ||
		n.EvidenceDue != liveness.DefaultDuration {
		t.Errorf("evidence %+v, error %v, next look in %s; want none before the agent has been silent", n.Evidence, err,
			n.EvidenceDue)
	}
	if err := c.markDetaching(t.Context(), f, decision.Step{Act: decision.MarkDetaching, Node: n,
		Attachment: &n.Attachments[0], Evidence: true}); err != nil {
		t.Fatal(err)
	}
	if e := liveState(t, c, "a").Spec.Attachments[0]; e.State == leavesIt {
		t.Errorf("the volume is forced away on %+v before any agent was heard, want that it waits", *e.Evidence)
	}
}
