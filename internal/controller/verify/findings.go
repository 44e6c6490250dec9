/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package verify

import (
	"context"
	"maps"
	"slices"
	"sync"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

// Finding is what the verifications of one driver found.
type Finding struct {
	// Settled: the driver has been asked often enough since this process leads. What an earlier process found is kept
	// until then.
	Settled bool
	// Failure is why the driver could not be asked twice in a row; empty if it could.
	Failure string
	// Unexpected are the handles of volumes that the driver lists as published without a VolumeAttachment, by node.
	Unexpected map[string][]string
}

// Findings are the newest of every driver. The zero value has none, and nil takes none.
type Findings struct {
	mu      sync.Mutex
	drivers map[string]Finding
	notify  func(driver string)
}

// All findings, by driver.
func (f *Findings) All() map[string]Finding {
	f.mu.Lock()
	defer f.mu.Unlock()
	return maps.Clone(f.drivers)
}

// Listen adds to a queue what affected returns for each driver whose finding changes.
func (f *Findings) Listen(affected func(ctx context.Context, driver string) []reconcile.Request) source.Source {
	return source.Func(func(ctx context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.notify = func(driver string) {
			for _, request := range affected(ctx, driver) {
				queue.Add(request)
			}
		}
		return nil
	})
}

func (f *Findings) set(driver string, found Finding) {
	if f == nil {
		return
	}
	f.mu.Lock()
	before := f.drivers[driver]
	if f.drivers == nil {
		f.drivers = map[string]Finding{}
	}
	f.drivers[driver] = found
	notify := f.notify
	f.mu.Unlock()
	if notify != nil && !before.equals(found) {
		notify(driver)
	}
}

func (f Finding) equals(other Finding) bool {
	return f.Settled == other.Settled && f.Failure == other.Failure &&
		maps.EqualFunc(f.Unexpected, other.Unexpected, slices.Equal[[]string])
}
