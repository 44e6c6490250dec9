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

func TestAReportCoversTheTimeUntilTheNodeWent(t *testing.T) {
	const valid = 40 * time.Second
	for _, c := range []struct {
		name string
		// silent is for how long the agent was not heard when the Node went, or to this day if it did not.
		silent time.Duration
		went   bool
		// happens after that, when an hour has passed.
		happens func(*Tracker)
		nvs     func(*volumesv1alpha1.NodeVolumeState)
		want    bool
	}{
		{name: "the agent is heard", want: true},
		{name: "it is not", silent: valid},
		{name: "it was heard until the Node went", silent: valid - time.Second, went: true, want: true},
		{name: "it had fallen silent before", silent: valid, went: true},
		{name: "it had, and is heard again", silent: valid, went: true, want: true,
			happens: func(tracker *Tracker) { tracker.hear(said("a", 3, 7, false)) }},
		{name: "it had, and a request of the manager failed", silent: valid, went: true,
			happens: func(tracker *Tracker) { tracker.Doubt("a") }},
		{name: "it was heard until then, and the Leases are watched anew", went: true,
			happens: func(tracker *Tracker) { tracker.begin([]coordinationv1.Lease{*said("a", 2, 7, false)}) }},
		{name: "it was, and what was heard of it is forgotten", went: true,
			happens: func(tracker *Tracker) { tracker.Forget("a") }},
		{name: "it was, and the state is older than its last report", went: true,
			nvs: func(nvs *volumesv1alpha1.NodeVolumeState) { nvs.Status.Protocol.Reports = 6 }},
		{name: "it was, in another boot than that of the Node", went: true,
			nvs: func(nvs *volumesv1alpha1.NodeVolumeState) { nvs.Status.BootID = "earlier" }},
	} {
		t.Run(c.name, func(t *testing.T) {
			now := clocktesting.NewFakePassiveClock(time.Unix(1_000_000, 0))
			tracker := NewTracker(now)
			tracker.begin([]coordinationv1.Lease{*said("a", 1, 7, false)})
			tracker.hear(said("a", 2, 7, false))
			now.SetTime(now.Now().Add(c.silent))
			if c.went {
				tracker.Departed(nodeThatIs(corev1.ConditionTrue))
				now.SetTime(now.Now().Add(time.Hour))
			}
			if c.happens != nil {
				c.happens(tracker)
			}
			nvs := reported("a", 7)
			if c.nvs != nil {
				c.nvs(nvs)
			}
			if got := tracker.Covers(nvs); got != c.want {
				t.Errorf("the last report of node a covers what happened there: %t, want %t", got, c.want)
			}
		})
	}
}

func TestNothingCoversANodeThatNoProcessSawGoUnlessItsAgentIsHeard(t *testing.T) {
	now := clocktesting.NewFakePassiveClock(time.Unix(1_000_000, 0))
	tracker := NewTracker(now)
	if tracker.Covers(reported("a", 7)) {
		t.Error("a report of node a covers what happened there before its agent was heard, want that it does not")
	}
	tracker.begin([]coordinationv1.Lease{*said("a", 1, 7, false)})
	if tracker.Covers(reported("a", 7)) {
		t.Error("a report of node a covers what happened there, and its Lease only stands; want that it does not")
	}
	tracker.hear(said("a", 2, 7, false))
	if !tracker.Covers(reported("a", 7)) {
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
