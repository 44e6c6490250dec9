/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package podstats

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/hawser-io/hawser/internal/agent/report"
)

// Published is a volume that intents publish, whether a pod has it or not.
type Published struct {
	Driver  string
	Figures report.Figures
}

// PublishedCollector exports capacity and use of the published filesystems of each driver, and how full the fullest is.
// So the number of series does not grow with the number of volumes.
type PublishedCollector struct{ volumes func() []Published }

var _ prometheus.Collector = (*PublishedCollector)(nil)

// NewPublishedCollector returns a collector of the volumes that the function returns.
func NewPublishedCollector(volumes func() []Published) *PublishedCollector {
	return &PublishedCollector{volumes}
}

func publishedDesc(name, help string) *prometheus.Desc {
	return prometheus.NewDesc("hawser_published_volumes_"+name, help, []string{"driver"}, nil)
}

var (
	publishedCapacity = publishedDesc("capacity_bytes",
		"Size of the published filesystems of a driver together, in bytes, as far as the driver reports it.")
	publishedUsed = publishedDesc("used_bytes", "Bytes used in the published filesystems of a driver together.")
	lowestFree    = publishedDesc("lowest_free_ratio",
		"Share of the bytes that are available in the fullest published filesystem of a driver, from 0 to 1.")
	lowestInodes = publishedDesc("lowest_free_inodes_ratio",
		"Share of the inodes that are free in the published filesystem of a driver that has the fewest left, from 0 to 1.")
)

// Describe is part of a prometheus.Collector.
func (c *PublishedCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{publishedCapacity, publishedUsed, lowestFree, lowestInodes} {
		ch <- d
	}
}

// sums of one driver. A ratio is missing until a volume has it.
type sums struct {
	capacity, used float64
	free, inodes   *float64
}

// Collect is part of a prometheus.Collector.
func (c *PublishedCollector) Collect(ch chan<- prometheus.Metric) {
	drivers := map[string]*sums{}
	for _, v := range c.volumes() {
		s := drivers[v.Driver]
		if s == nil {
			s = &sums{}
			drivers[v.Driver] = s
		}
		s.add(v.Figures)
	}
	for driver, s := range drivers {
		gauge := func(d *prometheus.Desc, value float64) {
			ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, driver)
		}
		gauge(publishedCapacity, s.capacity)
		gauge(publishedUsed, s.used)
		if s.free != nil {
			gauge(lowestFree, *s.free)
		}
		if s.inodes != nil {
			gauge(lowestInodes, *s.inodes)
		}
	}
}

// add leaves out what the driver does not report.
func (s *sums) add(f report.Figures) {
	if f.Capacity != nil {
		s.capacity += float64(f.Capacity.Value())
	}
	if f.Used != nil {
		s.used += float64(f.Used.Value())
	}
	if f.Capacity != nil && f.Available != nil {
		s.free = lower(s.free, float64(f.Available.Value()), float64(f.Capacity.Value()))
	}
	if f.Inodes != nil && f.InodesUsed != nil {
		s.inodes = lower(s.inodes, float64(*f.Inodes-*f.InodesUsed), float64(*f.Inodes))
	}
}

// lower of a ratio so far and part of whole. Some filesystems have no fixed number of inodes, and report 0.
func lower(soFar *float64, part, whole float64) *float64 {
	if whole <= 0 {
		return soFar
	}
	ratio := max(part, 0) / whole
	if soFar != nil && *soFar < ratio {
		return soFar
	}
	return &ratio
}
