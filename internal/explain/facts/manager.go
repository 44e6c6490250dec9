/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package facts

import (
	"context"
	"slices"
	"strings"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
)

// fewAgents is the nodes of how many agents are read: of those that were heard the longest ago.
const fewAgents = 3

// OperatorLease is the Lease of the leading operator.
const OperatorLease = "hawser-operator"

// ofManager reads the VolumeManager with what it counts on: the Leases of operator, manager and agents, and their pods.
func (g *Gatherer) ofManager(ctx context.Context, ref Ref) error {
	g.facts.Manager = get[volumesv1alpha1.VolumeManager](ctx, g, ref.Kind, "", ref.Name)
	if !g.facts.Manager.Found {
		return g.facts.Manager.Err
	}
	g.facts.OperatorLease = get[coordinationv1.Lease](ctx, g, KindLease, g.facts.System, OperatorLease)
	pods, err := list[corev1.PodList](ctx, g, "pods of Hawser", client.InNamespace(g.facts.System),
		client.MatchingLabels{"app.kubernetes.io/name": "hawser"})
	g.facts.SystemPods = List[corev1.Pod]{Items: pods.Items, Err: err}
	g.agents(ctx)
	return nil
}

// agents reads the Leases of the agents. That of a node that is gone stays, so where agents are pods, only those of
// nodes with such a pod count.
func (g *Gatherer) agents(ctx context.Context) {
	on := map[string]bool{}
	for i := range g.facts.SystemPods.Items {
		if pod := &g.facts.SystemPods.Items[i]; pod.Labels["app.kubernetes.io/component"] == "agent" {
			on[pod.Spec.NodeName] = true
		}
	}
	leases, err := list[coordinationv1.LeaseList](ctx, g, "Leases of Hawser", client.InNamespace(g.facts.System))
	g.facts.AgentLeases.Err = err
	for i := range leases.Items {
		node, ok := strings.CutPrefix(leases.Items[i].Name, volumesv1alpha1.AgentLeasePrefix)
		if ok && (len(on) == 0 || on[node]) {
			g.facts.AgentLeases.Items = append(g.facts.AgentLeases.Items, leases.Items[i])
		}
	}
	g.latest(ctx)
}

// latest reads the nodes of the agents that were heard the longest ago.
func (g *Gatherer) latest(ctx context.Context) {
	leases := slices.Clone(g.facts.AgentLeases.Items)
	slices.SortFunc(leases, func(a, b coordinationv1.Lease) int {
		return ptr.Deref(a.Spec.RenewTime, metav1.MicroTime{}).Time.
			Compare(ptr.Deref(b.Spec.RenewTime, metav1.MicroTime{}).Time)
	})
	for i := range leases[:min(len(leases), fewAgents)] {
		g.node(ctx, strings.TrimPrefix(leases[i].Name, volumesv1alpha1.AgentLeasePrefix))
	}
}
