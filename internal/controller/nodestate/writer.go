/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

// Package nodestate writes NodeVolumeState.spec, and with a writer of its own status.node. Each node has one write at a
// time; changes that come meanwhile wait and go out together with the next one, so that a hundred volumes cost a few
// writes.
package nodestate

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/batch"
	"github.com/hawser-io/hawser/internal/controller/inflight"
)

// +kubebuilder:rbac:groups=volumes.hawser.io,resources=nodevolumestates,verbs=get;update

// Change changes the object; nil where there is nothing to change.
type Change func(*volumesv1alpha1.NodeVolumeState)

// Mutation decides whether and what to change. It must not keep or change the object; nvs is nil when there is none.
// Whatever else it reads is read after nvs, live. It runs on the newest version that is known here, upon which the
// change is then written: had there been another one meanwhile, the API server would refuse it. Where that happens,
// or nothing is to be changed, it runs again on a version that was read live.
type Mutation func(ctx context.Context, nvs *volumesv1alpha1.NodeVolumeState) (Change, error)

// ErrNotFound: a change was wanted of a NodeVolumeState that does not exist.
var ErrNotFound = errors.New("the node has no NodeVolumeState")

// commitTimeout bounds one group's write with its reruns; what did not make it is tried again with backoff.
const commitTimeout = 30 * time.Second

// concurrentReads are the mutations, of all groups, that run side by side.
const concurrentReads = 64

// Writer is the only writer of NodeVolumeState.spec, or of its status.node.
type Writer struct {
	// Client writes, and reads from the cache.
	Client client.Client
	// Reader reads live.
	Reader client.Reader
	// IsCurrent reports whether a state is what its agent has reported; nil is always.
	IsCurrent func(*volumesv1alpha1.NodeVolumeState) bool

	// OfStatus: the changes are of status.node, which nothing on the node waits for. Its few writes are decided on
	// live reads: what else is in status is the agent's, and is sent back as it was read.
	OfStatus bool

	written written

	batches batch.Batches[*request]
	// reads bounds the mutations that run at once.
	reads *inflight.Limiter
}

// New makes a writer. Each of its commits holds one of the slots.
func New(c client.Client, reader client.Reader, s *inflight.Limiter) *Writer {
	return &Writer{
		Client: c, Reader: reader, batches: batch.Batches[*request]{Limiter: s}, reads: inflight.New(concurrentReads),
	}
}

// NewOfStatus makes a writer of status.node.
func NewOfStatus(c client.Client, reader client.Reader, s *inflight.Limiter) *Writer {
	w := New(c, reader, s)
	w.OfStatus = true
	return w
}

type request struct {
	ctx context.Context
	// mutate is nil for callers that only read.
	mutate Mutation
	change Change
	done   chan struct{}
	nvs    *volumesv1alpha1.NodeVolumeState
	err    error

	// running holds one token while what the caller gave runs, which may read what the caller has and read from the
	// API server. It does not run any more once the caller has left. No mutex: under virtual time nothing goes on while
	// a caller waits for one.
	running chan struct{}
	left    bool
}

func newRequest(ctx context.Context, mutate Mutation) *request {
	return &request{ctx: ctx, mutate: mutate, done: make(chan struct{}), running: make(chan struct{}, 1)}
}

// decide runs the mutation.
func (r *request) decide(ctx context.Context, nvs *volumesv1alpha1.NodeVolumeState) (err error) {
	r.running <- struct{}{}
	defer func() { <-r.running }()
	if r.left {
		return r.ctx.Err()
	}
	r.change, err = r.mutate(ctx, nvs)
	return err
}

// alter makes the change that was decided on.
func (r *request) alter(nvs *volumesv1alpha1.NodeVolumeState) {
	r.running <- struct{}{}
	defer func() { <-r.running }()
	if !r.left {
		r.change(nvs)
	}
}

// leave without waiting for the commit.
func (r *request) leave() {
	r.running <- struct{}{}
	defer func() { <-r.running }()
	r.left = true
}

// Apply runs the mutation on the node's state and returns the state as it was written, or as it was read where
// nothing was to be changed. The caller must not change it; while it waits, its slot is lent.
func (w *Writer) Apply(ctx context.Context, node string, mutate Mutation) (*volumesv1alpha1.NodeVolumeState, error) {
	return w.do(ctx, node, newRequest(ctx, mutate))
}

// ReadState reads the node's state live, together with other callers that read or write; nil when there is none. The
// caller must not change it.
func (w *Writer) ReadState(ctx context.Context, node string) (*volumesv1alpha1.NodeVolumeState, error) {
	return w.do(ctx, node, newRequest(ctx, nil))
}

func (w *Writer) do(ctx context.Context, node string, r *request) (*volumesv1alpha1.NodeVolumeState, error) {
	w.batches.Add(node, r, w.commitInTime)
	if err := inflight.Await(ctx, r.done); err != nil {
		r.leave()
		return nil, err
	}
	return w.Trusted(r.nvs), r.err
}

// Trusted is nvs, which may be nil, without the agent's statement that it has reported, where nothing vouches for it.
func (w *Writer) Trusted(nvs *volumesv1alpha1.NodeVolumeState) *volumesv1alpha1.NodeVolumeState {
	if nvs == nil || nvs.Status.Protocol.ObservedUID != nvs.UID || w.IsCurrent == nil || w.IsCurrent(nvs) {
		return nvs // what an agent wrote to another state, of which this one is a copy, is no such statement
	}
	doubted := *nvs
	doubted.Status.Protocol.ObservedUID = ""
	return &doubted
}

func (w *Writer) commitInTime(node string, group []*request) {
	ctx, cancel := context.WithTimeout(context.Background(), commitTimeout)
	defer cancel()
	w.commit(ctx, node, group)
}

// commit writes one group: those that want a change upon the newest version that is known here, the others,
// and all after a conflict, upon one that was read live, again and again.
func (w *Writer) commit(ctx context.Context, node string, group []*request) {
	for group = w.guess(ctx, node, group); len(group) > 0; {
		nvs, err := w.read(ctx, node)
		if err != nil {
			finish(group, nil, err)
			return
		}
		group = w.check(nvs, group)
		var changed int
		if nvs, group, changed = apply(nvs, group); changed > 0 {
			err = w.update(ctx, nvs)
		}
		if apierrors.IsConflict(err) && ctx.Err() == nil {
			continue
		}
		finish(group, nvs, err)
		return
	}
}

// update writes the object and takes the answer over into it.
func (w *Writer) update(ctx context.Context, nvs *volumesv1alpha1.NodeVolumeState) error {
	if w.OfStatus {
		if err := w.Client.Status().Update(ctx, nvs); err != nil {
			return fmt.Errorf("updating the status of the state of node %s: %w", nvs.Name, err)
		}
		return nil
	}
	if err := w.Client.Update(ctx, nvs); err != nil {
		return fmt.Errorf("updating the state of node %s: %w", nvs.Name, err)
	}
	w.written.note(nvs)
	return nil
}

func (w *Writer) read(ctx context.Context, node string) (*volumesv1alpha1.NodeVolumeState, error) {
	nvs := &volumesv1alpha1.NodeVolumeState{}
	err := w.Reader.Get(ctx, client.ObjectKey{Name: node}, nvs)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the state of node %s: %w", node, err)
	}
	return nvs, nil
}

// check runs the mutations and drops those that fail.
func (w *Writer) check(nvs *volumesv1alpha1.NodeVolumeState, group []*request) []*request {
	w.mutate(w.Trusted(nvs), group)
	var passed []*request
	for _, r := range group {
		if r.err != nil {
			finish([]*request{r}, nvs, r.err)
			continue
		}
		passed = append(passed, r)
	}
	return passed
}

// mutate runs the mutations side by side, for each may read further objects.
func (w *Writer) mutate(nvs *volumesv1alpha1.NodeVolumeState, group []*request) {
	var wg sync.WaitGroup
	for _, r := range group {
		if r.change, r.err = nil, nil; r.mutate == nil {
			continue
		}
		wg.Go(func() {
			r.err = w.reads.Do(r.ctx, func(ctx context.Context) error { return r.decide(ctx, nvs) })
		})
	}
	wg.Wait()
}

func finish(group []*request, nvs *volumesv1alpha1.NodeVolumeState, err error) {
	for _, r := range group {
		r.nvs, r.err = nvs, err
		close(r.done)
	}
}
