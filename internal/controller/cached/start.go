/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package cached

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
)

// Begin has the cache list the kinds that it has no index of; those with an index are listed for that. So a manager has
// everything before it leads, and a handler that reads another kind waits until that is complete.
func Begin(ctx context.Context, informers cache.Informers) error {
	for _, o := range []client.Object{
		&corev1.PersistentVolumeClaim{}, &corev1.ServiceAccount{}, namespaceMetadata(),
		&storagev1.StorageClass{}, &storagev1.CSIDriver{}, &storagev1.CSINode{}, &storagev1.CSIStorageCapacity{},
	} {
		if _, err := informers.GetInformer(ctx, o, cache.BlockUntilSynced(false)); err != nil {
			return fmt.Errorf("caching %T: %w", o, err)
		}
	}
	return nil
}

// SinceStart lets through what these predicates do, but not the creation of what was there when the controller started.
// It is for kinds beside another one that leads to everything that the controller reconciles by its names alone. What
// was there, or came while the controller started, is read by the passes: they begin once all of that was handled.
func SinceStart(changed ...predicate.Predicate) builder.Predicates {
	return builder.WithPredicates(append([]predicate.Predicate{sinceStart}, changed...)...)
}

var sinceStart = predicate.Funcs{CreateFunc: func(e event.CreateEvent) bool { return !e.IsInInitialList }}
