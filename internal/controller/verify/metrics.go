/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package verify

import (
	"errors"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

var (
	verifications = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "hawser_verifications_total",
		Help: "Verifications of what is attached against the driver's own list, by driver. result is success or failure.",
	}, []string{"driver", "result"})

	lostPublications = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "hawser_lost_publications_total",
		Help: "Attachments that the driver did not list as published any more, and that were attached again.",
	}, []string{"driver"})

	unexpectedPublications = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "hawser_unexpected_publications",
		Help: "Publications that the driver lists and that have no VolumeAttachment.",
	}, []string{"driver"})
)

// Collectors are this package's metrics.
func Collectors() []prometheus.Collector {
	return []prometheus.Collector{verifications, lostPublications, unexpectedPublications}
}

// RegisterMetrics adds this package's metrics to the manager's registry.
func RegisterMetrics() error {
	var failures []error
	for _, c := range Collectors() {
		failures = append(failures, metrics.Registry.Register(c))
	}
	if err := errors.Join(failures...); err != nil {
		return fmt.Errorf("registering the metrics of the verification: %w", err)
	}
	return nil
}
