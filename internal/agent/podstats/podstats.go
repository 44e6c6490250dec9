/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

// Package podstats exports how full the inline volumes of pods are, and of each driver the fullest volume that intents
// publish. The kubelet exports kubelet_volume_stats_* for
// volumes that it mounts itself, and nothing for inline volumes. The figures here have the same meaning and labels.
package podstats

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/hawser-io/hawser/internal/agent/report"
)

// Volume that a pod has as an inline volume.
type Volume struct {
	// Namespace and Claim that the volume belongs to.
	Namespace, Claim string
	Figures          report.Figures
}

// Collector is a prometheus.Collector. It reads what is known at each scrape and calls no driver.
type Collector struct {
	volumes func(context.Context) []Volume
}

var _ prometheus.Collector = (*Collector)(nil)

// NewCollector returns a collector of the volumes that the function returns. A claim may appear several times.
func NewCollector(volumes func(context.Context) []Volume) *Collector { return &Collector{volumes} }

func desc(name, help string) *prometheus.Desc {
	return prometheus.NewDesc("hawser_volume_stats_"+name, help, []string{"namespace", "persistentvolumeclaim"}, nil)
}

var (
	capacity   = desc("capacity_bytes", "Size of the filesystem of a volume that pods have as an inline volume, in bytes.")
	available  = desc("available_bytes", "Bytes available in the filesystem.")
	used       = desc("used_bytes", "Bytes used in the filesystem.")
	inodes     = desc("inodes", "Maximum number of inodes of the filesystem.")
	inodesFree = desc("inodes_free", "Number of free inodes of the filesystem.")
	inodesUsed = desc("inodes_used", "Number of used inodes of the filesystem.")
)

// Describe is part of a prometheus.Collector.
func (c *Collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{capacity, available, used, inodes, inodesFree, inodesUsed} {
		ch <- d
	}
}

// Collect is part of a prometheus.Collector. Each claim has its figures once, however many pods use it.
func (c *Collector) Collect(ch chan<- prometheus.Metric) {
	type claim struct{ namespace, name string }
	known := map[claim]bool{}
	for _, v := range c.volumes(context.Background()) {
		if key := (claim{v.Namespace, v.Claim}); !known[key] {
			known[key] = true
			v.collect(ch)
		}
	}
}

// collect leaves out what the driver does not report.
func (v Volume) collect(ch chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, value float64) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, v.Namespace, v.Claim)
	}
	f := v.Figures
	for _, bytes := range []struct {
		desc  *prometheus.Desc
		value *resource.Quantity
	}{{capacity, f.Capacity}, {available, f.Available}, {used, f.Used}} {
		if bytes.value != nil {
			gauge(bytes.desc, float64(bytes.value.Value()))
		}
	}
	if f.Inodes != nil {
		gauge(inodes, float64(*f.Inodes))
	}
	if f.InodesUsed != nil {
		gauge(inodesUsed, float64(*f.InodesUsed))
	}
	if f.Inodes != nil && f.InodesUsed != nil {
		gauge(inodesFree, float64(max(*f.Inodes-*f.InodesUsed, 0)))
	}
}
