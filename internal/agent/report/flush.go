/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package report

import (
	"context"
	"errors"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/agent/record"
	"github.com/hawser-io/hawser/internal/status"
)

// flush brings the batch out in one update; after a conflict everything is decided anew on what is read live.
func (w *Writer) flush(ctx context.Context, batch []Change) {
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
		written := w.mustWrite(accepted) || !equality.Semantic.DeepEqual(base.Status, next.Status)
		var breaks int
		if written {
			if breaks, err = w.number(next, accepted); err == nil {
				err = w.Write(ctx, next)
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

// number gives the report its number, and that of its session. No write is empty: it voids what is still on its way. It
// returns how many sessions had ended by then.
func (w *Writer) number(next *volumesv1alpha1.NodeVolumeState, batch []Change) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	begins := slices.ContainsFunc(batch, func(c Change) bool { return c.begins })
	if w.session == 0 && !begins {
		return 0, errNoSession
	}
	w.highest = max(w.highest, next.Status.Protocol.Reports) + 1
	next.Status.Protocol.Reports = w.highest
	next.Status.Protocol.Session = w.session
	if begins {
		next.Status.Protocol.Session = w.highest
	}
	return w.ends, nil
}

// mustWrite reports whether a write has to go out although it may change nothing else.
func (w *Writer) mustWrite(batch []Change) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.acked == nil || w.reportsAnyway || slices.ContainsFunc(batch, func(c Change) bool { return c.Fence })
}

// base is the version to decide on: the newest one, read live where an earlier write's end is not known.
func (w *Writer) base(ctx context.Context) (*volumesv1alpha1.NodeVolumeState, error) {
	w.mu.Lock()
	known, live := w.known, w.readLive
	w.mu.Unlock()
	if known != nil && !live {
		return known, nil
	}
	read, err := w.Read(ctx)
	if apierrors.IsNotFound(err) {
		return nil, ErrNoState
	}
	if err != nil {
		return nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.readLive = false
	// Within a session what the watch has brought meanwhile is of the same history, and newer.
	if w.session == 0 || w.known == nil || w.known.UID != read.UID ||
		newer(read.ResourceVersion, w.known.ResourceVersion) {
		w.know(read)
	}
	return read, nil
}

// next is base with everything in it that it allows.
func (w *Writer) next(base *volumesv1alpha1.NodeVolumeState, batch []Change) (next *volumesv1alpha1.NodeVolumeState,
	accepted []Change, refused map[int]error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	refused = map[int]error{}
	reports := make(map[string]VolumeReport, len(w.reports)+len(batch))
	for name, r := range w.reports {
		reports[name] = r
	}
	for i, c := range batch {
		if c.Check != nil {
			if err := c.Check(base); err != nil {
				refused[i] = err
				continue
			}
		}
		accepted = append(accepted, c)
		if c.Report == nil {
			delete(reports, c.Volume)
		} else {
			reports[c.Volume] = *c.Report
		}
	}
	next = base.DeepCopy()
	w.Render(next, reports)
	return next, accepted, refused
}

func (w *Writer) succeeded(next *volumesv1alpha1.NodeVolumeState, batch []Change, written bool, breaks int) {
	w.mu.Lock()
	if written {
		w.last = record.LastReport{Schema: record.Schema, UID: next.UID, Created: next.CreationTimestamp.Unix(),
			Reports: next.Status.Protocol.Reports}
	}
	// What was acknowledged after the session had ended may have been said to a restored API server.
	if written && w.ends == breaks {
		if slices.ContainsFunc(batch, func(c Change) bool { return c.begins && c.since == w.ends }) {
			w.session = next.Status.Protocol.Session
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
		if c.Report == nil {
			delete(w.reports, c.Volume)
		} else {
			w.reports[c.Volume] = *c.Report
		}
	}
	w.mu.Unlock()
	if written {
		w.Written(next)
	}
	for _, c := range batch {
		c.done <- nil
	}
}

// failed returns the error to the callers that wait. Whether the write was taken is not known: the next one starts from
// a live read, and is a real one, so that a late arrival of this one meets a conflict.
func (w *Writer) failed(ctx context.Context, batch []Change, err error) {
	w.mu.Lock()
	w.readLive, w.acked = true, nil
	w.reportAnyway = w.reportAnyway || w.reportsAnyway
	w.failures++
	for _, c := range batch {
		if c.Report == nil { // the write may have been taken, and the manager acted on it: no use is reported again
			delete(w.reports, c.Volume)
		}
	}
	if !errors.Is(err, ErrNoState) && ctx.Err() == nil {
		w.due = w.clock.Now().Add(status.Backoff(w.failures))
		w.log.Error(err, "node state not written, trying again", "at", w.due)
	}
	w.mu.Unlock()
	for _, c := range batch {
		c.done <- &UnwrittenError{Err: err}
	}
}
