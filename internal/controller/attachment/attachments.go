/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package attachment

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"k8s.io/utils/lru"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/attachment/decision"
)

// ownWrites remembers what the API server answered to our own writes of attachments until the cache shows it, so that
// a pass in between does not write again. It only saves requests: nothing of it is kept for longer than a moment, and
// what rests on it carries the UID, or is read live.
type ownWrites struct {
	clock clock.PassiveClock

	mu   sync.Mutex
	last map[string]*ownWrite
}

type ownWrite struct {
	at time.Time
	// superseded are the resourceVersions that we wrote upon; empty for none.
	superseded map[string]bool
	object     *storagev1.VolumeAttachment
}

// note takes down the answer to a write upon the version base, which is empty for a create.
func (a *ownWrites) note(base string, va *storagev1.VolumeAttachment) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.last == nil {
		a.last = map[string]*ownWrite{}
	}
	known := a.last[va.Name]
	if known == nil {
		known = &ownWrite{superseded: map[string]bool{}}
		a.last[va.Name] = known
	}
	known.at, known.object = a.clock.Now(), va
	known.superseded[base] = true
}

// newer returns the answer for the attachment of that name if the cache, which holds it at version cached (empty when
// it does not hold it), is known not to show it yet; otherwise nil.
func (a *ownWrites) newer(name, cached string) *storagev1.VolumeAttachment {
	a.mu.Lock()
	defer a.mu.Unlock()
	known := a.last[name]
	if known == nil {
		return nil
	}
	if !known.superseded[cached] || a.clock.Since(known.at) >= slow {
		delete(a.last, name)
		return nil
	}
	return known.object
}

// forget drops an attachment that is gone.
func (a *ownWrites) forget(name string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.last, name)
}

// hold makes a foreign attachment one that we count on. It counts only if the answer is not terminating.
func (c *Controller) hold(ctx context.Context, f *decision.Facts, n *decision.Node, a *decision.Attachment) error {
	return c.patchAttachment(ctx, n, a, map[string]any{
		"annotations": map[string]string{
			volumesv1alpha1.HoldAnnotation: c.holdValue(), volumesv1alpha1.VolumeNameAnnotation: f.Volume,
		},
	})
}

// patchAttachment changes an attachment's metadata under the UID and the resourceVersion that were decided on, and
// takes the answer over. If another writer was first, the node waits for the event.
func (c *Controller) patchAttachment(
	ctx context.Context, n *decision.Node, a *decision.Attachment, metadata map[string]any,
) error {
	metadata["uid"], metadata["resourceVersion"] = a.UID, a.ResourceVersion
	body, err := json.Marshal(map[string]any{"metadata": metadata})
	if err != nil {
		return fmt.Errorf("encoding the change of attachment %s: %w", a.Name, err)
	}
	va := &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: a.Name}}
	err = c.Client.Patch(ctx, va, client.RawPatch(types.MergePatchType, body))
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		n.SetWait("", "")
		return nil
	}
	if err != nil {
		return fmt.Errorf("changing attachment %s: %w", a.Name, err)
	}
	c.ownWrites.note(a.ResourceVersion, va)
	n.AddAttachment(va)
	return nil
}

func (c *Controller) holdValue() string { return c.Clock.Now().UTC().Format(time.RFC3339) }

// sendDelete deletes the attachment as it was decided on. If another writer was first, the node waits for the event.
func (c *Controller) sendDelete(ctx context.Context, n *decision.Node, a *decision.Attachment) error {
	err := c.Client.Delete(ctx, &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: a.Name}},
		client.Preconditions{UID: ptr.To(a.UID), ResourceVersion: ptr.To(a.ResourceVersion)})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("deleting attachment %s: %w", a.Name, err)
	}
	c.ownWrites.note(a.ResourceVersion, terminating(a, c.Clock.Now()))
	n.SetWait("", "")
	return nil
}

// terminating is a as the cache will show it once the delete has reached it.
func terminating(a *decision.Attachment, now time.Time) *storagev1.VolumeAttachment {
	deleted := metav1.NewTime(now)
	return &storagev1.VolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{
			Name: a.Name, UID: a.UID, ResourceVersion: a.ResourceVersion, Finalizers: a.Finalizers, DeletionTimestamp: &deleted,
		},
		Status: storagev1.VolumeAttachmentStatus{Attached: a.Attached, DetachError: a.DetachError},
	}
}

// departures are how many attachments that went are remembered. Their entries are removed right after; those of the
// ones that are forgotten here cost a live read.
const rememberedDeletions = 8192

// deletions remembers attachments that the watch has shown to go. A UID does not come back, unless etcd is restored,
// which the watch shows too; so what is known to be gone needs no live read. The zero value is ready to use.
type deletions struct {
	once sync.Once
	uids *lru.Cache
}

func (d *deletions) seen() *lru.Cache {
	d.once.Do(func() { d.uids = lru.New(rememberedDeletions) })
	return d.uids
}

// observe a change from before to after; one of the two may be nil.
func (d *deletions) observe(before, after client.Object) {
	if before != nil && (after == nil || after.GetUID() != before.GetUID()) {
		d.seen().Add(before.GetUID(), nil)
	}
	if after != nil {
		d.seen().Remove(after.GetUID())
	}
}

func (d *deletions) has(uid types.UID) bool {
	_, gone := d.seen().Get(uid)
	return gone
}
