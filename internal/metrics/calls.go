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
	unansweredCalls = prometheus.NewDesc("hawser_unanswered_driver_seconds",
		"For how long the node plugin of a driver has not answered the calls for a volume, in seconds: since the first of "+
			"consecutive calls for the volume that did not return before their deadline. Each of them may have returned an "+
			"error at its deadline. The value is that of the volume that has waited longest; 0 if every last call was "+
			"answered.",
		[]string{"driver"}, nil)
)

// Calls has the calls to drivers that are under way. Each driver that was ever called has all series, so that an
// alert ends once a call has returned.
type Calls struct {
	clock clock.PassiveClock

	mu      sync.Mutex
	calls   map[*Call]struct{}
	drivers map[string]struct{}
	// unanswered has the volumes whose last call was not answered before its deadline.
	unanswered map[string]unanswered
}

// unanswered calls for one volume.
type unanswered struct {
	driver string
	// since is when the first of them began.
	since time.Time
}

// Answer is what is known of a driver once a call has returned.
type Answer int

const (
	// Answered: the driver returned a result or an error of its own.
	Answered Answer = iota
	// Unanswered: the deadline passed before the driver answered.
	Unanswered
	// Undecided: the driver was not there, or an earlier call for the volume keeps it busy. It may hang again.
	Undecided
)

// Call is one call that is under way.
type Call struct {
	calls          *Calls
	driver, volume string
	started        time.Time
	hangs          bool
}

var _ prometheus.Collector = (*Calls)(nil)

// NewCalls returns Calls without any call.
func NewCalls(c clock.PassiveClock) *Calls {
	return &Calls{
		clock: c, calls: map[*Call]struct{}{}, drivers: map[string]struct{}{}, unanswered: map[string]unanswered{},
	}
}

// Begin adds a call for a volume that begins now. For nil Calls it does nothing.
func (c *Calls) Begin(driver, volume string) *Call {
	if c == nil {
		return nil
	}
	call := &Call{calls: c, driver: driver, volume: volume, started: c.clock.Now()}
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
	if _, under := c.calls.calls[c]; !under {
		return // it has returned just now
	}
	c.hangs = true
	c.notAnswered()
}

// notAnswered keeps the beginning of the first of consecutive calls.
func (c *Call) notAnswered() {
	if _, known := c.calls.unanswered[c.volume]; !known {
		c.calls.unanswered[c.volume] = unanswered{driver: c.driver, since: c.started}
	}
}

// End removes a call that has returned.
func (c *Call) End(answer Answer) {
	if c == nil {
		return
	}
	c.calls.mu.Lock()
	defer c.calls.mu.Unlock()
	delete(c.calls.calls, c)
	switch answer {
	case Answered:
		delete(c.calls.unanswered, c.volume)
	case Unanswered:
		c.notAnswered()
	case Undecided:
	}
}

// Forget a volume for which no call is made any more.
func (c *Calls) Forget(volume string) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.unanswered, volume)
}

// Describe is part of a prometheus.Collector.
func (c *Calls) Describe(ch chan<- *prometheus.Desc) {
	for _, desc := range []*prometheus.Desc{callsInFlight, hungCalls, oldestCall, unansweredCalls} {
		ch <- desc
	}
}

// Collect is part of a prometheus.Collector.
func (c *Calls) Collect(ch chan<- prometheus.Metric) {
	c.mu.Lock()
	defer c.mu.Unlock()
	type figures struct{ all, hung, oldest, unanswered float64 }
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
	for _, u := range c.unanswered {
		f := byDriver[u.driver]
		f.unanswered = max(f.unanswered, c.clock.Since(u.since).Seconds())
		byDriver[u.driver] = f
	}
	for driver, f := range byDriver {
		ch <- prometheus.MustNewConstMetric(callsInFlight, prometheus.GaugeValue, f.all, driver)
		ch <- prometheus.MustNewConstMetric(hungCalls, prometheus.GaugeValue, f.hung, driver)
		ch <- prometheus.MustNewConstMetric(oldestCall, prometheus.GaugeValue, f.oldest, driver)
		ch <- prometheus.MustNewConstMetric(unansweredCalls, prometheus.GaugeValue, f.unanswered, driver)
	}
}
