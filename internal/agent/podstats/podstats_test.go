/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package podstats

import (
	"context"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	"github.com/hawser-io/hawser/internal/agent/report"
)

func TestEachClaimHasItsFiguresOnceAsTheKubeletWouldExportThem(t *testing.T) {
	bytes := func(q string) *resource.Quantity { return ptr.To(resource.MustParse(q)) }
	data := Volume{"shop", "data", report.Figures{Capacity: bytes("1Ki"), Used: bytes("24"), Available: bytes("1000"),
		Inodes: ptr.To[int64](10), InodesUsed: ptr.To[int64](3)}}
	sparse := Volume{"shop", "sparse", report.Figures{Used: bytes("5"), Inodes: ptr.To[int64](7)}}
	c := NewCollector(func(context.Context) []Volume { return []Volume{data, sparse, data} })
	const shop, other = "{shop data}", "{shop sparse}"
	want := map[string]float64{
		"hawser_volume_stats_capacity_bytes" + shop: 1024, "hawser_volume_stats_used_bytes" + shop: 24,
		"hawser_volume_stats_available_bytes" + shop: 1000, "hawser_volume_stats_inodes" + shop: 10,
		"hawser_volume_stats_inodes_used" + shop: 3, "hawser_volume_stats_inodes_free" + shop: 7,
		"hawser_volume_stats_used_bytes" + other: 5, "hawser_volume_stats_inodes" + other: 7,
	}
	if diff := cmp.Diff(want, gathered(t, c)); diff != "" {
		t.Errorf("the figures differ (-want +got):\n%s", diff)
	}
}

// gathered are the values of a collector by name and labels. A scrape fails if one appears twice.
func gathered(t *testing.T, c prometheus.Collector) map[string]float64 {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	if err := registry.Register(c); err != nil {
		t.Fatal(err)
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]float64{}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			labels := map[string]string{}
			for _, l := range m.GetLabel() {
				labels[l.GetName()] = l.GetValue()
			}
			key := fmt.Sprintf("%s{%s %s}", family.GetName(), labels["namespace"], labels["persistentvolumeclaim"])
			values[key] = m.GetGauge().GetValue()
		}
	}
	return values
}
