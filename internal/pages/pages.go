/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

// Package pages reads lists of a cluster: each in pages, several at once. Of each object it keeps what its
// caller needs. A list that cannot be read keeps its error, and the others are read all the same.
package pages

import (
	"context"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/pager"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hawser-io/hawser/internal/explain/facts"
)

// size is how many objects of a list are read at once, unless an option limits them.
const size = 500

// Reads are lists that are read at once.
type Reads struct {
	sync.WaitGroup
	ctx    context.Context // of this one pass
	reader client.Reader
	trim   func(client.Object) bool
}

// New prepares reads. trim removes from an object what is not needed, and reports whether the object itself is.
func New(ctx context.Context, r client.Reader, trim func(client.Object) bool) *Reads {
	return &Reads{ctx: ctx, reader: r, trim: trim}
}

// Read reads a list beside others. It is complete after Wait.
func Read[T any, P interface {
	*T
	client.Object
}](all *Reads, into *facts.List[P], empty client.ObjectList, options ...client.ListOption) {
	all.Go(func() { *into = list[T, P](all, empty, options...) })
}

// list reads all pages of a list.
func list[T any, P interface {
	*T
	client.Object
}](all *Reads, empty client.ObjectList, options ...client.ListOption) (found facts.List[P]) {
	p := pager.ListPager{PageSize: (&client.ListOptions{Limit: size}).ApplyOptions(options).Limit, PageBufferSize: 1,
		PageFn: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			into := empty.DeepCopyObject().(client.ObjectList)
			return into, all.reader.List(ctx, into, append(options[:len(options):len(options)], client.Limit(o.Limit),
				client.Continue(o.Continue))...)
		}}
	read := func() {
		found.Items = nil
		found.Err = p.EachListItemWithAlloc(all.ctx, metav1.ListOptions{}, func(object runtime.Object) error {
			if o := object.(P); all.trim(o) {
				found.Items = append(found.Items, o)
			}
			return nil
		})
	}
	if read(); apierrors.IsResourceExpired(found.Err) {
		p.PageSize = 0 // all at once: the API server does not keep the version of the first page
		read()
	}
	if found.Err != nil {
		found.Items = nil
	}
	return found
}
