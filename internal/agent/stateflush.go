/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package agent

import (
	"context"
	"errors"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/status"
)

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
