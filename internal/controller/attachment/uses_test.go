/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package attachment

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/attachment/decision"
	"github.com/hawser-io/hawser/internal/controller/controllertest"
	"github.com/hawser-io/hawser/internal/controller/intentstatus"
	"github.com/hawser-io/hawser/internal/controller/volume"
)

// crowd are a shared volume whose driver needs no attach, its claim, and so many intents for it on node a.
func crowd(intents int) []client.Object {
	pv := usableBy(corev1.ReadWriteMany)
	pv.UID = "pv"
	pv.Spec.ClaimRef = &corev1.ObjectReference{Namespace: "default", Name: "claim", UID: "claim"}
	objects := []client.Object{pv, reported("a"), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"}},
		&storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: "d"},
			Spec: storagev1.CSIDriverSpec{AttachRequired: ptr.To(false)}},
		&corev1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "claim", UID: "claim",
				Finalizers: []string{volumesv1alpha1.ClaimFinalizer}},
			Spec:   corev1.PersistentVolumeClaimSpec{VolumeName: pv.Name, AccessModes: pv.Spec.AccessModes},
			Status: corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound},
		}}
	for k := range intents {
		i := &volumesv1alpha1.VolumeAttachmentIntent{}
		i.Namespace, i.Name = "default", fmt.Sprintf("i-%04d", k)
		i.UID, i.Finalizers = types.UID(i.Name), []string{volumesv1alpha1.ReleaseFinalizer}
		i.Spec.NodeName, i.Spec.DesiredState = "a", volumesv1alpha1.DesiredPublished
		i.Spec.Publisher = volumesv1alpha1.PublisherAgent
		i.Spec.Volume.PersistentVolumeClaim = &volumesv1alpha1.PersistentVolumeClaimSource{ClaimName: "claim"}
		objects = append(objects, i)
	}
	return objects
}

// waiting are the intents that wait with the reason TooManyUses, and the number of those that are pinned.
func waiting(t *testing.T, api *controllertest.API) (refused []string, pinned int) {
	t.Helper()
	list := &volumesv1alpha1.VolumeAttachmentIntentList{}
	if err := api.Live.List(t.Context(), list); err != nil {
		t.Fatal(err)
	}
	for i := range list.Items {
		intent := &list.Items[i]
		c := meta.FindStatusCondition(intent.Status.Conditions, volumesv1alpha1.ConditionAttached)
		switch {
		case intent.Status.UniqueVolumeName != "":
			pinned++
		case c != nil && c.Status == metav1.ConditionFalse && c.Reason == volumesv1alpha1.ReasonTooManyUses:
			refused = append(refused, intent.Name)
		}
	}
	return refused, pinned
}

func TestAnIntentBeyondTheLimitWaitsForTheEndOfAnotherOne(t *testing.T) {
	const most = volumesv1alpha1.MaxUses
	c, now, api := overAPI(t, crowd(most+2)...)
	recorder := events.NewFakeRecorder(2 * most)
	c.Events, c.Reporter = recorder, &intentstatus.Reporter{Client: c.Client, Clock: now, Events: recorder}
	name := volume.UniqueNameOf(persistentVolume())
	pass := func() {
		t.Helper()
		api.Sync()
		r, err := c.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKey{Name: name}})
		if err != nil || r.RequeueAfter != 0 {
			t.Fatalf("pass of the volume: again in %s, error %v; want neither", r.RequeueAfter, err)
		}
	}
	expect := func(when string, pinned int, refused ...string) {
		t.Helper()
		if got, count := waiting(t, api); count != pinned || fmt.Sprint(got) != fmt.Sprint(refused) {
			t.Errorf("%s: %d intents are pinned and %v wait, want %d and %v", when, count, got, pinned, refused)
		}
	}
	pass()
	expect("258 intents at once", most, "i-0256", "i-0257")
	if len(recorder.Events) != 2 {
		t.Errorf("%d events for two intents that wait, want one each", len(recorder.Events))
	}
	pass()
	expect("another pass", most, "i-0256", "i-0257")
	if len(recorder.Events) != 2 {
		t.Errorf("%d events after another pass, want no reminder", len(recorder.Events))
	}

	gone := &volumesv1alpha1.VolumeAttachmentIntent{}
	if err := api.Live.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "i-0100"}, gone); err != nil {
		t.Fatal(err)
	}
	before := gone.DeepCopy()
	gone.Finalizers = nil
	if err := api.Live.Update(t.Context(), gone); err != nil {
		t.Fatal(err)
	}
	if err := api.Live.Delete(t.Context(), gone); err != nil {
		t.Fatal(err)
	}
	if got := woken(t, c.intentChanged, before, nil); !slices.Equal(got, []string{name}) {
		t.Fatalf("the end of an intent queues the volumes %v, want the one that it had", got)
	}
	pass()
	expect("one is gone", most, "i-0257")
}

// TestAVolumeWhosePassFailsLetsAnotherOneHaveTheRoom of a namespace that had as many intents on the node as that takes.
func TestAVolumeWhosePassFailsLetsAnotherOneHaveTheRoom(t *testing.T) {
	c, now, api := overAPI(t, crowd(1)...)
	c.Events = events.NewFakeRecorder(10)
	c.Reporter = &intentstatus.Reporter{Client: c.Client, Clock: now, Events: c.Events}
	name := volume.UniqueNameOf(persistentVolume())
	q := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
	defer q.ShutDown()
	if err := c.uses.Start(t.Context(), q); err != nil {
		t.Fatal(err)
	}
	first := &volumesv1alpha1.VolumeAttachmentIntent{}
	for k := range volumesv1alpha1.MaxNamespaceUses {
		i := &volumesv1alpha1.VolumeAttachmentIntent{}
		i.Namespace, i.UID, i.Spec.NodeName, i.Status.UniqueVolumeName = "default", types.UID(fmt.Sprint(k)), "a", "w"
		c.uses.IntentChanged(nil, i)
		first = i
	}
	api.Sync()
	if _, err := c.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKey{Name: name}}); err != nil {
		t.Fatal(err)
	}
	n := on("a", wanted("younger"))
	n.Wanted[0].Object.CreationTimestamp = metav1.Now()
	f := &decision.Facts{Volume: "other", Nodes: []*decision.Node{n}}
	c.uses.Gather(n)
	decision.KeepOneUser(f)
	c.uses.EndPass(f)
	c.uses.IntentChanged(first, nil)
	if got, _ := q.Get(); q.Len() > 0 || got.Name != name {
		t.Errorf("the end of an intent wakes volume %s and %d more, want %s alone, which has waited for longest", got.Name,
			q.Len(), name)
	}
	down := errors.New("down")
	c.Client = interceptor.NewClient(c.Client.(client.WithWatch), interceptor.Funcs{
		List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error { return down },
	})
	_, err := c.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKey{Name: name}})
	if !errors.Is(err, down) || q.Len() != 1 {
		t.Fatalf("a pass that fails: error %v, %d volumes are woken; want %v, and the other one", err, q.Len(), down)
	}
	if got, _ := q.Get(); got.Name != "other" {
		t.Errorf("a pass that fails wakes volume %s, want other", got.Name)
	}
}

func TestNothingIsAttachedForANamespaceThatFillsTheNodeState(t *testing.T) {
	for namespace, refused := range map[string]bool{"default": true, "crowd": false} {
		full := reported("a")
		for k := range 600 {
			full.Spec.Attachments = append(full.Spec.Attachments, volumesv1alpha1.NodeAttachment{
				VolumeName: fmt.Sprint(k), Namespace: namespace, FSType: strings.Repeat("x", 600),
				State: volumesv1alpha1.AttachmentAttached})
		}
		c, _ := over(t, full, usableBy(corev1.ReadWriteMany))
		f, n := factsOf(t, c)
		err := c.createAttachment(t.Context(), f, n)
		waits := n.Wait != nil && n.Wait.Reason == volumesv1alpha1.ReasonNodeStateTooLarge &&
			strings.Contains(n.Wait.Message, "of namespace default")
		if err != nil || waits != refused || (len(n.Attachments) == 0) != refused {
			t.Errorf("attaching a volume of namespace default to a node that namespace %s fills: wait %+v, %d attachments, "+
				"error %v; want it refused: %t", namespace, n.Wait, len(n.Attachments), err, refused)
		}
	}
}

func TestAVolumeThatFoundNoRoomIsQueuedWhenThereIsMore(t *testing.T) {
	waits := &volumesv1alpha1.VolumeAttachmentIntent{}
	waits.Namespace, waits.Name, waits.Spec.NodeName, waits.Status.UniqueVolumeName = "default", "i", "a", "waits"
	waits.Status.Conditions = []metav1.Condition{{Type: volumesv1alpha1.ConditionAttached, Status: metav1.ConditionFalse,
		Reason: volumesv1alpha1.ReasonNodeStateTooLarge}}
	state := func(entries, publications int) *volumesv1alpha1.NodeVolumeState {
		nvs := reported("a")
		for k := range entries {
			nvs.Spec.Attachments = append(nvs.Spec.Attachments, volumesv1alpha1.NodeAttachment{VolumeName: fmt.Sprint(k)})
		}
		nvs.Status.Volumes = []volumesv1alpha1.NodeVolume{{VolumeName: "0", InUse: true,
			Publications: make([]volumesv1alpha1.Publication, publications)}}
		return nvs
	}
	for what, c := range map[string]struct {
		was, is *volumesv1alpha1.NodeVolumeState
		want    bool
	}{
		"an entry has gone":                           {state(2, 9), state(1, 9), true},
		"the agent of a new version lists less":       {state(1, 1370), state(1, 16), true},
		"another publication":                         {state(1, 8), state(1, 9), false},
		"a report that changes nothing of the size":   {state(1, 9), state(1, 9), false},
		"another entry, and a publication has gone":   {state(1, 9), state(2, 8), true},
		"another entry, and as many are listed as is": {state(1, 9), state(2, 9), false},
	} {
		controller := onlyCached(t, waits)
		got := woken(t, controller.stateChanged, c.was, c.is)
		if slices.Contains(got, "waits") != c.want {
			t.Errorf("%s: volumes %v are queued, the one that waits for room among them: %t, want %t", what, got, !c.want,
				c.want)
		}
	}
}
