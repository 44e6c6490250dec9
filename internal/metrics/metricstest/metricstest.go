/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

// Package metricstest reads observed metrics in tests.
package metricstest

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/hawser-io/hawser/internal/metrics"
)

// Sample is a histogram with one combination of labels.
type Sample struct {
	Labels map[string]string
	Count  uint64
	// Sum of the observed values, in the metric's unit.
	Sum float64
}

// Observed returns the samples of a histogram of package metrics whose label has this value. The metrics are those of
// the process, so each test finds its own samples by a label.
func Observed(t *testing.T, name, label, value string) []Sample {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	if err := metrics.Register(registry); err != nil {
		t.Fatal(err)
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var samples []Sample
	for _, family := range families {
		if family.GetName() != name {
			continue
		}
		for _, metric := range family.GetMetric() {
			labels := map[string]string{}
			for _, l := range metric.GetLabel() {
				labels[l.GetName()] = l.GetValue()
			}
			if labels[label] == value {
				samples = append(samples,
					Sample{labels, metric.GetHistogram().GetSampleCount(), metric.GetHistogram().GetSampleSum()})
			}
		}
	}
	return samples
}

// Operations of a driver's volumes, each as "operation status migrated".
func Operations(t *testing.T, driver string) map[string]Sample {
	t.Helper()
	operations := map[string]Sample{}
	for _, s := range Observed(t, "storage_operation_duration_seconds", "volume_plugin", metrics.PluginName(driver)) {
		operations[s.Labels["operation_name"]+" "+s.Labels["status"]+" "+s.Labels["migrated"]] = s
	}
	return operations
}
