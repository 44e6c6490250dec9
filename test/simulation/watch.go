/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package simulation

import (
	"context"
	"strconv"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// stream is a watch. It tells of every change in order, each some time after it happened, and may end at any time.
type stream struct {
	process *process
	of      client.Object
	options *client.ListOptions
	seen    uint64
	events  chan watch.Event
	stopped chan struct{}
	once    sync.Once
}

func (w *World) stream(p *process, of client.Object, lo *client.ListOptions, since string) *stream {
	version, err := strconv.ParseUint(since, 10, 64)
	w.mu.Lock()
	if err != nil {
		version = w.api.version
	}
	w.mu.Unlock()
	s := &stream{
		process: p, of: of, options: lo, seen: version, events: make(chan watch.Event), stopped: make(chan struct{}),
	}
	go s.run()
	return s
}

func (s *stream) Stop() { s.once.Do(func() { close(s.stopped) }) }

func (s *stream) ResultChan() <-chan watch.Event { return s.events }

func (s *stream) run() {
	defer close(s.events)
	var end <-chan time.Time
	if s.options.Raw != nil && s.options.Raw.TimeoutSeconds != nil {
		end = time.After(time.Duration(*s.options.Raw.TimeoutSeconds) * time.Second)
	}
	w, who := s.process.world, s.process.name+" watch "+abbreviated(s.of)
	for {
		w.mu.Lock()
		changes, grown := w.api.since(s.of, s.seen), w.api.grown
		w.mu.Unlock()
		if len(changes) == 0 {
			select {
			case <-grown:
				continue
			case <-end:
			case <-s.stopped:
			case <-w.over:
			}
			return
		}
		for _, c := range changes {
			if !s.tell(who, c) {
				return
			}
		}
	}
}

// tell one change; false when the watch has ended.
func (s *stream) tell(who string, c change) bool {
	w := s.process.world
	s.seen = c.version
	if !selects(s.options, c.Object.(client.Object)) {
		return true
	}
	delay := w.chance.latency(who)
	if w.chance.happens(who, watchStale) {
		delay += w.chance.between(who, 5*time.Second, time.Minute)
		w.log("%s falls behind by %s", who, delay)
	}
	if w.chance.happens(who, watchLost) {
		w.log("%s is lost", who)
		return false
	}
	select {
	case <-time.After(delay):
	case <-s.stopped:
		return false
	case <-w.over:
		return false
	}
	if s.process.hang() != nil {
		return false
	}
	e := watch.Event{Type: c.Type, Object: c.Object.DeepCopyObject()}
	select {
	case s.events <- e:
		return true
	case <-s.stopped:
	case <-w.over:
	}
	return false
}

// listerWatcher is for informers.
type listerWatcher struct {
	live
	list func() client.ObjectList
	by   client.ListOptions
}

// IsWatchListSemanticsUnSupported has informers list before they watch.
func (l listerWatcher) IsWatchListSemanticsUnSupported() bool { return true }

func (l listerWatcher) List(options metav1.ListOptions) (runtime.Object, error) {
	return l.ListWithContext(context.Background(), options)
}

func (l listerWatcher) ListWithContext(ctx context.Context, _ metav1.ListOptions) (runtime.Object, error) {
	list := l.list()
	return list, l.live.List(ctx, list, &l.by)
}

func (l listerWatcher) Watch(options metav1.ListOptions) (watch.Interface, error) {
	return l.WatchWithContext(context.Background(), options)
}

func (l listerWatcher) WatchWithContext(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	list := l.list()
	list.SetResourceVersion(options.ResourceVersion)
	return l.live.Watch(ctx, list, &l.by)
}

func selector(namespace string, label labels.Selector, field fields.Selector) client.ListOptions {
	return client.ListOptions{Namespace: namespace, LabelSelector: label, FieldSelector: field}
}
