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
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/utils/clock"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/status"
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

// observe takes in a version that the watch delivered.
func (w *stateWriter) observe(nvs *volumesv1alpha1.NodeVolumeState) {
	w.mu.Lock()
	if w.known == nil || newer(nvs.ResourceVersion, w.known.ResourceVersion) {
		w.know(nvs)
	}
	if w.session == 0 {
		signal(w.ended) // there is a state to begin a session with
	}
	w.mu.Unlock()
	w.touch()
}

// know takes in a version. The session of an object that was made anew under the same name ends: it was not looked at for a restore.
func (w *stateWriter) know(nvs *volumesv1alpha1.NodeVolumeState) {
	w.known = nvs
	if w.session != 0 && nvs.UID != w.last.UID {
		w.breakOff()
	}
}

// vanished takes in that the object is gone.
func (w *stateWriter) vanished() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.known = nil
	w.breakOff()
}

// endSession: the API server may have been restored from a backup. Nothing that was acknowledged can be relied on.
func (w *stateWriter) endSession() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.breakOff()
}

func (w *stateWriter) breakOff() {
	w.session, w.acked, w.readLive = 0, nil, true
	w.breaks++
	signal(w.ended)
}

// sessionsEnded is how many sessions have ended.
func (w *stateWriter) sessionsEnded() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.breaks
}

func (w *stateWriter) inSession() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.session != 0
}

// confirmed: the manager has confirmed the session, so what the API says is of the history that the manager knows.
func (w *stateWriter) confirmed() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.session != 0 && w.known != nil && w.known.Status.Session == w.session && w.known.Spec.ConfirmedSession == w.session
}

// above has the next report take a higher number than that.
func (w *stateWriter) above(reports int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.highest = max(w.highest, reports)
}

func (w *stateWriter) lastReport() lastReport {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.last
}

// acknowledged is what the agent may rely on: see handshake.Protocol.MayStage. It must not be changed.
func (w *stateWriter) acknowledged() *volumesv1alpha1.NodeVolumeState {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.acked
}

// newest is the newest version that is known; nil when none is. It must not be changed.
func (w *stateWriter) newest() *volumesv1alpha1.NodeVolumeState {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.known
}

func newer(a, b string) bool {
	c, err := resourceversion.CompareResourceVersion(a, b)
	return err != nil || c > 0
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

// flush brings the batch out in one update; after a conflict everything is decided anew on what is read live.
func (w *stateWriter) flush(ctx context.Context, batch []change) {
	for {
		base, err := w.base(ctx)
		if err != nil {
			w.failed(ctx, batch, err)
			return
		}
		next, accepted, refused := w.next(base, batch)
		for i, err := range refused {
			batch[i].done <- err
		}
		written := w.must(accepted) || !equality.Semantic.DeepEqual(base.Status, next.Status)
		var breaks int
		if written {
			if breaks, err = w.number(next, accepted); err == nil {
				err = w.write(ctx, next)
			}
		}
		if apierrors.IsConflict(err) {
			w.mu.Lock()
			w.readLive = true
			w.mu.Unlock()
			batch = accepted
			continue
		}
		if err != nil {
			w.failed(ctx, accepted, err)
			return
		}
		w.succeeded(next, accepted, written, breaks)
		return
	}
}

// number gives the report its number, and that of its session. No write is empty: it voids what is still on its way. It returns how many
// sessions had ended by then.
func (w *stateWriter) number(next *volumesv1alpha1.NodeVolumeState, batch []change) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	begins := slices.ContainsFunc(batch, func(c change) bool { return c.begins })
	if w.session == 0 && !begins {
		return 0, errNoSession
	}
	w.highest = max(w.highest, next.Status.Reports) + 1
	next.Status.Reports = w.highest
	next.Status.Session = w.session
	if begins {
		next.Status.Session = w.highest
	}
	return w.breaks, nil
}

// must says whether a write has to go out although it may change nothing else.
func (w *stateWriter) must(batch []change) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.acked == nil || w.affirming || slices.ContainsFunc(batch, func(c change) bool { return c.fence })
}

// base is the version to decide on: the newest one, read live where an earlier write's end is not known.
func (w *stateWriter) base(ctx context.Context) (*volumesv1alpha1.NodeVolumeState, error) {
	w.mu.Lock()
	known, live := w.known, w.readLive
	w.mu.Unlock()
	if known != nil && !live {
		return known, nil
	}
	read, err := w.read(ctx)
	if apierrors.IsNotFound(err) {
		return nil, errNoState
	}
	if err != nil {
		return nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.readLive = false
	// Within a session what the watch has brought meanwhile is of the same history, and newer.
	if w.session == 0 || w.known == nil || w.known.UID != read.UID || newer(read.ResourceVersion, w.known.ResourceVersion) {
		w.know(read)
	}
	return read, nil
}

// next is base with everything in it that it allows.
func (w *stateWriter) next(base *volumesv1alpha1.NodeVolumeState, batch []change) (next *volumesv1alpha1.NodeVolumeState, accepted []change, refused map[int]error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	refused = map[int]error{}
	reports := make(map[string]report, len(w.reports)+len(batch))
	for name, r := range w.reports {
		reports[name] = r
	}
	for i, c := range batch {
		if c.check != nil {
			if err := c.check(base); err != nil {
				refused[i] = err
				continue
			}
		}
		accepted = append(accepted, c)
		if c.report == nil {
			delete(reports, c.volume)
		} else {
			reports[c.volume] = *c.report
		}
	}
	next = base.DeepCopy()
	w.render(next, reports)
	return next, accepted, refused
}

func (w *stateWriter) succeeded(next *volumesv1alpha1.NodeVolumeState, batch []change, written bool, breaks int) {
	w.mu.Lock()
	if written {
		w.last = lastReport{Schema: recordSchema, UID: next.UID, Reports: next.Status.Reports}
	}
	// What was acknowledged after the session had ended may have been said to a restored API server.
	if written && w.breaks == breaks {
		if slices.ContainsFunc(batch, func(c change) bool { return c.begins && c.since == w.breaks }) {
			w.session = next.Status.Session
		}
		if w.session != 0 {
			w.acked = next
		}
	}
	if w.known == nil || newer(next.ResourceVersion, w.known.ResourceVersion) {
		w.known = next
	}
	w.failures = 0
	for _, c := range batch {
		if c.report == nil {
			delete(w.reports, c.volume)
		} else {
			w.reports[c.volume] = *c.report
		}
	}
	w.mu.Unlock()
	if written {
		w.taken(next)
	}
	for _, c := range batch {
		c.done <- nil
	}
}

// failed gives the batch back to those who wait. Whether the write was taken is not known: the next one starts from a
// live read, and is a real one, so that a late arrival of this one meets a conflict.
func (w *stateWriter) failed(ctx context.Context, batch []change, err error) {
	w.mu.Lock()
	w.readLive, w.acked = true, nil
	w.affirms = w.affirms || w.affirming
	w.failures++
	if !errors.Is(err, errNoState) && ctx.Err() == nil {
		w.due = w.clock.Now().Add(status.Backoff(w.failures))
		w.log.Error(err, "node state not written, trying again", "at", w.due)
	}
	w.mu.Unlock()
	for _, c := range batch {
		c.done <- &unwrittenError{err}
	}
}
