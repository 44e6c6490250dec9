/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package fences

import (
	"context"
	"fmt"
	"net/netip"
	"reflect"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/tools/cache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/fencing"
	"github.com/hawser-io/hawser/internal/machine"
)

// reported is what one object reports of a node.
type reported struct {
	of fencing.Client
	// unclear: an expression failed. Where that is so of node or driver, every node and driver is concerned.
	unclear bool
}

// about reports whether the object concerns the node and the driver.
func (r reported) about(node, driver string) bool {
	return r.of.NodeName == node && r.of.Driver == driver || r.unclear && r.of.NodeName == "" && r.of.Driver == ""
}

func clientEvaluator(ctx context.Context, s *fencing.Source) cache.TransformFunc {
	return func(o any) (any, error) {
		object, ok := o.(*unstructured.Unstructured)
		if !ok {
			return o, nil
		}
		of, err := s.Client(ctx, object)
		if err != nil {
			ctrl.Log.WithName("fences").Error(err, "what a driver reports of a node is not known", "source", s.Name)
		}
		return &evaluated{ObjectMeta: metaOf(object), client: reported{of: of, unclear: err != nil}}, nil
	}
}

func (w *Watcher) fillClients(ctx context.Context, s *fencing.Source) {
	w.mu.Lock()
	if w.reported == nil {
		w.reported = sets.New[string]()
	}
	w.reported.Insert(s.Name)
	w.mu.Unlock()
	w.wakeCut(ctx, s)
}

// putClient stores what an object reports; nil where it is gone.
func (w *Watcher) putClient(ctx context.Context, s *fencing.Source, key client.ObjectKey, r *reported) {
	w.mu.Lock()
	if w.clients == nil {
		w.clients = map[string]map[client.ObjectKey]reported{}
	}
	if w.clients[s.Name] == nil {
		w.clients[s.Name] = map[client.ObjectKey]reported{}
	}
	before := w.clients[s.Name][key]
	var now reported
	if r == nil {
		delete(w.clients[s.Name], key)
	} else {
		now = *r
		w.clients[s.Name][key] = now
	}
	w.mu.Unlock()
	switch {
	case reflect.DeepEqual(before, now):
	case before.unclear || now.unclear:
		w.wakeCut(ctx, s)
	default:
		w.notify(ctx, true, before.of.NodeName)
		if now.of.NodeName != before.of.NodeName {
			w.notify(ctx, true, now.of.NodeName)
		}
	}
}

// wakeCut wakes the Nodes to which access may be cut, or given back: those with a volume of one of the drivers, or of
// one that a fence of the source cuts off, and those from which a volume was detached on a fence of the source.
func (w *Watcher) wakeCut(ctx context.Context, s *fencing.Source, drivers ...string) {
	w.mu.Lock()
	concerned := sets.New(drivers...)
	for _, f := range w.held[s.Name] {
		concerned.Insert(f.of.Driver)
	}
	w.mu.Unlock()
	states := &volumesv1alpha1.NodeVolumeStateList{}
	if err := w.Cache.List(ctx, states); err != nil {
		ctrl.Log.WithName("fences").Error(err, "listing the node states for a source", "source", s.Name)
	}
	for i := range states.Items {
		if slices.ContainsFunc(states.Items[i].Spec.Attachments, func(a volumesv1alpha1.NodeAttachment) bool {
			return a.Driver != "" && concerned.Has(a.Driver) ||
				a.Evidence != nil && a.Evidence.Fence != nil && a.Evidence.Fence.Source == s.Name
		}) {
			w.notify(ctx, true, states.Items[i].Name)
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
	w.mu.Lock()
	defer w.mu.Unlock()
	var cutting []volumesv1alpha1.FenceReference
	for _, s := range w.Sources {
		if s.Proves != volumesv1alpha1.FenceAccessCut || !w.filled.Has(s.Name) || !w.reported.Has(s.Name) {
			continue
		}
		var clients []reported
		for _, r := range w.clients[s.Name] {
			clients = append(clients, r)
		}
		addresses, clear := addressesOf(clients, node.Name, v.Driver)
		if !clear || len(addresses) == 0 {
			continue
		}
		for _, f := range w.held[s.Name] {
			if !f.unclear && cuts(ctx, s, f.of, f.object, v, addresses) {
				cutting = append(cutting, f.ref)
			}
		}
	}
	slices.SortFunc(cutting, compareReferences)
	return cutting
}

// Cuts reads live by which addresses the node reaches the storage of the volume's driver, and then the fence. It
// reports whether that fence cuts the access of this machine to the volume: it has every address that is reported, and
// at least one is.
func (w *Watcher) Cuts(ctx context.Context, ref volumesv1alpha1.FenceReference, node *corev1.Node,
	nvs *volumesv1alpha1.NodeVolumeState, v fencing.Volume) (bool, error) {
	if node == nil || nvs == nil || machine.Registered(node, nvs) != machine.Same {
		return false, nil
	}
	return w.cutsLive(ctx, ref, node.Name, v, true)
}

// StillCuts reports whether a fence on which the volume was detached still keeps it from what is left on the node, read
// live. What cannot be evaluated does not. A node of which nothing is reported any more has no other address.
func (w *Watcher) StillCuts(ctx context.Context, ref volumesv1alpha1.FenceReference, node string, v fencing.Volume,
) (bool, error) {
	return w.cutsLive(ctx, ref, node, v, false)
}

func (w *Watcher) cutsLive(ctx context.Context, ref volumesv1alpha1.FenceReference, node string, v fencing.Volume,
	known bool) (bool, error) {
	s := w.source(ref)
	if s == nil || s.Proves != volumesv1alpha1.FenceAccessCut {
		return false, nil
	}
	clients, err := w.readClients(ctx, s)
	if err != nil {
		return false, err
	}
	addresses, clear := addressesOf(clients, node, v.Driver)
	if !clear || known && len(addresses) == 0 {
		return false, nil
	}
	object, err := w.read(ctx, s, ref)
	if err != nil || object == nil || reference(s, object) != ref {
		return false, err
	}
	verdict, err := s.Evaluate(ctx, object)
	if err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "an object of a fence source is no fence", "source", s.Name)
		return false, nil
	}
	return cuts(ctx, s, verdict, object, v, addresses), nil
}

// readClients reads live what drivers report of their nodes. It reads all of it: the objects of one node cannot be
// selected, and one that the watch has not brought yet may add an address.
func (w *Watcher) readClients(ctx context.Context, s *fencing.Source) ([]reported, error) {
	list, err := w.Client.Resource(s.ClientsResource()).List(ctx, metav1.ListOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("reading the clients of source %s: %w", s.Name, err)
	}
	clients := make([]reported, len(list.Items))
	for i := range list.Items {
		of, err := s.Client(ctx, &list.Items[i])
		clients[i] = reported{of: of, unclear: err != nil}
	}
	return clients, nil
}

// addressesOf returns all that is reported of the node by any object. Without clarity it may be more.
func addressesOf(clients []reported, node, driver string) (addresses []netip.Prefix, clear bool) {
	for _, r := range clients {
		if !r.about(node, driver) {
			continue
		}
		if r.unclear {
			return nil, false
		}
		addresses = append(addresses, r.of.Addresses...)
	}
	return addresses, true
}

// cuts reports whether the fence, which is one object, has every one of the addresses, for this volume.
func cuts(ctx context.Context, s *fencing.Source, of fencing.Verdict, object *unstructured.Unstructured,
	v fencing.Volume, addresses []netip.Prefix) bool {
	if !of.Holds || of.Driver == "" || of.Driver != v.Driver || !fencing.CutsAll(of.Addresses, addresses) {
		return false
	}
	covers, err := s.CoversVolume(ctx, object, v)
	if err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "whether a fence covers a volume is not known", "source", s.Name)
	}
	return covers && err == nil
}
