/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package manager

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
)

// TestNodeLimits runs every scenario of nodes that can have so many volumes only.
func TestNodeLimits(t *testing.T) {
	w := newWorld(t)
	for _, s := range []struct {
		name     string
		scenario func(*testing.T, *world)
	}{
		{"a node gets no more volumes than its limit, however many are wanted at once", aNodeGetsNoMoreVolumesThanItCanHave},
		{"free capacity goes to the volume that waited longest", freeCapacityGoesToTheVolumeThatWaitedLongest},
		{"attachments of other controllers count, and a larger limit admits more", attachmentsOfOtherControllersCount},
		{"an intent deleted while it waits makes room for the next", anIntentDeletedWhileWaitingMakesRoomForTheNext},
		{"a refused create returns its capacity", aRefusedCreateReturnsItsCapacity},
		{"a create of unknown outcome keeps its capacity", aCreateOfUnknownOutcomeKeepsItsCapacity},
		{"a driver that is full is reported as the limit", aDriverThatIsFullIsReportedAsTheLimit},
	} {
		t.Run(s.name, func(t *testing.T) { s.scenario(t, w) })
	}
}

// limitedNode makes a Node that can have so many volumes of the driver, with an agent that has reported.
func (w *world) limitedNode(t *testing.T, name string, limit int32) {
	t.Helper()
	w.create(t, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}})
	csi := csiNode(name)
	csi.Spec.Drivers[0].Allocatable = &storagev1.VolumeNodeResources{Count: &limit}
	w.create(t, csi)
	w.agent(t, name)
}

// attachmentCount counts the attachments to a node.
type attachmentCount struct {
	mu      sync.Mutex
	names   map[string]bool
	most    int
	created int
}

func (w *world) countAttachments(t *testing.T, node string) *attachmentCount {
	t.Helper()
	watcher, err := w.client.Watch(t.Context(), &storagev1.VolumeAttachmentList{})
	if err != nil {
		t.Fatalf("watching attachments: %v", err)
	}
	c := &attachmentCount{names: map[string]bool{}}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for e := range watcher.ResultChan() {
			if va, ok := e.Object.(*storagev1.VolumeAttachment); ok && va.Spec.NodeName == node {
				c.observe(e.Type, va.Name)
			}
		}
	}()
	t.Cleanup(func() { watcher.Stop(); <-done })
	return c
}

func (c *attachmentCount) observe(what watch.EventType, name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch what {
	case watch.Added:
		c.names[name] = true
		c.created++
	case watch.Deleted:
		delete(c.names, name)
	}
	c.most = max(c.most, len(c.names))
}

func (c *attachmentCount) expect(t *testing.T, most, created int) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.most > most || c.created != created {
		t.Errorf("%d attachments were created and at most %d there at once; want %d and %d", c.created, c.most, created, most)
	}
}

// intents creates volumes and intents for them, named in the order of their age.
func (w *world) intents(t *testing.T, n int, name, node string) []*volumesv1alpha1.VolumeAttachmentIntent {
	t.Helper()
	var intents []*volumesv1alpha1.VolumeAttachmentIntent
	for i := range n {
		w.volume(t, fmt.Sprintf("%s-%02d", name, i), volumeOptions{})
	}
	for i := range n {
		claim := fmt.Sprintf("%s-%02d", name, i)
		intents = append(intents, w.intent(t, claim, node, claim))
	}
	return intents
}

// decided waits until every intent is attached or has the limit reported, and returns which is which.
func (w *world) decided(
	t *testing.T, intents []*volumesv1alpha1.VolumeAttachmentIntent,
) (attached, waiting []*volumesv1alpha1.VolumeAttachmentIntent) {
	t.Helper()
	for _, intent := range intents {
		until(t, w, intent, "the intent is attached or told that it is not",
			func(i *volumesv1alpha1.VolumeAttachmentIntent) bool {
				c := meta.FindStatusCondition(i.Status.Conditions, volumesv1alpha1.ConditionAttached)
				return c != nil && (c.Status == metav1.ConditionTrue || c.Reason == volumesv1alpha1.ReasonNodeLimitReached)
			})
		if meta.IsStatusConditionTrue(intent.Status.Conditions, volumesv1alpha1.ConditionAttached) {
			attached = append(attached, intent)
		} else {
			waiting = append(waiting, intent)
		}
	}
	return attached, waiting
}

// drop deletes intents that the next scenario must not have to do with, and waits until nothing is left of them.
func (w *world) drop(t *testing.T, intents []*volumesv1alpha1.VolumeAttachmentIntent) {
	t.Helper()
	for _, intent := range intents {
		w.delete(t, intent)
	}
	for _, intent := range intents {
		gone(t, w, intent)
	}
}

func aNodeGetsNoMoreVolumesThanItCanHave(t *testing.T, w *world) {
	const limit, volumes = 10, 64
	c := w.countAttachments(t, "limit")
	intents := w.intents(t, volumes, "limit", "limit")
	// Everything is there before anything is reconciled: all workers set out at once.
	w.limitedNode(t, "limit", limit)
	requests, _ := w.manage(t, managerOptions{})
	attached, waiting := w.decided(t, intents)
	if len(attached) != limit {
		t.Errorf("volumes attached to node limit: %d, want %d", len(attached), limit)
	}
	c.expect(t, limit, limit)
	for _, intent := range waiting {
		message := w.reason(t, intent, volumesv1alpha1.ConditionAttached, metav1.ConditionFalse,
			volumesv1alpha1.ReasonNodeLimitReached)
		if want := "node limit has 10 of 10 volumes of driver " + driverName; message != want {
			t.Errorf("message of intent %s: %q; want %q", intent.Name, message, want)
		}
	}
	w.awaitIntentEvent(t, waiting[0], "FailedAttachVolume")
	until(t, w, attached[0], "the first is Ready", isReady)
	requests.reset()
	w.delete(t, attached[0])
	next := waiting[0]
	until(t, w, next, "the next is Ready", isReady)
	gone(t, w, attached[0])
	c.expect(t, limit, limit+1)
	if n, what := requests.writes(); n > 14 {
		t.Errorf("%d writes to replace one volume while %d wait, want at most 14: %s", n, len(waiting)-1, what)
	}
	w.drop(t, waiting[1:])
	w.drop(t, append(attached[1:], next))
	c.expect(t, limit, limit+1)
}

func freeCapacityGoesToTheVolumeThatWaitedLongest(t *testing.T, w *world) {
	w.manage(t, managerOptions{})
	w.limitedNode(t, "line", 1)
	first := w.intents(t, 1, "line-first", "line")
	w.attached(t, first[0])
	waiting := w.intents(t, 3, "line", "line")
	if attached, _ := w.decided(t, waiting); len(attached) > 0 {
		t.Fatalf("intent %s was attached to full node line, want it to wait", attached[0].Name)
	}
	w.delete(t, first[0])
	for i, intent := range waiting {
		w.attached(t, intent)
		for _, later := range waiting[i+1:] {
			w.reason(t, later, volumesv1alpha1.ConditionAttached, metav1.ConditionFalse, volumesv1alpha1.ReasonNodeLimitReached)
		}
		w.delete(t, intent)
	}
}

func attachmentsOfOtherControllersCount(t *testing.T, w *world) {
	w.manage(t, managerOptions{})
	w.limitedNode(t, "others", 2)
	w.volume(t, "others-pod", volumeOptions{})
	foreign := upstreamAttachment("", "others-pod", "others")
	w.create(t, foreign)
	until(t, w, foreign, "upstream's attachment is attached", func(va *storagev1.VolumeAttachment) bool {
		return va.Status.Attached
	})
	attached, waiting := w.decided(t, w.intents(t, 3, "others", "others"))
	if len(attached) != 1 || len(waiting) != 2 {
		t.Fatalf("intents attached: %d, waiting: %d, beside one volume of others; want 1 and 2", len(attached), len(waiting))
	}
	csi := &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: "others"}}
	w.change(t, csi, func() { csi.Spec.Drivers[0].Allocatable.Count = ptr.To[int32](3) })
	w.attached(t, waiting[0])
	w.delete(t, foreign)
	w.attached(t, waiting[1])
}

func anIntentDeletedWhileWaitingMakesRoomForTheNext(t *testing.T, w *world) {
	w.manage(t, managerOptions{})
	w.limitedNode(t, "giveup", 1)
	intents := w.intents(t, 3, "giveup", "giveup")
	attached, waiting := w.decided(t, intents)
	w.delete(t, waiting[0])
	gone(t, w, waiting[0])
	w.delete(t, attached[0])
	w.attached(t, waiting[1])
}

// refusing is a manager's client that cannot create attachments of a volume: the API server refuses, or its answer is
// lost what became of the request. tried is closed when it tries for the first time.
func refusing(pv string, err error) (newClient client.NewClientFunc, tried chan struct{}) {
	tried = make(chan struct{})
	first := sync.OnceFunc(func() { close(tried) })
	return func(cfg *rest.Config, o client.Options) (client.Client, error) {
		c, clientErr := client.NewWithWatch(cfg, o)
		if clientErr != nil {
			return nil, clientErr
		}
		return interceptor.NewClient(c, interceptor.Funcs{
			Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
				if va, ok := o.(*storagev1.VolumeAttachment); ok && *va.Spec.Source.PersistentVolumeName == pv {
					first()
					return err
				}
				return c.Create(ctx, o, opts...)
			},
		}), nil
	}, tried
}

func aRefusedCreateReturnsItsCapacity(t *testing.T, w *world) {
	refused := apierrors.NewForbidden(storagev1.Resource("volumeattachments"), "refused", errors.New("not now"))
	newClient, _ := refusing("pv-refused-00", refused)
	w.manage(t, managerOptions{newClient: newClient})
	w.limitedNode(t, "refused", 1)
	intents := w.intents(t, 2, "refused", "refused")
	w.attached(t, intents[1])
	w.reason(t, intents[0], volumesv1alpha1.ConditionAttached, metav1.ConditionFalse,
		volumesv1alpha1.ReasonNodeLimitReached)
}

func aCreateOfUnknownOutcomeKeepsItsCapacity(t *testing.T, w *world) {
	newClient, tried := refusing("pv-unknown-00", errors.New("connection reset by peer"))
	w.manage(t, managerOptions{newClient: newClient})
	w.limitedNode(t, "unknown", 1)
	first := w.intents(t, 1, "unknown", "unknown")[0]
	<-tried
	w.volume(t, "unknown-01", volumeOptions{})
	second := w.intent(t, "unknown-01", "unknown", "unknown-01")
	w.reason(t, second, volumesv1alpha1.ConditionAttached, metav1.ConditionFalse, volumesv1alpha1.ReasonNodeLimitReached)
	// Once nothing wants it, nothing of it can come any more.
	w.delete(t, first)
	gone(t, w, first)
	w.attached(t, second)
}

func aDriverThatIsFullIsReportedAsTheLimit(t *testing.T, w *world) {
	w.manage(t, managerOptions{})
	w.node(t, "exhausted")
	w.attacher.set("pv-exhausted", "26 of 25 volumes are attached", false)
	w.volume(t, "exhausted", volumeOptions{})
	intent := w.intent(t, "exhausted", "exhausted", "exhausted")
	w.reason(t, intent, volumesv1alpha1.ConditionAttached, metav1.ConditionFalse, volumesv1alpha1.ReasonAttachFailed)
	va := attachmentOf("exhausted", "exhausted")
	w.changeStatus(t, va, func() {
		va.Status.AttachError.ErrorCode = ptr.To[int32](8)
		va.Status.AttachError.Time = metav1.NewTime(va.Status.AttachError.Time.Add(1e9))
	})
	message := w.reason(t, intent, volumesv1alpha1.ConditionAttached, metav1.ConditionFalse,
		volumesv1alpha1.ReasonNodeLimitReached)
	if !strings.Contains(message, "26 of 25 volumes are attached") {
		t.Errorf("message of intent %s: %q; want the driver's error", intent.Name, message)
	}
	if e := intent.Status.LastError; e == nil || e.Code != "ResourceExhausted" {
		t.Errorf("lastError of intent %s: %s; want code ResourceExhausted", intent.Name, dump(e))
	}
	w.attacher.set("pv-exhausted", "", false)
	w.attached(t, intent)
}
