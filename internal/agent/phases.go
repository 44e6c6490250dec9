/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package agent

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/hawser-io/hawser/internal/metrics"
)

// phases remembers when a volume came how far, only to measure it. What is mended later is not measured again, nor is what
// an earlier process began.
type phases struct {
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

// see takes note of what is wanted.
func (p *phases) see(f facts, now time.Time) {
	if !f.attached() {
		*p = phases{}
		return
	}
	wanting := f.wanting()
	if p.attachment != f.entry.AttachmentUID && len(wanting) > 0 {
		*p = phases{attachment: f.entry.AttachmentUID, attached: now}
	}
	if f.record != nil && f.staged() {
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

// done measures the phase that has come to its end with this act.
func (p *phases) done(driver string, a act, now time.Time) {
	switch a.verb {
	case doStage:
		if p.staged = now; !p.attached.IsZero() {
			metrics.ObservePhase(driver, metrics.Stage, now.Sub(p.attached))
			p.attached = time.Time{}
		}
	case doPublish:
		w, known := p.wanted[a.intent]
		if !known || w.since.IsZero() {
			return
		}
		began := w.since
		if p.staged.After(began) {
			began = p.staged
		}
		metrics.ObservePhase(driver, metrics.Publish, now.Sub(began))
		p.wanted[a.intent] = wanted{generation: w.generation}
	}
}
