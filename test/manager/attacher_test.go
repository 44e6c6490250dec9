/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package manager

import (
	"context"
	"encoding/json"
	"slices"
	"sync"
	"testing"

	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const attacherFinalizer = "external-attacher/stub"

// attacher is a fake of the driver's external-attacher.
type attacher struct {
	client client.WithWatch
	poke   chan string

	mu      sync.Mutex
	failing map[string]string // persistent volume -> message
	stuck   map[string]bool   // persistent volume whose attachments stay pending
	// driver, if any, receives each attachment just before the attacher reports it as attached or
	// detached.
	driver func(va *storagev1.VolumeAttachment, publish bool)
}

func startAttacher(t *testing.T, c client.WithWatch) *attacher {
	a := &attacher{client: c, poke: make(chan string, 100), failing: map[string]string{}, stuck: map[string]bool{}}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan struct{})
	watching := make(chan struct{})
	go func() {
		defer close(done)
		a.run(ctx, t, watching)
	}()
	<-watching
	t.Cleanup(func() { cancel(); <-done })
	return a
}

// set changes how the attacher treats a volume, and makes it check its attachments again.
func (a *attacher) set(pv, failure string, stuck bool) {
	a.mu.Lock()
	a.failing[pv], a.stuck[pv] = failure, stuck
	a.mu.Unlock()
	a.poke <- pv
}

func (a *attacher) run(ctx context.Context, t *testing.T, watching chan struct{}) {
	w, err := a.client.Watch(ctx, &storagev1.VolumeAttachmentList{})
	if err != nil {
		t.Errorf("attacher: watching attachments: %v", err)
		close(watching)
		return
	}
	defer w.Stop()
	close(watching)
	for {
		select {
		case <-ctx.Done():
			return
		case pv := <-a.poke:
			list := &storagev1.VolumeAttachmentList{}
			if err := a.client.List(ctx, list); err != nil {
				continue
			}
			for i := range list.Items {
				if va := &list.Items[i]; va.Spec.Attacher == driverName && *va.Spec.Source.PersistentVolumeName == pv {
					a.handle(ctx, t, &list.Items[i])
				}
			}
		case e, open := <-w.ResultChan():
			if !open {
				return
			}
			if va, ok := e.Object.(*storagev1.VolumeAttachment); ok && e.Type != watch.Deleted {
				a.handle(ctx, t, va)
			}
		}
	}
}

func (a *attacher) handle(ctx context.Context, t *testing.T, va *storagev1.VolumeAttachment) {
	if va.Spec.Attacher != driverName {
		return
	}
	pv := *va.Spec.Source.PersistentVolumeName
	a.mu.Lock()
	failure, stuck, driver := a.failing[pv], a.stuck[pv], a.driver
	a.mu.Unlock()
	if driver == nil {
		driver = func(*storagev1.VolumeAttachment, bool) {}
	}
	var err error
	switch {
	case stuck:
	case va.DeletionTimestamp != nil:
		if slices.Contains(va.Finalizers, attacherFinalizer) {
			driver(va, false)
			left := slices.DeleteFunc(slices.Clone(va.Finalizers), func(f string) bool { return f == attacherFinalizer })
			err = a.patch(ctx, va,
				map[string]any{"metadata": map[string]any{"finalizers": left, "resourceVersion": va.ResourceVersion}}, false)
		}
	case !slices.Contains(va.Finalizers, attacherFinalizer):
		err = a.patch(ctx, va, map[string]any{"metadata": map[string]any{
			"finalizers": append(slices.Clone(va.Finalizers), attacherFinalizer), "resourceVersion": va.ResourceVersion,
		}}, false)
	case failure != "" && va.Status.AttachError == nil:
		err = a.patch(ctx, va, map[string]any{"status": map[string]any{
			"attached": false, "attachError": map[string]any{"time": metav1.Now(), "message": failure, "errorCode": 13},
		}}, true)
	case failure == "" && !va.Status.Attached:
		driver(va, true)
		err = a.patch(ctx, va, map[string]any{"status": map[string]any{
			"attached": true, "attachError": nil, "attachmentMetadata": map[string]string{"device": "/dev/" + pv},
		}}, true)
	}
	if err != nil && ctx.Err() == nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		t.Errorf("attacher: writing attachment %s: error %v, want none, a conflict or not found", va.Name, err)
	}
}

func (a *attacher) patch(
	ctx context.Context, va *storagev1.VolumeAttachment, body map[string]any, statusToo bool,
) error {
	b, err := json.Marshal(body)
	if err != nil {
		return err
	}
	va = va.DeepCopy()
	p := client.RawPatch("application/merge-patch+json", b)
	if statusToo {
		return a.client.Status().Patch(ctx, va, p)
	}
	return a.client.Patch(ctx, va, p)
}

// report what is attached and detached.
func (a *attacher) setDriver(driver func(*storagev1.VolumeAttachment, bool)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.driver = driver
}
