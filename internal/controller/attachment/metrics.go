/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package attachment

import (
	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

// detaches counts, by what each rested on, the detaches that were decided.
var detaches = prometheus.NewCounterVec(prometheus.CounterOpts{
	Name: "hawser_detaches_total",
	Help: "Detaches decided, by driver and by the evidence that each rests on.",
}, []string{"driver", "evidence"})

// RegisterMetrics adds this package's metrics to the manager's registry.
func RegisterMetrics() error { return metrics.Registry.Register(detaches) }
