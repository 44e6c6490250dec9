/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

// Package report writes what the agent has to report: the status of the node's NodeVolumeState, of the intents, and the
// Lease. What only informs is written together with what cannot wait.
package report

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/agent/record"
)

// informDelay is how long what only informs may wait for company.
const informDelay = time.Second

// UnwrittenError means that the API server did not answer, or that the outcome of a write is not known.
type UnwrittenError struct{ Err error }

// Error names the cause.
func (e *UnwrittenError) Error() string { return fmt.Sprintf("asking the API server: %v", e.Err) }

// Unwrap returns the cause.
func (e *UnwrittenError) Unwrap() error { return e.Err }

// ErrNoState: there is no NodeVolumeState for the node; the cluster controller makes it.
var ErrNoState = errors.New("the node has no NodeVolumeState yet")

// Change is one volume's line to be written at once.
type Change struct {
	Volume string
	// Report replaces the volume's line; nil removes it.
	Report *VolumeReport
	// Check refuses the change on a version that does not allow it.
	Check func(*volumesv1alpha1.NodeVolumeState) error
	// Fence makes the update a real one even where the line is there already, so that its acknowledgement can be relied
	// on and it voids every write that may still be on its way.
	Fence bool
	// begins a session, unless one has ended since so many had: then the API server was out of reach after the check
	// for a restore.
	begins bool
	since  int
	done   chan error
}

// Writer is the only writer of the node's NodeVolumeState.status. While one update is on its way,
// what else is to be written queues and goes out together in the next one.
type Writer struct {
	clock clock.Clock
	log   logr.Logger
	// Machine that this agent runs on.
	Machine volumesv1alpha1.MachineIdentity
	Read    func(context.Context) (*volumesv1alpha1.NodeVolumeState, error)
	Write   func(context.Context, *volumesv1alpha1.NodeVolumeState) error
	// Render writes the volumes' lines and the node's own part: drivers, summary, conditions.
	Render func(nvs *volumesv1alpha1.NodeVolumeState, reports map[string]VolumeReport)
	// Written is called with each version that a write was taken as.
	Written func(nvs *volumesv1alpha1.NodeVolumeState)

	wake chan struct{}
	// ended is signalled when a session has ended.
	ended chan struct{}

	mu sync.Mutex
	// session is the number of its first report; zero where there is none. breaks counts the sessions that ended.
	session int64
	ends    int
	// last report that was acknowledged, and the highest number that any may have had.
	last    record.LastReport
	highest int64
	known   *volumesv1alpha1.NodeVolumeState
	// acked is what the last write of this process was acknowledged with; nil when the outcome of a later one is not
	// known.
	acked     *volumesv1alpha1.NodeVolumeState
	readLive  bool
	reports   map[string]VolumeReport
	queue     []Change
	due       time.Time
	reportNow bool
	// reportAnyway: the next write goes out although it may change nothing; affirming: so does the present one.
	reportAnyway, reportsAnyway bool
	failures                    int32
}

// NewWriter returns a writer that does nothing before Run, and writes nothing before a session begins.
func NewWriter(c clock.Clock, log logr.Logger) *Writer {
	return &Writer{
		clock: c, log: log, wake: make(chan struct{}, 1), ended: make(chan struct{},
			1), readLive: true, reports: map[string]VolumeReport{},
	}
}

// WriteNow writes the change as soon as possible and returns once it is acknowledged, or refused.
func (w *Writer) WriteNow(ctx context.Context, c Change) error {
	c.done = make(chan error, 1)
	w.mu.Lock()
	w.queue = append(w.queue, c)
	w.mu.Unlock()
	w.signal()
	select {
	case err := <-c.done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// SetReport sets a volume's line, to be written in company.
func (w *Writer) SetReport(volume string, r VolumeReport) {
	if w.store(volume, r) {
		w.ReportSoon()
	}
}

// store reports whether the line differs from before.
func (w *Writer) store(volume string, r VolumeReport) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	old, ok := w.reports[volume]
	w.reports[volume] = r
	return !ok || !old.Equal(r)
}

// ReportSoon requests a write, if the status is not what it should be.
func (w *Writer) ReportSoon() {
	w.mu.Lock()
	if w.due.IsZero() {
		w.due = w.clock.Now().Add(informDelay)
	}
	w.mu.Unlock()
	w.signal()
}

// ReportAnyway requests a report although nothing may have changed: its acknowledgement proves what the version
// contains.
func (w *Writer) ReportAnyway() {
	w.mu.Lock()
	w.reportAnyway = true
	w.mu.Unlock()
	w.ReportSoon()
}

// ReportNow requests that at once: another program waits for the status.
func (w *Writer) ReportNow() {
	w.mu.Lock()
	w.reportNow = true
	w.mu.Unlock()
	w.signal()
}

func (w *Writer) signal() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// Run writes until ctx ends.
func (w *Writer) Run(ctx context.Context) {
	for {
		timer, stop := w.timer()
		select {
		case <-ctx.Done():
			stop()
			return
		case <-w.wake:
		case <-timer:
		}
		stop()
		if batch, now := w.batch(); now {
			w.flush(ctx, batch)
		}
	}
}

func (w *Writer) timer() (<-chan time.Time, func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.due.IsZero() || w.session == 0 {
		return nil, func() {}
	}
	t := w.clock.NewTimer(w.due.Sub(w.clock.Now()))
	return t.C(), func() { t.Stop() }
}

// batch takes what is to be written, if it is time. Outside of a session nothing is written but what begins one: it
// would take a number above those that a restored API server has forgotten, before the check for a restore.
func (w *Writer) batch() ([]Change, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.session == 0 {
		w.queue = slices.DeleteFunc(w.queue, func(c Change) bool {
			if !c.begins {
				c.done <- &UnwrittenError{Err: errNoSession}
			}
			return !c.begins
		})
		if len(w.queue) == 0 {
			return nil, false
		}
	}
	if len(w.queue) == 0 && !w.reportNow && (w.due.IsZero() || w.clock.Now().Before(w.due)) {
		return nil, false
	}
	batch := w.queue
	w.queue, w.due, w.reportNow = nil, time.Time{}, false
	w.reportsAnyway, w.reportAnyway = w.reportAnyway, false
	return batch, true
}
