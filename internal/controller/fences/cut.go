/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package fences

import (
	"context"
	"errors"
	"reflect"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/tools/cache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/fencing"
	"github.com/hawser-io/hawser/internal/machine"
)

func clientEvaluator(ctx context.Context, s *fencing.Source) cache.TransformFunc {
	return func(o any) (any, error) {
		object, ok := o.(*unstructured.Unstructured)
		if !ok {
			return o, nil
		}
		of, err := reportedIn(ctx, s, object)
		if err != nil {
			ctrl.Log.WithName("fences").Info("what a driver reports of a node is not known", "source", s.Name,
				"why", err.Error())
		}
		return &evaluated{ObjectMeta: metaOf(object), client: of}, nil
	}
}

func (w *Watcher) fillClients(ctx context.Context, s *fencing.Source) {
	w.mu.Lock()
	if w.reported == nil {
		w.reported = sets.New[string]()
	}
	w.reported.Insert(s.Name)
	w.mu.Unlock()
	w.wakeDrivers(ctx, s)
}

// putClient stores what an object reports; nil where it is gone.
func (w *Watcher) putClient(ctx context.Context, s *fencing.Source, key client.ObjectKey, r *reported) {
	w.mu.Lock()
	before := w.clientsOf(s).set(key, r)
	w.mu.Unlock()
	var now reported
	if r != nil {
		now = *r
	}
	switch {
	case reflect.DeepEqual(before, now):
	case before.ofAll() || now.ofAll():
		w.wakeDrivers(ctx, s)
	default:
		w.notify(ctx, true, sets.List(sets.New(before.of.NodeName, now.of.NodeName))...)
	}
}

// clientsOf the source. The caller holds the mutex.
func (w *Watcher) clientsOf(s *fencing.Source) *clients {
	if w.clients == nil {
		w.clients = map[string]*clients{}
	}
	if w.clients[s.Name] == nil {
		w.clients[s.Name] = newClients()
	}
	return w.clients[s.Name]
}

// wakeFence wakes the Nodes whose access an object may have cut off, given back, or opened again: those that have an
// address in common with it, or with a fence that it opens.
func (w *Watcher) wakeFence(ctx context.Context, s *fencing.Source, before, now fencing.Verdict) {
	concerned := []fencing.Verdict{before, now}
	w.mu.Lock()
	for _, f := range w.held[s.Name] {
		if f.of.Holds && (before.Opens(f.of) || now.Opens(f.of)) {
			concerned = append(concerned, f.of)
		}
	}
	known := w.clientsOf(s)
	unclear, nodes := known.anyOfAll(), known.with(concerned)
	w.mu.Unlock()
	if unclear || unknown(before) || unknown(now) {
		w.wakeDrivers(ctx, s, before.Driver, now.Driver)
		return
	}
	w.wakeCut(ctx, s, func(node string, a *volumesv1alpha1.NodeAttachment) bool {
		return nodes.Has(node) && (a.Driver == before.Driver || a.Driver == now.Driver)
	})
}

// unknown reports whether the object may be about addresses that are not known, or about those of any driver.
func unknown(v fencing.Verdict) bool { return v.Everywhere || v.Driver == "" && len(v.Addresses) > 0 }

// wakeDrivers wakes the Nodes with a volume of one of the drivers, or of one that a fence of the source cuts off.
func (w *Watcher) wakeDrivers(ctx context.Context, s *fencing.Source, drivers ...string) {
	w.mu.Lock()
	concerned := sets.New(drivers...)
	for _, f := range w.held[s.Name] {
		concerned.Insert(f.of.Driver)
	}
	w.mu.Unlock()
	w.wakeCut(ctx, s, func(_ string, a *volumesv1alpha1.NodeAttachment) bool { return concerned.Has(a.Driver) })
}

// wakeCut wakes the Nodes with a volume that is concerned, and those from which one was detached on a fence of the
// source.
func (w *Watcher) wakeCut(
	ctx context.Context, s *fencing.Source, concerned func(node string, a *volumesv1alpha1.NodeAttachment) bool,
) {
	states := &volumesv1alpha1.NodeVolumeStateList{}
	if err := w.Cache.List(ctx, states); err != nil {
		ctrl.Log.WithName("fences").Error(err, "listing the node states for a source", "source", s.Name)
	}
	for i := range states.Items {
		if nvs := &states.Items[i]; slices.ContainsFunc(nvs.Spec.Attachments, func(a volumesv1alpha1.NodeAttachment) bool {
			return a.Driver != "" && concerned(nvs.Name, &a) ||
				a.Evidence != nil && a.Evidence.Fence != nil && a.Evidence.Fence.Source == s.Name
		}) {
			w.notify(ctx, true, nvs.Name)
		}
	}
}

// Cutting lists the fences that cut the access of the machine to the volume, as far as is known without a request, in a
// fixed order. Cuts decides whether one counts.
func (w *Watcher) Cutting(
	ctx context.Context, node *corev1.Node, nvs *volumesv1alpha1.NodeVolumeState, v fencing.Volume,
) []volumesv1alpha1.FenceReference {
	if node == nil || nvs == nil || len(w.Sources) == 0 || machine.Registered(node, nvs) != machine.Same {
		return nil
	}
	var cutting []volumesv1alpha1.FenceReference
	for _, s := range w.Sources {
		for _, f := range w.cuttingOff(s, node.Name, v.Driver) {
			if covers(ctx, s, f, v) {
				cutting = append(cutting, f.ref)
			}
		}
	}
	slices.SortFunc(cutting, compareReferences)
	return cutting
}

// cuttingOff are the fences of the source that have each address of the node.
func (w *Watcher) cuttingOff(s *fencing.Source, node, driver string) []fence {
	w.mu.Lock()
	defer w.mu.Unlock()
	if s.Proves != volumesv1alpha1.FenceAccessCut || !w.filled.Has(s.Name) || !w.reported.Has(s.Name) {
		return nil
	}
	var cutting []fence
	for _, f := range w.held[s.Name] {
		if !f.of.Holds || f.unclear || f.of.Driver == "" || f.of.Driver != driver {
			continue
		}
		addresses, clear := w.clientsOf(s).addresses(node, driver)
		if clear && len(addresses) > 0 && len(fencing.NotCut(f.of.Addresses, addresses)) == 0 &&
			opener(w.held[s.Name], f) == nil {
			cutting = append(cutting, f)
		}
	}
	return cutting
}

// Cuts reads live by which addresses the node reaches the storage of the volume's driver, and then the fences. It
// reports whether that one cuts the access of this machine to the volume: it has every address that is reported, at
// least one is, and no other object opens addresses of it again.
func (w *Watcher) Cuts(ctx context.Context, ref volumesv1alpha1.FenceReference, node *corev1.Node,
	nvs *volumesv1alpha1.NodeVolumeState, v fencing.Volume) (bool, error) {
	if node == nil || nvs == nil || machine.Registered(node, nvs) != machine.Same {
		return false, nil
	}
	s := w.source(ref)
	if s == nil || s.Proves != volumesv1alpha1.FenceAccessCut {
		return false, nil
	}
	r, err := w.readSource(ctx, s)
	if err != nil {
		return false, err
	}
	cuts := r.cause(ctx, ref, node.Name, v, false) == ""
	return cuts, ctx.Err() // an evaluation that ended with the context shows nothing
}

// Kept is a volume that was detached from a node on a fence, which alone keeps it from what is left there.
type Kept struct {
	By     volumesv1alpha1.FenceReference
	Volume fencing.Volume
}

// Lifted reads live, each source once, which fences do not keep volumes any more from what is left on the node. It
// returns the cause of each lift, empty of what is still kept, and of what is not known, because its source could not
// be read. A fence that cannot be evaluated is lifted. What is not clear of the node's addresses lifts nothing: they
// were known when the volume was detached.
func (w *Watcher) Lifted(ctx context.Context, node string, kept []Kept) ([]string, error) {
	causes, readings, failures := make([]string, len(kept)), map[*fencing.Source]*reading{}, []error(nil)
	for i, k := range kept {
		s := w.source(k.By)
		if s == nil || s.Proves != volumesv1alpha1.FenceAccessCut {
			causes[i] = causeUnconfigured
			continue
		}
		r, read := readings[s]
		if !read {
			var err error
			if r, err = w.readSource(ctx, s); err != nil {
				r, failures = nil, append(failures, err)
			}
			readings[s] = r
		}
		if r != nil {
			causes[i] = r.cause(ctx, k.By, node, k.Volume, true)
		}
	}
	if err := ctx.Err(); err != nil { // an evaluation that ended with it shows nothing
		return nil, err
	}
	return causes, errors.Join(failures...)
}
