/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package attachment

import (
	"sync"
	"time"

	"github.com/hawser-io/hawser/internal/handshake"
	"github.com/hawser-io/hawser/internal/metrics"
)

// farewells remembers since when volumes are being detached from nodes, only to measure it.
type farewells struct {
	mu    sync.Mutex
	since map[string]map[string]time.Time // by volume and node
}

// observe takes note of where the volume stands at the end of a pass.
func (w *farewells) observe(f *Facts, now time.Time) {
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

// detachingSince is when Detaching was written. The entry says so in whole seconds; of what was written just now more is known.
func detachingSince(n *Node, now time.Time) time.Time {
	if n.Entry == nil || n.Entry.Evidence == nil || now.Sub(n.Entry.Evidence.Time.Time) < slow {
		return now
	}
	return n.Entry.Evidence.Time.Time
}
