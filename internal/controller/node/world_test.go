/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package node

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/controllertest"
	"github.com/hawser-io/hawser/internal/controller/fences"
	"github.com/hawser-io/hawser/internal/controller/index"
	"github.com/hawser-io/hawser/internal/controller/liveness"
	"github.com/hawser-io/hawser/internal/controller/nodestate"
)

// scheme is made once: that takes longer than most tests.
var scheme = sync.OnceValue(func() *runtime.Scheme {
	s := runtime.NewScheme()
	utilruntime.Must(clientgoscheme.AddToScheme(s))
	utilruntime.Must(volumesv1alpha1.AddToScheme(s))
	return s
})

// indexer gives a fake client the manager's indexes.
type indexer struct{ *fake.ClientBuilder }

func (i indexer) IndexField(_ context.Context, o client.Object, field string, keys client.IndexerFunc) error {
	i.WithIndex(o, field, keys)
	return nil
}

func holding(t *testing.T, objects []client.Object) client.WithWatch {
	t.Helper()
	b := fake.NewClientBuilder().WithScheme(scheme()).WithStatusSubresource(&volumesv1alpha1.NodeVolumeState{})
	if err := index.Register(t.Context(), indexer{b}); err != nil {
		t.Fatal(err)
	}
	for _, o := range objects {
		b.WithObjects(o.DeepCopyObject().(client.Object))
	}
	return b.Build()
}

var errDown = errors.New("the API server is down")

// world is a controller whose cache shows some objects, and whose live reads and writes meet others.
type world struct {
	*Controller
	live  client.WithWatch
	now   *testingclock.FakePassiveClock
	notes *events.FakeRecorder
	// down is the request that is not answered: where it goes, what it does and of what; empty for none.
	down string
	// spare is how often it is answered before.
	spare int
	// updates of NodeVolumeStates that were sent, those of their status apart as observed, and live reads.
	updates, observed, looks int
}

func over(t *testing.T, cached, live []client.Object) *world {
	t.Helper()
	w := &world{
		live: holding(t, live), now: testingclock.NewFakePassiveClock(time.Now()), notes: events.NewFakeRecorder(10),
	}
	cache := holding(t, cached)
	answer := func(request string, o any) error {
		if w.down != fmt.Sprintf("%s %T", request, o) {
			return nil
		}
		if w.spare > 0 {
			w.spare--
			return nil
		}
		return errDown
	}
	through := interceptor.NewClient(controllertest.Strict(t, w.live), interceptor.Funcs{
		Get: func(ctx context.Context, _ client.WithWatch, key client.ObjectKey, o client.Object,
			opts ...client.GetOption) error {
			return cache.Get(ctx, key, o, opts...)
		},
		List: func(ctx context.Context, _ client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			return errors.Join(answer("list", list), cache.List(ctx, list, opts...))
		},
		Update: func(ctx context.Context, live client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
			w.updates++
			if err := answer("update", o); err != nil {
				return err
			}
			return live.Update(ctx, o, opts...)
		},
		SubResourceUpdate: func(ctx context.Context, live client.Client, part string, o client.Object,
			opts ...client.SubResourceUpdateOption) error {
			w.observed++
			if err := answer("update "+part+" of", o); err != nil {
				return err
			}
			return live.SubResource(part).Update(ctx, o, opts...)
		},
	})
	reader := interceptor.NewClient(w.live, interceptor.Funcs{
		Get: func(ctx context.Context, live client.WithWatch, key client.ObjectKey, o client.Object,
			opts ...client.GetOption) error {
			w.looks++
			if err := answer("get", o); err != nil {
				return err
			}
			return live.Get(ctx, key, o, opts...)
		},
	})
	w.Controller = &Controller{
		Client: through, Reader: reader, Writer: &nodestate.Writer{Client: through, Reader: reader},
		Observations: &nodestate.Writer{Client: through, Reader: reader, OfStatus: true},
		Tracker:      liveness.NewTracker(w.now), Events: w.notes, Clock: w.now,
		Fences: &fences.Watcher{}, Lifts: &fences.Lifts{},
	}
	return w
}

// pass lets time pass.
func (w *world) pass(d time.Duration) { w.now.SetTime(w.now.Now().Add(d)) }

// state of the node as the API server has it; nil when there is none.
func (w *world) state(t *testing.T, node string) *volumesv1alpha1.NodeVolumeState {
	t.Helper()
	nvs := &volumesv1alpha1.NodeVolumeState{}
	switch err := w.live.Get(t.Context(), client.ObjectKey{Name: node}, nvs); {
	case client.IgnoreNotFound(err) != nil:
		t.Fatal(err)
	case err != nil:
		return nil
	}
	return nvs
}

// note is the event that was recorded; empty for none.
func (w *world) note(t *testing.T) string {
	t.Helper()
	if len(w.notes.Events) > 1 {
		t.Errorf("%d events since the last check, want at most 1", len(w.notes.Events))
	}
	select {
	case note := <-w.notes.Events:
		return note
	default:
		return ""
	}
}

// stateOf a node, held by our finalizer.
func stateOf(node string, with ...func(*volumesv1alpha1.NodeVolumeState)) *volumesv1alpha1.NodeVolumeState {
	nvs := &volumesv1alpha1.NodeVolumeState{ObjectMeta: metav1.ObjectMeta{
		Name: node, UID: "state", ResourceVersion: "7", Finalizers: []string{volumesv1alpha1.ReleaseFinalizer},
	}}
	for _, change := range with {
		change(nvs)
	}
	return nvs
}

func attached(volume string, uid types.UID) func(*volumesv1alpha1.NodeVolumeState) {
	return func(nvs *volumesv1alpha1.NodeVolumeState) {
		nvs.Spec.Attachments = append(nvs.Spec.Attachments, volumesv1alpha1.NodeAttachment{
			VolumeName: volume, AttachmentUID: uid, State: volumesv1alpha1.AttachmentAttached,
		})
	}
}

// detaching is an entry that is being detached on this evidence.
func detaching(volume string, uid types.UID, on volumesv1alpha1.EvidenceType) func(*volumesv1alpha1.NodeVolumeState) {
	return func(nvs *volumesv1alpha1.NodeVolumeState) {
		nvs.Spec.Attachments = append(nvs.Spec.Attachments, volumesv1alpha1.NodeAttachment{
			VolumeName: volume, AttachmentUID: uid, State: volumesv1alpha1.AttachmentDetaching,
			Evidence: &volumesv1alpha1.DetachEvidence{Type: on},
		})
	}
}

// detached is one whose attachment is gone.
func detached(volume string, uid types.UID, on volumesv1alpha1.EvidenceType) func(*volumesv1alpha1.NodeVolumeState) {
	return func(nvs *volumesv1alpha1.NodeVolumeState) {
		detaching(volume, uid, on)(nvs)
		now := metav1.Now()
		nvs.Spec.Attachments[len(nvs.Spec.Attachments)-1].DetachedTime = &now
	}
}

func line(volume string, uid types.UID, inUse bool) func(*volumesv1alpha1.NodeVolumeState) {
	return func(nvs *volumesv1alpha1.NodeVolumeState) {
		nvs.Status.Volumes = append(nvs.Status.Volumes, volumesv1alpha1.NodeVolume{
			VolumeName: volume, AttachmentUID: uid, InUse: inUse,
		})
	}
}

func declared(uid types.UID) func(*volumesv1alpha1.NodeVolumeState) {
	return func(nvs *volumesv1alpha1.NodeVolumeState) {
		metav1.SetMetaDataAnnotation(&nvs.ObjectMeta, volumesv1alpha1.DeclaredReleasedPrefix+string(uid), "by hand")
	}
}

// deleted: it has a deletion timestamp.
func deleted(nvs *volumesv1alpha1.NodeVolumeState) {
	now := metav1.Now()
	nvs.DeletionTimestamp = &now
}

// leavingAttachment to a node is being deleted and has these finalizers.
func leavingAttachment(uid types.UID, node string, finalizers ...string) *storagev1.VolumeAttachment {
	now := metav1.Now()
	return &storagev1.VolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{Name: "va-" + string(uid), UID: uid, DeletionTimestamp: &now, Finalizers: finalizers},
		Spec:       storagev1.VolumeAttachmentSpec{NodeName: node},
	}
}
