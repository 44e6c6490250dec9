/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

// Package live keeps what a report read up to date. Its Reader asks the API server for each object and each list once,
// and then follows them by a watch. So a report is made again from memory, as often as something changes, and costs no
// request. A watch that ends is resumed; there is no limit of time.
package live

import (
	"cmp"
	"context"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"time"

	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/hawser-io/hawser/internal/explain/facts"
)

// Reader reads through watches.
type Reader struct {
	base    facts.Reader
	client  client.WithWatch
	ctx     context.Context // of the watches, which outlive each read
	changed chan struct{}
	refused func(what string, err error)
	// Trim removes what is not needed from each object, before it is kept; nil for nothing. It is set before the first
	// read.
	Trim func(client.Object)

	mu        sync.Mutex
	round     int
	installed bool
	followed  map[string]*use
}

var _ facts.Reader = (*Reader)(nil)

// use is a Follower, and the last round that needed it.
type use struct {
	*Follower
	stop  context.CancelFunc
	round int
}

// New returns a Reader whose watches end with the context. It calls refused, once for each, with what may not be
// watched; such things are read again for each report.
func New(ctx context.Context, base facts.Reader, c client.WithWatch, refused func(what string, err error)) *Reader {
	return &Reader{base: base, client: c, ctx: ctx, changed: make(chan struct{}, 1), refused: refused,
		followed: map[string]*use{}}
}

func (r *Reader) change() {
	select {
	case r.changed <- struct{}{}:
	default: // a change is announced already
	}
}

// Wait until something has changed, or the report has the age without a change, and then for further changes, which are
// collected for a while. It fails if the context ends.
func (r *Reader) Wait(ctx context.Context, age, collect time.Duration) error {
	old := time.NewTimer(age)
	defer old.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-r.changed:
	case <-old.C:
	}
	more := time.NewTimer(collect)
	defer more.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-more.C:
		return nil
	}
}

// Begin begins a report.
func (r *Reader) Begin() { r.round++ }

// End ends a report: what it did not read is not watched any more.
func (r *Reader) End() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for key, u := range r.followed {
		if u.round != r.round {
			u.stop()
			delete(r.followed, key)
		}
	}
}

// Watching counts the watches.
func (r *Reader) Watching() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := 0
	for _, u := range r.followed {
		if u.Refused() == nil {
			n++
		}
	}
	return n
}

// Installed asks until Hawser is installed.
func (r *Reader) Installed(ctx context.Context) (bool, error) {
	if r.installed {
		return true, nil
	}
	var err error
	r.installed, err = r.base.Installed(ctx)
	return r.installed, err
}

// Attachments follows all VolumeAttachments.
func (r *Reader) Attachments(ctx context.Context) ([]facts.Attachment, error) {
	u, err := r.follow(ctx, &storagev1.VolumeAttachmentList{}, client.ListOptions{})
	if err != nil {
		return nil, err
	}
	if u.Refused() != nil {
		return r.base.Attachments(ctx)
	}
	var all []facts.Attachment
	for _, object := range u.Objects() {
		va := object.(*storagev1.VolumeAttachment)
		a := facts.Attachment{Name: va.Name, Driver: va.Spec.Attacher, Node: va.Spec.NodeName,
			Attached: va.Status.Attached}
		if pv := va.Spec.Source.PersistentVolumeName; pv != nil {
			a.Volume = *pv
		}
		all = append(all, a)
	}
	return all, nil
}

// Get follows one object.
func (r *Reader) Get(ctx context.Context, key client.ObjectKey, into client.Object, options ...client.GetOption) error {
	gvk, list, err := r.listOf(into)
	if _, metadata := into.(*metav1.PartialObjectMetadata); metadata || err != nil { // to follow it needs more rights
		return r.base.Get(ctx, key, into, options...)
	}
	u, err := r.follow(ctx, list, client.ListOptions{Namespace: key.Namespace,
		FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, key.Name)})
	if err != nil {
		return err
	}
	if u.Refused() != nil {
		return r.base.Get(ctx, key, into, options...)
	}
	for _, object := range u.Objects() {
		if object.GetName() == key.Name {
			reflect.ValueOf(into).Elem().Set(reflect.ValueOf(object.DeepCopyObject()).Elem())
			return nil
		}
	}
	return apierrors.NewNotFound(schema.GroupResource{Group: gvk.Group, Resource: gvk.Kind}, key.Name)
}

// listOf returns an empty list of the kind of an object.
func (r *Reader) listOf(object client.Object) (schema.GroupVersionKind, client.ObjectList, error) {
	gvk, err := apiutil.GVKForObject(object, r.client.Scheme())
	if err != nil {
		return gvk, nil, err
	}
	list, err := r.client.Scheme().New(gvk.GroupVersion().WithKind(gvk.Kind + "List"))
	if err != nil {
		return gvk, nil, err
	}
	return gvk, list.(client.ObjectList), nil
}

// List follows a list. It has no limit: all of it is in memory.
func (r *Reader) List(ctx context.Context, into client.ObjectList, options ...client.ListOption) error {
	given := (&client.ListOptions{}).ApplyOptions(options)
	u, err := r.follow(ctx, into.DeepCopyObject().(client.ObjectList), client.ListOptions{
		Namespace: given.Namespace, FieldSelector: given.FieldSelector, LabelSelector: given.LabelSelector})
	if err != nil {
		return err
	}
	if u.Refused() != nil {
		return r.base.List(ctx, into, options...)
	}
	var items []runtime.Object
	for _, object := range u.Objects() {
		items = append(items, object.DeepCopyObject())
	}
	return meta.SetList(into, items)
}

// follow returns what follows a list, once it has all of it.
func (r *Reader) follow(ctx context.Context, list client.ObjectList, options client.ListOptions) (*use, error) {
	key := fmt.Sprintf("%T %s %v %v", list, options.Namespace, sorted(options.FieldSelector), options.LabelSelector)
	r.mu.Lock()
	u, known := r.followed[key]
	if !known {
		watching, stop := context.WithCancel(r.ctx)
		u = &use{stop: stop, Follower: follow(watching, r.client, list, options, r.Trim, r.change)}
		r.followed[key] = u
	}
	u.round = r.round
	r.mu.Unlock()
	if err := u.Wait(ctx); err != nil {
		return nil, err
	}
	if err := u.Refused(); err != nil && !known && !facts.NoKind(err) {
		r.refused(what(list, options), err)
	}
	return u, nil
}

// sorted returns the requirements of a selector in a fixed order: client.MatchingFields, a map, has none.
func sorted(selector fields.Selector) fields.Requirements {
	if selector == nil {
		return nil
	}
	all := selector.Requirements()
	slices.SortFunc(all, func(a, b fields.Requirement) int { return cmp.Compare(a.Field, b.Field) })
	return all
}

func what(list client.ObjectList, options client.ListOptions) string {
	text := fmt.Sprintf("%T", list)
	text = text[len("*"):]
	if options.FieldSelector != nil {
		text += " with " + options.FieldSelector.String()
	}
	return text
}
