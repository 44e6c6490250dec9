/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

// Package controllertest has an API server for quick tests of controllers, with a cache that lags behind it.
package controllertest

import (
	"context"
	"sync"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	testtracker "k8s.io/client-go/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/index"
)

// Scheme has every kind that controllers use. It is made once: that takes longer than most tests.
var Scheme = sync.OnceValue(func() *runtime.Scheme {
	s := runtime.NewScheme()
	utilruntime.Must(clientgoscheme.AddToScheme(s))
	utilruntime.Must(volumesv1alpha1.AddToScheme(s))
	return s
})

// API is an API server and a cache of it. They share nothing: the cache shows what the API server had when the test
// called Sync last, trimmed as the manager trims it. The manager's indexes belong to the cache alone.
type API struct {
	t testing.TB
	// Live reads and writes as the API server does.
	Live client.WithWatch
	// Client reads from the cache and writes to Live, as a manager's client does. It is Strict.
	Client client.WithWatch

	mu    sync.Mutex
	cache client.WithWatch
}

// New returns the API server of the builder. It and its cache have these objects.
func New(t testing.TB, b *fake.ClientBuilder, objects ...client.Object) *API {
	t.Helper()
	b.WithIndex(&corev1.Pod{}, "spec.nodeName", nodeOf) // which an API server can select by
	a := &API{t: t, Live: b.WithObjects(objects...).Build()}
	a.Client = interceptor.NewClient(Strict(t, a.Live), interceptor.Funcs{
		Get: func(ctx context.Context, _ client.WithWatch, key client.ObjectKey, o client.Object,
			opts ...client.GetOption) error {
			return a.cached().Get(ctx, key, o, opts...)
		},
		List: func(ctx context.Context, _ client.WithWatch, l client.ObjectList, opts ...client.ListOption) error {
			return a.cached().List(ctx, l, opts...)
		},
	})
	a.Sync()
	return a
}

func nodeOf(pod client.Object) []string { return []string{pod.(*corev1.Pod).Spec.NodeName} }

func (a *API) cached() client.WithWatch {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.cache
}

// Sync has the cache show what the API server has now.
func (a *API) Sync() {
	a.t.Helper()
	a.Show(a.everything()...)
}

// Show has the cache show these objects and no others, until the next Sync.
func (a *API) Show(objects ...client.Object) {
	a.t.Helper()
	scheme := a.Live.Scheme()
	// This tracker takes objects without the finalizers that they have in the API server, which the one of fake refuses.
	tracker := testtracker.NewObjectTracker(scheme, serializer.NewCodecFactory(scheme).UniversalDecoder())
	for _, o := range objects {
		if err := tracker.Add(a.trimmed(o)); err != nil {
			a.t.Fatal(err)
		}
	}
	b := fake.NewClientBuilder().WithScheme(scheme).WithObjectTracker(tracker)
	if err := index.Register(a.t.Context(), indexer{b}); err != nil {
		a.t.Fatal(err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.cache = b.Build()
}

// kinds that the manager's cache has.
func kinds() []client.ObjectList {
	return []client.ObjectList{
		&corev1.ConfigMapList{}, &corev1.NodeList{}, &corev1.PersistentVolumeList{}, &corev1.PersistentVolumeClaimList{},
		&corev1.PodList{}, &coordinationv1.LeaseList{}, &storagev1.CSIDriverList{}, &storagev1.CSINodeList{},
		&storagev1.StorageClassList{}, &storagev1.VolumeAttachmentList{}, &volumesv1alpha1.NodeVolumeStateList{},
		&storagev1.CSIStorageCapacityList{}, &corev1.NamespaceList{}, &volumesv1alpha1.VolumeAttachmentIntentSetList{},
		&volumesv1alpha1.VolumeAttachmentIntentList{}, &corev1.ServiceAccountList{}, &rbacv1.RoleList{},
		&rbacv1.RoleBindingList{}, &appsv1.DaemonSetList{},
	}
}

// everything that the API server has of those kinds, and the manager's cache selects by its labels.
func (a *API) everything() []client.Object {
	a.t.Helper()
	var all []client.Object
	for _, list := range kinds() {
		if err := a.Live.List(a.t.Context(), list); err != nil {
			a.t.Fatal(err)
		}
		objects, err := meta.ExtractList(list)
		if err != nil {
			a.t.Fatal(err)
		}
		for _, o := range objects {
			object := o.(client.Object)
			if label := optionsOf(object).Label; label == nil || label.Matches(labels.Set(object.GetLabels())) {
				all = append(all, object)
			}
		}
	}
	return all
}

// trimmed is a copy of the object as the manager's cache keeps it.
func (a *API) trimmed(o client.Object) client.Object {
	a.t.Helper()
	o = o.DeepCopyObject().(client.Object)
	if o.GetResourceVersion() == "" {
		o.SetResourceVersion("999") // which the fake API server gives it too
	}
	transform := optionsOf(o).Transform
	if transform == nil {
		return o
	}
	kept, err := transform(o)
	if err != nil {
		a.t.Fatal(err)
	}
	return kept.(client.Object)
}
