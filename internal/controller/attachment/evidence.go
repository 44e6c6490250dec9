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
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/liveness"
	"github.com/hawser-io/hawser/internal/controller/nodestate"
	"github.com/hawser-io/hawser/internal/controller/outage"
)

// goneAfter is how long the agent of a Node that does not exist must have been silent before that is evidence.
const goneAfter = 5 * time.Minute

// goneWatched is how much of that must have been watched, so that an agent which could not renew its Lease because the API
// server was away has had the time to do so.
const goneWatched = liveness.DefaultDuration

// forceAfter is how long the policies of the intents that leave the node ask to wait; false if one of them allows no force.
func forceAfter(leaving []*Intent) (time.Duration, bool) {
	var longest time.Duration
	for _, i := range leaving {
		policy := i.Object.Spec.DetachPolicy
		if policy == nil {
			return 0, false
		}
		longest = max(longest, policy.ForceAfter.Duration)
	}
	return longest, len(leaving) > 0
}

// gatherEvidence looks in the cache for what may stand in for the agent's release, or for when that may come to be.
func (c *Controller) gatherEvidence(ctx context.Context, n *Node) error {
	node := &corev1.Node{}
	err := c.Client.Get(ctx, client.ObjectKey{Name: n.Name}, node)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("reading node %s: %w", n.Name, err)
	}
	if err != nil {
		node = nil
	}
	n.Missing = node == nil
	n.Evidence, n.EvidenceDue = c.evidence(n, node)
	return nil
}

// confirmEvidence looks at the node once more. What cannot be read is no evidence.
func (c *Controller) confirmEvidence(ctx context.Context, n *Node) (*volumesv1alpha1.DetachEvidence, error) {
	node, err := c.lookAt(ctx, n.Name, nil, outage.Period(n.patience()))
	if err != nil {
		return nil, err
	}
	n.Evidence, n.EvidenceDue = c.evidence(n, node)
	return n.Evidence, nil
}

// lookAt reads the Node itself, and where there is none its agent's Lease, live, and takes note of what it found. It
// returns nil for a Node that does not exist.
func (c *Controller) lookAt(ctx context.Context, name string, checkpoint *volumesv1alpha1.UnreadyObservation, plan time.Duration) (*corev1.Node, error) {
	node := &corev1.Node{}
	err := c.Reader.Get(ctx, client.ObjectKey{Name: name}, node)
	switch {
	case apierrors.IsNotFound(err):
		node = nil
		if err := c.hear(ctx, name); err != nil {
			return nil, err
		}
	case err != nil:
		return nil, fmt.Errorf("reading node %s: %w", name, err)
	}
	s := c.spellOf(name, node)
	c.unready.Observe(name, s, outage.Carried(checkpoint, s), plan, c.Clock.Now())
	return node, nil
}

// spellOf says what the node is in, given the Node; nil where there is none.
func (c *Controller) spellOf(name string, node *corev1.Node) outage.Spell {
	if node == nil {
		return outage.Spell{Absent: true, Heard: c.Tracker.LastWord(name)}
	}
	if ready, since := liveness.Readiness(node); !ready {
		return outage.Spell{Unready: true, Transition: since}
	}
	return outage.Spell{}
}

// hear reads the agent's Lease: an agent is not silent because a watch lags.
func (c *Controller) hear(ctx context.Context, node string) error {
	lease := &coordinationv1.Lease{}
	key := client.ObjectKey{Namespace: volumesv1alpha1.InstallNamespace, Name: volumesv1alpha1.AgentLeasePrefix + node}
	err := c.Reader.Get(ctx, key, lease)
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("reading the Lease of node %s: %w", node, err)
	}
	c.Tracker.Observe(node, lease)
	return nil
}

// doubt drops what was not watched, because the API server could not be asked: who could not be heard
// meanwhile has not been silent.
func (c *Controller) doubt(n *Node) {
	c.unready.Missed(n.Name)
	c.Tracker.Forget(n.Name)
}

// evidence that there is now, given the Node; or how long there will be none yet.
func (c *Controller) evidence(n *Node, node *corev1.Node) (*volumesv1alpha1.DetachEvidence, time.Duration) {
	watched := c.unready.Total(n.Name, c.spellOf(n.Name, node), c.Clock.Now())
	switch {
	case node == nil:
		if wait := max(goneAfter-c.Tracker.Silence(n.Name), goneWatched-watched); wait > 0 {
			return nil, wait
		}
		return &volumesv1alpha1.DetachEvidence{
			Type:    volumesv1alpha1.EvidenceNodeGone,
			Message: fmt.Sprintf("node %s does not exist and its agent has not been heard for more than %s", n.Name, goneAfter),
		}, 0
	case liveness.OutOfService(node):
		return &volumesv1alpha1.DetachEvidence{
			Type:    volumesv1alpha1.EvidenceOutOfServiceTaint,
			Message: fmt.Sprintf("node %s carries the taint %s", n.Name, corev1.TaintNodeOutOfService),
		}, 0
	}
	after, allowed := forceAfter(n.Leaving)
	switch {
	case !allowed || liveness.Ready(node):
		return nil, 0
	case watched < after:
		return nil, after - watched
	}
	return &volumesv1alpha1.DetachEvidence{
		Type:    volumesv1alpha1.EvidenceForcedAfterTimeout,
		Message: fmt.Sprintf("node %s was watched not being Ready for more than %s, after which the intents' policy forces the detach", n.Name, after),
	}, 0
}

// patience is for how long the node has to be out of reach before that is evidence; zero when that takes more than time.
func (n *Node) patience() time.Duration {
	if n.Missing {
		return goneAfter
	}
	after, _ := forceAfter(n.Leaving)
	return after
}

// await says when to look again at a node that is waited for, and looks at it when it is time to.
func (c *Controller) await(ctx context.Context, n *Node, due time.Duration) (time.Duration, error) {
	if due == 0 {
		return 0, c.clear(ctx, n)
	}
	period := outage.Period(n.patience())
	if c.unready.Due(n.Name, period, c.Clock.Now()) == 0 {
		if err := c.watch(ctx, n.Name, period); err != nil {
			c.doubt(n)
			return 0, err
		}
	}
	if next := c.unready.Due(n.Name, period, c.Clock.Now()); next > 0 {
		return min(due, next), nil
	}
	return min(due, period), nil
}

// watch looks at a node and writes down for how long it has been watched. Of many volumes that come at once one looks.
func (c *Controller) watch(ctx context.Context, name string, period time.Duration) error {
	_, err := c.Writer.Apply(ctx, name, func(ctx context.Context, nvs *volumesv1alpha1.NodeVolumeState) (nodestate.Change, error) {
		if nvs == nil {
			return nil, nil
		}
		if c.unready.Due(name, period, c.Clock.Now()) == 0 {
			if _, err := c.lookAt(ctx, name, nvs.Spec.Unready, period); err != nil {
				return nil, err
			}
		}
		checkpoint := c.unready.Checkpoint(name)
		if equality.Semantic.DeepEqual(checkpoint, nvs.Spec.Unready) {
			return nil, nil
		}
		return func(nvs *volumesv1alpha1.NodeVolumeState) { nvs.Spec.Unready = checkpoint }, nil
	})
	if err != nil {
		return fmt.Errorf("watching node %s: %w", name, err)
	}
	return nil
}

// clear drops the checkpoint of a node that is Ready again.
func (c *Controller) clear(ctx context.Context, n *Node) error {
	nvs, node := &volumesv1alpha1.NodeVolumeState{}, &corev1.Node{}
	err := c.Client.Get(ctx, client.ObjectKey{Name: n.Name}, nvs)
	if err != nil || nvs.Spec.Unready == nil {
		return client.IgnoreNotFound(err)
	}
	if err := c.Client.Get(ctx, client.ObjectKey{Name: n.Name}, node); err != nil || !liveness.Ready(node) {
		return client.IgnoreNotFound(err)
	}
	_, err = c.Writer.Apply(ctx, n.Name, func(_ context.Context, nvs *volumesv1alpha1.NodeVolumeState) (nodestate.Change, error) {
		if nvs == nil || nvs.Spec.Unready == nil {
			return nil, nil
		}
		return func(nvs *volumesv1alpha1.NodeVolumeState) { nvs.Spec.Unready = nil }, nil
	})
	if err != nil {
		return fmt.Errorf("clearing how long node %s was not Ready: %w", n.Name, err)
	}
	return nil
}
