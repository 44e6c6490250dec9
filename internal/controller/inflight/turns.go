/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package inflight

import (
	"sync"

	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// turns is the order of a queue: by groups, in the order in which the first object of each came. When it is a group's
// turn, all of it comes that waits by then; what comes later waits for the group's next turn.
type turns struct {
	mu sync.Mutex
	// group of the objects that are about to be put in.
	group map[reconcile.Request]string
	// waiting are the groups in which an object waits, order is whose turn comes when.
	waiting map[string][]reconcile.Request
	order   []string
	// now is what is left of the group whose turn it is.
	now   []reconcile.Request
	count int
}

func newTurns() *turns {
	return &turns{group: map[reconcile.Request]string{}, waiting: map[string][]reconcile.Request{}}
}

// join puts the object into the group when it comes next.
func (t *turns) join(group string, req reconcile.Request) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.group[req] = group
}

// Push adds an object.
func (t *turns) Push(req reconcile.Request) {
	t.mu.Lock()
	defer t.mu.Unlock()
	group := t.group[req]
	delete(t.group, req)
	if len(t.waiting[group]) == 0 {
		t.order = append(t.order, group)
	}
	t.waiting[group] = append(t.waiting[group], req)
	t.count++
}

// Pop takes the next object out.
func (t *turns) Pop() reconcile.Request {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.now) == 0 {
		group := t.order[0]
		t.order = t.order[1:]
		t.now = t.waiting[group]
		delete(t.waiting, group)
	}
	req := t.now[0]
	t.now = t.now[1:]
	t.count--
	// It may have joined once more while it waited.
	delete(t.group, req)
	return req
}

// Len counts the objects.
func (t *turns) Len() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.count
}

// Touch records that an object is added once more while it waits, which keeps its place.
func (t *turns) Touch(reconcile.Request) {}
