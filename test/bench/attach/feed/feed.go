/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

// Package feed shows the benchmark's parts what changes in the cluster. It has one watch for each kind, for all
// listeners.
package feed

import (
	"context"
	"fmt"

	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hawser-io/hawser/test/apiserver"
)

// Feed of changes. It begins with Start and ends with its context.
type Feed struct {
	// Reader reads from the watches' cache. Its objects are shared and must not be changed.
	Reader client.Reader

	cache   cache.Cache
	waiting []func() bool
}

// New creates a feed for a user.
func New(config *rest.Config) (*Feed, error) {
	c, err := cache.New(config, cache.Options{
		Scheme:                       apiserver.Scheme(),
		DefaultTransform:             cache.TransformStripManagedFields(),
		DefaultUnsafeDisableDeepCopy: ptr.To(true),
		ReaderFailOnMissingInformer:  true,
	})
	if err != nil {
		return nil, fmt.Errorf("creating a cache: %w", err)
	}
	return &Feed{Reader: c, cache: c}, nil
}

// On calls changed with each new or changed object of the kind, and gone with each deleted one. The calls are
// sequential. Both may be nil. On must be called before Start.
func On[T client.Object](ctx context.Context, f *Feed, kind T, changed, gone func(T)) error {
	informer, err := f.cache.GetInformer(ctx, kind, cache.BlockUntilSynced(false))
	if err != nil {
		return fmt.Errorf("watching %T: %w", kind, err)
	}
	handler := toolscache.ResourceEventHandlerFuncs{}
	if changed != nil {
		handler.AddFunc = func(o any) { changed(o.(T)) }
		handler.UpdateFunc = func(_, o any) { changed(o.(T)) }
	}
	if gone != nil {
		handler.DeleteFunc = func(o any) {
			if unknown, ok := o.(toolscache.DeletedFinalStateUnknown); ok {
				o = unknown.Obj
			}
			gone(o.(T))
		}
	}
	registration, err := informer.AddEventHandler(handler)
	if err != nil {
		return fmt.Errorf("listening to %T: %w", kind, err)
	}
	f.waiting = append(f.waiting, registration.HasSynced)
	return nil
}

// Start returns once every listener has received the existing objects.
func (f *Feed) Start(ctx context.Context) error {
	go func() {
		// It ends with the context, and retries failures until then.
		_ = f.cache.Start(ctx)
	}()
	synced := make([]toolscache.InformerSynced, len(f.waiting))
	for i, has := range f.waiting {
		synced[i] = has
	}
	if !toolscache.WaitForCacheSync(ctx.Done(), synced...) {
		return fmt.Errorf("filling the caches: %w", context.Cause(ctx))
	}
	return nil
}
