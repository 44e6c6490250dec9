/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package live

import (
	"cmp"
	"context"
	"slices"
	"sync"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Follower has the present objects of a list.
type Follower struct {
	store   cache.Store
	trim    func(client.Object)
	changed func()
	// settled is closed once the list was read, or the API server refused it for good.
	settled chan struct{}
	once    sync.Once

	mu      sync.Mutex
	refused error
}

// Follow reads a list and follows it until the context ends. It calls changed after each change, also when the list
// was read for the first time.
func Follow(ctx context.Context, c client.WithWatch, list client.ObjectList, options client.ListOptions, changed func(),
) *Follower {
	return follow(ctx, c, list, options, nil, changed)
}

// follow calls trim, unless it is nil, with each object that is kept.
func follow(ctx context.Context, c client.WithWatch, list client.ObjectList, options client.ListOptions,
	trim func(client.Object), changed func()) *Follower {
	f := &Follower{store: cache.NewStore(cache.MetaNamespaceKeyFunc), trim: trim, changed: changed,
		settled: make(chan struct{})}
	ctx, stop := context.WithCancel(ctx)
	raw := func(o metav1.ListOptions) *client.ListOptions {
		given := options
		given.Raw, given.Limit, given.Continue = &o, o.Limit, o.Continue
		return &given
	}
	source := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			into := list.DeepCopyObject().(client.ObjectList)
			err := c.List(ctx, into, raw(o))
			f.failed(err, stop)
			return into, err
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			w, err := c.Watch(ctx, list.DeepCopyObject().(client.ObjectList), raw(o))
			f.failed(err, stop)
			return w, err
		},
	}
	silent := logr.Discard()
	reflector := cache.NewReflectorWithOptions(source, nil, followed{f.store, f}, cache.ReflectorOptions{
		Logger: &silent, Name: "hawser"})
	go reflector.RunWithContext(klog.NewContext(ctx, silent))
	return f
}

// failed ends the Follower if the API server will not answer otherwise.
func (f *Follower) failed(err error, stop context.CancelFunc) {
	if !apierrors.IsForbidden(err) && !apierrors.IsUnauthorized(err) && !apierrors.IsNotFound(err) &&
		!apierrors.IsMethodNotSupported(err) && !meta.IsNoMatchError(err) {
		return
	}
	f.mu.Lock()
	f.refused = err
	f.mu.Unlock()
	stop()
	f.settle()
	f.changed()
}

func (f *Follower) settle() { f.once.Do(func() { close(f.settled) }) }

// Wait until the list was read or refused.
func (f *Follower) Wait(ctx context.Context) error {
	select {
	case <-f.settled:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Refused is why the list cannot be followed; nil if it can.
func (f *Follower) Refused() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.refused
}

// Objects in the order of an API server. They must not be changed.
func (f *Follower) Objects() []client.Object {
	var all []client.Object
	for _, object := range f.store.List() {
		all = append(all, object.(client.Object))
	}
	slices.SortFunc(all, func(a, b client.Object) int {
		return cmp.Or(cmp.Compare(a.GetNamespace(), b.GetNamespace()), cmp.Compare(a.GetName(), b.GetName()))
	})
	return all
}

// followed announces each change of a store.
type followed struct {
	cache.Store
	f *Follower
}

func (s followed) Add(object any) error    { return s.then(s.Store.Add(s.trimmed(object))) }
func (s followed) Update(object any) error { return s.then(s.Store.Update(s.trimmed(object))) }
func (s followed) Delete(object any) error { return s.then(s.Store.Delete(object)) }

func (s followed) Replace(objects []any, version string) error {
	for _, object := range objects {
		s.trimmed(object)
	}
	err := s.Store.Replace(objects, version)
	s.f.settle()
	return s.then(err)
}

func (s followed) trimmed(object any) any {
	if s.f.trim != nil {
		s.f.trim(object.(client.Object))
	}
	return object
}

func (s followed) then(err error) error {
	s.f.changed()
	return err
}
