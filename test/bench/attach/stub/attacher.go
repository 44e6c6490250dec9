/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

// Package stub simulates what the contenders wait for: the driver's external-attacher and the nodes' agents.
// Both answer at once, so that only the contender is measured.
package stub

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"

	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hawser-io/hawser/test/bench/attach/feed"
	"github.com/hawser-io/hawser/test/bench/attach/stage"
)

// finalizer that the external-attacher sets.
const finalizer = "external-attacher/" + stage.DriverName

// concurrency of the attacher. It is enough that no contender waits for the attacher.
const concurrency = 32

// Attacher reports every VolumeAttachment as attached at once.
type Attacher struct {
	Client client.Client
	// Finalizer makes it set its finalizer first, as the real one does, and remove it from a deleted attachment.
	Finalizer bool
	// Fails makes it report an error for an attachment instead, again and again with the real one's delays; nil for none.
	Fails func(*storagev1.VolumeAttachment) bool
	// Failed is called for every violation.
	Failed func(error)

	slots chan struct{}
	// answered are the finished steps, by UID: a watch may show a change twice.
	answered sync.Map
}

// Listen answers until ctx ends.
func (a *Attacher) Listen(ctx context.Context, f *feed.Feed) error {
	a.slots = make(chan struct{}, concurrency)
	return feed.On(ctx, f, &storagev1.VolumeAttachment{},
		func(va *storagev1.VolumeAttachment) { a.consider(ctx, va) },
		func(va *storagev1.VolumeAttachment) {
			for _, s := range []step{protect, attach, release, fail} {
				a.answered.Delete(answer{va.UID, s})
			}
		})
}

type step int

const (
	nothing step = iota
	protect
	attach
	release
	fail
)

type answer struct {
	uid  types.UID
	step step
}

func (a *Attacher) consider(ctx context.Context, va *storagev1.VolumeAttachment) {
	s := a.next(va)
	if s == nothing {
		return
	}
	if s == attach && a.Fails != nil && a.Fails(va) {
		if _, known := a.answered.LoadOrStore(answer{va.UID, fail}, true); !known {
			go a.fail(ctx, va)
		}
		return
	}
	if _, known := a.answered.LoadOrStore(answer{va.UID, s}, true); known {
		return
	}
	go func() {
		a.slots <- struct{}{}
		defer func() { <-a.slots }()
		if err := a.answer(ctx, va, s); client.IgnoreNotFound(err) != nil && !apierrors.IsInvalid(err) && ctx.Err() == nil {
			a.Failed(fmt.Errorf("answering attachment %s: %w", va.Name, err))
		}
	}()
}

// retryFrom and retryTo are the real attacher's delays between two tries of one volume, which double.
const retryFrom, retryTo = time.Second, 5 * time.Minute

// fail reports errors until the attachment is gone.
func (a *Attacher) fail(ctx context.Context, va *storagev1.VolumeAttachment) {
	for delay := retryFrom; ; delay = min(2*delay, retryTo) {
		err := a.Client.Status().Patch(ctx, va.DeepCopy(), merge(map[string]any{"status": map[string]any{
			"attachError": map[string]any{"message": "the stub driver fails", "time": metav1.Now()}}}))
		if err != nil && !apierrors.IsNotFound(err) && ctx.Err() == nil {
			a.Failed(fmt.Errorf("failing attachment %s: %w", va.Name, err))
		}
		if _, wanted := a.answered.Load(answer{va.UID, fail}); err != nil || !wanted {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(delay):
		}
	}
}

func (a *Attacher) next(va *storagev1.VolumeAttachment) step {
	protected := slices.Contains(va.Finalizers, finalizer)
	switch {
	case va.DeletionTimestamp != nil && protected:
		return release
	case va.DeletionTimestamp != nil || va.Status.Attached:
		return nothing
	case a.Finalizer && !protected:
		return protect
	}
	return attach
}

func (a *Attacher) answer(ctx context.Context, va *storagev1.VolumeAttachment, s step) error {
	object := &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: va.Name}}
	switch s {
	case protect:
		return a.Client.Patch(ctx, object,
			merge(
				map[string]any{"metadata": map[string]any{"uid": va.UID,
					"finalizers": append(slices.Clone(va.Finalizers), finalizer)}}))
	case release:
		left := slices.DeleteFunc(slices.Clone(va.Finalizers), func(f string) bool { return f == finalizer })
		return a.Client.Patch(ctx, object,
			merge(map[string]any{"metadata": map[string]any{"uid": va.UID, "finalizers": left}}))
	}
	return a.Client.Status().Patch(ctx, object, merge(map[string]any{"status": map[string]any{"attached": true}}))
}

func merge(body map[string]any) client.Patch {
	data, err := json.Marshal(body)
	if err != nil {
		panic(err) // strings can always be encoded
	}
	return client.RawPatch(types.MergePatchType, data)
}
