/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

// Package metrics is what the manager reports to Prometheus, under upstream's names where upstream reports the same.
// What can be counted from the cache is counted at each scrape; what happens once is counted when it happens.
package metrics

import (
	"context"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/metrics"
)

var (
	detaches = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "hawser_detaches_total",
		Help: "Detaches that the manager decided, by driver and by the evidence that each is based on.",
	}, []string{"driver", "evidence"})

	unreleased = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "hawser_forced_detaches_total",
		Help: "Detaches that the manager decided although the node's agent had not released the volume, by evidence. " +
			"protection is cut if the driver or a fence cuts the node's access, otherwise none: a mount that is left on the " +
			"node may still write. A detach on a fence that is lifted before the agent has reported counts again, with none. " +
			"Every combination has a value, also 0.",
	}, []string{"evidence", "protection"})

	// Forgotten counts attachments that the policy for Nodes that are gone declared released.
	Forgotten = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "hawser_forgotten_attachments_total",
		Help: "Attachments that --forget-gone-nodes-after declared released, because their Node never came back.",
	})

	// The name is upstream's, stutter and all.
	forcedDetaches = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "attach_detach_controller_attachdetach_controller_forced_detaches",
		Help: "Forced detaches, by reason. timeout: the node was out of reach for detachPolicy.forceAfter, or is gone. " +
			"out-of-service: the taint.",
	}, []string{"reason"})
)

// forcedReasons are upstream's names for evidence that it knows. It cannot distinguish a Node that is gone from one
// that is not Ready.
var forcedReasons = map[volumesv1alpha1.EvidenceType]string{
	volumesv1alpha1.EvidenceForcedAfterTimeout: "timeout",
	volumesv1alpha1.EvidenceNodeGone:           "timeout",
	volumesv1alpha1.EvidenceOutOfServiceTaint:  "out-of-service",
}

// unreleasedEvidence is every evidence but the agent's own release.
var unreleasedEvidence = []volumesv1alpha1.EvidenceType{
	volumesv1alpha1.EvidenceOutOfServiceTaint, volumesv1alpha1.EvidenceNodeGone,
	volumesv1alpha1.EvidenceForcedAfterTimeout, volumesv1alpha1.EvidenceDeclaredByAdministrator,
	volumesv1alpha1.EvidenceAttachmentLost, volumesv1alpha1.EvidenceFenced,
}

// Values of the label protection.
const (
	protectionCut  = "cut"
	protectionNone = "none"
)

// Detached counts a detach that was decided on this evidence.
func Detached(driver string, evidence *volumesv1alpha1.DetachEvidence) {
	detaches.WithLabelValues(driver, string(evidence.Type)).Inc()
	if reason := forcedReasons[evidence.Type]; reason != "" {
		forcedDetaches.WithLabelValues(reason).Inc()
	}
	if evidence.Type != volumesv1alpha1.EvidenceAgentReleased {
		protection := protectionCut
		if evidence.Unprotected {
			protection = protectionNone
		}
		unreleased.WithLabelValues(string(evidence.Type), protection).Inc()
	}
}

// AccessReturned counts a detach that was decided on a cut of the node's access, which did not last until the agent's
// report.
func AccessReturned(evidence *volumesv1alpha1.DetachEvidence) {
	unreleased.WithLabelValues(string(evidence.Type), protectionNone).Inc()
}

// Collectors are the manager's metrics of this package. They count what reader has once leading is closed: only the
// leader reports anything.
func Collectors(reader client.Reader, leading <-chan struct{}, c clock.PassiveClock) []prometheus.Collector {
	return []prometheus.Collector{
		detaches, unreleased, Forgotten, forcedDetaches,
		&stateCollector{reader: reader, leading: leading},
		&gatedCollector{reader: reader, leading: leading},
		&intentCollector{reader: reader, leading: leading, clock: c},
		&nodeCollector{reader: reader, leading: leading, clock: c},
	}
}

// Register adds the manager's metrics to reg and lets them follow what mgr's cache sees.
func Register(ctx context.Context, mgr manager.Manager, reg prometheus.Registerer) error {
	if err := metrics.Register(reg); err != nil {
		return err
	}
	for _, c := range Collectors(mgr.GetClient(), mgr.Elected(), clock.RealClock{}) {
		if err := reg.Register(c); err != nil {
			return fmt.Errorf("registering metrics: %w", err)
		}
	}
	if _, err := mgr.GetCache().GetInformer(ctx, &appsv1.DaemonSet{}, cache.BlockUntilSynced(false)); err != nil {
		return fmt.Errorf("watching the agents' DaemonSet for metrics: %w", err)
	}
	initialise()
	o := &operations{reader: mgr.GetClient(), leading: mgr.Elected(), clock: clock.RealClock{}}
	if err := o.follow(ctx, mgr.GetCache()); err != nil {
		return err
	}
	p := &podTimes{leading: mgr.Elected(), clock: clock.RealClock{}}
	return p.follow(ctx, mgr.GetCache())
}

// initialise makes the series of counters that alerts are on, so that the first count is an increase.
func initialise() {
	for _, reason := range forcedReasons {
		forcedDetaches.WithLabelValues(reason)
	}
	for _, evidence := range unreleasedEvidence {
		for _, protection := range []string{protectionCut, protectionNone} {
			unreleased.WithLabelValues(string(evidence), protection)
		}
	}
}
