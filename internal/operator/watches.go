/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package operator

import (
	"context"
	"fmt"
	"reflect"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/cached"
	"github.com/hawser-io/hawser/internal/controller/liveness"
	"github.com/hawser-io/hawser/internal/operator/render"
)

var definition = schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"}

// optional is a kind that may be missing, because a CustomResourceDefinition defines it.
type optional struct {
	definition string
	kind       schema.GroupVersionKind
	object     client.Object
	predicate  predicate.Predicate
	// everywhere: objects of all namespaces are watched.
	everywhere bool
	watched    bool
}

func newOptional() []*optional {
	managers := volumesv1alpha1.GroupVersion.WithKind("VolumeManager")
	return []*optional{
		{definition: "volumemanagers.volumes.hawser.io", kind: managers, object: &volumesv1alpha1.VolumeManager{}},
		{definition: "nodevolumestates.volumes.hawser.io", kind: stateKind, object: &volumesv1alpha1.NodeVolumeState{},
			predicate: predicate.Funcs{UpdateFunc: usedChanged}},
		{definition: "volumeattachmentintents.volumes.hawser.io", kind: intentKind,
			object: &volumesv1alpha1.VolumeAttachmentIntent{}, everywhere: true,
			predicate: predicate.Funcs{UpdateFunc: intentChanged}},
		{definition: "servicemonitors.monitoring.coreos.com", kind: render.ServiceMonitor,
			object: newObject(render.ServiceMonitor)},
		{definition: "podmonitors.monitoring.coreos.com", kind: render.PodMonitor, object: newObject(render.PodMonitor)},
		{definition: "prometheusrules.monitoring.coreos.com", kind: render.PrometheusRule,
			object: newObject(render.PrometheusRule)},
		{definition: "clusterextensions.olm.operatorframework.io", kind: clusterExtension,
			object: newMetadata(clusterExtension)},
	}
}

// watchAlways starts the watches of the kinds that every cluster has.
func (r *Reconciler) watchAlways(c controller.Controller) error {
	definitions := &metav1.PartialObjectMetadata{}
	definitions.SetGroupVersionKind(definition)
	objects := map[client.Object][]predicate.Predicate{
		definitions:    {predicate.NewPredicateFuncs(r.isOptional)},
		&corev1.Pod{}:  nil,
		&corev1.Node{}: {predicate.Funcs{UpdateFunc: nodeChanged}},
	}
	for _, kind := range r.Kinds.watched {
		objects[newObject(kind)] = nil
	}
	for object, predicates := range objects {
		if err := c.Watch(source.Kind(r.Cache, object, enqueue, predicates...)); err != nil {
			return fmt.Errorf("watching %T: %w", object, err)
		}
	}
	return r.watchGuards(c)
}

// enqueue: whatever happens, the whole installation is reconciled.
var enqueue = handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request {
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Name: volumesv1alpha1.VolumeManagerName}}}
})

// setsDefinition is that of a kind that the operator only protects: without it, all intents of all sets would go.
const setsDefinition = "volumeattachmentintentsets.volumes.hawser.io"

func (r *Reconciler) isOptional(object client.Object) bool {
	if object.GetName() == setsDefinition || r.sources.defines(object.GetName()) {
		return true
	}
	for _, o := range r.optional {
		if o.definition == object.GetName() {
			return true
		}
	}
	return false
}

// watchOptional starts the watches of the kinds that are there, and ends those of the kinds that are gone: an informer
// of a kind that is missing would never be filled, and a program that waits for it would not start.
func (r *Reconciler) watchOptional(ctx context.Context) error {
	for _, o := range r.optional {
		defined := &metav1.PartialObjectMetadata{}
		defined.SetGroupVersionKind(definition)
		err := r.Cache.Get(ctx, types.NamespacedName{Name: o.definition}, defined)
		switch {
		case apierrors.IsNotFound(err) && o.watched:
			if err := r.cacheOf(o).RemoveInformer(ctx, o.object); err != nil {
				return fmt.Errorf("ending the watch of %s: %w", o.definition, err)
			}
			o.watched = false
		case err == nil && !o.watched:
			if err := r.watch(o); err != nil {
				return err
			}
		case client.IgnoreNotFound(err) != nil:
			return fmt.Errorf("reading the definition %s: %w", o.definition, err)
		}
	}
	return nil
}

// gone reports whether the definition of a kind is missing. A kind that is just not served yet is not gone.
func (r *Reconciler) gone(ctx context.Context, kind schema.GroupVersionKind) (bool, error) {
	for _, o := range r.optional {
		if o.kind != kind {
			continue
		}
		err := r.Cache.Get(ctx, types.NamespacedName{Name: o.definition}, newMetadata(definition))
		if client.IgnoreNotFound(err) != nil {
			return false, fmt.Errorf("reading the definition %s: %w", o.definition, err)
		}
		return err != nil, nil
	}
	return false, nil
}

// watch fails while the API server does not serve a kind yet that was just defined.
func (r *Reconciler) watch(o *optional) error {
	if _, err := r.Mapper.RESTMapping(o.kind.GroupKind(), o.kind.Version); err != nil {
		return fmt.Errorf("the kind %s is defined, but not served yet: %w", o.kind.Kind, err)
	}
	var predicates []predicate.Predicate
	if o.predicate != nil {
		predicates = append(predicates, o.predicate)
	}
	if err := r.controller.Watch(source.Kind(r.cacheOf(o), o.object, enqueue, predicates...)); err != nil {
		return fmt.Errorf("watching %s: %w", o.definition, err)
	}
	o.watched = true
	return nil
}

func (r *Reconciler) cacheOf(o *optional) cache.Cache {
	if o.everywhere {
		return r.guards
	}
	return r.Cache
}

// serves reports whether the API server has a kind that not every cluster has.
func (r *Reconciler) serves(kind schema.GroupVersionKind) bool {
	for _, o := range r.optional {
		if o.kind == kind {
			return o.watched
		}
	}
	return r.Kinds.mutating
}

// usedChanged ignores the reports that only have new figures. The cache keeps only what counts.
func usedChanged(e event.UpdateEvent) bool {
	before, ok := e.ObjectOld.(*volumesv1alpha1.NodeVolumeState)
	after, is := e.ObjectNew.(*volumesv1alpha1.NodeVolumeState)
	return !ok || !is || !equality.Semantic.DeepEqual(before.Spec, after.Spec) ||
		!equality.Semantic.DeepEqual(before.Annotations, after.Annotations) ||
		!equality.Semantic.DeepEqual(before.Status, after.Status)
}

// intentChanged ignores what does not change whether a volume is in use. Why an intent waits counts once it is deleted.
func intentChanged(e event.UpdateEvent) bool {
	before, ok := e.ObjectOld.(*volumesv1alpha1.VolumeAttachmentIntent)
	after, is := e.ObjectNew.(*volumesv1alpha1.VolumeAttachmentIntent)
	return !ok || !is || before.Status.UniqueVolumeName != after.Status.UniqueVolumeName ||
		before.DeletionTimestamp.IsZero() != after.DeletionTimestamp.IsZero() ||
		after.DeletionTimestamp != nil && !equality.Semantic.DeepEqual(before.Status, after.Status)
}

// nodeChanged ignores the kubelet's heartbeats, and the labels of sets.
func nodeChanged(e event.UpdateEvent) bool {
	before, ok := e.ObjectOld.(*corev1.Node)
	after, is := e.ObjectNew.(*corev1.Node)
	return !ok || !is || liveness.Ready(before) != liveness.Ready(after) ||
		!equalBesideReady(before.Labels, after.Labels) ||
		before.Annotations[cached.ManagedNodeAnnotation] != after.Annotations[cached.ManagedNodeAnnotation] ||
		!reflect.DeepEqual(before.Spec.Taints, after.Spec.Taints)
}

// volumesOn counts the volumes that are attached to the node or present on it.
func volumesOn(state *volumesv1alpha1.NodeVolumeState) int {
	names := map[string]bool{}
	for _, attachment := range state.Spec.Attachments {
		names[attachment.VolumeName] = true
	}
	for _, volume := range state.Status.Volumes {
		names[volume.VolumeName] = true
	}
	return len(names)
}
