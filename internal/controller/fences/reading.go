/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package fences

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/fencing"
)

// Why a fence does not keep a node from a volume. Each continues a sentence that begins with the fence.
const (
	causeLifted       = "was lifted"
	causeGone         = "is gone"
	causeChanged      = "was changed, or is another one of its name"
	causeUnclear      = "cannot be evaluated any more"
	causeUnconfigured = "does not count any more, because its source is not configured"
)

// reading is what was read live of one source.
type reading struct {
	source  *fencing.Source
	clients *clients
	fences  map[client.ObjectKey]fence
}

// readSource reads what drivers report, and then the fences: these may change at any moment. It reads all of both. The
// objects of one node cannot be selected, and one that the watch has not brought yet may add an address, or open one.
func (w *Watcher) readSource(ctx context.Context, s *fencing.Source) (*reading, error) {
	r := &reading{source: s, clients: newClients(), fences: map[client.ObjectKey]fence{}}
	objects, err := w.list(ctx, s, s.ClientsResource())
	if err != nil {
		return nil, err
	}
	for i := range objects {
		of, _ := reportedIn(ctx, s, &objects[i]) // the watch logs what is not clear, once
		r.clients.set(client.ObjectKeyFromObject(&objects[i]), &of)
	}
	if objects, err = w.list(ctx, s, s.Resource()); err != nil {
		return nil, err
	}
	for i := range objects {
		r.fences[client.ObjectKeyFromObject(&objects[i])] = fenceIn(ctx, s, &objects[i])
	}
	return r, nil
}

// list reads all objects of the resource live. Of one that is not served there are none.
func (w *Watcher) list(
	ctx context.Context, s *fencing.Source, resource schema.GroupVersionResource,
) ([]unstructured.Unstructured, error) {
	list, err := w.Client.Resource(resource).List(ctx, metav1.ListOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("reading the %s of source %s: %w", resource.GroupResource(), s.Name, err)
	}
	return list.Items, nil
}

// cause is why the fence does not cut the node off from the volume; empty if it does. What is reported of a node has to
// be known for the decision. Afterwards only an address that is known to be another one shows that the fence is not
// enough.
func (r *reading) cause(
	ctx context.Context, ref volumesv1alpha1.FenceReference, node string, v fencing.Volume, decided bool,
) string {
	f, found := r.fences[client.ObjectKey{Namespace: ref.Namespace, Name: ref.Name}]
	addresses, clear := r.clients.addresses(node, v.Driver)
	switch {
	case !found:
		return causeGone
	case f.ref != ref:
		return causeChanged
	case f.unclear:
		return causeUnclear
	case !f.of.Holds:
		return causeLifted
	case f.of.Driver == "" || f.of.Driver != v.Driver:
		return fmt.Sprintf("does not name driver %q", v.Driver)
	case !decided && (!clear || len(addresses) == 0):
		return fmt.Sprintf("may not have every address of node %s", node)
	}
	if another := opener(r.fences, f); another != nil {
		return fmt.Sprintf("counts no more, because another object, %s, opens addresses of it again", another)
	}
	if left := fencing.NotCut(f.of.Addresses, addresses); len(left) > 0 {
		return fmt.Sprintf("does not have address %s of node %s", left[0], node)
	}
	if !covers(ctx, r.source, f, v) {
		return fmt.Sprintf("does not cover volume %s", v.Handle)
	}
	return ""
}

// opener is another object that may give back the access that the fence, which holds, cuts off.
func opener(fences map[client.ObjectKey]fence, f fence) *client.ObjectKey {
	for key, other := range fences {
		if other.of.Opens(f.of) {
			return &key
		}
	}
	return nil
}

func covers(ctx context.Context, s *fencing.Source, f fence, v fencing.Volume) bool {
	if f.object == nil {
		return true
	}
	covers, err := s.CoversVolume(ctx, f.object, v)
	if err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "whether a fence covers a volume is not known", "source", s.Name)
	}
	return covers && err == nil
}
