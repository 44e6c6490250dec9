/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

// Package rollout exports how far the rollout of manager and agents is.
package rollout

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"

	"github.com/hawser-io/hawser/internal/operator/condition"
)

var (
	podsDesc = prometheus.NewDesc("hawser_rollout_pods",
		"Pods of manager and agents that the operator wants (desired), that have the present template (updated), and that "+
			"are ready. component is manager or agent. Only the operator that leads has it.",
		[]string{"component", "state"}, nil)
	unfinishedDesc = prometheus.NewDesc("hawser_rollout_unfinished_seconds",
		"For how long a rollout has not come to what the VolumeManager asks for, in seconds; 0 if it has.", nil, nil)
)

// Metrics has what was last observed. The zero value has nothing, and nil takes nothing.
type Metrics struct {
	// Clock of the age; nil is the real one.
	Clock clock.PassiveClock

	mu              sync.Mutex
	observed        bool
	manager, agents condition.Workload
	unfinishedSince time.Time
}

var _ prometheus.Collector = (*Metrics)(nil)

// Observe takes the facts of a reconcile, and whether the rollout has an end.
func (m *Metrics) Observe(f condition.Facts, finished bool) {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.observed, m.manager, m.agents = true, f.Manager, f.Agents
	switch {
	case finished:
		m.unfinishedSince = time.Time{}
	case m.unfinishedSince.IsZero():
		// The condition has the time of an earlier process.
		m.unfinishedSince = f.Now
		if !f.ProgressingSince.IsZero() {
			m.unfinishedSince = f.ProgressingSince
		}
	}
}

// Describe is part of a prometheus.Collector.
func (m *Metrics) Describe(ch chan<- *prometheus.Desc) {
	ch <- podsDesc
	ch <- unfinishedDesc
}

// Collect is part of a prometheus.Collector.
func (m *Metrics) Collect(ch chan<- prometheus.Metric) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.observed {
		return
	}
	for component, w := range map[string]condition.Workload{"manager": m.manager, "agent": m.agents} {
		for state, pods := range map[string]int32{"desired": w.Desired, "updated": w.Updated, "ready": w.Ready} {
			ch <- prometheus.MustNewConstMetric(podsDesc, prometheus.GaugeValue, float64(pods), component, state)
		}
	}
	age := 0.0
	if !m.unfinishedSince.IsZero() {
		age = m.now().Sub(m.unfinishedSince).Seconds()
	}
	ch <- prometheus.MustNewConstMetric(unfinishedDesc, prometheus.GaugeValue, age)
}

func (m *Metrics) now() time.Time {
	if m.Clock == nil {
		return time.Now()
	}
	return m.Clock.Now()
}
