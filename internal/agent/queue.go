/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package agent

import (
	"context"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"

	"github.com/hawser-io/hawser/internal/agent/inline"
	"github.com/hawser-io/hawser/internal/status"
)

// key names what is to be reconciled: a volume, an intent that has no volume yet, or a place in the directory of a pod.
type key struct {
	volume string
	intent types.NamespacedName
	place  inline.Place
}

// queueName is the name of the queue in the metrics of workqueues.
const queueName = "agent"

// dispatcher gives every key that is due a goroutine of its own, one at a time for each key. So a volume whose driver
// hangs blocks no other, however many there are.
type dispatcher struct {
	log    logr.Logger
	queue  workqueue.TypedRateLimitingInterface[key]
	handle func(context.Context, key) (time.Duration, error)
	work   sync.WaitGroup
	// added is called when a volume was added, which may be while it is handled. May be nil.
	added func(name string)

	stateSeen chan struct{}
	ended     chan struct{}
}

func newDispatcher(c clock.WithTicker, log logr.Logger,
	handle func(context.Context, key) (time.Duration, error)) *dispatcher {
	return &dispatcher{
		log: log, handle: handle, stateSeen: make(chan struct{}, 1), ended: make(chan struct{}),
		queue: workqueue.NewTypedRateLimitingQueueWithConfig(&limiter{failures: map[key]int32{}},
			workqueue.TypedRateLimitingQueueConfig[key]{Name: queueName, Clock: c}),
	}
}

// limiter gives keys that fail the backoff that steps have.
type limiter struct {
	mu       sync.Mutex
	failures map[key]int32
}

var _ workqueue.TypedRateLimiter[key] = (*limiter)(nil)

// When counts another failure of the key and returns how long it waits.
func (l *limiter) When(k key) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.failures[k]++
	return status.Backoff(l.failures[k])
}

// Forget takes in that the key succeeded.
func (l *limiter) Forget(k key) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.failures, k)
}

// NumRequeues returns how often the key has failed since it succeeded last.
func (l *limiter) NumRequeues(k key) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return int(l.failures[k])
}

func (d *dispatcher) add(name string) {
	if name == "" {
		return
	}
	d.queue.Add(key{volume: name})
	if d.added != nil {
		d.added(name)
	}
}

// run works until ctx ends; then it takes no more work, calls stopping and waits for what is going on.
func (d *dispatcher) run(ctx context.Context, stopping func()) {
	stop := context.AfterFunc(ctx, d.queue.ShutDown)
	defer stop()
	for {
		k, down := d.queue.Get()
		if down {
			break
		}
		d.work.Add(1)
		go d.process(ctx, k)
	}
	go func() {
		d.work.Wait()
		close(d.ended)
	}()
	stopping()
	<-d.ended
}

// idle is closed when nothing is going on any more after the end.
func (d *dispatcher) idle() <-chan struct{} { return d.ended }

func (d *dispatcher) process(ctx context.Context, k key) {
	defer d.work.Done()
	defer d.queue.Done(k)
	requeueAfter, err := d.recoverPanic(ctx, k)
	if ctx.Err() != nil {
		return
	}
	if err != nil {
		d.queue.AddRateLimited(k)
		d.log.Error(err, "reconciling failed, retrying", "volume", k.volume, "intent", k.intent, "place",
			k.place, "failures", d.queue.NumRequeues(k))
		return
	}
	d.queue.Forget(k)
	if requeueAfter > 0 {
		d.queue.AddAfter(k, requeueAfter)
	}
}

// recoverPanic turns a panic into an error: one volume must not take the others down.
func (d *dispatcher) recoverPanic(ctx context.Context, k key) (requeueAfter time.Duration, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	return d.handle(ctx, k)
}

// stateAppeared wakes what waits for the NodeVolumeState.
func (d *dispatcher) stateAppeared() {
	select {
	case d.stateSeen <- struct{}{}:
	default:
	}
}

func (d *dispatcher) stateChanges() <-chan struct{} { return d.stateSeen }
