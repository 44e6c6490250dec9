/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package attachment

import (
	"context"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/attachment/decision"
	"github.com/hawser-io/hawser/internal/controller/fences"
	"github.com/hawser-io/hawser/internal/controller/liveness"
	"github.com/hawser-io/hawser/internal/controller/nodestate"
	"github.com/hawser-io/hawser/internal/controller/outage"
	"github.com/hawser-io/hawser/internal/fencing"
	"github.com/hawser-io/hawser/internal/handshake"
	"github.com/hawser-io/hawser/internal/install"
	"github.com/hawser-io/hawser/internal/machine"
)

// goneWatched is how much of that must have been watched, so that an agent which could not renew its Lease because
// the API server was away has had the time to do so.
const goneWatched = liveness.DefaultDuration

// fenceAgain is when a fence is read again that did not hold or could not be read, and all that may be of the past.
const fenceAgain = 30 * time.Second

// Fences are what proves that machines are off or gone, or that their access is cut.
type Fences interface {
	fences.Holder
	// Cutting lists the fences that cut the access of the machine to the volume, as far as is known without a request.
	Cutting(ctx context.Context, node *corev1.Node, nvs *volumesv1alpha1.NodeVolumeState,
		v fencing.Volume) []volumesv1alpha1.FenceReference
	// Cuts reads live whether the fence does.
	Cuts(ctx context.Context, ref volumesv1alpha1.FenceReference, node *corev1.Node,
		nvs *volumesv1alpha1.NodeVolumeState, v fencing.Volume) (bool, error)
	// ListenToCuts has wake called for each Node to which access may be cut, or given back.
	ListenToCuts(wake func(context.Context, string, workqueue.TypedRateLimitingInterface[reconcile.Request])) source.Source
}

// gatherEvidence finds in the cache the evidence that replaces the agent's release, or when there may be some. nvs is
// the node's state; nil where there is none.
func (c *Controller) gatherEvidence(
	ctx context.Context, n *decision.Node, nvs *volumesv1alpha1.NodeVolumeState,
) error {
	node := &corev1.Node{}
	err := c.Client.Get(ctx, client.ObjectKey{Name: n.Name}, node)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("reading node %s: %w", n.Name, err)
	}
	if err != nil {
		node = nil
	}
	n.Missing, n.Tainted = node == nil, handshake.OutOfService(node) != nil
	n.Fenced = n.Tainted && handshake.DeclaredOff(node) == nil
	var fence *volumesv1alpha1.FenceReference
	if counted := c.fencesThatCount(n, nvs); len(counted) > 0 {
		fence = &counted[0]
	}
	n.Evidence, n.EvidenceDue = c.evidenceOf(n, node, nvs, fence)
	n.UnheardDue = max(-c.Tracker.Silence(n.Name), 0)
	n.Unheard = n.UnheardDue == 0 && !c.Tracker.MayBeRestored()
	return nil
}

// confirmEvidence reads the Node and the agent's Lease once more, after nvs. What cannot be read is no evidence.
func (c *Controller) confirmEvidence(
	ctx context.Context, n *decision.Node, nvs *volumesv1alpha1.NodeVolumeState,
) (*volumesv1alpha1.DetachEvidence, error) {
	node, err := c.readOutage(ctx, n.Name, nil, outage.Period(n.OutageNeeded()))
	if err != nil {
		return nil, err
	}
	if nvs != nil {
		c.Tracker.ObserveSession(nvs) // the watch may lag behind
	}
	recorded := c.fencesThatCount(n, nvs)
	n.Evidence, n.EvidenceDue = c.evidenceOf(n, node, nvs, fences.Holding(ctx, c.Fences, recorded, node, nvs))
	if n.Evidence == nil && len(recorded) > 0 {
		n.EvidenceDue = sooner(n.EvidenceDue, fenceAgain)
	}
	return n.Evidence, nil
}

// readOutage reads the Node itself, and then its agent's Lease, live, and takes note of what it found. It returns nil
// for a Node that does not exist.
func (c *Controller) readOutage(
	ctx context.Context, name string, checkpoint *volumesv1alpha1.UnreadyObservation, plan time.Duration,
) (*corev1.Node, error) {
	node := &corev1.Node{}
	err := c.Reader.Get(ctx, client.ObjectKey{Name: name}, node)
	switch {
	case apierrors.IsNotFound(err):
		node = nil
	case err != nil:
		return nil, fmt.Errorf("reading node %s: %w", name, err)
	}
	if _, err := c.leased(ctx, name); err != nil {
		return nil, err
	}
	s := c.spellOf(name, node)
	c.unready.Observe(name, s, outage.Carried(checkpoint, s), plan, c.Clock.Now())
	return node, nil
}

// spellOf says what the node is in, given the Node; nil where there is none. An agent that is heard begins another one.
func (c *Controller) spellOf(name string, node *corev1.Node) outage.Spell {
	if node == nil {
		return outage.Spell{Absent: true, Heard: c.Tracker.LastWord(name)}
	}
	if ready, since := liveness.Readiness(node); !ready {
		return outage.Spell{Unready: true, Transition: since, Heard: c.Tracker.LastWord(name)}
	}
	return outage.Spell{}
}

// leased reports whether the node's agent has a Lease, read live: an agent is not silent because a watch lags.
func (c *Controller) leased(ctx context.Context, node string) (bool, error) {
	lease := &coordinationv1.Lease{}
	key := client.ObjectKey{Namespace: install.Namespace(), Name: volumesv1alpha1.AgentLeasePrefix + node}
	err := c.Reader.Get(ctx, key, lease)
	switch {
	case apierrors.IsNotFound(err):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("reading the Lease of node %s: %w", node, err)
	}
	c.Tracker.Observe(node, lease)
	return true, nil
}

// forgetOutage drops what was not watched, because the API server did not answer: an agent that could not be heard
// meanwhile has not been silent.
func (c *Controller) forgetOutage(n *decision.Node) {
	c.unready.Missed(n.Name)
	c.Tracker.Doubt(n.Name)
}

// evidenceOf that there is now, given the Node, nil where there is none, and the node's state; or how long there will
// be none yet. None of it counts while the agent is heard, and none is about another machine that had the Node's name
// before, or of before a restore.
func (c *Controller) evidenceOf(
	n *decision.Node, node *corev1.Node, nvs *volumesv1alpha1.NodeVolumeState, fence *volumesv1alpha1.FenceReference,
) (*volumesv1alpha1.DetachEvidence, time.Duration) {
	silence := c.Tracker.Silence(n.Name)
	watched := c.unready.Total(n.Name, c.spellOf(n.Name, node), c.Clock.Now())
	lapsed, due := handshake.Node{Silent: silence >= 0, Use: n.State.Use}, c.countsIn(n.Name, nvs)
	switch {
	case node == nil && c.absenceCounts(n, nvs, lapsed):
		if wait := max(decision.GoneAfter-silence, goneWatched-watched, due); wait > 0 {
			return nil, wait
		}
		return &volumesv1alpha1.DetachEvidence{
			Type: volumesv1alpha1.EvidenceNodeGone,
			Message: fmt.Sprintf(
				"node %s does not exist and its agent has not been heard for more than %s", n.Name, decision.GoneAfter,
			),
		}, 0
	case node != nil:
		if e := c.assertedOf(n, node, nvs, fence); e != nil {
			if due > 0 {
				return nil, due
			}
			return e, 0
		}
	}
	after, allowed := decision.ForceAfter(n.Leaving)
	if !allowed || node != nil && liveness.Ready(node) {
		return nil, 0
	}
	wait := max(after-watched, due)
	if wait > 0 || c.Protocol.MayRelyOn(lapsed, handshake.Lapsed) != handshake.GuardNone {
		return nil, wait
	}
	return &volumesv1alpha1.DetachEvidence{
		Type: volumesv1alpha1.EvidenceForcedAfterTimeout,
		Message: fmt.Sprintf(
			"node %s was watched %s, and its agent not being heard, for more than %s, "+
				"after which the intents' policy forces the detach", n.Name, outageOf(node), after,
		),
	}, 0
}

// countsIn is after how long what is asserted of the node may count: not while this manager may hear the agent, whose
// silence another one may have marked, and not while all that the API shows of the node may be of before a restore.
func (c *Controller) countsIn(node string, nvs *volumesv1alpha1.NodeVolumeState) time.Duration {
	due := max(-c.Tracker.Silence(node), 0)
	if due == 0 && c.Tracker.MayBePast(nvs) {
		return fenceAgain
	}
	return due
}

func outageOf(node *corev1.Node) string {
	if node == nil {
		return "being absent"
	}
	return "not being Ready"
}

// absenceCounts: where only the Node was deleted Kubernetes ends the agent, so that agent's silence is not enough. For
// how long it has lasted is asked elsewhere.
func (c *Controller) absenceCounts(
	n *decision.Node, nvs *volumesv1alpha1.NodeVolumeState, lapsed handshake.Node,
) bool {
	lapsed.Silent = true
	return c.Protocol.MayRelyOn(lapsed, handshake.AbsenceAssertion(nvs, c.Tracker.LastWord(n.Name))) == handshake.GuardNone
}

// assertedOf is the taint or the fence that counts once this process has not heard the agent for as long as it takes;
// nil if neither does.
func (c *Controller) assertedOf(
	n *decision.Node, node *corev1.Node, nvs *volumesv1alpha1.NodeVolumeState, fence *volumesv1alpha1.FenceReference,
) *volumesv1alpha1.DetachEvidence {
	switch {
	case c.taintCounts(n, node, nvs):
		return &volumesv1alpha1.DetachEvidence{
			Type: volumesv1alpha1.EvidenceOutOfServiceTaint,
			Message: fmt.Sprintf(
				"node %s carries the taint %s, and its agent is silent since before", n.Name, corev1.TaintNodeOutOfService,
			),
		}
	case fence != nil:
		return &volumesv1alpha1.DetachEvidence{
			Type: volumesv1alpha1.EvidenceFenced, Fence: fence,
			Message: fmt.Sprintf(
				"%s of fence source %s proves %s of the machine of node %s, and its agent is silent since before",
				fence.Name, fence.Source, fence.Proves, n.Name,
			),
		}
	}
	return nil
}

// taintCounts: the manager that marked the agent as unreachable may have been another one. The mark or the record is
// what wakes the node's volumes.
func (c *Controller) taintCounts(n *decision.Node, node *corev1.Node, nvs *volumesv1alpha1.NodeVolumeState) bool {
	if nvs == nil || machine.ReportedByAnother(node, nvs) {
		return false
	}
	said := handshake.TaintAssertion(nvs.Status.Node.OutOfService, handshake.DeclaredOff(node),
		handshake.LastHeard(nvs, c.Tracker.LastWord(n.Name)))
	return c.Protocol.MayRelyOn(c.silent(n, nvs), said) == handshake.GuardNone
}

// silent is the node as far as its agent is concerned, which this process does not hear, or an earlier one did not.
func (c *Controller) silent(n *decision.Node, nvs *volumesv1alpha1.NodeVolumeState) handshake.Node {
	return handshake.Node{Silent: c.Tracker.Silence(n.Name) >= 0 || handshake.Silent(nvs), Use: n.State.Use}
}

// fencesThatCount are the recorded fences of the node that its agent, which is silent, has not contradicted.
func (c *Controller) fencesThatCount(
	n *decision.Node, nvs *volumesv1alpha1.NodeVolumeState,
) []volumesv1alpha1.FenceReference {
	if nvs == nil {
		return nil
	}
	silent := c.silent(n, nvs)
	var count []volumesv1alpha1.FenceReference
	for _, record := range nvs.Status.Node.Fences {
		said := handshake.FenceAssertion(record, handshake.LastHeard(nvs, c.Tracker.LastWord(n.Name)))
		if c.Protocol.MayRelyOn(silent, said) == handshake.GuardNone {
			count = append(count, record.FenceReference)
		}
	}
	return count
}

// watchOutage returns when to read a node again that is waited for, and reads it when that is due.
func (c *Controller) watchOutage(ctx context.Context, n *decision.Node, due time.Duration) (time.Duration, error) {
	if due == 0 {
		return 0, c.clearOutage(ctx, n)
	}
	period := outage.Period(n.OutageNeeded())
	if c.unready.Due(n.Name, period, c.Clock.Now()) == 0 {
		if err := c.observeOutage(ctx, n.Name, period); err != nil {
			c.forgetOutage(n)
			return 0, err
		}
	}
	if next := c.unready.Due(n.Name, period, c.Clock.Now()); next > 0 {
		return min(due, next), nil
	}
	return min(due, period), nil
}

// observeOutage reads a node and persists for how long it has been watched. Of many volumes that come at once one reads
// it.
func (c *Controller) observeOutage(ctx context.Context, name string, period time.Duration) error {
	_, err := c.Observations.Apply(ctx, name, func(
		ctx context.Context, nvs *volumesv1alpha1.NodeVolumeState,
	) (nodestate.Change, error) {
		if nvs == nil {
			return nil, nil
		}
		if c.unready.Due(name, period, c.Clock.Now()) == 0 {
			if _, err := c.readOutage(ctx, name, nvs.Status.Node.Unready, period); err != nil {
				return nil, err
			}
		}
		checkpoint, before := c.unready.Checkpoint(name), nvs.Status.Node.Unready
		// An agent that is heard begins it anew with each renewal, which is not written each time.
		restarts := before != nil && checkpoint != nil && before.Transition.Equal(&checkpoint.Transition) &&
			before.LastRenewal != checkpoint.LastRenewal && c.Tracker.Silence(name) < 0
		if restarts || equality.Semantic.DeepEqual(checkpoint, before) {
			return nil, nil
		}
		return func(nvs *volumesv1alpha1.NodeVolumeState) { nvs.Status.Node.Unready = checkpoint }, nil
	})
	if err != nil {
		return fmt.Errorf("watching node %s: %w", name, err)
	}
	return nil
}

// clearOutage drops the checkpoint of a node that is Ready again.
func (c *Controller) clearOutage(ctx context.Context, n *decision.Node) error {
	nvs, node := &volumesv1alpha1.NodeVolumeState{}, &corev1.Node{}
	err := c.Client.Get(ctx, client.ObjectKey{Name: n.Name}, nvs)
	if err != nil || nvs.Status.Node.Unready == nil {
		return client.IgnoreNotFound(err)
	}
	if err := c.Client.Get(ctx, client.ObjectKey{Name: n.Name}, node); err != nil || !liveness.Ready(node) {
		return client.IgnoreNotFound(err)
	}
	_, err = c.Observations.Apply(ctx, n.Name,
		func(_ context.Context, nvs *volumesv1alpha1.NodeVolumeState) (nodestate.Change, error) {
			if nvs == nil || nvs.Status.Node.Unready == nil {
				return nil, nil
			}
			return func(nvs *volumesv1alpha1.NodeVolumeState) { nvs.Status.Node.Unready = nil }, nil
		})
	if err != nil {
		return fmt.Errorf("clearing how long node %s was not Ready: %w", n.Name, err)
	}
	return nil
}
