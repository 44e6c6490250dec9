/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package liveness

import (
	"strconv"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
)

// said is a Lease of node that was renewed at that second, after that many reports.
func said(node string, second, reports int64, restored bool) *coordinationv1.Lease {
	l := lease(second)
	l.Name = volumesv1alpha1.AgentLeasePrefix + node
	l.ResourceVersion = strconv.FormatInt(100+second, 10)
	l.Annotations = map[string]string{
		volumesv1alpha1.LeaseStateAnnotation:   "state-" + node,
		volumesv1alpha1.LeaseReportsAnnotation: strconv.FormatInt(reports, 10),
	}
	if restored {
		l.Annotations[volumesv1alpha1.LeaseRestoredAnnotation] = "true"
	}
	return l
}

func reported(node string, reports int64) *volumesv1alpha1.NodeVolumeState {
	nvs := &volumesv1alpha1.NodeVolumeState{ObjectMeta: metav1.ObjectMeta{Name: node, UID: "state-" + "a"}}
	nvs.Status.Protocol.Reports = reports
	return nvs
}

func TestAReportCountsOnceItsAgentsLeaseWasSeenBeingRenewed(t *testing.T) {
	tracker := NewTracker(clocktesting.NewFakePassiveClock(time.Unix(1_000_000, 0)))
	expect := func(what string, reports int64, want bool) {
		t.Helper()
		if got := tracker.IsCurrent(reported("a", reports)); got != want {
			t.Errorf("%s: report %d of node a counts: %t, want %t", what, reports, got, want)
		}
	}
	expect("before anything was heard", 7, false)
	tracker.begin([]coordinationv1.Lease{*said("a", 1, 7, false)})
	expect("a Lease that stands may have been restored", 7, false)
	tracker.hear(said("a", 1, 7, false))
	expect("a Lease that somebody else has touched", 7, false)
	tracker.hear(said("a", 2, 7, false))
	expect("renewed", 7, true)
	expect("a state older than the last report", 6, false)
	expect("a newer state", 8, true)
	tracker.deaf()
	expect("the watch has ended", 7, false)
	tracker.begin([]coordinationv1.Lease{*said("a", 2, 7, false)})
	expect("another watch", 7, false)
	tracker.hear(said("a", 3, 9, false))
	expect("the state is behind what was heard", 8, false)
	expect("renewed in the other watch", 9, true)
	other := reported("a", 9)
	other.UID = "made again"
	if tracker.IsCurrent(other) {
		t.Errorf("a report to node state a with UID %s counts, want that it does not", other.UID)
	}
}

func TestAnUnreachableAgentIsWaitedForForALimitedTimeUnlessThereWasARestore(t *testing.T) {
	c := clocktesting.NewFakePassiveClock(time.Unix(1_000_000, 0))
	tracker := NewTracker(c)
	nobody := func(string) bool { return false }
	states := []volumesv1alpha1.NodeVolumeState{*reported("a", 2), *reported("b", 2)}
	states[1].Name, states[1].UID = "b", "state-b"
	expect := func(what string, excused func(string) bool, want int) {
		t.Helper()
		if got, _ := tracker.Unheard(states, excused); len(got) != want {
			t.Errorf("%s: nodes whose agents were not heard: %v, want %d", what, got, want)
		}
	}
	expect("nobody listens", nobody, 2)
	tracker.begin(nil)
	expect("nobody was heard", nobody, 2)
	tracker.hear(said("a", 1, 1, false))
	expect("one was heard", nobody, 1)
	c.SetTime(c.Now().Add(DefaultDuration))
	expect("the other one counts as silent", nobody, 0)
	tracker.hear(said("a", 2, 2, true))
	expect("the first one tells of a restore", nobody, 1)
	expect("an administrator says that the other one is gone", func(node string) bool { return node == "b" }, 0)
	tracker.hear(said("a", 3, 3, false))
	expect("the restore is over, but the state is older than what was heard of", nobody, 1)
	states[0] = *reported("a", 3)
	expect("the state has come", nobody, 0)
	tracker.hear(said("a", 4, 4, false))
	c.SetTime(c.Now().Add(DefaultDuration))
	expect("an agent that has died before its state came counts as silent", nobody, 0)
}

// TestAStateThatStaysBehindItsAgentsLeaseIsNamedAndWaitedFor: what has not come may be that the node uses a volume.
func TestAStateThatStaysBehindItsAgentsLeaseIsNamedAndWaitedFor(t *testing.T) {
	c := clocktesting.NewFakePassiveClock(time.Unix(1_000_000, 0))
	tracker := NewTracker(c)
	states := []volumesv1alpha1.NodeVolumeState{*reported("a", 2)}
	expect := func(what string, waits, named bool) {
		t.Helper()
		unheard, _ := tracker.Unheard(states, func(string) bool { return true })
		if behind := tracker.Behind(unheard); (len(unheard) > 0) != waits || (len(behind) > 0) != named {
			t.Errorf("%s: %v are waited for and %v named, want node a waited for %t, named %t", what, unheard, behind, waits,
				named)
		}
	}
	half := DefaultDuration / 2
	step := func(second, reports int64) {
		c.SetTime(c.Now().Add(half))
		tracker.hear(said("a", second, reports, false))
	}
	tracker.begin(nil)
	tracker.hear(said("a", 1, 1<<62, false))
	expect("the agent is heard for the first time", true, false)
	step(2, 1<<62)
	expect("it was asked for half a minute ago", true, false)
	step(3, 1<<62+1)
	expect("nothing has come for as long as a Lease lasts", true, true)
	step(4, 2)
	expect("the Lease names what was reported", false, false)
	step(5, 3)
	expect("another report is on its way", true, false)
	step(6, 3)
	states[0] = *reported("a", 3)
	tracker.IsCurrent(&states[0])
	step(7, 4)
	expect("it has come, and another one is on its way", true, false)
	c.SetTime(c.Now().Add(DefaultDuration))
	expect("the agent is silent", false, false)
}

func TestWhatTheAPIShowsOfANodeMayBePastUntilTheRestoreIsOverOrTheNodeIsExcused(t *testing.T) {
	c := clocktesting.NewFakePassiveClock(time.Unix(1_000_000, 0))
	tracker := NewTracker(c)
	excused, earlier := reported("a", 1), reported("b", 1)
	metav1.SetMetaDataAnnotation(&excused.ObjectMeta, volumesv1alpha1.ExcusedFromRestoreAnnotation, "this")
	metav1.SetMetaDataAnnotation(&earlier.ObjectMeta, volumesv1alpha1.ExcusedFromRestoreAnnotation, "another")
	expect := func(what string, past, pastIfExcused bool) {
		t.Helper()
		for _, nvs := range []*volumesv1alpha1.NodeVolumeState{nil, reported("c", 1), earlier} {
			if got := tracker.MayBePast(nvs); got != past {
				t.Errorf("%s: what the API shows of a node that is not excused may be past: %t, want %t", what, got, past)
			}
		}
		if got := tracker.MayBePast(excused); got != pastIfExcused {
			t.Errorf("%s: what the API shows of a node that is excused may be past: %t, want %t", what, got, pastIfExcused)
		}
	}
	tracker.begin(nil)
	tracker.hear(said("d", 1, 1, false))
	expect("no agent reports a restore", false, false)
	this := said("d", 2, 2, true)
	tracker.hear(this)
	expect("an agent of an earlier version reports one", true, true)
	this = said("d", 3, 2, true)
	this.Annotations[volumesv1alpha1.LeaseRestoreIDAnnotation] = "this"
	tracker.hear(this)
	expect("an agent reports this one", true, false)
	tracker.deaf()
	expect("the watch has ended", true, true)
	tracker.begin(nil)
	expect("another watch has begun", true, true)
	c.SetTime(c.Now().Add(DefaultDuration))
	expect("no agent has reported one to that", false, false)
	tracker.deaf()
	tracker.begin(nil)
	expect("nor to the one before", false, false)
}

// TestARestoreThatOnlyADeletedLeaseReportsIsOverOnceItsAgentHadTheTimeToReportItAgain: one that has ended never does.
func TestARestoreThatOnlyADeletedLeaseReportsIsOverOnceItsAgentHadTheTimeToReportItAgain(t *testing.T) {
	for name, lives := range map[string]bool{"it lives": true, "it has ended": false} {
		t.Run(name, func(t *testing.T) {
			c := clocktesting.NewFakePassiveClock(time.Unix(1_000_000, 0))
			tracker := NewTracker(c)
			states := []volumesv1alpha1.NodeVolumeState{*reported("b", 1)}
			expect := func(when string, want bool) {
				t.Helper()
				unheard, _ := tracker.Unheard(states, func(string) bool { return false })
				if got := tracker.MayBePast(nil); got != want || len(unheard) > 0 != want {
					t.Errorf("%s: what the API shows may be past %t, and %v are waited for; want both %t", when, got, unheard, want)
				}
			}
			tracker.begin(nil)
			c.SetTime(c.Now().Add(DefaultDuration))
			this := said("a", 1, 1, true)
			this.Annotations[volumesv1alpha1.LeaseRestoreIDAnnotation] = "this"
			tracker.hear(this)
			c.SetTime(c.Now().Add(time.Hour))
			expect("an agent has reported a restore", true)
			tracker.withdraw(this)
			expect("its Lease was deleted", true)
			if _, wait := tracker.Unheard(states, func(string) bool { return false }); wait != DefaultDuration {
				t.Errorf("wait for the agents that were not heard: %s, want %s", wait, DefaultDuration)
			}
			if got := tracker.Restores(); len(got) != 0 {
				t.Errorf("restores that agents report: %v, want none", got)
			}
			if !tracker.IsCurrent(reported("a", 1)) {
				t.Error("the report of the agent whose Lease was deleted does not count, want that it does")
			}
			if lives {
				tracker.hear(said("a", 2, 1, true))
			}
			c.SetTime(c.Now().Add(DefaultDuration))
			expect("and it had its time", lives)
		})
	}
}

func TestAListenerNoticesThatTheAPIServerWasRestored(t *testing.T) {
	list := func(version string, leases ...*coordinationv1.Lease) *coordinationv1.LeaseList {
		l := &coordinationv1.LeaseList{ListMeta: metav1.ListMeta{ResourceVersion: version}}
		for _, lease := range leases {
			l.Items = append(l.Items, *lease)
		}
		return l
	}
	for _, test := range []struct {
		name  string
		again *coordinationv1.LeaseList
		want  bool
	}{
		{"nothing happened", list("200", said("a", 50, 1, false)), false},
		{"a Lease was renewed", list("220", said("a", 60, 1, false)), false},
		{"revisions are used again", list("150", said("a", 50, 1, false)), true},
		{"the revision was bumped", list("1000200", said("a", 40, 1, false)), true},
		{"a Lease was deleted", list("220"), false},
	} {
		t.Run(test.name, func(t *testing.T) {
			l := &Listener{}
			if l.wentBack(list("200", said("a", 50, 1, false))) {
				t.Error("the first list of Leases counts as older than one before, want that it does not")
			}
			if got := l.wentBack(test.again); got != test.want {
				t.Errorf("the list of Leases went back: %t, want %t", got, test.want)
			}
		})
	}
}
