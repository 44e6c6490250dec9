/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package simulation

import (
	"context"
	"reflect"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/test/apiserver"
)

// TestTheAPIServerInMemoryAnswersAsARealOne asks both the same.
func TestTheAPIServerInMemoryAnswersAsARealOne(t *testing.T) {
	t.Run("real", func(t *testing.T) {
		_, c := apiserver.Start(t)
		for name, ask := range allQuestions() {
			t.Run(name, func(t *testing.T) { ask(&asker{t, t.Context(), c}) })
		}
	})
	t.Run("in memory", func(t *testing.T) {
		for name, ask := range allQuestions() {
			t.Run(name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w := newWorld(1, t.TempDir())
					w.chance.cease()
					ask(&asker{t, t.Context(), live{w.process("somebody", "", nil)}})
					w.end()
				})
			})
		}
	})
}

var questions = map[string]func(*asker){
	"what is made has a name of its own, a version and a time": func(a *asker) {
		i := a.intent("made")
		if i.UID == "" || i.ResourceVersion == "" || i.Generation != 1 || i.CreationTimestamp.IsZero() {
			a.t.Errorf("metadata of intent made: %+v, want a UID, a version, generation 1 and a creation time", i.ObjectMeta)
		}
		if n := i.CreationTimestamp.Nanosecond(); n != 0 {
			a.t.Errorf("creation time of intent made has %d nanoseconds, want whole seconds", n)
		}
		if i.Spec.DesiredState != volumesv1alpha1.DesiredPublished || i.Spec.Publisher != volumesv1alpha1.PublisherAgent {
			a.t.Errorf("spec of intent made: %+v, want the defaults Published and Agent", i.Spec)
		}
		if i.Status.ObservedGeneration != -1 {
			a.t.Errorf("observed generation of new intent made: %d, want -1", i.Status.ObservedGeneration)
		}
	},
	"a name is taken once": func(a *asker) {
		a.intent("twice")
		a.refused(a.c.Create(a.ctx, newIntent("twice")), apierrors.IsAlreadyExists)
	},
	"a name that was free again has another UID": func(a *asker) {
		first := a.intent("again")
		a.done(a.c.Delete(a.ctx, first))
		if second := a.intent("again"); second.UID == first.UID {
			a.t.Errorf("UID of second intent again: %s, want another than that of the first", second.UID)
		}
	},
	"what is not there is not found": func(a *asker) {
		i := newIntent("absent")
		a.refused(a.c.Get(a.ctx, client.ObjectKeyFromObject(i), i), apierrors.IsNotFound)
		a.refused(a.c.Delete(a.ctx, i), apierrors.IsNotFound)
		a.refused(a.c.Patch(a.ctx, i, merge(`{"metadata":{"labels":{"a":"b"}}}`)), apierrors.IsNotFound)
		i.ResourceVersion = "1"
		a.refused(a.c.Update(a.ctx, i), apierrors.IsNotFound)
		a.refused(a.c.Status().Update(a.ctx, i), apierrors.IsNotFound)
	},
	"an update at an old version is refused": func(a *asker) {
		old := a.intent("old")
		a.label(old.DeepCopy(), "x")
		old.Labels = map[string]string{"is": "y"}
		a.refused(a.c.Update(a.ctx, old), apierrors.IsConflict)
		a.refused(a.c.Status().Update(a.ctx, old), apierrors.IsConflict)
		if now := a.get("old"); now.Labels["is"] != "x" {
			a.t.Errorf("labels of intent old after a refused update: %v, want is: x", now.Labels)
		}
	},
	"an update without a version is refused": func(a *asker) {
		i := a.intent("versionless")
		i.ResourceVersion = ""
		a.refused(a.c.Update(a.ctx, i), apierrors.IsInvalid)
	},
	"an update to another UID is refused": func(a *asker) {
		i := a.intent("uid")
		i.UID = "another"
		a.refused(a.c.Update(a.ctx, i), apierrors.IsConflict)
	},
	"an update that changes nothing keeps the version": func(a *asker) {
		i := a.intent("same")
		i.Status.VolumeName = "pv"
		a.done(a.c.Status().Update(a.ctx, i))
		for what, write := range map[string]func(*volumesv1alpha1.VolumeAttachmentIntent) error{
			"an update": func(i *volumesv1alpha1.VolumeAttachmentIntent) error { return a.c.Update(a.ctx, i) },
			"an update of the status": func(i *volumesv1alpha1.VolumeAttachmentIntent) error {
				return a.c.Status().Update(a.ctx, i)
			},
			"a patch": func(i *volumesv1alpha1.VolumeAttachmentIntent) error {
				return a.c.Patch(a.ctx, i, merge(`{"metadata":{"labels":null}}`))
			},
		} {
			same := i.DeepCopy()
			a.done(write(same))
			if same.ResourceVersion != i.ResourceVersion {
				a.t.Errorf("version of intent same after %s that changes nothing: %s, want %s", what, same.ResourceVersion,
					i.ResourceVersion)
			}
			i = same
		}
	},
	"a generation counts changes of the spec alone": func(a *asker) {
		i := a.intent("generation")
		i.Spec.DesiredState = volumesv1alpha1.DesiredStaged
		a.done(a.c.Update(a.ctx, i))
		a.is(2, i.Generation)
		a.label(i, "x")
		i.Status.VolumeName = "pv"
		a.done(a.c.Status().Update(a.ctx, i))
		a.is(2, i.Generation)
	},
	"an update leaves the status, and an update of the status leaves the rest": func(a *asker) {
		i := a.intent("parts")
		i.Status.VolumeName, i.Spec.DesiredState = "pv", volumesv1alpha1.DesiredStaged
		a.done(a.c.Update(a.ctx, i.DeepCopy()))
		now := a.get("parts")
		a.is("", now.Status.VolumeName)
		a.is(volumesv1alpha1.DesiredStaged, now.Spec.DesiredState)
		now.Status.VolumeName, now.Spec.DesiredState = "pv", volumesv1alpha1.DesiredPublished
		now.Finalizers = append(now.Finalizers, "example.com/other")
		a.done(a.c.Status().Update(a.ctx, now))
		now = a.get("parts")
		a.is("pv", now.Status.VolumeName)
		a.is(volumesv1alpha1.DesiredStaged, now.Spec.DesiredState)
		a.is(1, len(now.Finalizers))
	},
	"a patch asks for a version where it names one": func(a *asker) {
		i := a.intent("patched")
		old := i.ResourceVersion
		a.done(a.c.Patch(a.ctx, i, merge(`{"metadata":{"labels":{"is":"x"}}}`)))
		a.is("x", a.get("patched").Labels["is"])
		late := merge(`{"metadata":{"resourceVersion":"` + old + `","labels":{"is":"y"}}}`)
		a.refused(a.c.Patch(a.ctx, i.DeepCopy(), late), apierrors.IsConflict)
		another := merge(`{"metadata":{"uid":"another","labels":{"is":"y"}}}`)
		a.refused(a.c.Patch(a.ctx, i.DeepCopy(), another), apierrors.IsInvalid)
		a.is("x", a.get("patched").Labels["is"])
	},
	"a patch of the status leaves the rest": func(a *asker) {
		i := a.intent("status")
		a.done(a.c.Status().Patch(a.ctx, i, merge(`{"spec":{"desiredState":"Staged"},"status":{"volumeName":"pv"}}`)))
		a.is("pv", a.get("status").Status.VolumeName)
		a.is(volumesv1alpha1.DesiredPublished, a.get("status").Spec.DesiredState)
	},
	"what has a finalizer stays until that is gone": func(a *asker) {
		i := a.intent("kept")
		a.done(a.c.Delete(a.ctx, i))
		now := a.get("kept")
		if now.DeletionTimestamp == nil {
			a.t.Fatal("intent kept, deleted with a finalizer, has no deletion time, want one")
		}
		a.is(2, now.Generation)
		version := now.ResourceVersion
		a.done(a.c.Delete(a.ctx, now.DeepCopy())) // once more is no change
		a.is(version, a.get("kept").ResourceVersion)
		now.Status.VolumeName = "pv"
		a.done(a.c.Status().Update(a.ctx, now))
		more := now.DeepCopy()
		more.Finalizers = append(more.Finalizers, "example.com/late")
		a.refused(a.c.Update(a.ctx, more), apierrors.IsInvalid)
		now.Finalizers = nil
		a.done(a.c.Update(a.ctx, now))
		a.refused(a.c.Get(a.ctx, client.ObjectKeyFromObject(now), now), apierrors.IsNotFound)
	},
	"a deletion may ask for a UID and a version": func(a *asker) {
		i := a.intent("precondition")
		old := i.ResourceVersion
		a.label(i, "x")
		a.refused(a.c.Delete(a.ctx, i, client.Preconditions{UID: ptr.To(types.UID("another"))}), apierrors.IsConflict)
		a.refused(a.c.Delete(a.ctx, i, client.Preconditions{ResourceVersion: &old}), apierrors.IsConflict)
		if a.get("precondition").DeletionTimestamp != nil {
			a.t.Error("intent precondition is being deleted although its preconditions failed, want it kept")
		}
		a.done(a.c.Delete(a.ctx, i, client.Preconditions{UID: ptr.To(i.UID), ResourceVersion: ptr.To(i.ResourceVersion)}))
	},
	"a list has a version from which a watch tells of everything": func(a *asker) {
		i := a.intent("watched")
		list := &volumesv1alpha1.VolumeAttachmentIntentList{}
		a.done(a.c.List(a.ctx, list))
		options := &client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: list.ResourceVersion}}
		a.label(i, "before-the-watch")
		w, err := a.c.(client.WithWatch).Watch(a.ctx, list, options)
		a.done(err)
		defer w.Stop()
		a.done(a.c.Delete(a.ctx, i))
		a.done(a.c.Patch(a.ctx, i, merge(`{"metadata":{"finalizers":null}}`)))
		a.intent("watched-too")
		for _, want := range []struct {
			what     watch.EventType
			name     string
			deleting bool
		}{
			{watch.Modified, "watched", false}, {watch.Modified, "watched", true}, {watch.Deleted, "watched", true},
			{watch.Added, "watched-too", false},
		} {
			e := <-w.ResultChan()
			o, err := meta.Accessor(e.Object)
			a.done(err)
			if e.Type != want.what || o.GetName() != want.name || (o.GetDeletionTimestamp() != nil) != want.deleting {
				a.t.Errorf("%s of %s, want %v", e.Type, o.GetName(), want)
			}
			if older, err := resourceversion.CompareResourceVersion(o.GetResourceVersion(), list.ResourceVersion); err != nil ||
				older <= 0 {
				a.t.Errorf("version of %s %s: %s, error %v; want it after that of the list or event before, %s", e.Type,
					o.GetName(), o.GetResourceVersion(), err, list.ResourceVersion)
			}
			list.ResourceVersion = o.GetResourceVersion()
		}
	},
	"a list and a watch select": func(a *asker) {
		here, elsewhere := newIntent("here"), newIntent("elsewhere")
		here.Spec.NodeName, elsewhere.Spec.NodeName = "selected", "other"
		by := client.MatchingFields{"spec.nodeName": "selected"}
		list := &volumesv1alpha1.VolumeAttachmentIntentList{}
		a.done(a.c.List(a.ctx, list, by))
		w, err := a.c.(client.WithWatch).Watch(a.ctx, list, by,
			&client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: list.ResourceVersion}})
		a.done(err)
		defer w.Stop()
		a.done(a.c.Create(a.ctx, elsewhere))
		a.done(a.c.Create(a.ctx, here))
		if e := <-w.ResultChan(); e.Object.(client.Object).GetName() != "here" {
			a.t.Errorf("first event of the watch of node selected: %s, want here", e.Object.(client.Object).GetName())
		}
		a.done(a.c.List(a.ctx, list, by))
		a.is(1, len(list.Items))
	},
	"a state has its status apart": func(a *asker) {
		s := &volumesv1alpha1.NodeVolumeState{ObjectMeta: metav1.ObjectMeta{Name: "node"}}
		s.Status.BootID = "boot"
		a.done(a.c.Create(a.ctx, s))
		a.is("", s.Status.BootID)
		s.Status.BootID = "boot"
		a.done(a.c.Status().Update(a.ctx, s))
		a.is(1, s.Generation)
		s.Spec.Protocol.Fences++
		a.done(a.c.Update(a.ctx, s))
		a.is(2, s.Generation)
		a.is("boot", s.Status.BootID)
	},
	"what has no status is replaced as a whole": func(a *asker) {
		m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "map"},
			Data: map[string]string{"a": "1", "b": "1"}}
		a.done(a.c.Create(a.ctx, m))
		old := m.DeepCopy()
		m.Data = map[string]string{"a": "2"}
		a.done(a.c.Update(a.ctx, m))
		a.refused(a.c.Update(a.ctx, old), apierrors.IsConflict)
		a.done(a.c.Get(a.ctx, client.ObjectKeyFromObject(m), m))
		if !reflect.DeepEqual(m.Data, map[string]string{"a": "2"}) {
			a.t.Errorf("data of ConfigMap map after an update: %v, want a: 2 alone", m.Data)
		}
	},
}

// asker asks an API server.
type asker struct {
	t   *testing.T
	ctx context.Context
	c   client.Client
}

func newIntent(name string) *volumesv1alpha1.VolumeAttachmentIntent {
	claim := &volumesv1alpha1.PersistentVolumeClaimSource{ClaimName: "claim"}
	return &volumesv1alpha1.VolumeAttachmentIntent{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec: volumesv1alpha1.VolumeAttachmentIntentSpec{
			NodeName: "node", Volume: volumesv1alpha1.VolumeSource{PersistentVolumeClaim: claim},
		},
	}
}

// intent makes one; it has a finalizer unless it is to go at once.
func (a *asker) intent(name string) *volumesv1alpha1.VolumeAttachmentIntent {
	a.t.Helper()
	i := newIntent(name)
	if name != "again" {
		i.Finalizers = []string{volumesv1alpha1.ReleaseFinalizer}
	}
	before := time.Now().Truncate(time.Second)
	a.done(a.c.Create(a.ctx, i))
	if i.CreationTimestamp.Time.Before(before) {
		a.t.Errorf("creation time of intent %s: %s, want not before %s", name, i.CreationTimestamp, before)
	}
	return i
}

func (a *asker) get(name string) *volumesv1alpha1.VolumeAttachmentIntent {
	a.t.Helper()
	i := &volumesv1alpha1.VolumeAttachmentIntent{}
	a.done(a.c.Get(a.ctx, client.ObjectKey{Namespace: "default", Name: name}, i))
	return i
}

func (a *asker) label(i *volumesv1alpha1.VolumeAttachmentIntent, is string) {
	a.t.Helper()
	i.Labels = map[string]string{"is": is}
	a.done(a.c.Update(a.ctx, i))
}

func merge(patch string) client.Patch { return client.RawPatch(types.MergePatchType, []byte(patch)) }

func (a *asker) done(err error) {
	a.t.Helper()
	if err != nil {
		a.t.Fatal(err)
	}
}

func (a *asker) refused(err error, as func(error) bool) {
	a.t.Helper()
	if !as(err) {
		a.t.Errorf("request: error %v (reason %s), want another reason of refusal", err, apierrors.ReasonForError(err))
	}
}

func (a *asker) is(want, got any) {
	a.t.Helper()
	if w, ok := want.(int); ok {
		if g, ok := got.(int64); ok {
			want, got = int64(w), g
		}
	}
	if !reflect.DeepEqual(want, got) {
		a.t.Errorf("answer of the API: got %v, want %v", got, want)
	}
}
