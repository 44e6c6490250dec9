/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package agent

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
)

// informDelay is how long what only informs may wait for company.
const informDelay = time.Second

// unwrittenError means that the API server did not answer, or that nobody knows whether it took a write.
type unwrittenError struct{ err error }

func (e *unwrittenError) Error() string { return fmt.Sprintf("asking the API server: %v", e.err) }
func (e *unwrittenError) Unwrap() error { return e.err }

// errNoState: there is no NodeVolumeState for the node; the cluster controller makes it.
var errNoState = errors.New("the node has no NodeVolumeState yet")

// change is one volume's line to be written at once.
type change struct {
	volume string
	// report replaces the volume's line; nil removes it.
	report *report
	// check refuses the change on a version that does not allow it.
	check func(*volumesv1alpha1.NodeVolumeState) error
	// fence makes the update a real one even where the line stands already, so that its acknowledgement can be
	// relied on and it voids every write that may still be on its way.
	fence bool
	// begins a session, unless one has ended since so many had: then the API server was out of reach after the look for a restore.
	begins bool
	since  int
	done   chan error
}

// stateWriter is the only writer of the node's NodeVolumeState.status. While one update is on its way,
// what else is to be written queues and goes out together in the next one.
type stateWriter struct {
	clock clock.Clock
	log   logr.Logger
	read  func(context.Context) (*volumesv1alpha1.NodeVolumeState, error)
	write func(context.Context, *volumesv1alpha1.NodeVolumeState) error
	// render writes the volumes' lines and the node's own part: drivers, summary, conditions.
	render func(nvs *volumesv1alpha1.NodeVolumeState, reports map[string]report)
	// taken is called with each version that a write was taken as.
	taken func(nvs *volumesv1alpha1.NodeVolumeState)

	wake chan struct{}
	// ended is signalled when a session has ended.
	ended chan struct{}

	mu sync.Mutex
	// session is the number of its first report; zero where there is none. breaks counts the sessions that ended.
	session int64
	breaks  int
	// last report that was acknowledged, and the highest number that any may have had.
	last    lastReport
	highest int64
	known   *volumesv1alpha1.NodeVolumeState
	// acked is what the last write of this process was acknowledged with; nil when the outcome of a later one is not known.
	acked    *volumesv1alpha1.NodeVolumeState
	readLive bool
	reports  map[string]report
	queue    []change
	due      time.Time
	pressing bool
	// affirms: the next write goes out although it may change nothing; affirming: so does the present one.
	affirms, affirming bool
	failures           int32
}

func newStateWriter(c clock.Clock, log logr.Logger) *stateWriter {
	return &stateWriter{
		clock: c, log: log, wake: make(chan struct{}, 1), ended: make(chan struct{}, 1), readLive: true, reports: map[string]report{},
	}
}

// urgent writes the change as soon as possible and returns once it stands, or was refused.
func (w *stateWriter) urgent(ctx context.Context, c change) error {
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

// inform sets a volume's line, to be written in company.
func (w *stateWriter) inform(volume string, r report) {
	if w.keep(volume, r) {
		w.touch()
	}
}

// keep says whether the line is another than before.
func (w *stateWriter) keep(volume string, r report) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	old, ok := w.reports[volume]
	w.reports[volume] = r
	return !ok || !old.equal(r)
}

// touch asks for a look whether the status says what it should.
func (w *stateWriter) touch() {
	w.mu.Lock()
	if w.due.IsZero() {
		w.due = w.clock.Now().Add(informDelay)
	}
	w.mu.Unlock()
	w.signal()
}

// affirm asks for a report although it may say nothing new: that it is taken proves what the version says.
func (w *stateWriter) affirm() {
	w.mu.Lock()
	w.affirms = true
	w.mu.Unlock()
	w.touch()
}

// press asks for that look at once: somebody waits for what the status would say.
func (w *stateWriter) press() {
	w.mu.Lock()
	w.pressing = true
	w.mu.Unlock()
	w.signal()
}

func (w *stateWriter) signal() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// run writes until ctx ends.
func (w *stateWriter) run(ctx context.Context) {
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

func (w *stateWriter) timer() (<-chan time.Time, func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.due.IsZero() || w.session == 0 {
		return nil, func() {}
	}
	t := w.clock.NewTimer(w.due.Sub(w.clock.Now()))
	return t.C(), func() { t.Stop() }
}

// batch takes what is to be written, if it is time. Outside of a session nothing is written but what begins one: it would take a number
// above those that a restored API server has forgotten, before anybody has looked whether it has.
func (w *stateWriter) batch() ([]change, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.session == 0 {
		w.queue = slices.DeleteFunc(w.queue, func(c change) bool {
			if !c.begins {
				c.done <- &unwrittenError{errNoSession}
			}
			return !c.begins
		})
		if len(w.queue) == 0 {
			return nil, false
		}
	}
	if len(w.queue) == 0 && !w.pressing && (w.due.IsZero() || w.clock.Now().Before(w.due)) {
		return nil, false
	}
	batch := w.queue
	w.queue, w.due, w.pressing = nil, time.Time{}, false
	w.affirming, w.affirms = w.affirms, false
	return batch, true
}
