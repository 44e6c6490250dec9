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
	"github.com/hawser-io/hawser/internal/controller/attachment/decision"
	"github.com/hawser-io/hawser/internal/controller/controllertest"
	"github.com/hawser-io/hawser/internal/controller/outage"
	"github.com/hawser-io/hawser/internal/handshake"
)

var (
	noon  = metav1.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)
	later = metav1.Date(2026, 1, 2, 12, 5, 0, 0, time.UTC)
)

func since(t metav1.Time) outage.Spell { return outage.Spell{Unready: true, Transition: t} }

func TestACheckpointOfAnotherSilenceDoesNotCount(t *testing.T) {
	s := outage.Spell{Unready: true, Transition: noon, Heard: "a"}
	for renewal, want := range map[string]time.Duration{"a": time.Minute, "b": 0, "": 0} {
		checkpoint := &volumesv1alpha1.UnreadyObservation{
			Transition: noon, LastRenewal: renewal, Observed: metav1.Duration{Duration: time.Minute},
		}
		if got := outage.Carried(checkpoint, s); got != want {
			t.Errorf("time carried from a checkpoint of renewal %q to one of renewal a: %s, want %s", renewal, got, want)
		}
	}
}

func TestAWallClockThatJumpsMakesNoEvidenceAndTakesNoneAway(t *testing.T) {
	for name, by := range map[string]time.Duration{"forwards": 48 * time.Hour, "backwards": -48 * time.Hour} {
		t.Run(name, func(t *testing.T) {
			c, now, api := overAPI(t, reported("a"), unreadyNode("a", noon))
			for minute := range 6 {
				if evidence, due := pass(t, c, "a"); evidence || due != time.Minute {
					t.Fatalf("node a in minute %d: evidence %t, due in %s; want none, due in 1m", minute, evidence, due)
				}
				now.SetTime(now.Now().Add(time.Minute))
				if minute == 2 {
					now.SetTime(controllertest.Jump(t, now.Now(), by))
				}
				api.Sync()
			}
			pass(t, c, "a")
			n := forcible("a")
			evidence, err := c.confirmEvidence(t.Context(), n, silenced(reported("a")))
			if err != nil || evidence == nil || evidence.Type != volumesv1alpha1.EvidenceForcedAfterTimeout {
				t.Errorf("node a after six minutes: evidence %v, error %v; want ForcedAfterTimeout", evidence, err)
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
func forcible(name string) *decision.Node {
	n := on(name, leaving("i*"), va("1", "held", "attached"), entry(handshake.Attached, "1"), inUse("1"))
	n.Leaving[0].Object.Spec.DetachPolicy = &volumesv1alpha1.DetachPolicy{
		ForceAfter: metav1.Duration{Duration: 6 * time.Minute},
	}
	return n
}

// pass is what a reconcile does about the evidence of one node; it returns whether there is any.
func pass(t *testing.T, c *Controller, name string) (bool, time.Duration) {
	t.Helper()
	return passOver(t, c, silenced(reported(name)))
}

func passOver(t *testing.T, c *Controller, nvs *volumesv1alpha1.NodeVolumeState) (bool, time.Duration) {
	t.Helper()
	n := forcible(nvs.Name)
	if err := c.gatherEvidence(t.Context(), n, nvs); err != nil {
		t.Fatal(err)
	}
	due, err := c.watchOutage(t.Context(), n, decision.EvidenceDue(&decision.Facts{}, c.Protocol, n))
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
		c.Observations.Client = interceptor.NewClient(c.Client.(client.WithWatch), interceptor.Funcs{
			SubResourceUpdate: func(ctx context.Context, w client.Client, part string, o client.Object,
				opts ...client.SubResourceUpdateOption) error {
				writes++
				return w.SubResource(part).Update(ctx, o, opts...)
			},
		})
	}
	count(c)
	started := now.Now()
	for life := 0; life < 2; life++ {
		for minute := 0; minute < 3; minute++ {
			if evidence, due := pass(t, c, "a"); evidence || due != time.Minute {
				t.Fatalf("node a in life %d, minute %d: evidence %t, due in %s; want none, due in 1m", life, minute, evidence, due)
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
			next.Client, next.Reader, next.Observations.Reader = c.Client, c.Reader, c.Reader
			c, now = next, clock
			now.SetTime(started.Add(-time.Hour))
			count(c)
		}
	}
	if evidence, _ := pass(t, c, "a"); !evidence {
		t.Error("node a after six minutes over two lives of the controller: no evidence, want some")
	}
	// One at the start, then one a minute.
	if writes != 6 {
		t.Errorf("%d writes of node state a, want 6", writes)
	}
	n := forcible("a")
	if evidence, err := c.confirmEvidence(t.Context(), n, silenced(reported("a"))); err != nil ||
		evidence == nil ||
		evidence.Type != volumesv1alpha1.EvidenceForcedAfterTimeout {
		t.Errorf("node a after six minutes: evidence %v, error %v; want ForcedAfterTimeout", evidence, err)
	}
}

func TestANodeThatIsReadyAgainLeavesNoTimer(t *testing.T) {
	node := unreadyNode("a", noon)
	c, now, api := overAPI(t, reported("a"), node)
	pass(t, c, "a")
	now.SetTime(now.Now().Add(time.Minute))
	pass(t, c, "a")
	if nvs, err := c.readState(t.Context(), "a"); err != nil || nvs.Status.Node.Unready == nil ||
		nvs.Status.Node.Unready.Observed.Duration != time.Minute {
		t.Fatalf("node state a after a minute: %+v, error %v; want 1m in its checkpoint", nvs, err)
	}
	node.Status.Conditions[0].Status = corev1.ConditionTrue
	if err := c.Client.Status().Update(t.Context(), node); err != nil {
		t.Fatal(err)
	}
	api.Sync()
	if evidence, due := pass(t, c, "a"); evidence || due != 0 {
		t.Errorf("node a, which is Ready again: evidence %t, due in %s; want none and no requeue", evidence, due)
	}
	if nvs, err := c.readState(t.Context(), "a"); err != nil || nvs.Status.Node.Unready != nil {
		t.Errorf("checkpoint of node a, which is Ready again: %+v, error %v; want none", nvs.Status.Node.Unready, err)
	}
}

func TestNoTimeIsMeasuredForAnIntentWhosePolicyAllowsNoForce(t *testing.T) {
	c, now := over(t, reported("a"), unreadyNode("a", noon))
	n := forcible("a")
	n.Leaving = append(n.Leaving, intentNamed("j*"))
	for range 10 {
		if err := c.gatherEvidence(t.Context(), n, silenced(reported("a"))); err != nil {
			t.Fatal(err)
		}
		if due, err := c.watchOutage(t.Context(), n, decision.EvidenceDue(&decision.Facts{}, c.Protocol, n)); due != 0 ||
			err != nil || n.Evidence != nil {
			t.Fatalf("node a with a policy that allows no force: due in %s, evidence %v, error %v; want none", due, n.Evidence,
				err)
		}
		now.SetTime(now.Now().Add(time.Minute))
	}
	if nvs, err := c.readState(t.Context(), "a"); err != nil || nvs.Status.Node.Unready != nil {
		t.Errorf("checkpoint of node a with a policy that allows no force: %+v, error %v; want none",
			nvs.Status.Node.Unready, err)
	}
}

func TestAnOutageIsNotWatched(t *testing.T) {
	c, now := over(t, reported("a"), unreadyNode("a", noon))
	down := false
	broken := interceptor.NewClient(c.Reader.(client.WithWatch), interceptor.Funcs{
		Get: func(ctx context.Context, w client.WithWatch, key client.ObjectKey, o client.Object,
			opts ...client.GetOption) error {
			if down {
				return errors.New("the API server is down")
			}
			return w.Get(ctx, key, o, opts...)
		},
	})
	c.Reader, c.Observations.Reader = broken, broken
	pass(t, c, "a")
	for range 4 {
		now.SetTime(now.Now().Add(time.Minute))
		pass(t, c, "a")
	}
	down = true
	now.SetTime(now.Now().Add(time.Hour))
	n := forcible("a")
	if err := c.gatherEvidence(t.Context(), n, silenced(reported("a"))); err != nil {
		t.Fatal(err)
	}
	if _, err := c.watchOutage(t.Context(), n, decision.EvidenceDue(&decision.Facts{}, c.Protocol, n)); err == nil {
		t.Error("reading Node a during the outage: no error, want one")
	}
	down = false
	now.SetTime(now.Now().Add(time.Hour))
	if evidence, _ := pass(t, c, "a"); evidence {
		t.Error("node a after an outage of the API server: evidence, want none")
	}
	if got := c.unready.Total("a", since(noon), now.Now()); got != 4*time.Minute {
		t.Errorf("time measured of node a: %s, want %s", got, 4*time.Minute)
	}
}

func TestNothingIsDetachedFromANodeThatContinuesUnderAnotherName(t *testing.T) {
	byTaint := &volumesv1alpha1.DetachEvidence{Type: volumesv1alpha1.EvidenceOutOfServiceTaint}
	byWord := &volumesv1alpha1.DetachEvidence{Type: volumesv1alpha1.EvidenceDeclaredByAdministrator}
	for _, c := range []struct {
		name      string
		exclusive bool
		evidence  *volumesv1alpha1.DetachEvidence
		other     *decision.Node
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
			f := &decision.Facts{Volume: "v", Exclusive: c.exclusive, Nodes: []*decision.Node{n, c.other}}
			decision.DoubtSilence(f)
			controller.reportRenamed(t.Context(), f, n)
			if (n.Evidence != nil) != c.stands || len(recorder.Events) == 0 != c.stands {
				t.Errorf("node a, volume v on node b (%s): evidence %+v, %d events; want the evidence kept: %t, or an event",
					c.name, n.Evidence, len(recorder.Events), c.stands)
			}
		})
	}
}

func TestAnAgentHasItsFullTimeAfterAnOutageOfTheAPIServer(t *testing.T) {
	renewed := metav1.NewMicroTime(noon.Time)
	lease := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: volumesv1alpha1.InstallNamespace, Name: volumesv1alpha1.AgentLeasePrefix + "a",
		},
		Spec: coordinationv1.LeaseSpec{RenewTime: &renewed},
	}
	for _, speaks := range []bool{true, false} {
		c, now := over(t, reported("a"), lease.DeepCopy())
		c.Tracker.Observe("a", lease)
		// The API server was away for an hour, and nothing was asked of it meanwhile. There is no Node.
		now.SetTime(now.Now().Add(time.Hour))
		if evidence, due := passOver(t, c, departed(silenced(reported("a")), noon)); evidence || due == 0 {
			t.Fatalf("node a after an outage of the API server: evidence %t, due in %s; want none, and a requeue", evidence, due)
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
		evidence, err := c.confirmEvidence(t.Context(), n, departed(silenced(reported("a")), noon))
		if err != nil || (evidence == nil) != speaks {
			t.Errorf("node a, whose agent renews its Lease %t: evidence %v, error %v; want none if it does", speaks, evidence,
				err)
		}
	}
}
