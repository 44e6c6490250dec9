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
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/metrics"
)

var (
	detaches = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "hawser_detaches_total",
		Help: "Detaches decided, by driver and by the evidence that each rests on.",
	}, []string{"driver", "evidence"})

	// Forgotten counts attachments that the policy for Nodes that are gone declared released.
	Forgotten = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "hawser_forgotten_attachments_total",
		Help: "Attachments declared released by --forget-gone-nodes-after, because their Node never came back.",
	})

	// The name is upstream's, stutter and all.
	forcedDetaches = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "attach_detach_controller_attachdetach_controller_forced_detaches",
		Help: "Detaches that were forced, by reason.",
	}, []string{"reason"})
)

// forcedReasons are upstream's names for evidence that it knows. It cannot distinguish a Node that is gone from one
// that is not Ready.
var forcedReasons = map[volumesv1alpha1.EvidenceType]string{
	volumesv1alpha1.EvidenceForcedAfterTimeout: "timeout",
	volumesv1alpha1.EvidenceNodeGone:           "timeout",
	volumesv1alpha1.EvidenceOutOfServiceTaint:  "out-of-service",
}

// Detached counts a detach that was decided on this evidence.
func Detached(driver string, evidence volumesv1alpha1.EvidenceType) {
	detaches.WithLabelValues(driver, string(evidence)).Inc()
	if reason := forcedReasons[evidence]; reason != "" {
		forcedDetaches.WithLabelValues(reason).Inc()
	}
}

// Register adds the manager's metrics to reg and lets them follow what mgr's cache sees. Only the leader reports
// anything.
func Register(ctx context.Context, mgr manager.Manager, reg prometheus.Registerer) error {
	if err := metrics.Register(reg); err != nil {
		return err
	}
	state := &stateCollector{reader: mgr.GetClient(), leading: mgr.Elected()}
	gated := &gatedCollector{reader: mgr.GetClient(), leading: mgr.Elected()}
	for _, c := range []prometheus.Collector{detaches, Forgotten, forcedDetaches, state, gated} {
		if err := reg.Register(c); err != nil {
			return fmt.Errorf("registering metrics: %w", err)
		}
	}
	for _, reason := range forcedReasons {
		forcedDetaches.WithLabelValues(reason) // so that the first one is an increase
	}
	o := &operations{reader: mgr.GetClient(), leading: mgr.Elected(), clock: clock.RealClock{}}
	if err := o.follow(ctx, mgr.GetCache()); err != nil {
		return err
	}
	p := &podTimes{leading: mgr.Elected(), clock: clock.RealClock{}}
	return p.follow(ctx, mgr.GetCache())
}
