/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package attachment

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/attachment/decision"
	"github.com/hawser-io/hawser/internal/controller/fences"
	"github.com/hawser-io/hawser/internal/controller/liveness"
	"github.com/hawser-io/hawser/internal/controller/outage"
	"github.com/hawser-io/hawser/internal/handshake"
	"github.com/hawser-io/hawser/internal/machine"
)

func readyNode(name string) *corev1.Node {
	node := unreadyNode(name, noon)
	node.Status.Conditions[0].Status = corev1.ConditionTrue
	return node
}

func withTaints(node *corev1.Node, keys ...string) *corev1.Node {
	for _, key := range keys {
		node.Spec.Taints = append(node.Spec.Taints, corev1.Taint{Key: key, Effect: corev1.TaintEffectNoExecute})
	}
	return node
}

func renewedLease(node string, at metav1.Time) *coordinationv1.Lease {
	renewed := metav1.NewMicroTime(at.Time)
	return &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: volumesv1alpha1.InstallNamespace, Name: volumesv1alpha1.AgentLeasePrefix + node,
		},
		Spec: coordinationv1.LeaseSpec{RenewTime: &renewed},
	}
}

func TestEvidenceIsConfirmedByWhatTheAPIServerShowsNowAndNotByTheCache(t *testing.T) {
	const silence = decision.GoneAfter + liveness.DefaultDuration
	outOfService := corev1.TaintNodeOutOfService
	for _, c := range []struct {
		name         string
		cached, live []client.Object
		// looked: what was found now is read again after so long.
		looked time.Duration
		want   volumesv1alpha1.EvidenceType
	}{
		{"the taint is there", []client.Object{readyNode("a")}, []client.Object{withTaints(readyNode("a"), outOfService)},
			liveness.DefaultDuration, volumesv1alpha1.EvidenceOutOfServiceTaint},
		{"the taint is there, and the agent may still be heard", []client.Object{readyNode("a")},
			[]client.Object{withTaints(readyNode("a"), outOfService)}, liveness.DefaultDuration - time.Second, ""},
		{"the taint is gone", []client.Object{withTaints(readyNode("a"), outOfService)},
			[]client.Object{readyNode("a")}, liveness.DefaultDuration, ""},
		{"another taint", []client.Object{readyNode("a")},
			[]client.Object{withTaints(readyNode("a"), corev1.TaintNodeUnreachable)}, liveness.DefaultDuration, ""},
		{"another node carries the taint", nil,
			[]client.Object{readyNode("a"), withTaints(readyNode("b"), outOfService)}, liveness.DefaultDuration, ""},
		{"the Node is gone and its agent silent", []client.Object{readyNode("a")},
			[]client.Object{renewedLease("a", noon)}, silence,
			volumesv1alpha1.EvidenceNodeGone},
		{"the Node is gone and its agent has no Lease", []client.Object{readyNode("a")}, nil, silence,
			volumesv1alpha1.EvidenceNodeGone},
		{"the Node is gone and its agent not silent for long", nil, []client.Object{renewedLease("a", noon)},
			silence - time.Second, ""},
		{"the Node is there", []client.Object{renewedLease("a", noon)},
			[]client.Object{readyNode("a"), renewedLease("a", noon)}, silence, ""},
		{"the Node has not been Ready for as long as the policy asks", []client.Object{readyNode("a")},
			[]client.Object{unreadyNode("a", noon)},
			6 * time.Minute, volumesv1alpha1.EvidenceForcedAfterTimeout},
		{"the Node has not been Ready for a moment less", []client.Object{unreadyNode("a", noon)},
			[]client.Object{unreadyNode("a", noon)},
			6*time.Minute - time.Second, ""},
		{"the Node is Ready again", []client.Object{unreadyNode("a", noon)}, []client.Object{readyNode("a")},
			6 * time.Minute, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			controller, now := over(t, c.live...)
			behind(t, controller, c.cached...)
			// A process that reads each ten seconds misses nothing that it counts.
			n := forcible("a")
			end := now.Now().Add(c.looked)
			for {
				evidence, err := controller.confirmEvidence(t.Context(), n, departed(silenced(reported("a")), noon))
				if err != nil {
					t.Fatal(err)
				}
				if now.Now().Equal(end) {
					var got volumesv1alpha1.EvidenceType
					if evidence != nil {
						got = evidence.Type
						if !strings.Contains(evidence.Message, "node a ") {
							t.Errorf("message of the evidence: %q, want node a named", evidence.Message)
						}
					}
					if got != c.want || n.Evidence != evidence {
						t.Errorf("evidence against node a: %q, want %q", got, c.want)
					}
					break
				}
				if evidence != nil {
					t.Fatalf("evidence against node a %s too early: %+v, want none", end.Sub(now.Now()), evidence)
				}
				now.SetTime(now.Now().Add(min(10*time.Second, end.Sub(now.Now()))))
			}
		})
	}
}

// departed is a state whose Node a manager saw go after that renewal.
func departed(nvs *volumesv1alpha1.NodeVolumeState, renewed metav1.Time) *volumesv1alpha1.NodeVolumeState {
	nvs.Status.Node.Absence = &volumesv1alpha1.AbsenceObservation{Observed: noon,
		LastRenewal: handshake.Renewal(renewedLease("a", renewed))}
	return nvs
}

// TestANodeThatWasDeletedWhileItsMachineRunsIsNotGone: Kubernetes has ended its agent since.
func TestANodeThatWasDeletedWhileItsMachineRunsIsNotGone(t *testing.T) {
	earlier, contradicted := metav1.NewTime(noon.Add(-time.Minute)), departed(silenced(reported("a")), noon)
	contradicted.Status.Node.Absence.Contradicted = &noon
	for name, nvs := range map[string]*volumesv1alpha1.NodeVolumeState{
		"no manager saw it go":                   silenced(reported("a")),
		"the agent renewed its Lease afterwards": departed(silenced(reported("a")), earlier),
		"a manager has seen that already":        contradicted,
	} {
		t.Run(name, func(t *testing.T) {
			controller, now := over(t, renewedLease("a", noon))
			n := on("a", leaving("i*"), va("1", "held", "attached"), entry(handshake.Attached, "1"), inUse("1"))
			for range 20 {
				if evidence, err := controller.confirmEvidence(t.Context(), n, nvs); evidence != nil || err != nil {
					t.Fatalf("evidence against node a: %+v, error %v; want none", evidence, err)
				}
				now.SetTime(now.Now().Add(time.Minute))
			}
			if n.EvidenceDue != 0 {
				t.Errorf("evidence against node a is due in %s, want never by time alone", n.EvidenceDue)
			}
			forced := forcible("a")
			var evidence *volumesv1alpha1.DetachEvidence
			var err error
			for step := time.Duration(0); step <= 6*time.Minute && err == nil; step += time.Minute {
				evidence, err = controller.confirmEvidence(t.Context(), forced, nvs)
				now.SetTime(now.Now().Add(time.Minute))
			}
			if err != nil || evidence == nil || evidence.Type != volumesv1alpha1.EvidenceForcedAfterTimeout {
				t.Errorf("evidence against node a, where a policy allows force: %+v, error %v; want ForcedAfterTimeout", evidence,
					err)
			}
		})
	}
}

func TestTheTaintOfANodeWhoseAgentIsHeardIsNoEvidence(t *testing.T) {
	tainted := withTaints(readyNode("a"), corev1.TaintNodeOutOfService)
	renewed := func(at metav1.Time) string { return handshake.Renewal(renewedLease("a", at)) }
	record := func(change func(*volumesv1alpha1.OutOfServiceObservation)) *volumesv1alpha1.NodeVolumeState {
		nvs := silenced(reported("a"))
		nvs.Status.Node.OutOfService.LastRenewal = renewed(noon)
		if change != nil {
			change(nvs.Status.Node.OutOfService)
		}
		return nvs
	}
	unmarked := record(nil)
	unmarked.Status.Conditions = nil
	begun := record(nil)
	begun.Status.Conditions, begun.Status.Protocol.Session = nil, 7
	unrecorded := record(nil)
	unrecorded.Status.Node.OutOfService = nil
	for _, c := range []struct {
		name string
		nvs  *volumesv1alpha1.NodeVolumeState
		// lease of the agent as it is now; nil for none. silent is for how long this manager has not heard it.
		lease  *coordinationv1.Lease
		silent time.Duration
		want   bool
	}{
		{"silent since before the taint was seen", record(nil), renewedLease("a", noon), 40 * time.Second, true},
		{"silent, and its Lease was deleted", record(nil), nil, 40 * time.Second, true},
		{"marked by a manager that may have been before a restore, and not silent for this one yet", record(nil),
			renewedLease("a", noon), 39 * time.Second, false},
		{"silent by this manager's own clock, before any mark", unmarked, renewedLease("a", noon), 40 * time.Second, true},
		{"its next session has begun, and its Lease is not renewed yet", begun, renewedLease("a", noon), time.Hour, false},
		{"not silent for a whole Lease yet", unmarked, renewedLease("a", noon), 39 * time.Second, false},
		{"heard again since, although it is still marked", record(nil), renewedLease("a", later), 40 * time.Second, false},
		{"heard once since, and silent by now", record(nil), renewedLease("a", later), time.Hour, false},
		{"contradicted once, as an earlier manager recorded",
			record(func(r *volumesv1alpha1.OutOfServiceObservation) {
				r.Contradicted = &later
				r.LastRenewal = renewed(later)
			}),
			renewedLease("a", later), time.Hour, false},
		{"the taint is not recorded yet", unrecorded, renewedLease("a", noon), time.Hour, false},
		{"another taint was recorded",
			record(func(r *volumesv1alpha1.OutOfServiceObservation) { r.Value = "another" }), renewedLease("a", noon), time.Hour,
			false},
		{"there is no node state", nil, renewedLease("a", noon), time.Hour, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			live := []client.Object{tainted}
			if c.lease != nil {
				live = append(live, c.lease)
			}
			controller, now := over(t, live...)
			controller.Tracker.Observe("a", renewedLease("a", noon))
			if c.lease != nil {
				controller.Tracker.Observe("a", c.lease)
			}
			now.SetTime(now.Now().Add(c.silent))
			n := forcible("a")
			n.Leaving[0].Object.Spec.DetachPolicy = nil
			evidence, err := controller.confirmEvidence(t.Context(), n, c.nvs)
			if err != nil || (evidence != nil) != c.want {
				t.Errorf("evidence against node a: %v, error %v; want some: %t", evidence, err, c.want)
			}
			if err := controller.gatherEvidence(t.Context(), n, c.nvs); err != nil || !n.Tainted ||
				(n.Evidence != nil) != c.want {
				t.Errorf("evidence against node a by the cache: %v, error %v; want some: %t", n.Evidence, err, c.want)
			}
		})
	}
}

// The kubelet of that life may have mounted the volume, and the machine of the report may run on.
func TestTheTaintIsNoEvidenceOfALifeOfTheNodeWithoutAReport(t *testing.T) {
	is := corev1.NodeSystemInfo{SystemUUID: "11111111-2222-4333-8444-555555555555", BootID: "1"}
	for name, c := range map[string]struct {
		change func(*corev1.NodeSystemInfo)
		want   bool
	}{
		"the machine that reported":             {func(*corev1.NodeSystemInfo) {}, true},
		"a kubelet that does not name the boot": {func(i *corev1.NodeSystemInfo) { i.BootID = "" }, true},
		"another boot of it":                    {func(i *corev1.NodeSystemInfo) { i.BootID = "2" }, false},
		"another machine": {func(i *corev1.NodeSystemInfo) {
			i.SystemUUID = "66666666-7777-4888-8999-aaaaaaaaaaaa"
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			node, nvs := withTaints(readyNode("a"), corev1.TaintNodeOutOfService), silenced(reported("a"))
			nvs.Status.Machine, nvs.Status.BootID = machine.New(is.SystemUUID, ""), is.BootID
			node.Status.NodeInfo = is
			c.change(&node.Status.NodeInfo)
			controller, now := over(t, node)
			notHeard(controller, now, "a")
			n := forcible("a")
			n.Leaving[0].Object.Spec.DetachPolicy = nil
			if evidence, err := controller.confirmEvidence(t.Context(), n, nvs); err != nil || (evidence != nil) != c.want {
				t.Errorf("evidence against node a: %v, error %v; want some: %t", evidence, err, c.want)
			}
		})
	}
}

func TestATaintCountsAsSoonAsTheAgentIsSilentForThisManagerToo(t *testing.T) {
	controller, _ := over(t, withTaints(readyNode("a"), corev1.TaintNodeOutOfService))
	n := forcible("a")
	if err := controller.gatherEvidence(t.Context(), n, silenced(reported("a"))); err != nil || n.Evidence != nil ||
		n.EvidenceDue != liveness.DefaultDuration {
		t.Errorf("evidence against node a: %v, due in %s, error %v; want it due in %s: no event comes when it is",
			n.Evidence, n.EvidenceDue, err, liveness.DefaultDuration)
	}
}

func TestWhatIsSaidOfANodeIsNoEvidenceAgainstAMachineThatHadItsNameBefore(t *testing.T) {
	nvs := silenced(reported("a"))
	nvs.Status.Node.OutOfService.LastRenewal = handshake.Renewal(renewedLease("a", noon))
	for what, node := range map[string]*corev1.Node{
		"the taint": withTaints(readyNode("a"), corev1.TaintNodeOutOfService),
		"no Node":   nil,
		"time":      unreadyNode("a", noon),
	} {
		live := []client.Object{renewedLease("a", noon)}
		if node != nil {
			live = append(live, node)
		}
		for _, foreign := range []bool{false, true} {
			controller, now := over(t, live...)
			controller.Tracker.Observe("a", renewedLease("a", noon))
			n := forcible("a")
			n.State.Use.Foreign = foreign
			var evidence *volumesv1alpha1.DetachEvidence
			for range 60 {
				now.SetTime(now.Now().Add(10 * time.Second))
				var err error
				if evidence, err = controller.confirmEvidence(t.Context(), n, nvs); err != nil {
					t.Fatal(err)
				}
			}
			if (evidence == nil) != foreign {
				t.Errorf("%s, and another machine uses the volume %t: evidence %v, want some: %t", what, foreign, evidence,
					!foreign)
			}
		}
	}
}

func TestAnAgentThatIsHeardVoidsTheTimeForWhichItsNodeWasNotReady(t *testing.T) {
	const policy = 6 * time.Minute
	controller, now := over(t, reported("a"), unreadyNode("a", noon), renewedLease("a", noon))
	controller.Tracker.Observe("a", renewedLease("a", noon))
	look := func(after time.Duration) (*volumesv1alpha1.DetachEvidence, time.Duration) {
		t.Helper()
		n := forcible("a")
		for end := now.Now().Add(after); now.Now().Before(end); {
			now.SetTime(now.Now().Add(10 * time.Second))
			if _, err := controller.confirmEvidence(t.Context(), n, reported("a")); err != nil {
				t.Fatal(err)
			}
		}
		return n.Evidence, n.EvidenceDue
	}
	look(policy - 10*time.Second)
	lease := &coordinationv1.Lease{}
	if err := controller.Client.Get(t.Context(), client.ObjectKeyFromObject(renewedLease("a", noon)), lease); err != nil {
		t.Fatal(err)
	}
	lease.Spec.RenewTime = renewedLease("a", later).Spec.RenewTime
	if err := controller.Client.Update(t.Context(), lease); err != nil {
		t.Fatal(err)
	}
	if evidence, due := look(10 * time.Second); evidence != nil || due != policy {
		t.Errorf("node a, whose agent was heard: evidence %v, due in %s; want none, due in %s", evidence, due, policy)
	}
	if evidence, _ := look(policy); evidence == nil || evidence.Type != volumesv1alpha1.EvidenceForcedAfterTimeout {
		t.Errorf("node a, whose agent was silent since: evidence %v, want ForcedAfterTimeout", evidence)
	}
}

func TestTheTimeAtWhichAGoneOrUnreadyNodeBecomesEvidence(t *testing.T) {
	bound := func(n *decision.Node) { n.Leaving = append(n.Leaving, intentNamed("j*")) }
	for _, c := range []struct {
		name   string
		live   []client.Object
		change func(*decision.Node)
		want   time.Duration
	}{
		{"a Node that is gone, of whose agent nothing was heard", nil, nil, decision.GoneAfter + liveness.DefaultDuration},
		{"a Node that is not Ready", []client.Object{unreadyNode("a", noon)}, nil, 6 * time.Minute},
		{"one that an intent leaves without a policy", []client.Object{unreadyNode("a", noon)}, bound, 0},
		{"a Node that is Ready", []client.Object{readyNode("a")}, nil, 0},
	} {
		controller, _ := over(t, c.live...)
		behind(t, controller)
		n := forcible("a")
		if c.change != nil {
			c.change(n)
		}
		nvs := departed(silenced(reported("a")), noon)
		if evidence, err := controller.confirmEvidence(t.Context(), n, nvs); evidence != nil || err != nil ||
			n.EvidenceDue != c.want {
			t.Errorf("%s: evidence %v, due in %s, error %v; want none, due in %s", c.name, evidence, n.EvidenceDue, err, c.want)
		}
		behind(t, controller, c.live...)
		if err := controller.gatherEvidence(t.Context(), n, nvs); err != nil ||
			n.Missing != (c.live == nil) ||
			n.EvidenceDue != c.want {
			t.Errorf("%s, from the cache: Node missing %t, evidence due in %s, error %v; want %t, %s and none", c.name,
				n.Missing, n.EvidenceDue, err, c.live == nil, c.want)
		}
	}
}

func TestALongSilenceThatWasNotWatchedIsNoEvidenceYet(t *testing.T) {
	controller, now := over(t)
	behind(t, controller)
	controller.Tracker.Observe("a", renewedLease("a", noon))
	now.SetTime(now.Now().Add(time.Hour))
	n := forcible("a")
	n.Missing = true
	for _, step := range []struct{ after, due time.Duration }{
		{0, goneWatched}, {goneWatched - time.Second, time.Second}, {time.Second, 0},
	} {
		now.SetTime(now.Now().Add(step.after))
		evidence, err := controller.confirmEvidence(t.Context(), n, departed(silenced(reported("a")), noon))
		if err != nil || n.EvidenceDue != step.due || (evidence != nil) != (step.due == 0) {
			t.Errorf("evidence against node a: %v, due in %s, error %v; want it due in %s", evidence, n.EvidenceDue, err,
				step.due)
		}
	}
}

// failing has the controller's live reads, or else its cache's, of this type fail.
func failing(c *Controller, cache bool, kind string) {
	get := func(ctx context.Context, w client.WithWatch, key client.ObjectKey, o client.Object,
		opts ...client.GetOption) error {
		if fmt.Sprintf("%T", o) == kind {
			return errDown
		}
		return w.Get(ctx, key, o, opts...)
	}
	if cache {
		c.Client = interceptor.NewClient(c.Client.(client.WithWatch), interceptor.Funcs{Get: get})
		return
	}
	c.Reader = interceptor.NewClient(c.Reader.(client.WithWatch), interceptor.Funcs{Get: get})
}

func TestWhatCannotBeReadOfANodeIsNoEvidence(t *testing.T) {
	taintedNode := withTaints(readyNode("a"), corev1.TaintNodeOutOfService)
	for _, c := range []struct {
		name, kind string
		live       []client.Object
	}{
		{"the Node", "*v1.Node", []client.Object{taintedNode}},
		{"the Lease of a Node that is gone", "*v1.Lease", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			controller, now := over(t, c.live...)
			n := forcible("a")
			n.Missing = c.live == nil
			controller.Tracker.Observe("a", renewedLease("a", noon))
			now.SetTime(now.Now().Add(time.Hour))
			if c.live == nil {
				if _, err := controller.confirmEvidence(t.Context(), n, silenced(reported("a"))); err != nil {
					t.Fatal(err)
				}
				now.SetTime(now.Now().Add(goneWatched))
			}
			failing(controller, false, c.kind)
			n.Evidence = nil
			if evidence, err := controller.confirmEvidence(t.Context(), n, silenced(reported("a"))); err == nil ||
				evidence != nil ||
				n.Evidence != nil {
				t.Errorf("node a, while %s cannot be read: evidence %v, error %v; want an error alone", c.name, evidence, err)
			}
		})
	}
	t.Run("the Node in the cache", func(t *testing.T) {
		controller, _ := over(t, taintedNode)
		failing(controller, true, "*v1.Node")
		n := forcible("a")
		if err := controller.gatherEvidence(t.Context(), n, silenced(reported("a"))); err == nil || n.Missing ||
			n.Evidence != nil {
			t.Errorf("node a, while its Node cannot be read: missing %t, evidence %v, error %v; want an error alone", n.Missing,
				n.Evidence, err)
		}
	})
}

func TestACheckpointIsClearedOnlyOfANodeThatIsReady(t *testing.T) {
	const update = "the update"
	checked := reported("a")
	checked.Status.Node.Unready = &volumesv1alpha1.UnreadyObservation{
		Transition: noon, Observed: metav1.Duration{Duration: time.Minute},
	}
	for _, c := range []struct {
		name   string
		cached []client.Object
		live   *volumesv1alpha1.NodeVolumeState
		fails  string
		// stays: the checkpoint is still there. told: the failure is reported reported.
		stays, told bool
	}{
		{"it is Ready", []client.Object{checked, readyNode("a")}, checked, "", false, false},
		{"it is not Ready", []client.Object{checked, unreadyNode("a", noon)}, checked, "", true, false},
		{"it is gone", []client.Object{checked}, checked, "", true, false},
		{"another node is Ready", []client.Object{checked, readyNode("b")}, checked, "", true, false},
		{"there is no checkpoint", []client.Object{reported("a"), readyNode("a")}, reported("a"), "", false, false},
		{"it has no state", []client.Object{readyNode("a")}, nil, "", false, false},
		{"its state is gone, and the cache does not show it yet", []client.Object{checked, readyNode("a")}, nil,
			"", false, false},
		{"its state cannot be read", []client.Object{checked, readyNode("a")}, checked,
			"*v1alpha1.NodeVolumeState", true, true},
		{"it cannot be read", []client.Object{checked, readyNode("a")}, checked, "*v1.Node", true, true},
		{"its state cannot be written", []client.Object{checked, readyNode("a")}, checked, update, true, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			var live []client.Object
			if c.live != nil {
				live = append(live, c.live)
			}
			controller, _ := over(t, live...)
			behind(t, controller, c.cached...)
			updates := 0
			controller.Observations.Client = interceptor.NewClient(controller.Client.(client.WithWatch), interceptor.Funcs{
				SubResourceUpdate: func(ctx context.Context, w client.Client, part string, o client.Object,
					opts ...client.SubResourceUpdateOption) error {
					if updates++; c.fails == update {
						return errDown
					}
					return w.SubResource(part).Update(ctx, o, opts...)
				},
			})
			failing(controller, true, c.fails)
			if err := controller.clearOutage(t.Context(), forcible("a")); (err != nil) != c.told {
				t.Errorf("clearing the checkpoint of node a: error %v, want one: %t", err, c.told)
			}
			if c.live == nil {
				return
			}
			if stays := liveState(t, controller, "a").Status.Node.Unready != nil; stays != c.stays {
				t.Errorf("checkpoint of node a is kept: %t, want %t", stays, c.stays)
			}
			if c.live.Status.Node.Unready == nil && updates > 0 {
				t.Errorf("%d updates of node state a without a checkpoint, want none", updates)
			}
		})
	}
}

// counting returns the number of live reads that the controller sends.
func counting(c *Controller) *int {
	reads := 0
	c.Reader = interceptor.NewClient(c.Reader.(client.WithWatch), interceptor.Funcs{
		Get: func(ctx context.Context, w client.WithWatch, key client.ObjectKey, o client.Object,
			opts ...client.GetOption) error {
			reads++
			return w.Get(ctx, key, o, opts...)
		},
	})
	c.Writer.Reader, c.Observations.Reader = c.Reader, c.Reader
	return &reads
}

func TestANodeIsReadOnceAPeriodHoweverManyVolumesWait(t *testing.T) {
	c, now := over(t, reported("a"), unreadyNode("a", noon))
	reads := counting(c)
	for _, step := range []struct {
		after, due time.Duration
		reads      int // of the node's state, of the Node, and of the agent's Lease
	}{{0, time.Minute, 3}, {0, time.Minute, 3}, {40 * time.Second, 20 * time.Second, 3},
		{20 * time.Second, time.Minute, 6}} {
		now.SetTime(now.Now().Add(step.after))
		if _, due := pass(t, c, "a"); due != step.due || *reads != step.reads {
			t.Errorf("next pass of node a in %s after %d live reads, want %s after %d", due, *reads, step.due, step.reads)
		}
	}
}

func TestANodeWithoutANodeStateIsReadAgainAfterAPeriod(t *testing.T) {
	c, _ := over(t, unreadyNode("a", noon))
	if evidence, due := pass(t, c, "a"); evidence || due != time.Minute {
		t.Errorf("node a without a node state: evidence %t, due in %s; want none, due in 1m", evidence, due)
	}
}

func TestAFailedReadIsRetriedAndItsTimeDoesNotCount(t *testing.T) {
	c, now := over(t, reported("a"), unreadyNode("a", noon))
	pass(t, c, "a")
	up := c.Reader
	failing(c, false, "*v1.Node")
	now.SetTime(now.Now().Add(time.Minute))
	n := forcible("a")
	if err := c.gatherEvidence(t.Context(), n, silenced(reported("a"))); err != nil {
		t.Fatal(err)
	}
	if _, err := c.watchOutage(t.Context(), n, decision.EvidenceDue(&decision.Facts{}, c.Protocol, n)); err == nil {
		t.Error("reading Node a fails: no error, want one")
	}
	c.Reader = up
	pass(t, c, "a")
	if got := c.unready.Total("a", since(noon), now.Now()); got != 0 {
		t.Errorf("time measured of node a over a failed read: %s, want none", got)
	}
}

func TestACheckpointThatCannotBeClearedIsTriedAgain(t *testing.T) {
	checked := reported("a")
	checked.Status.Node.Unready = &volumesv1alpha1.UnreadyObservation{Transition: noon}
	c, _ := over(t, checked, readyNode("a"))
	c.Observations.Client = interceptor.NewClient(c.Client.(client.WithWatch), interceptor.Funcs{
		SubResourceUpdate: func(context.Context, client.Client, string, client.Object,
			...client.SubResourceUpdateOption) error {
			return errDown
		},
	})
	if _, err := c.watchOutage(t.Context(), forcible("a"),
		decision.EvidenceDue(&decision.Facts{}, c.Protocol, forcible("a"))); err == nil {
		t.Error("clearing the checkpoint of node a fails: no error, want one")
	}
}

func TestANodeWithoutACheckpointIsNotReadForIt(t *testing.T) {
	c, _ := over(t, reported("a"), readyNode("a"))
	reads := counting(c)
	if err := c.clearOutage(t.Context(), forcible("a")); err != nil || *reads > 0 {
		t.Errorf("node a without a checkpoint: %d live reads, error %v; want none", *reads, err)
	}
}

func TestASpellIsOfANodeThatIsNotReadyOrNotThere(t *testing.T) {
	c, _ := over(t)
	lease := renewedLease("a", noon)
	c.Tracker.Observe("a", lease)
	for name, test := range map[string]struct {
		node *corev1.Node
		want outage.Spell
	}{
		"Ready": {readyNode("a"), outage.Spell{}},
		"not Ready, and its agent heard": {unreadyNode("a", later),
			outage.Spell{Unready: true, Transition: later, Heard: c.Tracker.LastWord("a")}},
		"not there, and its agent heard": {nil, outage.Spell{Absent: true, Heard: c.Tracker.LastWord("a")}},
	} {
		if got := c.spellOf("a", test.node); !got.Is(test.want) {
			t.Errorf("spell of a node that is %s: %+v, want %+v", name, got, test.want)
		}
	}
	for _, node := range []*corev1.Node{nil, unreadyNode("a", later)} {
		c.Tracker.Observe("a", renewedLease("a", noon))
		before := c.spellOf("a", node)
		c.Tracker.Observe("a", renewedLease("a", later))
		if c.spellOf("a", node).Is(before) {
			t.Errorf("spell of node a (%v) after its agent renewed its Lease: as before, want another one", node)
		}
	}
}

func TestOneOfManyVolumesReadsTheNode(t *testing.T) {
	c, _ := over(t, reported("a"), unreadyNode("a", noon))
	if err := c.observeOutage(t.Context(), "a", time.Minute); err != nil {
		t.Fatal(err)
	}
	failing(c, false, "*v1.Node")
	if err := c.observeOutage(t.Context(), "a", time.Minute); err != nil {
		t.Errorf("the second volume on node a: error %v, want none and no read of the Node", err)
	}
}

func TestACheckpointThatAnotherHasClearedIsNotClearedAgain(t *testing.T) {
	checked, cleared := reported("a"), reported("a")
	checked.ResourceVersion, cleared.ResourceVersion = "7", "8"
	checked.Status.Node.Unready = &volumesv1alpha1.UnreadyObservation{Transition: noon}
	c, _ := over(t, cleared)
	behind(t, c, checked, readyNode("a"))
	if err := c.clearOutage(t.Context(), forcible("a")); err != nil {
		t.Fatal(err)
	}
	if got := liveState(t, c, "a").ResourceVersion; got != "8" {
		t.Errorf("node state a was written again, as version %s, want 8", got)
	}
}

// proof answers whether a fence holds.
type proof struct {
	fences.Watcher
	holds bool
	err   error
}

func (p *proof) Holds(context.Context, volumesv1alpha1.FenceReference, *corev1.Node,
	*volumesv1alpha1.NodeVolumeState) (bool, error) {
	return p.holds, p.err
}

func TestAFenceIsEvidenceOnlyWhileItHoldsAndItsAgentIsSilentSinceBefore(t *testing.T) {
	down := errors.New("down")
	for _, c := range []struct {
		name  string
		live  *proof
		heard bool
		// record of the fence.
		change func(*volumesv1alpha1.FenceObservation)
		want   bool
		again  bool
		// foreign: another machine of the node's name uses the volume.
		foreign bool
	}{
		{"it holds", &proof{holds: true}, false, func(*volumesv1alpha1.FenceObservation) {}, true, false, false},
		{"another machine of the name uses the volume", &proof{holds: true}, false,
			func(*volumesv1alpha1.FenceObservation) {}, false, false, true},
		{"it was lifted", &proof{}, false, func(*volumesv1alpha1.FenceObservation) {}, false, true, false},
		{"it cannot be read", &proof{err: down}, false, func(*volumesv1alpha1.FenceObservation) {}, false, true, false},
		{"the agent is heard", &proof{holds: true}, true, func(*volumesv1alpha1.FenceObservation) {}, false, false, false},
		{"the agent was heard since", &proof{holds: true}, false, func(r *volumesv1alpha1.FenceObservation) {
			r.LastRenewal = "before"
		}, false, false, false},
		{"it was contradicted once", &proof{holds: true}, false, func(r *volumesv1alpha1.FenceObservation) {
			r.Contradicted = &noon
		}, false, false, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			lease := renewedLease("a", noon)
			controller, now := over(t, readyNode("a"), lease)
			controller.Fences = c.live
			controller.Tracker.Observe("a", lease)
			nvs := reported("a")
			if !c.heard {
				now.SetTime(now.Now().Add(liveness.DefaultDuration))
				nvs = silenced(nvs)
			}
			record := volumesv1alpha1.FenceObservation{FenceReference: volumesv1alpha1.FenceReference{Source: "bmc", Name: "h"},
				LastRenewal: handshake.Renewal(lease)}
			c.change(&record)
			nvs.Status.Node.Fences = []volumesv1alpha1.FenceObservation{record}
			n := forcible("a")
			n.State.Use.Foreign = c.foreign
			evidence, err := controller.confirmEvidence(t.Context(), n, nvs)
			if err != nil || (evidence != nil) != c.want ||
				evidence != nil && (evidence.Type != volumesv1alpha1.EvidenceFenced || *evidence.Fence != record.FenceReference) {
				t.Errorf("evidence %+v, error %v; want Fenced: %t", evidence, err, c.want)
			}
			if again := n.EvidenceDue == fenceAgain; again != c.again {
				t.Errorf("it is read again after %s, want %s: %t", n.EvidenceDue, fenceAgain, c.again)
			}
		})
	}
}

func TestAFenceThatCannotBeReadIsInTheWayOfNoOtherEvidence(t *testing.T) {
	lease := renewedLease("a", noon)
	controller, now := over(t, unreadyNode("a", noon), lease)
	controller.Fences = &proof{err: errors.New("down")}
	nvs := silenced(reported("a"))
	nvs.Status.Node.Fences = []volumesv1alpha1.FenceObservation{{LastRenewal: handshake.Renewal(lease)}}
	for range 6 * 6 { // a process that reads each ten seconds misses nothing that it counts
		if evidence, err := controller.confirmEvidence(t.Context(), forcible("a"), nvs); evidence != nil || err != nil {
			t.Fatalf("evidence %+v, error %v; want neither yet", evidence, err)
		}
		now.SetTime(now.Now().Add(10 * time.Second))
	}
	evidence, err := controller.confirmEvidence(t.Context(), forcible("a"), nvs)
	if err != nil || evidence == nil || evidence.Type != volumesv1alpha1.EvidenceForcedAfterTimeout {
		t.Errorf("evidence %+v, error %v; want ForcedAfterTimeout", evidence, err)
	}
}
