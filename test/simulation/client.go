/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package simulation

import (
	"cmp"
	"context"
	"errors"
	"reflect"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

// live is one process' connection to the API server. Each request takes time, may be the last thing that the process
// does, and may fail: before it arrives, after it was carried out, or in between, so that it is carried out when
// nobody expects it any more.
type live struct {
	*process
}

var _ client.WithWatch = live{}

func (c live) Scheme() *runtime.Scheme     { return scheme }
func (c live) RESTMapper() meta.RESTMapper { return mapper }
func (c live) GroupVersionKindFor(o runtime.Object) (schema.GroupVersionKind, error) {
	return apiutil.GVKForObject(o, scheme)
}
func (c live) IsObjectNamespaced(o runtime.Object) (bool, error) {
	return apiutil.IsObjectNamespaced(o, scheme, mapper)
}

// newOf makes an empty object of the list's items.
func newOf(list client.ObjectList) client.Object {
	items := reflect.ValueOf(list).Elem().FieldByName("Items")
	return reflect.New(items.Type().Elem()).Interface().(client.Object)
}

func (c live) Get(ctx context.Context, key client.ObjectKey, o client.Object, _ ...client.GetOption) error {
	if err := c.request(ctx, "get "+abbreviated(o)+" "+key.Name); err != nil {
		return err
	}
	if _, ok := o.(*corev1.Node); ok && c.happens(nodeUnread) {
		return timeout("get Node " + key.Name)
	}
	c.world.mu.Lock()
	found, err := c.world.api.get(o, key)
	c.world.mu.Unlock()
	if err != nil {
		return cmp.Or(c.answer(ctx), err)
	}
	into(found, o)
	return c.answer(ctx)
}

func into(found, o client.Object) {
	reflect.ValueOf(o).Elem().Set(reflect.ValueOf(found.DeepCopyObject()).Elem())
}

func (c live) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	o := newOf(list)
	if err := c.request(ctx, "list "+abbreviated(o)); err != nil {
		return err
	}
	lo := client.ListOptions{}
	lo.ApplyOptions(opts)
	c.world.mu.Lock()
	found := c.world.api.list(o)
	list.SetResourceVersion(strconv.FormatUint(c.world.api.version, 10))
	c.world.mu.Unlock()
	items := reflect.ValueOf(list).Elem().FieldByName("Items")
	items.SetLen(0)
	for _, f := range found {
		if selects(&lo, f) {
			items.Set(reflect.Append(items, reflect.ValueOf(f.DeepCopyObject()).Elem()))
		}
	}
	return c.answer(ctx)
}

func selects(lo *client.ListOptions, o client.Object) bool {
	if lo.Namespace != "" && lo.Namespace != o.GetNamespace() {
		return false
	}
	if lo.LabelSelector != nil && !lo.LabelSelector.Matches(labels.Set(o.GetLabels())) {
		return false
	}
	return lo.FieldSelector == nil || lo.FieldSelector.Matches(fieldsOf(o))
}

func fieldsOf(o client.Object) fields.Set {
	set := fields.Set{"metadata.name": o.GetName(), "metadata.namespace": o.GetNamespace()}
	if spec := reflect.ValueOf(o).Elem().FieldByName("Spec"); spec.IsValid() {
		if node := spec.FieldByName("NodeName"); node.IsValid() {
			set["spec.nodeName"] = node.String()
		}
	}
	return set
}

// write carries out a change of o, which takes over the answer.
func (c live) write(ctx context.Context, verb string, o client.Object, do func(*api) (client.Object, error)) error {
	name := verb + " " + abbreviated(o) + " " + o.GetName()
	if err := c.request(ctx, name); err != nil {
		return err
	}
	carryOut := func(late bool) (client.Object, error) {
		c.world.mu.Lock()
		defer c.world.mu.Unlock()
		c.world.by, c.world.writer, c.world.late = c.name, c.process, late
		defer func() { c.world.writer, c.world.late = nil, false }()
		return do(c.world.api)
	}
	if !c.prompt && c.happens(lateWrite) {
		delay := c.between(0, 2*time.Minute)
		c.world.log("%s: %s is on its way for %s", c.name, name, delay)
		c.world.later(delay, func() { _, _ = carryOut(true) }) // nobody is there to hear of it
		return timeout(name)
	}
	after, err := carryOut(false)
	if err != nil {
		c.world.log("%s: %s: %v", c.name, name, reason(err))
		return cmp.Or(c.answer(ctx), err)
	}
	if after != nil {
		defer into(after, o)
	}
	if c.happens(lostAnswer) {
		c.world.log("%s: the answer to %s is lost", c.name, name)
		return timeout(name)
	}
	return c.answer(ctx)
}

func reason(err error) string {
	if r := apierrors.ReasonForError(err); r != metav1.StatusReasonUnknown {
		return string(r)
	}
	return err.Error()
}

func timeout(name string) error { return apierrors.NewTimeoutError(name+": no answer", 1) }

func (c live) Create(ctx context.Context, o client.Object, opts ...client.CreateOption) error {
	co := client.CreateOptions{}
	co.ApplyOptions(opts)
	sent := o.DeepCopyObject().(client.Object)
	return c.write(ctx, "create", o, func(a *api) (client.Object, error) { return a.create(sent) })
}

func (c live) Update(ctx context.Context, o client.Object, _ ...client.UpdateOption) error {
	return c.update(ctx, o, false)
}

func (c live) update(ctx context.Context, o client.Object, status bool) error {
	sent := o.DeepCopyObject().(client.Object)
	return c.write(ctx, "update", o, func(a *api) (client.Object, error) { return a.update(sent, status) })
}

func (c live) Patch(ctx context.Context, o client.Object, p client.Patch, _ ...client.PatchOption) error {
	return c.patch(ctx, o, p, false)
}

func (c live) patch(ctx context.Context, o client.Object, p client.Patch, status bool) error {
	data, err := p.Data(o)
	if err != nil {
		return err
	}
	if p.Type() != types.MergePatchType {
		return errors.New("only merge patches are known here")
	}
	sent := o.DeepCopyObject().(client.Object)
	return c.write(ctx, "patch", o, func(a *api) (client.Object, error) { return a.patch(sent, data, status) })
}

func (c live) Delete(ctx context.Context, o client.Object, opts ...client.DeleteOption) error {
	do := client.DeleteOptions{}
	do.ApplyOptions(opts)
	sent := o.DeepCopyObject().(client.Object)
	at := do.GracePeriodSeconds != nil && *do.GracePeriodSeconds == 0
	return c.write(ctx, "delete", o, func(a *api) (client.Object, error) {
		if at {
			return nil, a.deleteNow(sent, do.Preconditions)
		}
		return nil, a.delete(sent, do.Preconditions)
	})
}

func (c live) DeleteAllOf(context.Context, client.Object, ...client.DeleteAllOfOption) error {
	return errors.New("not known here")
}

func (c live) Apply(context.Context, runtime.ApplyConfiguration, ...client.ApplyOption) error {
	return errors.New("not known here")
}

func (c live) Status() client.SubResourceWriter { return statusOf{c} }

func (c live) SubResource(name string) client.SubResourceClient {
	panic("subresource " + name + " is not known here")
}

// Watch tells what happens from the version on that the list had.
func (c live) Watch(ctx context.Context, list client.ObjectList, opts ...client.ListOption) (watch.Interface, error) {
	o := newOf(list)
	if err := c.request(ctx, "watch "+abbreviated(o)); err != nil {
		return nil, err
	}
	lo := client.ListOptions{}
	lo.ApplyOptions(opts)
	return c.world.stream(c.process, o, &lo, list.GetResourceVersion()), nil
}

// statusOf writes the status subresource.
type statusOf struct{ live }

func (s statusOf) Create(context.Context, client.Object, client.Object, ...client.SubResourceCreateOption) error {
	return errors.New("not known here")
}

func (s statusOf) Update(ctx context.Context, o client.Object, _ ...client.SubResourceUpdateOption) error {
	return s.update(ctx, o, true)
}

func (s statusOf) Patch(
	ctx context.Context, o client.Object, p client.Patch, _ ...client.SubResourcePatchOption,
) error {
	return s.patch(ctx, o, p, true)
}

func (s statusOf) Apply(context.Context, runtime.ApplyConfiguration, ...client.SubResourceApplyOption) error {
	return errors.New("not known here")
}

// cachedClient reads from a cache and writes to the API server.
type cachedClient struct {
	live
	cache client.Reader
}

func (c cachedClient) Get(ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	return c.cache.Get(ctx, key, o, opts...)
}

func (c cachedClient) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	return c.cache.List(ctx, list, opts...)
}
