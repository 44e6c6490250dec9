/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package liveness

import (
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	clocktesting "k8s.io/utils/clock/testing"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/controllertest"
)

// lease that was renewed at that second of the agent's clock, whatever that is.
func lease(second int64) *coordinationv1.Lease {
	at := metav1.NewMicroTime(time.Unix(second, 0))
	return &coordinationv1.Lease{Spec: coordinationv1.LeaseSpec{RenewTime: &at, LeaseDurationSeconds: ptr.To[int32](40)}}
}

func TestAnAgentIsSilentOnceItsLeaseWasNotRenewedForItsDuration(t *testing.T) {
	c := clocktesting.NewFakePassiveClock(time.Unix(1_000_000, 0))
	tracker := NewTracker(c)
	if !tracker.Observe("a", lease(5)) {
		t.Error("the first Lease of the agent of node a wakes nothing, want node a")
	}
	step := func(d time.Duration) { c.SetTime(c.Now().Add(d)) }
	step(30 * time.Second)
	if s := tracker.Silence("a"); s != -10*time.Second {
		t.Errorf("silence of node a after 30s: %s, want -10s", s)
	}
	if tracker.Observe("a", lease(15)) {
		t.Error("a renewal of the Lease of node a in time wakes the node, want that it does not")
	}
	step(40 * time.Second)
	if s := tracker.Silence("a"); s != 0 {
		t.Errorf("silence of node a 40s after the renewal: %s, want 0s", s)
	}
	if tracker.Observe("a", lease(15)) {
		t.Error("the same renewal of the Lease of node a, observed again, ends its silence, want that it does not")
	}
	if !tracker.Observe("a", lease(3)) {
		t.Error("a renewal of the Lease of node a by a clock that went backwards does not end its silence, want that it does")
	}
	if s := tracker.Silence("a"); s != -40*time.Second {
		t.Errorf("silence of node a after its Lease was renewed: %s, want -40s", s)
	}
}

func TestASessionThatBeginsIsHeardAsARenewalIs(t *testing.T) {
	c := clocktesting.NewFakePassiveClock(time.Unix(1_000_000, 0))
	tracker := NewTracker(c)
	state := func(uid types.UID, session int64) *volumesv1alpha1.NodeVolumeState {
		nvs := &volumesv1alpha1.NodeVolumeState{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: uid}}
		nvs.Status.Protocol.Session = session
		return nvs
	}
	tracker.Observe("a", lease(5))
	tracker.ObserveSession(state("1", 7))
	c.SetTime(c.Now().Add(time.Minute))
	for _, step := range []struct {
		what string
		nvs  *volumesv1alpha1.NodeVolumeState
		want time.Duration
	}{
		{"the session that was known", state("1", 7), 20 * time.Second},
		{"a state without a session", state("2", 0), 20 * time.Second},
		{"the next session", state("1", 9), -DefaultDuration},
		{"a session of the same number in a state that was created again", state("2", 9), -DefaultDuration},
	} {
		tracker.ObserveSession(step.nvs)
		if s := tracker.Silence("a"); s != step.want {
			t.Errorf("silence of node a after %s: %s, want %s", step.what, s, step.want)
		}
		if step.want < 0 {
			c.SetTime(c.Now().Add(time.Minute))
		}
	}
	renewed := lease(14)
	renewed.Annotations = map[string]string{
		volumesv1alpha1.LeaseStateAnnotation: "3", volumesv1alpha1.LeaseReportsAnnotation: "12",
	}
	for session, want := range map[int64]time.Duration{11: 20 * time.Second, 13: -DefaultDuration} {
		c := clocktesting.NewFakePassiveClock(time.Unix(1_000_000, 0))
		fresh := NewTracker(c)
		fresh.Observe("a", renewed)
		c.SetTime(c.Now().Add(time.Minute))
		fresh.ObserveSession(state("3", session))
		if s := fresh.Silence("a"); s != want {
			t.Errorf("silence of node a, whose Lease has report 12, with session %d: %s, want %s", session, s, want)
		}
	}
	if !tracker.Observe("a", lease(15)) {
		t.Error("the first renewal for two minutes wakes nothing, want node a")
	}
}

func TestAnAgentHasItsFullTimeAgainOnceARequestFailed(t *testing.T) {
	c := clocktesting.NewFakePassiveClock(time.Unix(1_000_000, 0))
	tracker := NewTracker(c)
	tracker.Observe("a", lease(5))
	c.SetTime(c.Now().Add(time.Hour))
	tracker.Doubt("a")
	for _, want := range []time.Duration{-40 * time.Second, 0} {
		if s := tracker.Silence("a"); s != want {
			t.Errorf("silence of node a after a request that failed: %s, want %s", s, want)
		}
		c.SetTime(c.Now().Add(40 * time.Second))
	}
	if tracker.LastWord("a") == "" {
		t.Error("the last renewal of the agent of node a is forgotten after a request that failed, want it kept")
	}
}

func TestAnAgentThatHasNotReportedYetHasItsFullTime(t *testing.T) {
	c := clocktesting.NewFakePassiveClock(time.Unix(1_000_000, 0))
	tracker := NewTracker(c)
	if s := tracker.Silence("a"); s != -DefaultDuration {
		t.Errorf("silence of node a, of which nothing is known: %s, want %s", s, -DefaultDuration)
	}
	c.SetTime(c.Now().Add(DefaultDuration))
	if s := tracker.Silence("a"); s != 0 {
		t.Errorf("silence of node a after %s without a Lease: %s, want 0s", DefaultDuration, s)
	}
}

func TestAWallClockThatJumpsNeitherSilencesAnAgentNorBringsItBack(t *testing.T) {
	for name, by := range map[string]time.Duration{"forwards": 48 * time.Hour, "backwards": -48 * time.Hour} {
		t.Run(name, func(t *testing.T) {
			c := clocktesting.NewFakePassiveClock(time.Now())
			tracker := NewTracker(c)
			tracker.Observe("a", lease(5))
			c.SetTime(controllertest.Jump(t, c.Now().Add(30*time.Second), by))
			if s := tracker.Silence("a"); s != -10*time.Second {
				t.Errorf("silence of node a after 30s and a jump of the wall clock: %s, want -10s", s)
			}
			c.SetTime(controllertest.Jump(t, c.Now().Add(30*time.Second), -by))
			if s := tracker.Silence("a"); s != 20*time.Second {
				t.Errorf("silence of node a after 60s and a jump of the wall clock back: %s, want 20s", s)
			}
		})
	}
}
