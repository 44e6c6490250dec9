/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package attachment

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
)

// goneAfter is how long the agent of a Node that does not exist must have been silent before that is evidence.
const goneAfter = 5 * time.Minute

// unready remembers since when, on this process' monotonic clock, nodes have not been Ready. A restart begins
// anew: it may take longer, never shorter.
type unready struct {
	mu    sync.Mutex
	since map[string]time.Time
}

func (u *unready) observe(node string, ready bool, now time.Time) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.since == nil {
		u.since = map[string]time.Time{}
	}
	if _, known := u.since[node]; ready {
		delete(u.since, node)
	} else if !known {
		u.since[node] = now
	}
}

// duration for which the node has not been Ready; false while it is.
func (u *unready) duration(node string, now time.Time) (time.Duration, bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	since, ok := u.since[node]
	return now.Sub(since), ok
}

// restart counts anew for a node that is not Ready: while it cannot be read it counts as Ready.
func (u *unready) restart(node string, now time.Time) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if _, known := u.since[node]; known {
		u.since[node] = now
	}
}

func isReady(node *corev1.Node) bool {
	i := slices.IndexFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool { return c.Type == corev1.NodeReady })
	return i >= 0 && node.Status.Conditions[i].Status == corev1.ConditionTrue
}

func outOfService(node *corev1.Node) bool {
	return slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == corev1.TaintNodeOutOfService })
}

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

// confirmEvidence looks again at the Node itself, and where there is none at its agent's Lease, read live. What cannot be
// read is no evidence.
func (c *Controller) confirmEvidence(ctx context.Context, n *Node) (*volumesv1alpha1.DetachEvidence, error) {
	node := &corev1.Node{}
	err := c.Reader.Get(ctx, client.ObjectKey{Name: n.Name}, node)
	switch {
	case apierrors.IsNotFound(err):
		node = nil
		if err := c.hear(ctx, n.Name); err != nil {
			return nil, err
		}
	case err != nil:
		return nil, fmt.Errorf("reading node %s: %w", n.Name, err)
	}
	n.Evidence, n.EvidenceDue = c.evidence(n, node)
	return n.Evidence, nil
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

// doubt begins every wait for evidence anew after the API server could not be asked: who could not be heard
// meanwhile has not been silent.
func (c *Controller) doubt(n *Node) {
	c.unready.restart(n.Name, c.Clock.Now())
	c.Tracker.Forget(n.Name)
}

func (c *Controller) evidence(n *Node, node *corev1.Node) (*volumesv1alpha1.DetachEvidence, time.Duration) {
	switch {
	case node == nil:
		wait := goneAfter - c.Tracker.Silence(n.Name)
		if wait > 0 {
			return nil, wait
		}
		return &volumesv1alpha1.DetachEvidence{
			Type:    volumesv1alpha1.EvidenceNodeGone,
			Message: fmt.Sprintf("node %s does not exist and its agent has not been heard for more than %s", n.Name, goneAfter),
		}, 0
	case outOfService(node):
		return &volumesv1alpha1.DetachEvidence{
			Type:    volumesv1alpha1.EvidenceOutOfServiceTaint,
			Message: fmt.Sprintf("node %s carries the taint %s", n.Name, corev1.TaintNodeOutOfService),
		}, 0
	}
	return c.evidenceOfTime(n, node)
}

func (c *Controller) evidenceOfTime(n *Node, node *corev1.Node) (*volumesv1alpha1.DetachEvidence, time.Duration) {
	after, allowed := forceAfter(n.Leaving)
	unready, known := c.unready.duration(n.Name, c.Clock.Now())
	if !allowed || !known || isReady(node) {
		return nil, 0
	}
	if unready < after {
		return nil, after - unready
	}
	return &volumesv1alpha1.DetachEvidence{
		Type:    volumesv1alpha1.EvidenceForcedAfterTimeout,
		Message: fmt.Sprintf("node %s has not been Ready for more than %s, after which the intents' policy forces the detach", n.Name, after),
	}, 0
}
