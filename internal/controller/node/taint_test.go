/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package node

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/liveness"
	"github.com/hawser-io/hawser/internal/handshake"
)

func tainted(value string) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "n"},
		Spec: corev1.NodeSpec{Taints: []corev1.Taint{
			{Key: corev1.TaintNodeUnreachable},
			{Key: corev1.TaintNodeOutOfService, Value: value, Effect: corev1.TaintEffectNoExecute},
		}},
	}
}

func second(n int) *coordinationv1.Lease {
	return leaseOf("n", "lease", &metav1.MicroTime{Time: noon.Add(time.Duration(n) * time.Second)})
}

// recorded is a node state with that record of the taint.
func recorded(value, renewal string, contradicted bool) *volumesv1alpha1.NodeVolumeState {
	record := &volumesv1alpha1.OutOfServiceObservation{
		Value: value, Effect: corev1.TaintEffectNoExecute, LastRenewal: renewal,
	}
	if contradicted {
		record.Contradicted = &metav1.Time{Time: noon.Time}
	}
	return stateOf("n", func(nvs *volumesv1alpha1.NodeVolumeState) {
		nvs.Status.Node.OutOfService = record
		showTaint(nvs)
	})
}

func TestATaintIsRecordedOnceAndContradictedOnce(t *testing.T) {
	first := handshake.Renewal(second(1))
	for _, c := range []struct {
		name string
		nvs  *volumesv1alpha1.NodeVolumeState
		node *corev1.Node
		// lease is the one that is renewed now.
		lease *coordinationv1.Lease
		// value and void are of the record after; writes are how many it takes.
		value  string
		void   bool
		none   bool
		writes int
		event  bool
	}{
		{"a taint is seen first", stateOf("n"), tainted("down"), second(1), "down", false, false, 1, false},
		{"nothing happens", recorded("down", first, false), tainted("down"), second(1), "down", false, false, 0, false},
		{"the agent is heard", recorded("down", first, false), tainted("down"), second(2), "down", true, false, 1, true},
		{"the agent is heard again", recorded("down", first, true), tainted("down"), second(3), "down", true, false, 0,
			false},
		{"the agent's Lease is gone", recorded("down", first, false), tainted("down"), nil, "down", false, false, 0, false},
		{"an agent reports that had no Lease", recorded("down", "", false), tainted("down"), second(1), "down", true, false,
			1,
			true},
		{"the taint is gone", recorded("down", first, true), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}},
			second(3),
			"", false, true, 1, false},
		{"another taint is set", recorded("down", first, true), tainted("really-down"), second(3), "really-down", false,
			false,
			1, false},
		{"there is none and was none", stateOf("n"), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}, second(3), "",
			false, true, 0, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			objects := []client.Object{c.nvs, c.node}
			if c.lease != nil {
				objects = append(objects, c.lease)
			}
			w := over(t, objects, objects)
			if c.lease != nil {
				w.Tracker.Observe("n", c.lease)
			}
			for range 2 { // a second reconcile, by a cache that lags, changes nothing more
				if again, err := w.recordTaint(t.Context(), c.nvs); again != never || err != nil {
					t.Fatalf("recording the taint of node n: again in %s, error %v; want neither", again, err)
				}
			}
			nvs := w.state(t, "n")
			record := nvs.Status.Node.OutOfService
			if (record == nil) != c.none || record != nil && (record.Value != c.value ||
				(record.Contradicted != nil) != c.void) {
				t.Errorf("record of the taint of node n: %+v, want value %q, contradicted %t, none %t", record, c.value, c.void,
					c.none)
			}
			if w.observed != c.writes {
				t.Errorf("%d writes of node state n, want %d", w.observed, c.writes)
			}
			shown := meta.IsStatusConditionFalse(nvs.Status.Conditions, volumesv1alpha1.ConditionTaintConsistent)
			if note := w.note(t); shown != c.void || (note != "") != c.event ||
				c.event && !strings.Contains(note, "kubectl taint node n node.kubernetes.io/out-of-service-") {
				t.Errorf("condition False: %t, event %q; want False: %t, and one event that names the end: %t", shown, note, c.void,
					c.event)
			}
		})
	}
}

func TestATaintIsNotGoneWhereNodeOrLeaseCannotBeRead(t *testing.T) {
	for _, down := range []string{"get *v1.Node", "get *v1.Lease"} {
		before := recorded("down", handshake.Renewal(second(1)), true)
		untainted := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}
		w := over(t, []client.Object{before, untainted}, []client.Object{before, untainted, second(3)})
		w.down = down
		if _, err := w.recordTaint(t.Context(), before); !errors.Is(err, errDown) {
			t.Errorf("recording the taint of node n without an answer to %s: error %v, want %v", down, err, errDown)
		}
		if record := w.state(t, "n").Status.Node.OutOfService; record == nil || record.Contradicted == nil {
			t.Errorf("record of the taint without an answer to %s: %+v, want it as it was", down, record)
		}
	}
}

func TestAContradictedTaintStaysVoidThroughAManagersRestart(t *testing.T) {
	nvs, lease := stateOf("n"), second(1)
	w := over(t, []client.Object{nvs, tainted("")}, []client.Object{nvs, tainted(""), lease})
	w.Tracker.Observe("n", lease)
	if _, err := w.recordTaint(t.Context(), nvs); err != nil {
		t.Fatal(err)
	}
	// The agent renews its Lease while no manager runs, and falls silent. The next manager knows only that last renewal.
	held := second(2)
	if err := w.live.Update(t.Context(), func() client.Object {
		standing := &coordinationv1.Lease{}
		if err := w.live.Get(t.Context(), client.ObjectKeyFromObject(held), standing); err != nil {
			t.Fatal(err)
		}
		standing.Spec.RenewTime = held.Spec.RenewTime
		return standing
	}()); err != nil {
		t.Fatal(err)
	}
	w.Tracker = liveness.NewTracker(w.now)
	w.Tracker.Observe("n", held)
	if _, err := w.recordTaint(t.Context(), w.state(t, "n")); err != nil {
		t.Fatal(err)
	}
	if record := w.state(t, "n").Status.Node.OutOfService; record == nil || record.Contradicted == nil {
		t.Errorf("record of the taint of node n: %+v, want it contradicted", record)
	}
}

func TestOnlyTheRenewalAfterATaintWakesItsNode(t *testing.T) { synctest.Test(t, renewAfterTaint) }

func renewAfterTaint(t *testing.T) {
	w := over(t, nil, nil)
	wakes := 0
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
	defer queue.ShutDown()
	if err := w.Tracker.Listen(w.heard).Start(t.Context(), queue); err != nil {
		t.Fatal(err)
	}
	renew := func(n int) {
		w.Tracker.Observe("n", second(n))
		synctest.Wait()
		for ; queue.Len() > 0; wakes++ {
			r, _ := queue.Get()
			queue.Done(r)
		}
	}
	renew(1)
	renew(2)
	if wakes != 0 {
		t.Errorf("%d renewals of the agent woke node n, want none", wakes)
	}
	if w.Tracker.Await("n", handshake.Renewal(second(2))) {
		t.Error("a renewal after the last one counts as seen, want it awaited")
	}
	for n := range 4 {
		renew(2 + n)
	}
	if wakes != 1 {
		t.Errorf("the renewals after the taint woke node n %d times, want once", wakes)
	}
	if !w.Tracker.Await("n", handshake.Renewal(second(2))) {
		t.Error("a renewal that was seen before counts as awaited, want it reported")
	}
}

func TestATaintThatComesOrGoesWakesItsNode(t *testing.T) {
	plain := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}
	for _, c := range []struct {
		name    string
		was, is *corev1.Node
		want    int
	}{
		{"comes", plain, tainted("down"), 1}, {"goes", tainted("down"), plain, 1},
		{"is another one", tainted("down"), tainted("off"), 1}, {"stays", tainted("down"), tainted("down"), 0},
	} {
		queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
		over(t, nil, nil).tainted(t.Context(), event.UpdateEvent{ObjectOld: c.was, ObjectNew: c.is}, queue)
		if got := queue.Len(); got != c.want {
			t.Errorf("a taint that %s wakes %d nodes, want %d", c.name, got, c.want)
		}
		queue.ShutDown()
	}
}

func TestAnAgentThatOnlyTheWatchMissesIsNotMarkedUnreachable(t *testing.T) {
	nvs := stateOf("n")
	w := over(t, []client.Object{nvs}, []client.Object{nvs, second(2)})
	w.Tracker.Observe("n", second(1))
	w.pass(liveness.DefaultDuration)
	if again, err := w.watchOver(t.Context(), nvs); again != liveness.DefaultDuration || err != nil || w.observed > 0 {
		t.Errorf("node n, whose Lease is renewed: next check in %s, error %v, %d writes; want %s and none", again, err,
			w.observed, liveness.DefaultDuration)
	}
	w.pass(liveness.DefaultDuration)
	if _, err := w.watchOver(t.Context(), nvs); err != nil || w.observed != 1 {
		t.Errorf("node n, whose Lease is not renewed: error %v, %d writes; want one", err, w.observed)
	}
}

func TestAnAgentThatHasBegunASessionIsNotMarkedUnreachableBeforeItRenewsItsLease(t *testing.T) {
	nvs := stateOf("n")
	w := over(t, []client.Object{nvs}, []client.Object{nvs, second(1)})
	w.Tracker.Observe("n", second(1))
	w.pass(time.Minute)
	nvs.Status.Protocol.Session++
	if again, err := w.watchOver(t.Context(), nvs); again != liveness.DefaultDuration || err != nil || w.observed > 0 {
		t.Errorf("node n, whose agent has just begun a session: next check in %s, error %v, %d writes; want %s and none",
			again, err, w.observed, liveness.DefaultDuration)
	}
}

func windowsNode(name string) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	n.Status.NodeInfo.OperatingSystem = "windows"
	return n
}

func TestTheAgentOfANodeWhereNoneEverRanIsNotWaitedFor(t *testing.T) {
	w := over(t, []client.Object{windowsNode("n")}, nil)
	if !w.neverSpeaks(t.Context(), stateOf("n"), nil) {
		t.Error("a Windows node without a report: its agent may still speak, want that it never does")
	}
}
