/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package node

import (
	"errors"
	"slices"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/liveness/livenesstest"
	"github.com/hawser-io/hawser/internal/handshake"
)

// absent is the record of a Node that went after this renewal.
func absent(renewal string, contradicted bool) func(*volumesv1alpha1.NodeVolumeState) {
	return func(nvs *volumesv1alpha1.NodeVolumeState) {
		nvs.Status.Node.Absence = &volumesv1alpha1.AbsenceObservation{Observed: metav1.Time(noon), NodeUID: "node",
			LastRenewal: renewal}
		if contradicted {
			nvs.Status.Node.Absence.Contradicted = &metav1.Time{Time: noon.Time}
		}
	}
}

// went is node n as it went: its kubelet was not heard.
func went(boot string) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "node"}, Status: corev1.NodeStatus{
		NodeInfo:   corev1.NodeSystemInfo{BootID: boot},
		Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionUnknown}}}}
}

// outOfReach has the controller's process listen to the agents, and hear that of node n for the last time long ago.
func (w *world) outOfReach(t *testing.T) {
	t.Helper()
	livenesstest.Listen(t, w.Tracker, w.live)
	w.Tracker.Observe("n", second(1))
	w.pass(time.Hour)
}

func TestAnAbsenceIsRecordedOnceAndContradictedOnce(t *testing.T) {
	first := handshake.Renewal(second(1))
	booted := func(nvs *volumesv1alpha1.NodeVolumeState) { nvs.Status.BootID = "1" }
	held := leavingAttachment("1", "n", "theirs")
	held.DeletionTimestamp, held.Annotations = nil, map[string]string{volumesv1alpha1.HoldAnnotation: "now"}
	for _, c := range []struct {
		name string
		nvs  *volumesv1alpha1.NodeVolumeState
		// went is how this process saw the Node go; nil if it did not.
		went *corev1.Node
		// lease is the one that is renewed by now.
		lease *coordinationv1.Lease
		more  []client.Object
		// recorded and void are of the record after; writes are how many it takes.
		recorded, void bool
		writes         int
	}{
		{"a Node is seen to go", stateOf("n", attached("v", "1")), went(""), second(1), nil, true, false, 1},
		{"a Node is seen to go from an attachment without an entry", stateOf("n"), went(""), second(1),
			[]client.Object{held}, true, false, 1},
		{"a Node is seen to go from which nothing is detached", stateOf("n"), went(""), second(1), nil, false, false, 0},
		{"nobody saw it go", stateOf("n", attached("v", "1")), nil, second(1), nil, false, false, 0},
		{"the agent is heard before that is recorded", stateOf("n", attached("v", "1")), went(""), second(2), nil, true,
			true, 1},
		{"another machine went than the one that reported", stateOf("n", attached("v", "1"), booted), went("2"), second(1),
			nil, false, false, 0},
		{"nothing happens", stateOf("n", attached("v", "1"), absent(first, false)), nil, second(1), nil, true, false, 0},
		{"the agent is heard", stateOf("n", attached("v", "1"), absent(first, false)), nil, second(2), nil, true, true, 1},
		{"the agent is heard again", stateOf("n", attached("v", "1"), absent(first, true)), nil, second(3), nil, true, true,
			0},
		{"the Node is back, as the API shows it", stateOf("n", attached("v", "1")), went(""), second(1),
			[]client.Object{went("")}, false, false, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			objects := append([]client.Object{c.nvs, c.lease}, c.more...)
			w := over(t, objects, objects)
			w.outOfReach(t)
			if c.went != nil {
				w.Tracker.Departed(c.went)
			}
			w.Tracker.Observe("n", c.lease)
			for range 2 { // a second reconcile, by a cache that lags, changes nothing more
				if again, err := w.recordAbsence(t.Context(), c.nvs); again != never || err != nil {
					t.Fatalf("recording the absence of node n: again in %s, error %v; want neither", again, err)
				}
			}
			record := w.state(t, "n").Status.Node.Absence
			if (record != nil) != c.recorded || record != nil &&
				((record.Contradicted != nil) != c.void || record.LastRenewal != first) {
				t.Errorf("record of the absence of node n: %+v, want one %t, of renewal %q, contradicted %t", record, c.recorded,
					first, c.void)
			}
			if w.observed != c.writes {
				t.Errorf("%d writes of node state n, want %d", w.observed, c.writes)
			}
		})
	}
}

func TestAnAbsenceIsNotRecordedWhereNodeOrLeaseCannotBeRead(t *testing.T) {
	for _, down := range []string{"get *v1.Node", "get *v1.Lease"} {
		nvs := stateOf("n", attached("v", "1"))
		w := over(t, []client.Object{nvs}, []client.Object{nvs, second(1)})
		w.outOfReach(t)
		w.Tracker.Departed(went(""))
		w.down = down
		if _, err := w.recordAbsence(t.Context(), nvs); !errors.Is(err, errDown) {
			t.Errorf("recording the absence of node n without an answer to %s: error %v, want %v", down, err, errDown)
		}
		if record := w.state(t, "n").Status.Node.Absence; record != nil {
			t.Errorf("record of the absence without an answer to %s: %+v, want none", down, record)
		}
	}
}

func TestTheRecordOfAnAbsenceEndsWhenTheNodeIsBack(t *testing.T) {
	back := went("")
	back.UID = "other"
	for name, c := range map[string]struct {
		live []client.Object
		ends bool
	}{
		"it is back": {[]client.Object{back}, true}, "the cache lags": {nil, false},
		"it is not the other Node that the cache shows": {[]client.Object{went("")}, false},
	} {
		nvs := stateOf("n", attached("v", "1"), absent("1", false))
		w := over(t, []client.Object{nvs, back}, append(c.live, nvs))
		for range 2 {
			if _, err := w.forgetAbsence(t.Context(), w.state(t, "n")); err != nil {
				t.Fatal(err)
			}
		}
		if record := w.state(t, "n").Status.Node.Absence; (record == nil) != c.ends || (w.observed == 1) != c.ends {
			t.Errorf("%s: record of the absence of node n: %+v after %d writes, want it ended %t", name, record, w.observed,
				c.ends)
		}
	}
}

func TestAReportOfARestoreWakesTheNodesThatAreAbsentOrWaitForEvidence(t *testing.T) {
	there, gone := stateOf("there"), stateOf("n", attached("v", "1"), absent("1", false))
	silent := stateOf("silent", attached("v", "1"), unreachable)
	w := over(t, []client.Object{there, gone, silent}, nil)
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
	defer queue.ShutDown()
	w.wakeConcerned(t.Context(), queue)
	var woken []string
	for queue.Len() > 0 {
		r, _ := queue.Get()
		woken = append(woken, r.Name)
	}
	if want := []string{"n", "silent"}; !slices.Equal(woken, want) {
		t.Errorf("woken: %v, want %v", woken, want)
	}
}

// TestAfterARestoreSessionsWaitUntilAbsencesAreContradicted: later nothing shows that they are of the past.
func TestAfterARestoreSessionsWaitUntilAbsencesAreContradicted(t *testing.T) {
	for name, c := range map[string]struct {
		restored, contradicted bool
		want                   []string
	}{
		"a record may be of the past": {true, false, []string{"gone"}},
		"it is contradicted":          {true, true, nil},
		"there was no restore":        {false, false, nil},
	} {
		t.Run(name, func(t *testing.T) {
			gone, heard := stateOf("gone", absent("1", c.contradicted)), stateOf("n")
			w := over(t, []client.Object{gone, heard}, []client.Object{second(1)})
			w.outOfReach(t)
			queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
			defer queue.ShutDown()
			if err := w.Tracker.Listen(w.heard).Start(t.Context(), queue); err != nil {
				t.Fatal(err)
			}
			lease := &coordinationv1.Lease{}
			if err := w.live.Get(t.Context(), client.ObjectKeyFromObject(second(1)), lease); err != nil {
				t.Fatal(err)
			}
			lease.Spec.RenewTime = second(2).Spec.RenewTime
			if c.restored {
				lease.Annotations = map[string]string{volumesv1alpha1.LeaseRestoredAnnotation: "true"}
			}
			if err := w.live.Update(t.Context(), lease); err != nil {
				t.Fatal(err)
			}
			queue.Get() // the renewal was heard
			unheard, _, err := w.unheard(t.Context())
			if err != nil || !slices.Equal(unheard, c.want) {
				t.Errorf("sessions wait for %v, error %v; want %v", unheard, err, c.want)
			}
		})
	}
}
