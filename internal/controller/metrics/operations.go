/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package metrics

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/volume"
	"github.com/hawser-io/hawser/internal/handshake"
	"github.com/hawser-io/hawser/internal/metrics"
)

// operations times how long drivers take to attach and to detach, by watching the VolumeAttachments that Hawser
// counts on or has counted on. Attempts are what the driver's attacher reports: each error ends one and begins the
// next. What was under way when this process started is not counted, because its start is not known.
type operations struct {
	reader  client.Reader
	leading <-chan struct{}
	clock   clock.PassiveClock

	mu    sync.Mutex
	under map[types.UID]*operation
}

type operation struct {
	// name is empty for an attachment that Hawser released and that is not deleted yet.
	name  metrics.Operation
	since time.Time
}

// follow the attachments in the cache.
func (o *operations) follow(ctx context.Context, c cache.Cache) error {
	informer, err := c.GetInformer(ctx, &storagev1.VolumeAttachment{}, cache.BlockUntilSynced(false))
	if err != nil {
		return fmt.Errorf("watching attachments for metrics: %w", err)
	}
	if _, err = informer.AddEventHandler(toolscache.ResourceEventHandlerDetailedFuncs{
		AddFunc: func(obj any, initial bool) {
			if va, ok := obj.(*storagev1.VolumeAttachment); ok && !initial {
				o.added(va)
			}
		},
		UpdateFunc: func(before, after any) {
			was, ok := before.(*storagev1.VolumeAttachment)
			if is, also := after.(*storagev1.VolumeAttachment); ok && also {
				o.changed(was, is)
			}
		},
		DeleteFunc: func(obj any) {
			if unknown, ok := obj.(toolscache.DeletedFinalStateUnknown); ok {
				obj = unknown.Obj
			}
			if va, ok := obj.(*storagev1.VolumeAttachment); ok {
				o.deleted(va)
			}
		},
	}); err != nil {
		return fmt.Errorf("watching attachments for metrics: %w", err)
	}
	return nil
}

func (o *operations) begin(va *storagev1.VolumeAttachment, name metrics.Operation) {
	if o.under == nil {
		o.under = map[types.UID]*operation{}
	}
	o.under[va.UID] = &operation{name: name, since: o.clock.Now()}
}

// end counts an attempt.
func (o *operations) end(va *storagev1.VolumeAttachment, op *operation, ok bool) {
	now := o.clock.Now()
	if isClosed(o.leading) {
		metrics.ObserveOperation(va.Spec.Attacher, op.name, ok, o.migrated(va), now.Sub(op.since))
	}
	op.since = now
	if ok {
		delete(o.under, va.UID)
	}
}

func (o *operations) added(va *storagev1.VolumeAttachment) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if held(va) && !va.Status.Attached && va.DeletionTimestamp.IsZero() {
		o.begin(va, metrics.VolumeAttach)
	}
}

func (o *operations) changed(was, is *storagev1.VolumeAttachment) {
	if was.UID != is.UID {
		// What happened in between was missed.
		o.deleted(was)
		o.added(is)
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	op := o.under[is.UID]
	switch terminating := !is.DeletionTimestamp.IsZero(); {
	case terminating && was.DeletionTimestamp.IsZero() && (held(was) || op != nil):
		o.begin(is, metrics.VolumeDetach)
	case terminating && handshake.AttachmentFrom(is).Gone() && op != nil && op.name == metrics.VolumeDetach:
		o.end(is, op, true)
	case !terminating && held(was) && !held(is):
		o.begin(is, "")
	case op == nil:
	case op.name == metrics.VolumeAttach && is.Status.Attached:
		o.end(is, op, true)
	case op.name == metrics.VolumeAttach && isNew(was.Status.AttachError, is.Status.AttachError):
		o.end(is, op, false)
	case op.name == metrics.VolumeDetach && isNew(was.Status.DetachError, is.Status.DetachError):
		o.end(is, op, false)
	case op.name == "" && held(is):
		delete(o.under, is.UID)
	}
}

func (o *operations) deleted(va *storagev1.VolumeAttachment) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if op := o.under[va.UID]; op != nil && op.name == metrics.VolumeDetach {
		o.end(va, op, true)
	}
	delete(o.under, va.UID)
}

func held(va *storagev1.VolumeAttachment) bool {
	_, held := va.Annotations[volumesv1alpha1.HoldAnnotation]
	return held
}

func isNew(was, is *storagev1.VolumeError) bool {
	return is != nil && (was == nil || !was.Time.Equal(&is.Time))
}

// migrated reports whether the volume is written down as an in-tree one.
func (o *operations) migrated(va *storagev1.VolumeAttachment) bool {
	if va.Spec.Source.PersistentVolumeName == nil {
		return va.Spec.Source.InlineVolumeSpec != nil
	}
	pv := &corev1.PersistentVolume{}
	err := o.reader.Get(context.Background(), client.ObjectKey{Name: *va.Spec.Source.PersistentVolumeName}, pv)
	return err == nil && volume.Migrated(pv)
}
