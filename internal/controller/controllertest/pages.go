/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package controllertest

import (
	"cmp"
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Paged is a reader that answers a list with a limit in pages of one object each, as an API server may.
type Paged struct{ client.Reader }

// List returns the first object after that of the page before.
func (p Paged) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	options := (&client.ListOptions{}).ApplyOptions(opts)
	if err := p.Reader.List(ctx, list, opts...); err != nil || options.Limit == 0 {
		return err
	}
	all, err := meta.ExtractList(list)
	if err != nil {
		return err
	}
	rest := slices.DeleteFunc(all, func(o runtime.Object) bool { return keyOf(o) <= options.Continue })
	slices.SortFunc(rest, func(a, b runtime.Object) int { return cmp.Compare(keyOf(a), keyOf(b)) })
	if len(rest) > 1 {
		rest = rest[:1]
		list.SetContinue(keyOf(rest[0]))
	}
	return meta.SetList(list, rest)
}

func keyOf(o runtime.Object) string { return client.ObjectKeyFromObject(o.(client.Object)).String() }
