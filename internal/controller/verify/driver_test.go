/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package verify

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/controllertest"
	"github.com/hawser-io/hawser/internal/controller/volume"
)

// world is a driver that lists what the test says, and a cluster.
type world struct {
	*driver
	api     *controllertest.API
	client  client.WithWatch // of the API server
	events  chan string
	volumes listing
	err     error
	// during is what happens while the driver is asked.
	during func()
	writes int
}

func (w *world) list(context.Context) (listing, error) {
	if w.during != nil {
		w.during()
	}
	return w.volumes, w.err
}

func newWorld(t *testing.T, objects ...client.Object) *world {
	t.Helper()
	w := &world{volumes: listing{}}
	b := fake.NewClientBuilder().WithScheme(controllertest.Scheme()).WithStatusSubresource(&storagev1.VolumeAttachment{}).
		WithInterceptorFuncs(interceptor.Funcs{
			SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch,
				opts ...client.SubResourcePatchOption) error {
				w.writes++
				return c.SubResource(sub).Patch(ctx, o, p, opts...)
			},
		})
	w.api = controllertest.New(t, b, objects...)
	w.client = w.api.Live
	recorder := events.NewFakeRecorder(100)
	w.events = recorder.Events
	w.driver = &driver{Verifier: &Verifier{Client: w.api.Client, Reader: w.api.Live, Events: recorder}, name: "d",
		plugin: w, log: logr.Discard()}
	return w
}

// verify once the cache has caught up. It does not see what comes during the verification.
func (w *world) verify(ctx context.Context) {
	w.api.Sync()
	w.driver.verify(ctx)
}

func (w *world) told() []string {
	var all []string
	for {
		select {
		case e := <-w.events:
			all = append(all, e)
		default:
			return all
		}
	}
}

// said fails the test unless exactly one event was recorded, with these words.
func (w *world) said(t *testing.T, words ...string) {
	t.Helper()
	all := w.told()
	if len(all) != 1 {
		t.Fatalf("events: %q, want one", all)
	}
	for _, word := range words {
		if !strings.Contains(all[0], word) {
			t.Errorf("event %q, want %q in it", all[0], word)
		}
	}
}

func (w *world) quiet(t *testing.T) {
	t.Helper()
	if all := w.told(); len(all) > 0 {
		t.Errorf("events: %q, want none", all)
	}
}

// attach does what the driver's attacher does.
func (w *world) attach(t *testing.T, name string) {
	t.Helper()
	va := w.get(t, name)
	va.Status.Attached = true
	if err := w.client.Status().Update(t.Context(), va); err != nil {
		t.Fatal(err)
	}
}

func (w *world) get(t *testing.T, name string) *storagev1.VolumeAttachment {
	t.Helper()
	va := &storagev1.VolumeAttachment{}
	if err := w.client.Get(t.Context(), client.ObjectKey{Name: name}, va); err != nil {
		t.Fatal(err)
	}
	return va
}

// node "a" is "id-a" to the driver.
func csiNode(name string) *storagev1.CSINode {
	return &storagev1.CSINode{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: storagev1.CSINodeSpec{
			Drivers: []storagev1.CSINodeDriver{{Name: "other", NodeID: "x"}, {Name: "d", NodeID: "id-" + name}},
		},
	}
}

func pv(handle string) *corev1.PersistentVolume {
	return &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: "pv-" + handle},
		Spec: corev1.PersistentVolumeSpec{PersistentVolumeSource: corev1.PersistentVolumeSource{
			CSI: &corev1.CSIPersistentVolumeSource{Driver: "d", VolumeHandle: handle},
		}},
	}
}

func va(handle, node string) *storagev1.VolumeAttachment {
	name := "pv-" + handle
	return &storagev1.VolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{Name: "va-" + handle + "-" + node, UID: types.UID("uid-" + handle + "-" + node),
			Finalizers: []string{"attacher"}},
		Spec: storagev1.VolumeAttachmentSpec{
			Attacher: "d", NodeName: node, Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &name},
		},
		Status: storagev1.VolumeAttachmentStatus{Attached: true},
	}
}

func state(node string, attachments ...*storagev1.VolumeAttachment) *volumesv1alpha1.NodeVolumeState {
	nvs := &volumesv1alpha1.NodeVolumeState{ObjectMeta: metav1.ObjectMeta{Name: node}}
	for _, va := range attachments {
		handle := strings.TrimPrefix(*va.Spec.Source.PersistentVolumeName, "pv-")
		nvs.Spec.Attachments = append(nvs.Spec.Attachments, volumesv1alpha1.NodeAttachment{
			VolumeName: "d^" + handle, Driver: "d", VolumeHandle: handle, AttachmentName: va.Name, AttachmentUID: va.UID,
			State: volumesv1alpha1.AttachmentAttached,
		})
	}
	return nvs
}

// one volume "h" that is attached to node "a".
func oneVolume(t *testing.T) *world {
	t.Helper()
	return newWorld(t, csiNode("a"), csiNode("b"), pv("h"), va("h", "a"), state("a", va("h", "a")), state("b"))
}

func TestWhatTheDriverListsAsItShouldCostsNothing(t *testing.T) {
	w := oneVolume(t)
	w.volumes = listing{"h": {"id-a"}}
	for range 3 {
		w.verify(t.Context())
	}
	w.quiet(t)
	if w.writes != 0 {
		t.Errorf("%d writes for a volume that the driver lists, want none", w.writes)
	}
}

func TestAVolumeThatTheDriverDoesNotListAsPublishedIsAttachedAgain(t *testing.T) {
	w := oneVolume(t)
	w.volumes = listing{"h": {"id-b"}}
	w.verify(t.Context())
	if !w.get(t, "va-h-a").Status.Attached {
		t.Error("attachment va-h-a is not Attached after one verification, want it attached until the second")
	}
	w.volumes = listing{"h": {}}
	w.told()
	w.verify(t.Context())
	if w.get(t, "va-h-a").Status.Attached {
		t.Error("attachment va-h-a is Attached after two verifications, want it marked as not attached")
	}
	w.said(t, ReasonAttachmentLost, "d^h", "node a", "va-h-a")
	// Until it is attached again nothing more is to be done.
	w.verify(t.Context())
	w.quiet(t)
	if w.writes != 1 {
		t.Errorf("%d writes for attachment va-h-a, want 1", w.writes)
	}
}

func TestAVolumeThatTheDriverKeepsNotListingIsAttachedLessAndLessOften(t *testing.T) {
	w := oneVolume(t)
	w.volumes = listing{"h": nil}
	var at []int
	for n := range 20 {
		before := w.writes
		w.verify(t.Context())
		if w.writes > before {
			at = append(at, n)
			w.attach(t, "va-h-a")
		}
	}
	// The pauses are 2, 4 and 8 verifications.
	if len(at) != 4 || at[0] != 1 || at[1] != 4 || at[2] != 9 || at[3] != 18 {
		t.Errorf("attachment va-h-a was attached again at verifications %v, want 1, 4, 9 and 18", at)
	}
	w.told()
	// Once it is listed everything begins anew.
	w.volumes = listing{"h": {"id-a"}}
	w.verify(t.Context())
	w.volumes = listing{"h": nil}
	before := w.writes
	w.verify(t.Context())
	if w.writes != before+1 {
		t.Errorf("%d writes for attachment va-h-a after it was listed, want %d", w.writes, before+1)
	}
}

func TestNothingIsAttachedAgainOnDoubt(t *testing.T) {
	terminating := metav1.Now()
	renamed := va("h", "a")
	renamed.Annotations = map[string]string{volume.NodeIDAnnotation: "old-id"}
	detaching := state("a", va("h", "a"))
	detaching.Spec.Attachments[0].State = volumesv1alpha1.AttachmentDetaching
	going := va("h", "a")
	going.DeletionTimestamp = &terminating
	for _, c := range []struct {
		name    string
		objects []client.Object
		volumes listing
	}{
		{"a volume that the driver says nothing of", []client.Object{csiNode("a"), va("h", "a"), state("a", va("h", "a"))},
			listing{"other": nil}},
		{"a node whose name to the driver is not known", []client.Object{va("h", "a"), state("a", va("h", "a"))},
			listing{"h": {"id-a"}}},
		{"a node that has got another name since", []client.Object{csiNode("a"), renamed, state("a", va("h", "a"))},
			listing{"h": {"old-id"}}},
		{"an entry that is Detaching", []client.Object{csiNode("a"), va("h", "a"), detaching}, listing{"h": nil}},
		{"an attachment that is going", []client.Object{csiNode("a"), going, state("a", va("h", "a"))}, listing{"h": nil}},
		{"an entry whose attachment is gone", []client.Object{csiNode("a"), state("a", va("h", "a"))}, listing{"h": nil}},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, c.objects...)
			w.volumes = c.volumes
			for range 3 {
				w.verify(t.Context())
			}
			w.quiet(t)
			if w.writes != 0 {
				t.Errorf("%d writes for %s, want none", w.writes, c.name)
			}
		})
	}
}

func TestAnAttachmentThatChangesDuringTheListingIsNotChanged(t *testing.T) {
	for name, change := range map[string]func(t *testing.T, w *world){
		"deleted": func(t *testing.T, w *world) {
			if err := w.client.Delete(t.Context(), w.get(t, "va-h-a")); err != nil {
				t.Error(err)
			}
		},
		"marked not attached": func(t *testing.T, w *world) {
			va := w.get(t, "va-h-a")
			va.Status.Attached = false
			if err := w.client.Status().Update(t.Context(), va); err != nil {
				t.Error(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := oneVolume(t)
			w.volumes = listing{"h": {"id-a"}}
			w.verify(t.Context())
			w.volumes = listing{"h": nil}
			w.during = func() { change(t, w) }
			w.verify(t.Context())
			w.quiet(t)
			if w.writes != 0 {
				t.Errorf("%d writes for an attachment that was %s during the listing, want none", w.writes, name)
			}
		})
	}
}

func TestPublicationsThatNothingAttachedAreReportedAndNotTouched(t *testing.T) {
	w := oneVolume(t)
	w.volumes = listing{"h": {"id-a", "id-b"}, "theirs": {"id-of-theirs"}, "lent": {"id-b"}, "ours": {"id-of-theirs"}}
	if err := w.client.Create(t.Context(), pv("ours")); err != nil {
		t.Fatal(err)
	}
	w.verify(t.Context())
	// It may be one that is just coming or going.
	w.quiet(t)
	w.verify(t.Context())
	all := strings.Join(w.told(), "\n")
	for _, words := range []string{"volume h as published to node id-b", "volume lent as published to node id-b",
		"volume ours as published to node id-of-theirs"} {
		if strings.Count(all, words) != 1 {
			t.Errorf("events %q, want %q once", all, words)
		}
	}
	if strings.Contains(all, "theirs as published") {
		t.Errorf("events %q, want none about a volume of another cluster", all)
	}
	w.verify(t.Context())
	w.quiet(t)
	if w.writes != 0 {
		t.Errorf("%d writes for publications that nothing attached, want none", w.writes)
	}
}

func TestWhatAnUnknownVolumesAttachmentMayAccountForIsNotReported(t *testing.T) {
	w := oneVolume(t)
	if err := w.client.Create(t.Context(), va("gone", "b")); err != nil {
		t.Fatal(err)
	}
	w.volumes = listing{"h": {"id-a"}, "gone": {"id-b"}}
	for range 3 {
		w.verify(t.Context())
	}
	w.quiet(t)
}

func TestADriverThatIsDownIsReportedOnceAndChangesNothing(t *testing.T) {
	w := oneVolume(t)
	w.volumes = listing{"h": {"id-a"}}
	w.verify(t.Context())
	w.volumes, w.err = nil, errors.New("nobody listens")
	for range 3 {
		w.verify(t.Context())
	}
	w.said(t, ReasonVerificationFailed, "driver d", "nobody listens")
	if w.writes != 0 || !w.get(t, "va-h-a").Status.Attached {
		t.Errorf("attachment va-h-a while driver d is down: %d writes, want none and Attached", w.writes)
	}
	// Back, and the volume is not listed: what was seen before the outage is too long ago to act on.
	w.volumes, w.err = listing{"h": nil}, nil
	w.verify(t.Context())
	w.quiet(t)
	w.verify(t.Context())
	w.said(t, ReasonAttachmentLost)
	w.err = errors.New("down again")
	w.verify(t.Context())
	w.said(t, "down again")
}
