/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package controllertest

import (
	"context"
	"reflect"

	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/hawser-io/hawser/internal/controller/cached"
)

// indexer gives a fake client the manager's indexes.
type indexer struct{ *fake.ClientBuilder }

func (i indexer) IndexField(_ context.Context, o client.Object, field string, keys client.IndexerFunc) error {
	i.WithIndex(o, field, keys)
	return nil
}

// optionsOf are those that the manager's cache has for objects of this kind.
func optionsOf(o client.Object) cache.ByObject {
	for kind, by := range cached.Options().ByObject {
		if reflect.TypeOf(kind) == reflect.TypeOf(o) {
			return by
		}
	}
	return cache.ByObject{}
}
