/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package liveness

import (
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	clocktesting "k8s.io/utils/clock/testing"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/cached"
	"github.com/hawser-io/hawser/internal/handshake"
)

func nodeThatIs(ready corev1.ConditionStatus) *corev1.Node {
	if ready == "" {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "node"}}
	}
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "node"}, Status: corev1.NodeStatus{
		NodeInfo:   corev1.NodeSystemInfo{BootID: "boot"},
		Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready}}}}
}

var stateA = &volumesv1alpha1.NodeVolumeState{ObjectMeta: metav1.ObjectMeta{Name: "a"}}

func TestADepartureIsThatOfAMachineOutOfReach(t *testing.T) {
	heard := func(tracker *Tracker, _ *clocktesting.FakePassiveClock) {
		tracker.begin([]coordinationv1.Lease{*said("a", 1, 7, false)})
		tracker.hear(said("a", 2, 7, false))
	}
	silent := func(tracker *Tracker, c *clocktesting.FakePassiveClock) {
		heard(tracker, c)
		c.SetTime(c.Now().Add(departureHeard))
	}
	interrupted := func(tracker *Tracker, c *clocktesting.FakePassiveClock) {
		silent(tracker, c)
		tracker.deaf()
		tracker.begin([]coordinationv1.Lease{*said("a", 2, 7, false)})
		c.SetTime(c.Now().Add(departureHeard - time.Second))
	}
	unknown := func(tracker *Tracker, c *clocktesting.FakePassiveClock) {
		silent(tracker, c)
		tracker.Forget("a")
	}
	doubted := func(tracker *Tracker, c *clocktesting.FakePassiveClock) {
		silent(tracker, c)
		tracker.Doubt("a")
		if s := tracker.Silence("a"); s != -DefaultDuration {
			t.Errorf("silence of node a after a request that failed: %s, want %s", s, -DefaultDuration)
		}
	}
	// The renewal may be the last one of an agent that was ended since.
	standing := func(tracker *Tracker, _ *clocktesting.FakePassiveClock) {
		tracker.begin([]coordinationv1.Lease{*said("a", 2, 7, false)})
	}
	forgotten := func(tracker *Tracker, c *clocktesting.FakePassiveClock) {
		silent(tracker, c)
		tracker.Forget("a")
		tracker.Observe("a", said("a", 2, 7, false))
	}
	never := func(*Tracker, *clocktesting.FakePassiveClock) {}
	for _, c := range []struct {
		name    string
		agent   func(*Tracker, *clocktesting.FakePassiveClock)
		kubelet corev1.ConditionStatus
		want    bool
	}{
		{"both are silent", silent, corev1.ConditionUnknown, true},
		{"both are silent, and a request of the manager failed a moment ago", doubted, corev1.ConditionUnknown, true},
		{"no agent was ever heard, nor the kubelet any more", never, corev1.ConditionUnknown, false},
		{"what was heard of the agent is forgotten", unknown, corev1.ConditionUnknown, false},
		{"both are silent since the Leases are watched again", interrupted, corev1.ConditionUnknown, false},
		{"the agent is silent, and no kubelet ever reported", silent, "", false},
		{"both were heard: what deletes the Node may end the agent", heard, corev1.ConditionTrue, false},
		{"the agent was heard, and the kubelet not any more", heard, corev1.ConditionUnknown, false},
		{"the agent alone is silent", silent, corev1.ConditionTrue, false},
		{"the agent alone is silent, and the kubelet not Ready", silent, corev1.ConditionFalse, false},
		{"the agent's Lease was listed a moment ago", standing, corev1.ConditionUnknown, false},
		{"what was heard of the agent was forgotten a moment ago", forgotten, corev1.ConditionUnknown, false},
		{"no agent was ever heard", never, corev1.ConditionTrue, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			now := clocktesting.NewFakePassiveClock(time.Unix(1_000_000, 0))
			tracker := NewTracker(now)
			c.agent(tracker, now)
			tracker.Departed(nodeThatIs(c.kubelet))
			d := tracker.Departure(stateA)
			if want := (handshake.Departure{NodeUID: "node", OutOfReach: c.want, Renewal: tracker.LastWord("a")}); *d != want {
				t.Errorf("departure of node a: %+v, want %+v", *d, want)
			}
		})
	}
}

// lists is a Node whose kubelet leaves attaching to a controller, and lists these volumes in use.
func lists(volumes ...corev1.UniqueVolumeName) *corev1.Node {
	node := nodeThatIs(corev1.ConditionTrue)
	node.Annotations = map[string]string{cached.ManagedNodeAnnotation: "true"}
	node.Status.VolumesInUse = volumes
	return node
}

func TestAReportCoversAVolumeThatTheNodeDidNotListWhenItWent(t *testing.T) {
	const valid = 40 * time.Second
	attachesByItself := lists()
	attachesByItself.Annotations = nil
	for _, c := range []struct {
		name string
		// silent is for how long the agent was not heard when the Node went, or to this day if it did not.
		silent time.Duration
		// went is the Node as it was then; nil if it did not.
		went *corev1.Node
		// happens after that, when two hours have passed.
		happens func(*Tracker)
		nvs     func(*volumesv1alpha1.NodeVolumeState)
		want    bool
	}{
		{name: "the agent is heard", want: true},
		{name: "it is not", silent: valid},
		{name: "the Node did not list it, long after the agent was heard", silent: time.Hour, went: lists("w"), want: true},
		{name: "it did, long after the agent was heard", silent: time.Hour, went: lists("w", "v")},
		{name: "it did, and the agent may have died before", silent: valid - time.Second, went: lists("v")},
		{name: "it did, and the agent is heard again", went: lists("v"),
			happens: func(tracker *Tracker) { tracker.hear(said("a", 3, 7, false)) }},
		{name: "its kubelet attaches by itself", went: attachesByItself},
		{name: "the same, and the agent is heard", went: attachesByItself, want: true,
			happens: func(tracker *Tracker) { tracker.hear(said("a", 3, 7, false)) }},
		{name: "another Node went since", went: lists(), want: true, happens: func(tracker *Tracker) {
			other := lists()
			other.Name = "b"
			tracker.Departed(other)
		}},
		{name: "a list lacks the Node", silent: valid, happens: func(tracker *Tracker) {
			tracker.departures().OnDelete(toolscache.DeletedFinalStateUnknown{Key: "a", Obj: lists()})
		}},
		{name: "a list lacks it, and its agent is heard", want: true, happens: func(tracker *Tracker) {
			tracker.departures().OnDelete(toolscache.DeletedFinalStateUnknown{Key: "a", Obj: lists("v")})
		}},
		{name: "the Node came back and went again", went: lists(), happens: func(tracker *Tracker) {
			tracker.departures().OnAdd(lists(), false)
			tracker.Departed(lists())
		}},
		{name: "the same, and the agent was heard in between", went: lists("v"), want: true, happens: func(tracker *Tracker) {
			tracker.departures().OnAdd(lists(), false)
			tracker.hear(said("a", 3, 7, false))
			tracker.Departed(lists())
		}},
		{name: "a request of the manager failed", went: lists("v"),
			happens: func(tracker *Tracker) { tracker.Doubt("a") }},
		{name: "the Leases are watched again", went: lists(),
			happens: func(tracker *Tracker) { tracker.begin([]coordinationv1.Lease{*said("a", 2, 7, false)}) }},
		{name: "what was heard of the agent is forgotten", went: lists(),
			happens: func(tracker *Tracker) { tracker.Forget("a") }},
		{name: "the state is older than the agent's last report", went: lists(),
			nvs: func(nvs *volumesv1alpha1.NodeVolumeState) { nvs.Status.Protocol.Reports = 6 }},
		{name: "the report is of another boot than that of the Node", went: lists(),
			nvs: func(nvs *volumesv1alpha1.NodeVolumeState) { nvs.Status.BootID = "earlier" }},
	} {
		t.Run(c.name, func(t *testing.T) {
			now := clocktesting.NewFakePassiveClock(time.Unix(1_000_000, 0))
			tracker := NewTracker(now)
			tracker.begin([]coordinationv1.Lease{*said("a", 1, 7, false)})
			tracker.hear(said("a", 2, 7, false))
			now.SetTime(now.Now().Add(c.silent))
			if c.went != nil {
				tracker.Departed(c.went)
				now.SetTime(now.Now().Add(2 * departureKept))
			}
			if c.happens != nil {
				c.happens(tracker)
			}
			nvs := reported("a", 7)
			if c.nvs != nil {
				c.nvs(nvs)
			}
			if got := tracker.Covers(nvs, "v"); got != c.want {
				t.Errorf("the last report of node a covers what its kubelet did with volume v: %t, want %t", got, c.want)
			}
		})
	}
}

// TestANodeThatCameBackCountsAsSuchUntilItsAgentIsHeard: what the agent reported is of the Node's earlier life.
func TestANodeThatCameBackCountsAsSuchUntilItsAgentIsHeard(t *testing.T) {
	other := lists()
	other.UID = "other"
	for name, comesBack := range map[string]func(toolscache.ResourceEventHandler){
		"it was seen going": func(h toolscache.ResourceEventHandler) {
			h.OnDelete(lists("v"))
			h.OnAdd(other, false)
		},
		"a list lacked it": func(h toolscache.ResourceEventHandler) {
			h.OnDelete(toolscache.DeletedFinalStateUnknown{Key: "a"})
			h.OnAdd(other, false)
		},
		"a list has another one": func(h toolscache.ResourceEventHandler) { h.OnUpdate(lists("v"), other) },
	} {
		t.Run(name, func(t *testing.T) {
			tracker := outOfReach()
			tracker.hear(said("a", 3, 7, false))
			expect := func(when string, want bool) {
				t.Helper()
				if got := tracker.Returned("a"); got != want {
					t.Errorf("node a came back, %s: %t, want %t", when, got, want)
				}
			}
			tracker.departures().OnAdd(lists("v"), true)
			expect("as it is first known", false)
			comesBack(tracker.departures())
			expect("before its agent is heard", true)
			tracker.hear(said("a", 3, 7, false))
			expect("and its Lease was changed without a renewal", true)
			woken := 0
			tracker.listeners = append(tracker.listeners, func(string) { woken++ })
			tracker.hear(said("a", 4, 7, false))
			expect("and its agent was heard", false)
			if woken != 1 {
				t.Errorf("node a is woken %d times when its agent is heard, want once", woken)
			}
		})
	}
}

func TestWhatANodeListedIsForgottenWithItsState(t *testing.T) {
	for name, happens := range map[string]func(*Tracker){
		"the state is deleted": func(tracker *Tracker) { tracker.sessions().OnDelete(stateA) },
		"a list lacks the state": func(tracker *Tracker) {
			tracker.sessions().OnDelete(toolscache.DeletedFinalStateUnknown{Key: "a"})
		},
		"nothing is left there": func(tracker *Tracker) { tracker.Forget("a") },
		"the Node comes back":   func(tracker *Tracker) { tracker.departures().OnAdd(lists(), false) },
	} {
		tracker := outOfReach()
		tracker.Departed(lists())
		if len(tracker.last) != 1 {
			t.Errorf("%s: %d Nodes are remembered before, want node a", name, len(tracker.last))
		}
		if happens(tracker); len(tracker.last) != 0 {
			t.Errorf("%s: %d Nodes are remembered, want none", name, len(tracker.last))
		}
	}
}

func TestNothingCoversANodeThatNoProcessSawGoUnlessItsAgentIsHeard(t *testing.T) {
	now := clocktesting.NewFakePassiveClock(time.Unix(1_000_000, 0))
	tracker := NewTracker(now)
	if tracker.Covers(reported("a", 7), "v") {
		t.Error("a report of node a covers what happened there before its agent was heard, want that it does not")
	}
	tracker.begin([]coordinationv1.Lease{*said("a", 1, 7, false)})
	if tracker.Covers(reported("a", 7), "v") {
		t.Error("a report of node a covers what happened there, and its Lease is only there; want that it does not")
	}
	tracker.hear(said("a", 2, 7, false))
	if !tracker.Covers(reported("a", 7), "v") {
		t.Error("a report of node a does not cover what happened there while its agent is heard, want that it does")
	}
}

func TestADepartureKeepsTheRenewalThatWasLastThen(t *testing.T) {
	tracker := NewTracker(clocktesting.NewFakePassiveClock(time.Unix(1_000_000, 0)))
	tracker.begin(nil)
	tracker.hear(said("a", 2, 7, false))
	tracker.Departed(nodeThatIs(corev1.ConditionTrue))
	tracker.hear(said("a", 3, 7, false))
	if d := tracker.Departure(stateA); d.Renewal != handshake.Renewal(said("a", 2, 7, false)) {
		t.Errorf("renewal of the departure of node a: %q, want the one before it went", d.Renewal)
	}
}

func TestADepartureKeepsTheSessionThatWasLastThen(t *testing.T) {
	in := func(uid types.UID, session int64) *volumesv1alpha1.NodeVolumeState {
		nvs := &volumesv1alpha1.NodeVolumeState{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: uid}}
		nvs.Status.Protocol.Session = session
		return nvs
	}
	tracker := outOfReach()
	tracker.sessions().OnAdd(in("state-a", 6), true)
	tracker.sessions().OnUpdate(in("state-a", 6), in("state-a", 7))
	tracker.Departed(nodeThatIs(corev1.ConditionUnknown))
	tracker.sessions().OnUpdate(in("state-a", 7), in("state-a", 8))
	if d := tracker.Departure(in("state-a", 8)); !d.OutOfReach || d.Session != 7 {
		t.Errorf("departure of node a: %+v, want it out of reach, with session 7, the last one before it went", d)
	}
	if d := tracker.Departure(in("made again", 7)); d.Session != 0 {
		t.Errorf("session of the departure of node a, for a state that was created again: %d, want none", d.Session)
	}
}

// TestAMachineIsInReachWhileItsAgentBeginsASession, although it has not renewed its Lease yet.
func TestAMachineIsInReachWhileItsAgentBeginsASession(t *testing.T) {
	tracker, begun := outOfReach(), stateA.DeepCopy()
	begun.Status.Protocol.Session = 8
	tracker.sessions().OnUpdate(stateA, begun)
	tracker.Departed(nodeThatIs(corev1.ConditionUnknown))
	if d := tracker.Departure(begun); d.OutOfReach {
		t.Errorf("departure of node a, whose agent has begun a session: %+v, want it in reach", d)
	}
}

func TestADepartureWakesItsNodeAndIsForgottenInTime(t *testing.T) {
	now := clocktesting.NewFakePassiveClock(time.Unix(1_000_000, 0))
	tracker := NewTracker(now)
	var woken []string
	tracker.listeners = append(tracker.listeners, func(node string) { woken = append(woken, node) })
	tracker.Departed(nodeThatIs(corev1.ConditionUnknown))
	now.SetTime(now.Now().Add(departureKept + time.Second))
	if d := tracker.Departure(stateA); d != nil {
		t.Errorf("departure of node a after more than %s: %+v, want none", departureKept, d)
	}
	other := nodeThatIs(corev1.ConditionUnknown)
	other.Name = "b"
	tracker.Departed(other)
	if len(tracker.gone) != 1 || tracker.gone["b"].node != other {
		t.Errorf("departures after more than %s: %v, want b alone", departureKept, tracker.gone)
	}
	if len(woken) != 2 || woken[0] != "a" {
		t.Errorf("nodes that were woken: %v, want a and b", woken)
	}
}

// outOfReach is a tracker that has not heard the agent of node a for long enough.
func outOfReach() *Tracker {
	now := clocktesting.NewFakePassiveClock(time.Unix(1_000_000, 0))
	tracker := NewTracker(now)
	tracker.begin([]coordinationv1.Lease{*said("a", 2, 7, false)})
	now.SetTime(now.Now().Add(departureHeard))
	return tracker
}

func TestADepartureOfAMachineThatDidNotReportShowsNothingOfTheOneThatDid(t *testing.T) {
	tracker := outOfReach()
	tracker.Departed(nodeThatIs(corev1.ConditionUnknown))
	for boot, want := range map[string]bool{"boot": true, "earlier": false} {
		nvs := stateA.DeepCopy()
		nvs.Status.BootID = boot
		if d := tracker.Departure(nvs); d == nil || d.OutOfReach != want {
			t.Errorf("departure of node a, whose agent reported from boot %s: %+v, want out of reach %t", boot, d, want)
		}
	}
}

func TestANodeThatAListLacksWasNotSeenToGo(t *testing.T) {
	tracker := NewTracker(clocktesting.NewFakePassiveClock(time.Unix(1_000_000, 0)))
	node := nodeThatIs(corev1.ConditionUnknown)
	tracker.departures().OnDelete(toolscache.DeletedFinalStateUnknown{Key: "a", Obj: node})
	if d := tracker.Departure(stateA); d != nil {
		t.Errorf("departure of node a, which a list lacks: %+v, want none", d)
	}
	tracker.departures().OnDelete(node)
	if tracker.Departure(stateA) == nil {
		t.Error("no departure of node a, want the one that the watch had")
	}
}

// TestAnotherLifeOfTheNodeEndsADeparture, however this process learns of it.
func TestAnotherLifeOfTheNodeEndsADeparture(t *testing.T) {
	node, other := nodeThatIs(corev1.ConditionUnknown), nodeThatIs(corev1.ConditionTrue)
	other.UID = "other"
	for name, c := range map[string]struct {
		happens func(toolscache.ResourceEventHandler)
		kept    bool
	}{
		"it comes":    {func(h toolscache.ResourceEventHandler) { h.OnAdd(other, false) }, false},
		"it has come": {func(h toolscache.ResourceEventHandler) { h.OnUpdate(node, other) }, false},
		"it has gone again": {func(h toolscache.ResourceEventHandler) {
			h.OnDelete(toolscache.DeletedFinalStateUnknown{Key: "a"})
		}, false},
		"the Node changes": {func(h toolscache.ResourceEventHandler) { h.OnUpdate(node, node) }, true},
	} {
		tracker := outOfReach()
		tracker.departures().OnDelete(node)
		c.happens(tracker.departures())
		if d := tracker.Departure(stateA); (d != nil) != c.kept {
			t.Errorf("%s: departure of node a: %+v, want it kept %t", name, d, c.kept)
		}
	}
}
