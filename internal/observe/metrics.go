/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package observe

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/hawser-io/hawser/internal/doctor"
)

// A code stays one series however many objects have it, so their number is bounded by that of the codes.
var (
	ofCode  = []string{"code", "reason", "severity"}
	objects = prometheus.NewDesc("hawser_findings",
		"Objects that have a finding of kubectl hawser doctor, by its code. No series of what is not found.", ofCode, nil)
	waiting = prometheus.NewDesc("hawser_findings_waiting",
		"Pods and intents that wait because of the findings of a code.", ofCode, nil)
	oldest = prometheus.NewDesc("hawser_oldest_finding_seconds",
		"Age of the oldest finding of a code, in seconds. No series if no object records when it began.", ofCode, nil)
	leftOut = prometheus.NewDesc("hawser_observer_unread",
		"1 for each kind that the observer could not read at its last examination; cluster is all of them, and the findings "+
			"are those of an earlier examination.", []string{"kind"}, nil)
	examined = prometheus.NewDesc("hawser_observer_examined_seconds",
		"Age of the last examination of the cluster, in seconds. No series before the first.", nil, nil)
)

var _ prometheus.Collector = (*Observer)(nil)

// Describe implements prometheus.Collector.
func (o *Observer) Describe(descs chan<- *prometheus.Desc) {
	for _, desc := range []*prometheus.Desc{objects, waiting, oldest, leftOut, examined} {
		descs <- desc
	}
}

// Collect implements prometheus.Collector.
func (o *Observer) Collect(metrics chan<- prometheus.Metric) {
	gauge := func(desc *prometheus.Desc, value float64, labels ...string) {
		metrics <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, labels...)
	}
	if o.failed.Load() {
		gauge(leftOut, 1, "cluster")
	}
	report := o.report.Load()
	if report == nil {
		return
	}
	now := o.server.Clock.Now()
	for labels, t := range total(report) {
		l := []string{labels.code, labels.reason, string(labels.severity)}
		gauge(objects, float64(t.objects), l...)
		gauge(waiting, float64(t.waiting), l...)
		if t.since != nil {
			gauge(oldest, now.Sub(*t.since).Seconds(), l...)
		}
	}
	for _, l := range report.LeftOut {
		gauge(leftOut, 1, l.Kind)
	}
	gauge(examined, now.Sub(report.Time).Seconds())
}

type labels struct {
	code, reason string
	severity     doctor.Severity
}

// sum of the findings with the same labels.
type sum struct {
	objects, waiting int
	since            *time.Time
}

func total(report *doctor.Report) map[labels]sum {
	all := map[labels]sum{}
	for i := range report.Findings {
		f := &report.Findings[i]
		key := labels{f.Code, f.Reason, f.Severity}
		s := all[key]
		s.objects += f.Count
		s.waiting += f.Waiting
		if s.since == nil || f.Since != nil && f.Since.Before(*s.since) {
			s.since = f.Since
		}
		all[key] = s
	}
	return all
}
