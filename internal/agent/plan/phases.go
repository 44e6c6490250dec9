/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package plan

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/hawser-io/hawser/internal/metrics"
)

// Phases remembers when a volume came how far, only to measure it. What is mended later is not measured again, nor is
// what an earlier process began.
type Phases struct {
	attachment types.UID
	// attached is when the volume was first seen to be attached and wanted; zero once it is staged.
	attached time.Time
	staged   time.Time
	wanted   map[types.UID]wanted
}

// wanted is one intent at one generation.
type wanted struct {
	generation int64
	// since is zero once it is published.
	since time.Time
}

// Observe takes note of what is wanted.
func (p *Phases) Observe(f Facts, now time.Time) {
	if !f.Attached() {
		*p = Phases{}
		return
	}
	wanting := f.Wanting()
	if p.attachment != f.Entry.AttachmentUID && len(wanting) > 0 {
		*p = Phases{attachment: f.Entry.AttachmentUID, attached: now}
	}
	if f.Record != nil && f.Staged() {
		p.attached = time.Time{}
	}
	seen := make(map[types.UID]wanted, len(wanting))
	for _, i := range wanting {
		w, known := p.wanted[i.UID]
		if !known || w.generation != i.Generation {
			w = wanted{generation: i.Generation, since: now}
		}
		seen[i.UID] = w
	}
	p.wanted = seen
}

// Done measures the phase that has ended with this step.
func (p *Phases) Done(driver string, a Step, now time.Time) {
	switch a.Kind {
	case Stage:
		if p.staged = now; !p.attached.IsZero() {
			metrics.ObservePhase(driver, metrics.Stage, now.Sub(p.attached))
			p.attached = time.Time{}
		}
	case Publish:
		w, known := p.wanted[a.Intent]
		if !known || w.since.IsZero() {
			return
		}
		began := w.since
		if p.staged.After(began) {
			began = p.staged
		}
		metrics.ObservePhase(driver, metrics.Publish, now.Sub(began))
		p.wanted[a.Intent] = wanted{generation: w.generation}
	}
}
