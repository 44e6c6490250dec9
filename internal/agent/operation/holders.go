/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package operation

import (
	"context"
	"maps"
	"slices"
	"sync"

	"github.com/go-logr/logr"

	"github.com/hawser-io/hawser/internal/mount"
)

// Holders awaits the end of processes that hold a volume's device.
type Holders struct {
	log logr.Logger
	// ended is called with the volumes that a process held which has ended.
	ended func(volumes []string)
	// Lifetime is the context of the waiting.
	Lifetime context.Context

	mu      sync.Mutex
	awaited map[int]map[string]bool
}

// NewHolders returns holders that call ended with the volumes of each process that ends.
func NewHolders(log logr.Logger, ended func(volumes []string)) *Holders {
	return &Holders{log: log, ended: ended, awaited: map[int]map[string]bool{}}
}

// Await tries again once the first process that holds the device has ended. One that lets go without ending is noticed
// by the backoff.
func (h *Holders) Await(volume string, held *mount.HeldError) {
	i := slices.IndexFunc(held.Holders, func(holder mount.Holder) bool { return holder.PID != 0 })
	if i < 0 {
		return
	}
	pid := held.Holders[i].PID
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.awaited[pid] == nil {
		h.awaited[pid] = map[string]bool{}
		go h.awaitExit(pid)
	}
	h.awaited[pid][volume] = true
}

func (h *Holders) awaitExit(pid int) {
	err := mount.AwaitExit(h.Lifetime, pid)
	h.mu.Lock()
	volumes := h.awaited[pid]
	delete(h.awaited, pid)
	h.mu.Unlock()
	if err != nil {
		h.log.V(1).Info("the end of a process is not awaited", "pid", pid, "error", err.Error())
		return
	}
	h.ended(slices.Collect(maps.Keys(volumes)))
}
