/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package operator

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/source"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
)

// operatorName is the name of the operator's Deployment, account, roles and bindings.
const operatorName = "hawser-operator"

// quotaName is the name of the quota for the pods of the operator, the manager and the agents.
const quotaName = "hawser-critical-pods"

// The labels by which OLM v1 names the extension that an object belongs to.
const (
	ownerKindLabel = "olm.operatorframework.io/owner-kind"
	ownerNameLabel = "olm.operatorframework.io/owner-name"
)

var (
	operatorDeployment = appsv1.SchemeGroupVersion.WithKind("Deployment")
	namespaceKind      = corev1.SchemeGroupVersion.WithKind("Namespace")
	clusterExtension   = schema.GroupVersionKind{Group: "olm.operatorframework.io", Version: "v1",
		Kind: "ClusterExtension"}
)

// guarded is an object without which Hawser releases nothing. It was made with the operator.
type guarded struct {
	kind            schema.GroupVersionKind
	namespace, name string
	reader          client.Reader
}

// guards is the cache of what the other one does not find: the operator's own objects, which have names and no label
// in common, and the intents and, once it is removed, the pods of all namespaces.
type guards struct{ cache.Cache }

// GetCache lets the manager start it with its other caches.
func (g guards) GetCache() cache.Cache { return g.Cache }

// ownKinds are those of the operator's own objects, of which it has one of each kind. The namespace is among them only
// if it is Hawser's own: another may be shared.
func ownKinds(namespace string) map[schema.GroupVersionKind]types.NamespacedName {
	cluster := types.NamespacedName{Name: operatorName}
	inside := types.NamespacedName{Namespace: namespace, Name: operatorName}
	kinds := map[schema.GroupVersionKind]types.NamespacedName{
		operatorDeployment: inside,
		corev1.SchemeGroupVersion.WithKind("ServiceAccount"):     inside,
		corev1.SchemeGroupVersion.WithKind("ResourceQuota"):      {Namespace: namespace, Name: quotaName},
		rbacv1.SchemeGroupVersion.WithKind("Role"):               inside,
		rbacv1.SchemeGroupVersion.WithKind("RoleBinding"):        inside,
		rbacv1.SchemeGroupVersion.WithKind("ClusterRole"):        cluster,
		rbacv1.SchemeGroupVersion.WithKind("ClusterRoleBinding"): cluster,
	}
	if namespace == volumesv1alpha1.InstallNamespace {
		kinds[namespaceKind] = types.NamespacedName{Name: namespace}
	}
	return kinds
}

func newGuards(mgr manager.Manager, namespace string) (guards, error) {
	byObject := map[client.Object]cache.ByObject{&corev1.Pod{}: {Transform: stripPod}}
	for kind, key := range ownKinds(namespace) {
		selected := cache.ByObject{Field: fields.OneTermEqualSelector("metadata.name", key.Name)}
		if key.Namespace != "" {
			selected.Namespaces = map[string]cache.Config{key.Namespace: {}}
		}
		byObject[newMetadata(kind)] = selected
	}
	c, err := cache.New(mgr.GetConfig(), cache.Options{HTTPClient: mgr.GetHTTPClient(), Scheme: mgr.GetScheme(),
		Mapper: mgr.GetRESTMapper(), ByObject: byObject, DefaultTransform: strip})
	if err != nil {
		return guards{}, fmt.Errorf("creating the cache of the operator's own objects: %w", err)
	}
	if err := mgr.Add(guards{c}); err != nil {
		return guards{}, fmt.Errorf("adding the cache of the operator's own objects: %w", err)
	}
	return guards{c}, nil
}

func newMetadata(kind schema.GroupVersionKind) *metav1.PartialObjectMetadata {
	object := &metav1.PartialObjectMetadata{}
	object.SetGroupVersionKind(kind)
	return object
}

// watchGuards reconciles when one of the objects changes, such as by losing its label.
func (r *Reconciler) watchGuards(c controller.Controller) error {
	for kind := range ownKinds(r.Namespace) {
		if err := c.Watch(source.Kind[client.Object](r.guards, newMetadata(kind), enqueue)); err != nil {
			return fmt.Errorf("watching the operator's own %s: %w", kind.Kind, err)
		}
	}
	return nil
}

// guarded returns the objects that are there.
func (r *Reconciler) guarded(ctx context.Context) ([]*metav1.PartialObjectMetadata, error) {
	var all []guarded
	for _, o := range r.optional {
		if o.kind.Group == volumesv1alpha1.GroupVersion.Group {
			all = append(all, guarded{kind: definition, name: o.definition, reader: r.Cache})
		}
	}
	all = append(all, guarded{kind: definition, name: setsDefinition, reader: r.Cache})
	for kind, key := range ownKinds(r.Namespace) {
		all = append(all, guarded{kind, key.Namespace, key.Name, r.guards})
	}
	own, err := r.ownDeployment(ctx)
	if err != nil {
		return nil, err
	}
	if own.Labels[ownerKindLabel] == clusterExtension.Kind && r.serves(clusterExtension) {
		all = append(all, guarded{kind: clusterExtension, name: own.Labels[ownerNameLabel], reader: r.Cache})
	}
	var found []*metav1.PartialObjectMetadata
	for _, g := range all {
		object := newMetadata(g.kind)
		err := g.reader.Get(ctx, types.NamespacedName{Namespace: g.namespace, Name: g.name}, object)
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("reading %s %s: %w", g.kind.Kind, g.name, err)
		}
		found = append(found, object)
	}
	return found, nil
}

// ownDeployment is empty if the operator runs without one.
func (r *Reconciler) ownDeployment(ctx context.Context) (*metav1.PartialObjectMetadata, error) {
	own := newMetadata(operatorDeployment)
	err := r.guards.Get(ctx, types.NamespacedName{Namespace: r.Namespace, Name: operatorName}, own)
	if client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("reading the operator's Deployment: %w", err)
	}
	return own, nil
}
