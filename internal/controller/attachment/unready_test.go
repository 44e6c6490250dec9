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

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/controllertest"
	"github.com/hawser-io/hawser/internal/handshake"
)

var (
	noon  = metav1.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)
	later = metav1.Date(2026, 1, 2, 12, 5, 0, 0, time.UTC)
)

func since(t metav1.Time) spell { return spell{unready: true, transition: t} }

func TestOnlyWatchedTimeCounts(t *testing.T) {
	const minute = time.Minute
	// Each step is so long after the one before it.
	type step struct {
		after time.Duration
		do    func(u *unready, now time.Time)
	}
	look := func(s spell) func(*unready, time.Time) {
		return func(u *unready, now time.Time) { u.looked("a", s, 0, minute, now) }
	}
	miss := func(u *unready, _ time.Time) { u.missed("a") }
	nothing := func(*unready, time.Time) {}
	for _, c := range []struct {
		name  string
		steps []step
		want  time.Duration
	}{
		{"a node that was never looked at", []step{{0, nothing}}, 0},
		{"the first look counts nothing", []step{{0, look(since(noon))}}, 0},
		{"the time between two looks", []step{{0, look(since(noon))}, {minute, look(since(noon))}}, minute},
		{"the time since the last look, as planned", []step{{0, look(since(noon))}, {40 * time.Second, nothing}}, 40 * time.Second},
		{"who comes late has watched no longer than planned", []step{{0, look(since(noon))}, {time.Hour, look(since(noon))}}, minute},
		{"an outage that a look finds adds nothing", []step{
			{0, look(since(noon))}, {minute, look(since(noon))}, {minute, miss}, {time.Hour, look(since(noon))}, {30 * time.Second, look(since(noon))},
		}, minute + 30*time.Second},
		{"during an outage nothing goes on", []step{{0, look(since(noon))}, {minute, look(since(noon))}, {0, miss}, {minute, nothing}}, minute},
		{"Ready in between", []step{{0, look(since(noon))}, {minute, look(spell{})}, {minute, look(since(noon))}, {minute, nothing}}, minute},
		{"Ready in between two looks", []step{{0, look(since(noon))}, {minute, look(since(later))}, {20 * time.Second, nothing}}, 0},
		{"Ready in between, as only the cache saw", []step{
			{0, look(since(noon))}, {minute, func(u *unready, _ time.Time) { u.forget("a") }}, {minute, look(since(noon))},
		}, 0},
		{"not Ready in another way, which may hide a moment in which it was", []step{
			{0, look(since(later))}, {minute, look(since(noon))}, {minute, nothing},
		}, minute},
		{"a clock that goes backwards", []step{{0, look(since(noon))}, {-time.Hour, look(since(noon))}, {minute, nothing}}, minute},
	} {
		t.Run(c.name, func(t *testing.T) {
			u, now := &unready{}, time.Unix(1_000_000, 0)
			for _, s := range c.steps {
				now = now.Add(s.after)
				s.do(u, now)
			}
			if got := u.total("a", since(noon), now); got != c.want {
				t.Errorf("watched for %s, want %s", got, c.want)
			}
			if got := u.total("b", since(noon), now); got != 0 {
				t.Errorf("another node was watched for %s", got)
			}
		})
	}
}

func TestWhatWasWatchedOfOneSpellDoesNotCountForAnother(t *testing.T) {
	silent := spell{absent: true, heard: "1"}
	for _, c := range []struct {
		name          string
		before, after spell
		want          time.Duration
	}{
		{"the Node is absent and its agent silent all the time", silent, silent, time.Minute},
		{"the agent was heard again", silent, spell{absent: true, heard: "2"}, 0},
		{"the Node was deleted", since(noon), spell{absent: true}, 0},
		{"the Node is there again", spell{absent: true}, spell{unready: true}, 0},
		{"the Node was Ready in between", since(noon), since(later), 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			u, now := &unready{}, time.Unix(1_000_000, 0)
			u.looked("a", c.before, 0, time.Minute, now)
			now = now.Add(time.Minute)
			if got := u.total("a", c.after, now); got != c.want {
				t.Errorf("before the next look it was watched for %s, want %s", got, c.want)
			}
			u.looked("a", c.after, 0, time.Minute, now)
			if got := u.total("a", c.after, now); got != c.want {
				t.Errorf("watched for %s, want %s", got, c.want)
			}
		})
	}
}

func TestANodeWithoutAReadyConditionIsNotWell(t *testing.T) {
	u, now := &unready{}, time.Unix(1_000_000, 0)
	u.looked("a", spell{unready: true}, 0, time.Minute, now)
	now = now.Add(time.Minute)
	if got := u.total("a", spell{unready: true}, now); got != time.Minute {
		t.Errorf("watched for %s", got)
	}
}

func TestOfANodeThatIsWellNothingIsKeptAndTheOthersAreLeftAlone(t *testing.T) {
	u, now := &unready{}, time.Unix(1_000_000, 0)
	u.looked("a", since(noon), 0, time.Minute, now)
	u.looked("b", since(noon), 0, time.Minute, now)
	u.looked("b", spell{}, 0, time.Minute, now)
	if due := u.due("b", time.Minute, now); due != 0 {
		t.Errorf("a node that was well is looked at again in %s", due)
	}
	if got := u.total("a", since(noon), now.Add(time.Minute)); got != time.Minute {
		t.Errorf("the other one was watched for %s", got)
	}
}

func TestOnlyANodeThatIsThereAndHasATransitionLeavesACheckpoint(t *testing.T) {
	for name, s := range map[string]spell{
		"a Node that is well":                  {},
		"a Node that is absent":                {absent: true, heard: "1"},
		"an absent Node with a transition":     {absent: true, transition: noon},
		"a condition that tells no transition": {unready: true},
	} {
		u, now := &unready{}, time.Unix(1_000_000, 0)
		u.looked("a", s, 0, time.Minute, now)
		u.looked("a", s, 0, time.Minute, now.Add(time.Minute))
		if got := u.checkpoint("a"); got != nil {
			t.Errorf("%s: checkpoint %+v", name, got)
		}
	}
}

func TestANodeIsReadyOnlyIfItsReadyConditionIsTrue(t *testing.T) {
	for _, c := range []struct {
		name       string
		conditions []corev1.NodeCondition
		ready      bool
		since      metav1.Time
	}{
		{"no conditions", nil, false, metav1.Time{}},
		{"another condition only", []corev1.NodeCondition{
			{Type: corev1.NodeMemoryPressure, Status: corev1.ConditionTrue, LastTransitionTime: noon},
		}, false, metav1.Time{}},
		{"Ready after another condition", []corev1.NodeCondition{
			{Type: corev1.NodeMemoryPressure, Status: corev1.ConditionFalse, LastTransitionTime: noon},
			{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastTransitionTime: later},
		}, true, later},
		{"not Ready", []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionFalse, LastTransitionTime: noon}}, false, noon},
		{"unknown", []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionUnknown, LastTransitionTime: noon}}, false, noon},
	} {
		node := &corev1.Node{Status: corev1.NodeStatus{Conditions: c.conditions}}
		if ready, at := readiness(node); ready != c.ready || !at.Equal(&c.since) || isReady(node) != c.ready {
			t.Errorf("%s: ready %t since %s", c.name, ready, at)
		}
	}
}

func TestAProcessGoesOnFromTheCheckpointOfTheSameTransitionOnly(t *testing.T) {
	at := func(transition metav1.Time, observed time.Duration) *volumesv1alpha1.UnreadyObservation {
		return &volumesv1alpha1.UnreadyObservation{Transition: transition, Observed: metav1.Duration{Duration: observed}}
	}
	for _, c := range []struct {
		name       string
		checkpoint *volumesv1alpha1.UnreadyObservation
		found      spell
		want       time.Duration
	}{
		{"the same transition", at(noon, 3*time.Minute), since(noon), 3 * time.Minute},
		{"the same transition, as another clock zone writes it", at(metav1.NewTime(noon.In(time.FixedZone("", 7200))), time.Minute), since(noon), time.Minute},
		{"a later transition", at(noon, 3*time.Minute), since(later), 0},
		{"an earlier transition, by a clock that was set back", at(later, 3*time.Minute), since(noon), 0},
		{"no checkpoint", nil, since(noon), 0},
		{"a condition without a transition", at(metav1.Time{}, 3*time.Minute), since(metav1.Time{}), 0},
		{"a node that is well", at(noon, 3*time.Minute), spell{}, 0},
		{"a Node that is absent", at(noon, 3*time.Minute), spell{absent: true}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			u, now := &unready{}, time.Unix(1_000_000, 0)
			u.looked("a", c.found, carried(c.checkpoint, c.found), time.Minute, now)
			if got := u.total("a", c.found, now); got != c.want {
				t.Errorf("goes on from %s, want %s", got, c.want)
			}
		})
	}
}

func TestTwoProcessesThatWatchTheSameTimeDoNotAddItUp(t *testing.T) {
	u, now := &unready{}, time.Unix(1_000_000, 0)
	u.looked("a", since(noon), 0, time.Minute, now)
	now = now.Add(time.Minute)
	u.looked("a", since(noon), 50*time.Second, time.Minute, now)
	if got := u.total("a", since(noon), now); got != time.Minute {
		t.Errorf("watched for %s", got)
	}
	u.looked("a", since(noon), 5*time.Minute, time.Minute, now)
	if got := u.checkpoint("a"); got == nil || got.Observed.Duration != 5*time.Minute || !got.Transition.Equal(&noon) {
		t.Errorf("checkpoint %+v", got)
	}
}

func TestALookIsDueOnceAPeriod(t *testing.T) {
	u, now := &unready{}, time.Unix(1_000_000, 0)
	if got := u.due("a", time.Minute, now); got != 0 {
		t.Errorf("the first look is due in %s", got)
	}
	u.looked("a", since(noon), 0, time.Minute, now)
	now = now.Add(20 * time.Second)
	if got := u.due("a", time.Minute, now); got != 40*time.Second {
		t.Errorf("the next look is due in %s", got)
	}
	// Somebody comes who wants to look more often: what was planned for the others would be too long unwatched for him.
	if got := u.due("a", 30*time.Second, now); got != 10*time.Second {
		t.Errorf("the next look is due in %s", got)
	}
	now = now.Add(time.Hour)
	if got := u.total("a", since(noon), now); got != 30*time.Second {
		t.Errorf("watched for %s", got)
	}
	u.missed("a")
	if got := u.due("a", time.Minute, now); got != 0 {
		t.Errorf("after a look that failed the next is due in %s", got)
	}
	for after, want := range map[time.Duration]time.Duration{
		time.Minute: 10 * time.Second, 3 * time.Minute: 30 * time.Second, 6 * time.Minute: time.Minute, 720 * time.Hour: time.Minute,
	} {
		if got := lookPeriod(after); got != want {
			t.Errorf("for %s a look every %s, want %s", after, got, want)
		}
	}
}

func TestAWallClockThatJumpsNeitherForcesNorPreventsForce(t *testing.T) {
	for name, by := range map[string]time.Duration{"forwards": 48 * time.Hour, "backwards": -48 * time.Hour} {
		t.Run(name, func(t *testing.T) {
			start := time.Now()
			u := &unready{}
			u.looked("a", since(noon), 0, time.Minute, start)
			jumped := controllertest.Jump(t, start.Add(30*time.Second), by)
			if got := u.total("a", since(noon), jumped); got != 30*time.Second {
				t.Errorf("watched for %s", got)
			}
			if got := u.due("a", time.Minute, jumped); got != 30*time.Second {
				t.Errorf("the next look is due in %s", got)
			}
		})
	}
}

func TestAWallClockThatJumpsMakesNoEvidenceAndTakesNoneAway(t *testing.T) {
	for name, by := range map[string]time.Duration{"forwards": 48 * time.Hour, "backwards": -48 * time.Hour} {
		t.Run(name, func(t *testing.T) {
			c, now, api := overAPI(t, reported("a"), unreadyNode("a", noon))
			for minute := range 6 {
				if evidence, due := pass(t, c, "a"); evidence || due != time.Minute {
					t.Fatalf("minute %d: evidence %v, due in %s", minute, evidence, due)
				}
				now.SetTime(now.Now().Add(time.Minute))
				if minute == 2 {
					now.SetTime(controllertest.Jump(t, now.Now(), by))
				}
				api.Sync()
			}
			pass(t, c, "a")
			n := forcible("a")
			evidence, err := c.confirmEvidence(t.Context(), n)
			if err != nil || evidence == nil || evidence.Type != volumesv1alpha1.EvidenceForcedAfterTimeout {
				t.Errorf("after six minutes: evidence %v, %v", evidence, err)
			}
		})
	}
}

// unreadyNode is a Node that is not Ready since then.
func unreadyNode(name string, since metav1.Time) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{
			{Type: corev1.NodeReady, Status: corev1.ConditionUnknown, LastTransitionTime: since},
		}},
	}
}

// forcible is a node with one volume in use, which an intent leaves whose policy forces after six minutes.
func forcible(name string) *Node {
	n := on(name, leaving("i*"), va("1", "held", "attached"), entry(handshake.Attached, "1"), inUse("1"))
	n.Leaving[0].Object.Spec.DetachPolicy = &volumesv1alpha1.DetachPolicy{ForceAfter: metav1.Duration{Duration: 6 * time.Minute}}
	return n
}

// pass is what a reconcile does about the evidence of one node; it returns whether there is any.
func pass(t *testing.T, c *Controller, name string) (bool, time.Duration) {
	t.Helper()
	n := forcible(name)
	if err := c.gatherEvidence(t.Context(), n); err != nil {
		t.Fatal(err)
	}
	due, err := c.await(t.Context(), n)
	if err != nil {
		t.Fatal(err)
	}
	return n.Evidence != nil, due
}

func TestTheTimerSurvivesTheControllerAndItsWritesAreFew(t *testing.T) {
	c, now, api := overAPI(t, reported("a"), unreadyNode("a", noon))
	pass := func(t *testing.T, c *Controller, name string) (bool, time.Duration) {
		t.Helper()
		api.Sync()
		return pass(t, c, name)
	}
	writes := 0
	count := func(c *Controller) {
		c.Writer.Client = interceptor.NewClient(c.Client.(client.WithWatch), interceptor.Funcs{
			Update: func(ctx context.Context, w client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
				writes++
				return w.Update(ctx, o, opts...)
			},
		})
	}
	count(c)
	started := now.Now()
	for life := 0; life < 2; life++ {
		for minute := 0; minute < 3; minute++ {
			if evidence, due := pass(t, c, "a"); evidence || due != time.Minute {
				t.Fatalf("life %d, minute %d: evidence %v, due in %s", life, minute, evidence, due)
			}
			// Others come in between, and cost nothing.
			now.SetTime(now.Now().Add(30 * time.Second))
			pass(t, c, "a")
			now.SetTime(now.Now().Add(30 * time.Second))
		}
		if life == 0 {
			pass(t, c, "a")
			// The next controller has another clock, and comes an hour later.
			next, clock := over(t)
			next.Client, next.Reader, next.Writer.Reader = c.Client, c.Reader, c.Reader
			c, now = next, clock
			now.SetTime(started.Add(-time.Hour))
			count(c)
		}
	}
	if evidence, _ := pass(t, c, "a"); !evidence {
		t.Error("six minutes over two lives are no evidence")
	}
	// One at the start, then one a minute.
	if writes != 6 {
		t.Errorf("%d writes", writes)
	}
	n := forcible("a")
	if evidence, err := c.confirmEvidence(t.Context(), n); err != nil || evidence == nil || evidence.Type != volumesv1alpha1.EvidenceForcedAfterTimeout {
		t.Errorf("evidence %v, %v", evidence, err)
	}
}

func TestANodeThatIsReadyAgainLeavesNoTimerBehind(t *testing.T) {
	node := unreadyNode("a", noon)
	c, now, api := overAPI(t, reported("a"), node)
	pass(t, c, "a")
	now.SetTime(now.Now().Add(time.Minute))
	pass(t, c, "a")
	if nvs, err := c.readState(t.Context(), "a"); err != nil || nvs.Spec.Unready == nil || nvs.Spec.Unready.Observed.Duration != time.Minute {
		t.Fatalf("state %+v, %v", nvs, err)
	}
	node.Status.Conditions[0].Status = corev1.ConditionTrue
	if err := c.Client.Status().Update(t.Context(), node); err != nil {
		t.Fatal(err)
	}
	api.Sync()
	if evidence, due := pass(t, c, "a"); evidence || due != 0 {
		t.Errorf("evidence %v, due in %s", evidence, due)
	}
	if nvs, err := c.readState(t.Context(), "a"); err != nil || nvs.Spec.Unready != nil {
		t.Errorf("state %+v, %v", nvs.Spec.Unready, err)
	}
}

func TestNothingIsWatchedForAnIntentWhosePolicyAllowsNoForce(t *testing.T) {
	c, now := over(t, reported("a"), unreadyNode("a", noon))
	n := forcible("a")
	n.Leaving = append(n.Leaving, intentNamed("j*"))
	for range 10 {
		if err := c.gatherEvidence(t.Context(), n); err != nil {
			t.Fatal(err)
		}
		if due, err := c.await(t.Context(), n); due != 0 || err != nil || n.Evidence != nil {
			t.Fatalf("due in %s, %v, %v", due, n.Evidence, err)
		}
		now.SetTime(now.Now().Add(time.Minute))
	}
	if nvs, err := c.readState(t.Context(), "a"); err != nil || nvs.Spec.Unready != nil {
		t.Errorf("state %+v, %v", nvs.Spec.Unready, err)
	}
}

func TestAnOutageIsNotWatched(t *testing.T) {
	c, now := over(t, reported("a"), unreadyNode("a", noon))
	down := false
	broken := interceptor.NewClient(c.Reader.(client.WithWatch), interceptor.Funcs{
		Get: func(ctx context.Context, w client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			if down {
				return errors.New("the API server is down")
			}
			return w.Get(ctx, key, o, opts...)
		},
	})
	c.Reader, c.Writer.Reader = broken, broken
	pass(t, c, "a")
	for range 4 {
		now.SetTime(now.Now().Add(time.Minute))
		pass(t, c, "a")
	}
	down = true
	now.SetTime(now.Now().Add(time.Hour))
	n := forcible("a")
	if err := c.gatherEvidence(t.Context(), n); err != nil {
		t.Fatal(err)
	}
	if _, err := c.await(t.Context(), n); err == nil {
		t.Error("the outage was not noticed")
	}
	down = false
	now.SetTime(now.Now().Add(time.Hour))
	if evidence, _ := pass(t, c, "a"); evidence {
		t.Error("an outage is evidence")
	}
	if got := c.unready.total("a", since(noon), now.Now()); got != 4*time.Minute {
		t.Errorf("watched for %s", got)
	}
}

func TestANodeThatGoesOnUnderAnotherNameIsNotDetachedFrom(t *testing.T) {
	byTaint := &volumesv1alpha1.DetachEvidence{Type: volumesv1alpha1.EvidenceOutOfServiceTaint}
	byWord := &volumesv1alpha1.DetachEvidence{Type: volumesv1alpha1.EvidenceDeclaredByAdministrator}
	for _, c := range []struct {
		name      string
		exclusive bool
		evidence  *volumesv1alpha1.DetachEvidence
		other     *Node
		stands    bool
	}{
		{"nobody else uses it", true, byTaint, on("b"), true},
		{"in use by the same attachment", true, byTaint, on("b", inUse("1")), false},
		{"a shared volume, in use by the same attachment", false, byTaint, on("b", inUse("1")), false},
		{"in use by an attachment of its own", false, byTaint, on("b", inUse("2"), va("2", "held", "attached")), true},
		{"an exclusive volume in use by no attachment", true, byTaint, on("b", inUse("")), false},
		{"an exclusive volume in use by upstream's attachment", true, byTaint, on("b", inUse(""), va("2", "attached")), true},
		{"a shared volume in use by no attachment", false, byTaint, on("b", inUse("")), true},
		{"an administrator's word", true, byWord, on("b", inUse("1")), true},
	} {
		t.Run(c.name, func(t *testing.T) {
			controller := onlyCached(t, reported("a"))
			recorder := events.NewFakeRecorder(10)
			controller.Events = recorder
			n := on("a", leaving("i*"), va("1", "held", "attached"), entry(handshake.Attached, "1"), inUse("1"))
			n.Evidence = c.evidence
			controller.doubtSilence(t.Context(), &Facts{Volume: "v", Exclusive: c.exclusive, Nodes: []*Node{n, c.other}})
			if (n.Evidence != nil) != c.stands || len(recorder.Events) == 0 != c.stands {
				t.Errorf("evidence %+v, %d events", n.Evidence, len(recorder.Events))
			}
		})
	}
}

func TestAnAgentThatTheAPIServerKeptFromSpeakingHasItsTimeAfterwards(t *testing.T) {
	renewed := metav1.NewMicroTime(noon.Time)
	lease := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: volumesv1alpha1.InstallNamespace, Name: volumesv1alpha1.AgentLeasePrefix + "a"},
		Spec:       coordinationv1.LeaseSpec{RenewTime: &renewed},
	}
	for _, speaks := range []bool{true, false} {
		c, now := over(t, reported("a"), lease.DeepCopy())
		c.Tracker.Observe("a", lease)
		// The API server was away for an hour, and nobody wanted anything of it meanwhile. There is no Node.
		now.SetTime(now.Now().Add(time.Hour))
		if evidence, due := pass(t, c, "a"); evidence || due == 0 {
			t.Fatalf("evidence %v, due in %s", evidence, due)
		}
		now.SetTime(now.Now().Add(goneWatched / 2))
		if speaks {
			spoken := &coordinationv1.Lease{}
			if err := c.Reader.Get(t.Context(), client.ObjectKeyFromObject(lease), spoken); err != nil {
				t.Fatal(err)
			}
			spoken.Spec.RenewTime = &metav1.MicroTime{Time: noon.Add(time.Second)}
			if err := c.Client.Update(t.Context(), spoken); err != nil {
				t.Fatal(err)
			}
		}
		now.SetTime(now.Now().Add(goneWatched / 2))
		n := forcible("a")
		n.Missing = true
		evidence, err := c.confirmEvidence(t.Context(), n)
		if err != nil || (evidence == nil) != speaks {
			t.Errorf("the agent speaks %v, evidence %v, %v", speaks, evidence, err)
		}
	}
}
