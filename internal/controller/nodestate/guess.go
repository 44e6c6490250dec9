/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package nodestate

import (
	"context"
	"slices"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
)

// guess writes what is to be changed upon the newest version that is known here, and returns those whom that does not
// serve. A version that the API server takes an update of is one that a live read at any time since would have
// shown.
func (w *Writer) guess(ctx context.Context, node string, group []*request) []*request {
	if w.OfStatus || !slices.ContainsFunc(group, func(r *request) bool { return r.mutate != nil }) {
		return group
	}
	known := w.Known(ctx, node)
	if known == nil {
		return group
	}
	w.mutate(w.Trusted(known), group)
	nvs := known.DeepCopy()
	var changing, looking []*request
	for _, r := range group {
		if r.change == nil || r.err != nil {
			looking = append(looking, r)
			continue
		}
		r.alter(nvs)
		changing = append(changing, r)
	}
	if len(changing) == 0 || refusal(known, nvs) != nil {
		return group
	}
	err := w.update(ctx, nvs)
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return group
	}
	finish(changing, nvs, err)
	return looking
}

// Known is the newest version of the node's state that is known here, as the cache has it or as it was last written;
// nil when there is none. The caller must not change it.
func (w *Writer) Known(ctx context.Context, node string) *volumesv1alpha1.NodeVolumeState {
	cached := &volumesv1alpha1.NodeVolumeState{}
	if err := w.Client.Get(ctx, client.ObjectKey{Name: node}, cached); err != nil {
		w.written.forget(node)
		return nil
	}
	return w.written.newer(cached)
}

// Cached drops what was written last of the node where the cache, which has nvs, is not behind it.
func (w *Writer) Cached(nvs *volumesv1alpha1.NodeVolumeState) { w.written.newer(nvs) }

// written remembers what was written last of each node, until the cache has it. The zero value is ready to use.
type written struct {
	mu   sync.Mutex
	last map[string]*volumesv1alpha1.NodeVolumeState
}

func (w *written) note(nvs *volumesv1alpha1.NodeVolumeState) {
	nvs.ManagedFields = nil
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.last == nil {
		w.last = map[string]*volumesv1alpha1.NodeVolumeState{}
	}
	w.last[nvs.Name] = nvs
}

// newer returns what was written last if the cache, which has cached, is behind it.
func (w *written) newer(cached *volumesv1alpha1.NodeVolumeState) *volumesv1alpha1.NodeVolumeState {
	w.mu.Lock()
	defer w.mu.Unlock()
	last := w.last[cached.Name]
	if last == nil {
		return cached
	}
	if order, err := resourceversion.CompareResourceVersion(last.ResourceVersion, cached.ResourceVersion); err == nil &&
		order > 0 && last.UID == cached.UID {
		return last
	}
	delete(w.last, cached.Name)
	return cached
}

// forget what was written of a node that the cache does not have.
func (w *written) forget(node string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.last, node)
}
