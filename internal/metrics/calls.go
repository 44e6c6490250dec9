/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package metrics

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"
)

var (
	callsInFlight = prometheus.NewDesc("hawser_driver_calls_in_flight",
		"Calls to the node plugin of a driver that have not returned.", []string{"driver"}, nil)
	hungCalls = prometheus.NewDesc("hawser_hung_driver_calls",
		"Calls to the node plugin of a driver that ignore their deadline. Their volumes wait until they return.",
		[]string{"driver"}, nil)
	oldestCall = prometheus.NewDesc("hawser_oldest_driver_call_seconds",
		"Age of the oldest call to the node plugin of a driver that has not returned, in seconds; 0 if there is none.",
		[]string{"driver"}, nil)
)

// Calls has the calls to drivers that are under way. Each driver that was ever called has all series, so that an
// alert ends once a call has returned.
type Calls struct {
	clock clock.PassiveClock

	mu      sync.Mutex
	calls   map[*Call]struct{}
	drivers map[string]struct{}
}

// Call is one call that is under way.
type Call struct {
	calls   *Calls
	driver  string
	started time.Time
	hangs   bool
}

var _ prometheus.Collector = (*Calls)(nil)

// NewCalls returns Calls without any call.
func NewCalls(c clock.PassiveClock) *Calls {
	return &Calls{clock: c, calls: map[*Call]struct{}{}, drivers: map[string]struct{}{}}
}

// Begin adds a call that begins now. For nil Calls it does nothing.
func (c *Calls) Begin(driver string) *Call {
	if c == nil {
		return nil
	}
	call := &Call{calls: c, driver: driver, started: c.clock.Now()}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls[call] = struct{}{}
	c.drivers[driver] = struct{}{}
	return call
}

// Hangs marks a call that did not return at its deadline.
func (c *Call) Hangs() {
	if c == nil {
		return
	}
	c.calls.mu.Lock()
	defer c.calls.mu.Unlock()
	c.hangs = true
}

// End removes a call that has returned.
func (c *Call) End() {
	if c == nil {
		return
	}
	c.calls.mu.Lock()
	defer c.calls.mu.Unlock()
	delete(c.calls.calls, c)
}

// Describe is part of a prometheus.Collector.
func (c *Calls) Describe(ch chan<- *prometheus.Desc) {
	for _, desc := range []*prometheus.Desc{callsInFlight, hungCalls, oldestCall} {
		ch <- desc
	}
}

// Collect is part of a prometheus.Collector.
func (c *Calls) Collect(ch chan<- prometheus.Metric) {
	c.mu.Lock()
	defer c.mu.Unlock()
	type figures struct{ all, hung, oldest float64 }
	byDriver := map[string]figures{}
	for driver := range c.drivers {
		byDriver[driver] = figures{}
	}
	for call := range c.calls {
		f := byDriver[call.driver]
		f.all++
		if call.hangs {
			f.hung++
		}
		f.oldest = max(f.oldest, c.clock.Since(call.started).Seconds())
		byDriver[call.driver] = f
	}
	for driver, f := range byDriver {
		ch <- prometheus.MustNewConstMetric(callsInFlight, prometheus.GaugeValue, f.all, driver)
		ch <- prometheus.MustNewConstMetric(hungCalls, prometheus.GaugeValue, f.hung, driver)
		ch <- prometheus.MustNewConstMetric(oldestCall, prometheus.GaugeValue, f.oldest, driver)
	}
}
