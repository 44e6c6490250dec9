/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package attachment

import (
	"context"
	"errors"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/attachment/decision"
	"github.com/hawser-io/hawser/internal/controller/intentstatus"
	"github.com/hawser-io/hawser/internal/controller/resolve"
	"github.com/hawser-io/hawser/internal/handshake"
	"github.com/hawser-io/hawser/internal/metrics"
)

// attachTimes remembers since when attachments are under way. It only decides when that is worth a write; a
// restart begins anew.
type attachTimes struct {
	mu    sync.Mutex
	since map[types.UID]time.Time
	// progress is when each driver last got something attached.
	progress map[string]time.Time
}

// attached takes note of a driver's progress.
func (b *attachTimes) attached(driver string, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.progress == nil {
		b.progress = map[string]time.Time{}
	}
	b.progress[driver] = now
}

// left is how long to go on saying nothing of what is to be expected soon: until slow has passed, unless the volume
// had been attached and is not any more. While the driver gets other volumes attached this one is in its queue, and
// the silence may take up to verySlow.
func (b *attachTimes) left(
	intent *volumesv1alpha1.VolumeAttachmentIntent, driver string, soon bool, now time.Time,
) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !soon || meta.IsStatusConditionTrue(intent.Status.Conditions, volumesv1alpha1.ConditionAttached) {
		delete(b.since, intent.UID)
		return 0
	}
	since, known := b.since[intent.UID]
	if !known {
		if b.since == nil {
			b.since = map[types.UID]time.Time{}
		}
		b.since[intent.UID], since = now, now
	}
	quiet := slow - now.Sub(since)
	if progress, ok := b.progress[driver]; ok {
		quiet = max(quiet, min(slow-now.Sub(progress), verySlow-now.Sub(since)))
	}
	return max(quiet, 0)
}

// lastProgress is when the driver last got something attached; zero if it is not known.
func (b *attachTimes) lastProgress(driver string) time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.progress[driver]
}

// forget drops an intent that is gone.
func (b *attachTimes) forget(uid types.UID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.since, uid)
}

// detachTimes remembers since when volumes are being detached from nodes, only to measure it.
type detachTimes struct {
	mu    sync.Mutex
	since map[string]map[string]time.Time // by volume and node
}

// observe records the volume's state at the end of a pass.
func (w *detachTimes) observe(f *decision.Facts, now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	since := map[string]time.Time{}
	for _, n := range f.Nodes {
		began, known := w.since[f.Volume][n.Name]
		switch leaving := n.State.Entry.State == handshake.Detaching && !n.State.Entry.Detached; {
		case leaving && known:
			since[n.Name] = began
		case leaving:
			since[n.Name] = detachingSince(n, now)
		case known:
			metrics.ObservePhase(f.Driver, metrics.Detach, now.Sub(began))
		}
	}
	switch {
	case len(since) == 0:
		delete(w.since, f.Volume)
	case w.since == nil:
		w.since = map[string]map[string]time.Time{f.Volume: since}
	default:
		w.since[f.Volume] = since
	}
}

// detachingSince is when Detaching was written. The entry says so in whole seconds; of what was written just now more
// is known.
func detachingSince(n *decision.Node, now time.Time) time.Time {
	if n.Entry == nil || n.Entry.Evidence == nil || now.Sub(n.Entry.Evidence.Time.Time) < slow {
		return now
	}
	return n.Entry.Evidence.Time.Time
}

// report writes each intent's findings and returns after how long to reconcile again.
func (c *Controller) report(ctx context.Context, f *decision.Facts) (time.Duration, error) {
	c.detachTimes.observe(f, c.Clock.Now())
	var wait time.Duration
	var failures []error
	for _, n := range f.Nodes {
		c.reportRenamed(ctx, f, n)
		wait = sooner(wait, c.noteSilence(f, n))
		failures = append(failures, c.noteDetachError(ctx, f, n))
		for _, i := range n.Wanted {
			again, err := c.reportWanted(ctx, f, n, i)
			wait, failures = sooner(wait, again), append(failures, err)
		}
		for _, i := range n.Refused {
			found := decision.RefusalOf(f, n, i)
			if found == nil {
				continue
			}
			failures = append(failures, c.Reporter.Write(ctx, i.Object, intentstatus.Found{Result: i.Result, Attached: found}))
			if found.Reason != volumesv1alpha1.ReasonTooManyUses { // one author may have thousands that wait
				wait = sooner(wait, c.Reporter.Remind(i.Object, found.Reason, found.Message))
			}
		}
	}
	return wait, errors.Join(failures...)
}

// reportWanted leaves an attachment that has only just begun, or an agent that has only just started, unsaid for a
// moment.
func (c *Controller) reportWanted(
	ctx context.Context, f *decision.Facts, n *decision.Node, i *decision.Intent,
) (time.Duration, error) {
	found := decision.FindingOf(f, n, i)
	if found == nil {
		return 0, nil
	}
	soon := found.Reason == volumesv1alpha1.ReasonAttaching || found.Reason == volumesv1alpha1.ReasonWaitingForAgent
	if left := c.attachTimes.left(i.Object, f.Driver, soon, c.Clock.Now()); left > 0 {
		return left, nil
	}
	result := i.Result
	if result.OK && n.State.Entry.State != handshake.Attached && f.PolicyMissing != "" {
		result = resolve.PolicyMissing(f.PolicyMissing)
	}
	write := intentstatus.Found{Result: result, Attached: found}
	if i.Result.OK && c.mayPin(f, i) {
		write.Pins = &i.Result.Pins
	}
	err := c.Reporter.Write(ctx, i.Object, write)
	return c.Reporter.Remind(i.Object, found.Reason, found.Message), err
}

// sooner of two waits; zero is none.
func sooner(a, b time.Duration) time.Duration {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}

// mayPin reports whether the intent may be pinned to the volume, which lets the node's agent publish it.
func (c *Controller) mayPin(f *decision.Facts, i *decision.Intent) bool {
	return !f.SingleUser || i.Pinned() || c.Protocol.MayPin(f.Lock, i.Object.UID) == handshake.GuardNone
}
