/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

// Package fences follows the objects of the fence sources, which prove that machines are off or gone, or that their
// access to storage is cut.
package fences

import (
	"cmp"
	"context"
	"fmt"
	"reflect"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/tools/cache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/fencing"
	"github.com/hawser-io/hawser/internal/machine"
)

// Watcher watches the objects of the sources. The zero Watcher has no source.
type Watcher struct {
	Sources []*fencing.Source
	Client  dynamic.Interface
	// Cache has the Nodes and their states.
	Cache client.Reader

	mu sync.Mutex
	// held are the fences that hold, by source and key of the object. Of a source that cuts access, it also has the
	// objects that may open addresses again.
	held map[string]map[client.ObjectKey]fence
	// filled are the sources whose objects were all read once.
	filled sets.Set[string]
	// clients are what drivers report of their nodes, by source that cuts access; reported are the sources of which they
	// were all read once.
	clients   map[string]*clients
	reported  sets.Set[string]
	listeners []listener
}

// fence is one object of a source.
type fence struct {
	ref volumesv1alpha1.FenceReference
	// of is the Node that it is about.
	of fencing.Verdict
	// unclear: an expression failed, so whether it holds is not known. One that is recorded stays so.
	unclear bool
	// object, if the source asks which volumes the fence covers.
	object *unstructured.Unstructured
}

// evaluated is all that is kept of an object.
type evaluated struct {
	metav1.ObjectMeta
	fence fence
	// client, of an object in which a driver reports.
	client reported
}

// NeedLeaderElection is false: a process that becomes the leader has read the fences before.
func (w *Watcher) NeedLeaderElection() bool { return false }

// Start watches until ctx ends. A source that is not served, or that the manager may not read, is tried again by the
// informer.
func (w *Watcher) Start(ctx context.Context) error {
	var all sync.WaitGroup
	for _, s := range w.Sources {
		if err := w.watch(ctx, &all, watched{
			resource: s.Resource(), transform: evaluator(ctx, s), filled: func() { w.fill(ctx, s) },
			see:  func(o *evaluated) { w.put(ctx, s, keyOf(o), o.fence) },
			lose: func(o *evaluated) { w.put(ctx, s, keyOf(o), fence{}) },
		}); err != nil {
			return err
		}
		if s.Proves != volumesv1alpha1.FenceAccessCut {
			continue
		}
		if err := w.watch(ctx, &all, watched{
			resource: s.ClientsResource(), transform: clientEvaluator(ctx, s), filled: func() { w.fillClients(ctx, s) },
			see:  func(o *evaluated) { w.putClient(ctx, s, keyOf(o), &o.client) },
			lose: func(o *evaluated) { w.putClient(ctx, s, keyOf(o), nil) },
		}); err != nil {
			return err
		}
	}
	<-ctx.Done()
	all.Wait()
	return nil
}

// watched objects, and what is done about them.
type watched struct {
	resource  schema.GroupVersionResource
	transform cache.TransformFunc
	see, lose func(o *evaluated)
	filled    func()
}

func (w *Watcher) watch(ctx context.Context, all *sync.WaitGroup, of watched) error {
	informer := dynamicinformer.NewFilteredDynamicInformer(w.Client, of.resource, metav1.NamespaceAll, 0,
		cache.Indexers{}, nil).Informer()
	if err := informer.SetTransform(of.transform); err != nil {
		return fmt.Errorf("watching %s: %w", of.resource, err)
	}
	see := func(o any) {
		if object, ok := o.(*evaluated); ok {
			of.see(object)
		}
	}
	registered, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    see,
		UpdateFunc: func(_, o any) { see(o) },
		DeleteFunc: func(o any) {
			if last, ok := o.(cache.DeletedFinalStateUnknown); ok {
				o = last.Obj
			}
			if object, ok := o.(*evaluated); ok {
				of.lose(object)
			}
		},
	})
	if err != nil {
		return fmt.Errorf("watching %s: %w", of.resource, err)
	}
	all.Go(func() { informer.RunWithContext(ctx) })
	all.Go(func() {
		if cache.WaitForCacheSync(ctx.Done(), registered.HasSynced) {
			of.filled()
		}
	})
	return nil
}

// fill notes that every fence of the source is known: what is recorded and does not hold is lifted.
func (w *Watcher) fill(ctx context.Context, s *fencing.Source) {
	w.mu.Lock()
	if w.filled == nil {
		w.filled = sets.New[string]()
	}
	w.filled.Insert(s.Name)
	w.mu.Unlock()
	if s.Proves == volumesv1alpha1.FenceAccessCut {
		w.wakeDrivers(ctx, s)
		return
	}
	states := &volumesv1alpha1.NodeVolumeStateList{}
	if err := w.Cache.List(ctx, states); err != nil {
		ctrl.Log.WithName("fences").Error(err, "listing the node states with fences of a source", "source", s.Name)
		return
	}
	for i := range states.Items {
		if len(states.Items[i].Status.Node.Fences) > 0 {
			w.wake(ctx, fencing.Verdict{NodeName: states.Items[i].Name})
		}
	}
}

// evaluator replaces an object by what is kept of it. It may be called again with that.
func evaluator(ctx context.Context, s *fencing.Source) cache.TransformFunc {
	return func(o any) (any, error) {
		object, ok := o.(*unstructured.Unstructured)
		if !ok {
			return o, nil
		}
		return &evaluated{ObjectMeta: metaOf(object), fence: fenceIn(ctx, s, object)}, nil
	}
}

func fenceIn(ctx context.Context, s *fencing.Source, object *unstructured.Unstructured) fence {
	verdict, err := s.Evaluate(ctx, object)
	if err != nil {
		ctrl.LoggerFrom(ctx).WithName("fences").Error(err, "an object of a fence source is no fence", "source", s.Name)
	}
	var whole *unstructured.Unstructured
	if s.Covers != "" && verdict.Holds {
		whole = object
	}
	return fence{ref: reference(s, object), of: verdict, unclear: err != nil, object: whole}
}

// put stores a fence, or removes one that does not hold and opens nothing, and wakes the Nodes that this is about.
func (w *Watcher) put(ctx context.Context, s *fencing.Source, key client.ObjectKey, f fence) {
	source := s.Name
	w.mu.Lock()
	if w.held == nil {
		w.held = map[string]map[client.ObjectKey]fence{}
	}
	if w.held[source] == nil {
		w.held[source] = map[client.ObjectKey]fence{}
	}
	before := w.held[source][key]
	if f.of.Holds || f.unclear || len(f.of.Addresses) > 0 {
		w.held[source][key] = f
	} else {
		delete(w.held[source], key)
		f = fence{}
	}
	w.mu.Unlock()
	if reflect.DeepEqual(before, f) {
		return
	}
	if s.Proves == volumesv1alpha1.FenceAccessCut {
		w.wakeFence(ctx, s, before.of, f.of)
		return
	}
	for _, of := range []fencing.Verdict{before.of, f.of} {
		w.wake(ctx, of)
	}
}

// Of lists the fences that hold for the Node, in a fixed order, given what is recorded of it. What was recorded stays
// until the fence is seen to be lifted, and with it that the agent has contradicted it: also where its source was not
// read yet, an expression fails, or another machine registers the Node. Of a source that is not configured only what
// was contradicted stays: it must not be new once the source is back. Holds decides whether one still counts.
func (w *Watcher) Of(node *corev1.Node, nvs *volumesv1alpha1.NodeVolumeState) []volumesv1alpha1.FenceReference {
	w.mu.Lock()
	defer w.mu.Unlock()
	var held []volumesv1alpha1.FenceReference
	for _, s := range w.Sources {
		if s.Proves == volumesv1alpha1.FenceAccessCut {
			continue // it is about no machine
		}
		if !w.filled.Has(s.Name) {
			for _, r := range nvs.Status.Node.Fences {
				if r.Source == s.Name {
					held = append(held, r.FenceReference)
				}
			}
			continue
		}
		for _, f := range w.held[s.Name] {
			if records(nvs, f.ref) || names(f.of, node) && machine.Registered(node, nvs) == machine.Same {
				held = append(held, f.ref)
			}
		}
	}
	for _, r := range nvs.Status.Node.Fences {
		if r.Contradicted != nil && !w.Configured(r.Source) {
			held = append(held, r.FenceReference)
		}
	}
	slices.SortFunc(held, compareReferences)
	return held
}

// Names of the sources, in the order of the VolumeManager.
func (w *Watcher) Names() []string {
	names := make([]string, 0, len(w.Sources))
	for _, s := range w.Sources {
		names = append(names, s.Name)
	}
	return names
}

func compareReferences(a, b volumesv1alpha1.FenceReference) int {
	return cmp.Or(cmp.Compare(a.Source, b.Source), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}

// Holds reads the recorded fence live, and reports whether it still holds for the Node.
func (w *Watcher) Holds(
	ctx context.Context, ref volumesv1alpha1.FenceReference, node *corev1.Node, nvs *volumesv1alpha1.NodeVolumeState,
) (bool, error) {
	s := w.source(ref)
	if s == nil || node == nil || nvs == nil || machine.Registered(node, nvs) != machine.Same ||
		machine.ReportedByAnother(node, nvs) {
		return false, nil
	}
	object, err := w.read(ctx, s, ref)
	if err != nil || object == nil {
		return false, err
	}
	verdict, err := s.Evaluate(ctx, object)
	if err != nil {
		return false, err
	}
	return verdict.Holds && reference(s, object) == ref && names(verdict, node), nil
}

// source of the fence; nil if it is not configured any more, or is another one by now.
func (w *Watcher) source(ref volumesv1alpha1.FenceReference) *fencing.Source {
	i := slices.IndexFunc(w.Sources, func(s *fencing.Source) bool {
		return s.Name == ref.Source && s.Proves == ref.Proves
	})
	if i < 0 {
		return nil
	}
	return w.Sources[i]
}

// read the object of the fence live; nil where there is none.
func (w *Watcher) read(
	ctx context.Context, s *fencing.Source, ref volumesv1alpha1.FenceReference,
) (*unstructured.Unstructured, error) {
	object, err := w.Client.Resource(s.Resource()).Namespace(ref.Namespace).Get(ctx, ref.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("reading the fence %s of source %s: %w", ref.Name, s.Name, err)
	}
	return object, nil
}

// names reports whether the fence is about a machine of the Node's name, or of its provider ID.
func names(of fencing.Verdict, node *corev1.Node) bool {
	return of.NodeName != "" && of.NodeName == node.Name || of.ProviderID != "" && of.ProviderID == node.Spec.ProviderID
}

func records(nvs *volumesv1alpha1.NodeVolumeState, ref volumesv1alpha1.FenceReference) bool {
	return slices.ContainsFunc(nvs.Status.Node.Fences, func(r volumesv1alpha1.FenceObservation) bool {
		return r.FenceReference == ref
	})
}

func keyOf(o *evaluated) client.ObjectKey {
	return client.ObjectKey{Namespace: o.Namespace, Name: o.Name}
}

func metaOf(o *unstructured.Unstructured) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: o.GetNamespace(), Name: o.GetName(), UID: o.GetUID(),
		ResourceVersion: o.GetResourceVersion()}
}

func reference(s *fencing.Source, o *unstructured.Unstructured) volumesv1alpha1.FenceReference {
	ref := volumesv1alpha1.FenceReference{
		Source: s.Name, Namespace: o.GetNamespace(), Name: o.GetName(), UID: o.GetUID(), Proves: s.Proves,
	}
	if s.Proves == volumesv1alpha1.FenceAccessCut {
		ref.Generation = o.GetGeneration()
	}
	return ref
}
