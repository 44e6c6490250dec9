/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package metrics

import (
	"context"
	"slices"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/liveness"
	"github.com/hawser-io/hawser/internal/handshake"
	"github.com/hawser-io/hawser/internal/install"
)

var (
	nodeConditions = prometheus.NewDesc("hawser_node_conditions",
		"Node states by the type, status and reason of their conditions. A node counts once for each of its conditions.",
		[]string{"condition", "status", "reason"}, nil)
	attachments = prometheus.NewDesc("hawser_attachments",
		"Entries of the node states, by driver and state: "+stateAttached+"; "+stateDetaching+
			" until the driver has detached; "+stateForcedAway+
			" from then until the agent has reported that nothing of a forced detach is left.",
		[]string{"driver", "state"}, nil)
	oldestDetaching = prometheus.NewDesc("hawser_oldest_detaching_seconds",
		"Age of the oldest decision to detach that the driver has not carried out, in seconds; 0 if there is none.",
		[]string{"driver"}, nil)
	outOfService = prometheus.NewDesc("hawser_out_of_service_nodes",
		"1 for each Node that carries the taint node.kubernetes.io/out-of-service; ready is true while the Node is Ready, "+
			"and by is manager where the manager has set the taint on a fence, or other.",
		[]string{"node", "ready", "by"}, nil)
	orphans = prometheus.NewDesc("hawser_orphaned_volumes",
		"Volumes in use on the node whose intent or attachment does not exist, by the agent's last report. No series of a "+
			"node where no agent belongs.",
		[]string{"node"}, nil)
)

// States of an entry.
const (
	stateAttached   = "Attached"
	stateDetaching  = "Detaching"
	stateForcedAway = "ForcedAway"
)

// +kubebuilder:rbac:groups=apps,resources=daemonsets,namespace=hawser-system,verbs=list;watch

// nodeCollector counts what the node states of the cache list each time it is asked.
type nodeCollector struct {
	reader  client.Reader
	leading <-chan struct{}
	clock   clock.PassiveClock
}

// Describe is part of a prometheus.Collector.
func (c *nodeCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, desc := range []*prometheus.Desc{nodeConditions, attachments, oldestDetaching, orphans, outOfService} {
		ch <- desc
	}
}

// Collect is part of a prometheus.Collector.
func (c *nodeCollector) Collect(ch chan<- prometheus.Metric) {
	if !isClosed(c.leading) {
		return
	}
	states := &volumesv1alpha1.NodeVolumeStateList{}
	if err := c.reader.List(context.Background(), states); err != nil {
		return // the cache has not been filled
	}
	nodes := &corev1.NodeList{}
	if err := c.reader.List(context.Background(), nodes, client.UnsafeDisableDeepCopy); err != nil {
		return // the cache has not been filled
	}
	byName := make(map[string]*corev1.Node, len(nodes.Items))
	for i := range nodes.Items {
		byName[nodes.Items[i].Name] = &nodes.Items[i]
	}
	agents := &appsv1.DaemonSetList{}
	if err := c.reader.List(context.Background(), agents); err != nil {
		return // the cache has not been filled
	}
	conditions, entries, oldest := conditionCounts{}, counts{}, map[string]time.Duration{}
	for i := range states.Items {
		nvs := &states.Items[i]
		conditions.add(nvs.Status.Conditions)
		for j := range nvs.Spec.Attachments {
			c.count(&nvs.Spec.Attachments[j], entries, oldest)
		}
		if node := byName[nvs.Name]; node != nil && (liveness.NeverHadAgent(node, nvs) || !belongs(agents, node, nvs)) {
			continue // HawserAgentMissing asks for the agent of each node that has this series
		}
		orphaned := 0.0
		if s := nvs.Status.Summary; s != nil {
			orphaned = float64(s.Orphaned)
		}
		ch <- prometheus.MustNewConstMetric(orphans, prometheus.GaugeValue, orphaned, nvs.Name)
	}
	collectTainted(ch, nodes.Items)
	conditions.collect(ch, nodeConditions)
	entries.collect(ch, attachments)
	for driver, age := range oldest {
		ch <- prometheus.MustNewConstMetric(oldestDetaching, prometheus.GaugeValue, age.Seconds(), driver)
	}
}

// belongs reports whether an agent belongs on the node: a DaemonSet of agents selects it, or volumes are there. Where
// no DaemonSet is known an agent belongs on each node.
func belongs(
	agents *appsv1.DaemonSetList, node *corev1.Node, nvs *volumesv1alpha1.NodeVolumeState,
) bool {
	return len(agents.Items) == 0 || len(nvs.Spec.Attachments) > 0 || len(nvs.Status.Volumes) > 0 ||
		slices.ContainsFunc(agents.Items, func(d appsv1.DaemonSet) bool {
			return install.AgentRunsOn(node, d.Spec.Template.Spec)
		})
}

// collectTainted has no series of a Node without the taint.
func collectTainted(ch chan<- prometheus.Metric, nodes []corev1.Node) {
	for i := range nodes {
		if node := &nodes[i]; handshake.OutOfService(node) != nil {
			by := "other"
			if handshake.DeclaredOff(node) == nil {
				by = "manager"
			}
			ready := strconv.FormatBool(liveness.Ready(node))
			ch <- prometheus.MustNewConstMetric(outOfService, prometheus.GaugeValue, 1, node.Name, ready, by)
		}
	}
}

// count adds an entry. Every driver that is seen has every series, so that one that comes back to 0 is not missing.
func (c *nodeCollector) count(e *volumesv1alpha1.NodeAttachment, entries counts, oldest map[string]time.Duration) {
	for _, state := range []string{stateAttached, stateDetaching, stateForcedAway} {
		entries[[2]string{e.Driver, state}] += 0
	}
	oldest[e.Driver] += 0
	switch {
	case e.State == volumesv1alpha1.AttachmentAttached:
		entries[[2]string{e.Driver, stateAttached}]++
	case e.DetachedTime != nil:
		entries[[2]string{e.Driver, stateForcedAway}]++
	default:
		entries[[2]string{e.Driver, stateDetaching}]++
		if e.Evidence != nil {
			oldest[e.Driver] = max(oldest[e.Driver], c.clock.Since(e.Evidence.Time.Time))
		}
	}
}
