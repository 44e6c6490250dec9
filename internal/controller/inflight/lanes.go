/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package inflight

import (
	"sync"

	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// lanes is the storage of a queue: what was delayed comes after everything else. The zero value is ready to use.
type lanes struct {
	mu sync.Mutex
	// delayed is what the next Push puts into the second lane.
	delayed sets.Set[reconcile.Request]
	// urgent is what was added by itself and is not pushed yet, because it is at work. Nothing delays it any more.
	urgent sets.Set[reconcile.Request]
	first  []reconcile.Request
	second []reconcile.Request
	// waiting is what of the second lane has not come into the first one since.
	waiting sets.Set[reconcile.Request]
}

// delay what is about to be added, unless it waits for the end of its work and was also added by itself: until then it
// is neither pushed nor touched, however often it is added.
func (l *lanes) delay(req reconcile.Request) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.init()
	if !l.urgent.Has(req) {
		l.delayed.Insert(req)
	}
}

// hurry what is about to be added by itself.
func (l *lanes) hurry(req reconcile.Request) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.init()
	l.urgent.Insert(req)
	l.delayed.Delete(req)
}

func (l *lanes) init() {
	if l.delayed == nil {
		l.delayed, l.urgent = sets.New[reconcile.Request](), sets.New[reconcile.Request]()
		l.waiting = sets.New[reconcile.Request]()
	}
}

// Push adds what is not in the queue.
func (l *lanes) Push(req reconcile.Request) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.urgent.Delete(req)
	if l.delayed.Has(req) {
		l.delayed.Delete(req)
		l.second = append(l.second, req)
		l.waiting.Insert(req)
		return
	}
	l.first = append(l.first, req)
}

// Touch hears of what is added while it is in the queue. It takes the first lane if it was not delayed this time.
func (l *lanes) Touch(req reconcile.Request) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.urgent.Delete(req)
	if l.delayed.Has(req) {
		l.delayed.Delete(req)
		return
	}
	if l.waiting.Has(req) {
		l.waiting.Delete(req)
		l.first = append(l.first, req)
	}
}

// Len is how much is in the queue.
func (l *lanes) Len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.first) + l.waiting.Len()
}

// Pop takes the next one. There is one.
func (l *lanes) Pop() (req reconcile.Request) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.first) > 0 {
		req, l.first = l.first[0], l.first[1:]
		return req
	}
	for !l.waiting.Has(req) {
		req, l.second = l.second[0], l.second[1:]
	}
	l.waiting.Delete(req)
	return req
}
