/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

// Package nodestate writes NodeVolumeState.spec. Each node has one write at a time; changes that come
// meanwhile wait and go out together with the next one, so that a hundred volumes cost a few writes.
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

// Mutation decides, on an object that was read live, whether and what to change. It must not keep or change the object; nvs is
// nil when there is none. It runs again on a fresh read after each conflict, and whatever else it reads is read after nvs.
type Mutation func(ctx context.Context, nvs *volumesv1alpha1.NodeVolumeState) (Change, error)

// ErrNotFound: a change was wanted of a NodeVolumeState that does not exist.
var ErrNotFound = errors.New("the node has no NodeVolumeState")

// commitTimeout bounds one group's write with its reruns; what did not make it is tried again with backoff.
const commitTimeout = 30 * time.Second

// concurrentReads are the mutations, of all groups, that run side by side.
const concurrentReads = 64

// Writer is the only writer of NodeVolumeState.spec.
type Writer struct {
	// Client writes.
	Client client.Client
	// Reader reads live.
	Reader client.Reader

	batches batch.Batches[*request]
	// reads bounds the mutations that run at once.
	reads *inflight.Slots
}

// New makes a writer. Each of its commits holds one of the slots.
func New(c client.Client, reader client.Reader, s *inflight.Slots) *Writer {
	return &Writer{Client: c, Reader: reader, batches: batch.Batches[*request]{Slots: s}, reads: inflight.New(concurrentReads)}
}

type request struct {
	ctx    context.Context
	mutate Mutation
	change Change
	done   chan struct{}
	nvs    *volumesv1alpha1.NodeVolumeState
	err    error
}

// Apply runs the mutation on the node's state and returns the state as it was written, or as it was read where nothing was to be
// changed. The caller must not change it; while it waits, its slot is lent.
func (w *Writer) Apply(ctx context.Context, node string, mutate Mutation) (*volumesv1alpha1.NodeVolumeState, error) {
	r := &request{ctx: ctx, mutate: mutate, done: make(chan struct{})}
	w.batches.Add(node, r, w.commitInTime)
	if err := inflight.Await(ctx, r.done); err != nil {
		return nil, err
	}
	return r.nvs, r.err
}

// Look reads the node's state live, together with others who look or write; nil when there is none. The caller must not change it.
func (w *Writer) Look(ctx context.Context, node string) (*volumesv1alpha1.NodeVolumeState, error) {
	return w.Apply(ctx, node, func(context.Context, *volumesv1alpha1.NodeVolumeState) (Change, error) { return nil, nil })
}

func (w *Writer) commitInTime(node string, group []*request) {
	ctx, cancel := context.WithTimeout(context.Background(), commitTimeout)
	defer cancel()
	w.commit(ctx, node, group)
}

// commit writes one group, running every check again on a fresh read after a conflict.
func (w *Writer) commit(ctx context.Context, node string, group []*request) {
	for {
		nvs, err := w.read(ctx, node)
		if err != nil {
			finish(group, nil, err)
			return
		}
		group = w.check(nvs, group)
		var changed int
		if nvs, group, changed = apply(nvs, group); changed > 0 {
			err = w.Client.Update(ctx, nvs)
		}
		if apierrors.IsConflict(err) && ctx.Err() == nil {
			continue
		}
		if err != nil {
			err = fmt.Errorf("updating the state of node %s: %w", node, err)
		}
		finish(group, nvs, err)
		return
	}
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

// check runs the mutations side by side, for each may read further objects, and drops those that fail.
func (w *Writer) check(nvs *volumesv1alpha1.NodeVolumeState, group []*request) []*request {
	var wg sync.WaitGroup
	for _, r := range group {
		wg.Go(func() {
			r.err = w.reads.Do(r.ctx, func(ctx context.Context) (err error) {
				r.change, err = r.mutate(ctx, nvs)
				return err
			})
		})
	}
	wg.Wait()
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

func finish(group []*request, nvs *volumesv1alpha1.NodeVolumeState, err error) {
	for _, r := range group {
		r.nvs, r.err = nvs, err
		close(r.done)
	}
}
