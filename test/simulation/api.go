/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package simulation

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"time"

	jsonpatch "github.com/evanphx/json-patch/v5"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
)

// api is an API server in memory: versions, conflicts, UIDs, finalizers, status subresources, and the history that
// watches tell of. Objects in it are never changed, only replaced. The world's lock guards it.
type api struct {
	version uint64
	uids    int
	kinds   map[reflect.Type]*kind
	// grown is closed, and made again, when the history has grown.
	grown chan struct{}
	now   func() metav1.Time
	// wrote is called after each change; before is nil for a new object, after for one that is gone.
	wrote func(before, after client.Object)
}

type kind struct {
	objects map[types.NamespacedName]client.Object
	history []change
}

type change struct {
	watch.Event
	version uint64
}

func newAPI() *api {
	return &api{version: 100, kinds: map[reflect.Type]*kind{}, grown: make(chan struct{}), now: wholeSecond}
}

// wholeSecond is all that an API server tells of a time: several objects have the same.
func wholeSecond() metav1.Time { return metav1.NewTime(time.Now().Truncate(time.Second)) }

func (a *api) kind(o any) *kind {
	t := reflect.TypeOf(o)
	k := a.kinds[t]
	if k == nil {
		k = &kind{objects: map[types.NamespacedName]client.Object{}}
		a.kinds[t] = k
	}
	return k
}

func resource(o client.Object) schema.GroupResource {
	return schema.GroupResource{Resource: reflect.TypeOf(o).Elem().Name()}
}

func (a *api) get(o client.Object, key types.NamespacedName) (client.Object, error) {
	found, ok := a.kind(o).objects[key]
	if !ok {
		return nil, apierrors.NewNotFound(resource(o), key.Name)
	}
	return found, nil
}

// list returns the objects of o's kind in order of name.
func (a *api) list(o client.Object) []client.Object {
	objects := a.kind(o).objects
	keys := slices.SortedFunc(maps.Keys(objects), func(x, y types.NamespacedName) int {
		return slices.Compare([]string{x.Namespace, x.Name}, []string{y.Namespace, y.Name})
	})
	found := make([]client.Object, 0, len(keys))
	for _, k := range keys {
		found = append(found, objects[k])
	}
	return found
}

func (a *api) create(o client.Object) (client.Object, error) {
	key := client.ObjectKeyFromObject(o)
	if _, exists := a.kind(o).objects[key]; exists {
		return nil, apierrors.NewAlreadyExists(resource(o), key.Name)
	}
	o = o.DeepCopyObject().(client.Object)
	a.uids++
	o.SetUID(types.UID(fmt.Sprintf("%s-%d", abbreviated(o), a.uids)))
	o.SetGeneration(1)
	o.SetCreationTimestamp(a.now())
	defaults(o)
	a.put(nil, o)
	return o, nil
}

// defaults are the CRDs'. A new object has no status but that.
func defaults(o client.Object) {
	if s, ok := o.(*volumesv1alpha1.NodeVolumeState); ok {
		s.Status = volumesv1alpha1.NodeVolumeStateStatus{}
	}
	i, ok := o.(*volumesv1alpha1.VolumeAttachmentIntent)
	if !ok {
		return
	}
	if i.Spec.DesiredState == "" {
		i.Spec.DesiredState = volumesv1alpha1.DesiredPublished
	}
	if i.Spec.Publisher == "" {
		i.Spec.Publisher = volumesv1alpha1.PublisherAgent
	}
	i.Status = volumesv1alpha1.VolumeAttachmentIntentStatus{ObservedGeneration: -1}
}

// update replaces the object, or its status alone. What changes nothing is no change.
func (a *api) update(o client.Object, status bool) (client.Object, error) {
	before, err := a.get(o, client.ObjectKeyFromObject(o))
	if err != nil {
		return nil, err
	}
	if o.GetResourceVersion() != "" && o.GetResourceVersion() != before.GetResourceVersion() ||
		o.GetUID() != "" && o.GetUID() != before.GetUID() {
		return nil, apierrors.NewConflict(resource(o), o.GetName(), fmt.Errorf("the object has been modified"))
	}
	if o.GetResourceVersion() == "" {
		return nil, invalid(o, "metadata.resourceVersion")
	}
	after := merged(before, o.DeepCopyObject().(client.Object), status)
	if before.GetDeletionTimestamp() != nil && !sets.New(before.GetFinalizers()...).HasAll(after.GetFinalizers()...) {
		return nil, invalid(o, "metadata.finalizers")
	}
	if equality.Semantic.DeepEqual(before, after) {
		return before, nil
	}
	if !equality.Semantic.DeepEqual(part(before, "Spec"), part(after, "Spec")) {
		after.SetGeneration(before.GetGeneration() + 1)
	}
	if after.GetDeletionTimestamp() != nil && len(after.GetFinalizers()) == 0 && !graceful(after) {
		a.remove(before, after)
		return after, nil
	}
	a.put(before, after)
	return after, nil
}

func invalid(o client.Object, path string) error {
	kind := schema.GroupKind{Kind: reflect.TypeOf(o).Elem().Name()}
	return apierrors.NewInvalid(kind, o.GetName(), field.ErrorList{field.Forbidden(field.NewPath(path), "")})
}

// merged is what an update makes of an object: the status comes from one side, everything else from the other.
func merged(before, wanted client.Object, status bool) client.Object {
	after := wanted
	if hasStatus(before) {
		from := before
		if status {
			after, from = before.DeepCopyObject().(client.Object), wanted
		}
		reflect.ValueOf(after).Elem().FieldByName("Status").Set(reflect.ValueOf(from).Elem().FieldByName("Status"))
		if _, ok := after.(*corev1.Node); ok && status {
			after.SetAnnotations(wanted.GetAnnotations())
		}
	}
	after.SetUID(before.GetUID())
	after.SetResourceVersion(before.GetResourceVersion())
	after.SetCreationTimestamp(before.GetCreationTimestamp())
	after.SetDeletionTimestamp(before.GetDeletionTimestamp())
	after.SetGeneration(before.GetGeneration())
	return after
}

func hasStatus(o client.Object) bool {
	return reflect.ValueOf(o).Elem().FieldByName("Status").IsValid()
}

func part(o client.Object, name string) any {
	f := reflect.ValueOf(o).Elem().FieldByName(name)
	if !f.IsValid() {
		return nil
	}
	return f.Interface()
}

// patch applies a merge patch.
func (a *api) patch(o client.Object, data []byte, status bool) (client.Object, error) {
	before, err := a.get(o, client.ObjectKeyFromObject(o))
	if err != nil {
		return nil, err
	}
	standing, err := json.Marshal(before)
	if err != nil {
		return nil, err
	}
	merged, err := jsonpatch.MergePatch(standing, data)
	if err != nil {
		return nil, err
	}
	after := reflect.New(reflect.TypeOf(o).Elem()).Interface().(client.Object)
	if err := json.Unmarshal(merged, after); err != nil {
		return nil, err
	}
	after.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
	if after.GetUID() != before.GetUID() {
		return nil, invalid(o, "metadata.uid")
	}
	return a.update(after, status)
}

// graceful: the object stays until its node has done with it.
func graceful(o client.Object) bool {
	pod, ok := o.(*corev1.Pod)
	return ok && pod.Spec.NodeName != ""
}

func (a *api) delete(o client.Object, pre *metav1.Preconditions) error {
	return a.deleteAfter(o, pre, graceful(o))
}

// deleteNow is delete without a time of grace.
func (a *api) deleteNow(o client.Object, pre *metav1.Preconditions) error {
	return a.deleteAfter(o, pre, false)
}

func (a *api) deleteAfter(o client.Object, pre *metav1.Preconditions, grace bool) error {
	before, err := a.get(o, client.ObjectKeyFromObject(o))
	if err != nil {
		return err
	}
	if pre != nil && (pre.UID != nil && *pre.UID != before.GetUID() ||
		pre.ResourceVersion != nil && *pre.ResourceVersion != before.GetResourceVersion()) {
		return apierrors.NewConflict(resource(o), o.GetName(), fmt.Errorf("the precondition failed"))
	}
	after := before.DeepCopyObject().(client.Object)
	if len(before.GetFinalizers()) == 0 && !grace {
		a.remove(before, after)
		return nil
	}
	if before.GetDeletionTimestamp() != nil {
		return nil
	}
	now := a.now()
	after.SetDeletionTimestamp(&now)
	after.SetGeneration(before.GetGeneration() + 1)
	a.put(before, after)
	return nil
}

func (a *api) put(before, after client.Object) {
	k, what := a.kind(after), watch.Modified
	if before == nil {
		what = watch.Added
	}
	a.tell(k, what, after)
	k.objects[client.ObjectKeyFromObject(after)] = after
	a.wrote(before, after)
}

func (a *api) remove(before, last client.Object) {
	k := a.kind(before)
	a.tell(k, watch.Deleted, last)
	delete(k.objects, client.ObjectKeyFromObject(before))
	a.wrote(before, nil)
}

func (a *api) tell(k *kind, what watch.EventType, o client.Object) {
	a.version++
	o.SetResourceVersion(strconv.FormatUint(a.version, 10))
	k.history = append(k.history, change{Event: watch.Event{Type: what, Object: o}, version: a.version})
	close(a.grown)
	a.grown = make(chan struct{})
}

// since is what happened after that version to objects of o's kind.
func (a *api) since(o client.Object, version uint64) []change {
	history := a.kind(o).history
	at, _ := slices.BinarySearchFunc(history, version+1, func(c change, v uint64) int {
		return int(c.version) - int(v) //nolint:gosec // versions are small
	})
	return history[at:]
}
