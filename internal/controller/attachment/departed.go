/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package attachment

import (
	"context"
	"sync"

	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/lru"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
)

// departures are how many attachments that went are remembered. Their entries are removed right after; those of the ones that
// are forgotten here cost a live read.
const departures = 8192

// departed remembers attachments that the watch has shown to go. A UID does not come back, unless etcd is restored, which the watch
// shows too; so what is known to be gone needs no live read. The zero value is ready to use.
type departed struct {
	once sync.Once
	uids *lru.Cache
}

func (d *departed) seen() *lru.Cache {
	d.once.Do(func() { d.uids = lru.New(departures) })
	return d.uids
}

// observe a change from before to after, of which one may be nil.
func (d *departed) observe(before, after client.Object) {
	if before != nil && (after == nil || after.GetUID() != before.GetUID()) {
		d.seen().Add(before.GetUID(), nil)
	}
	if after != nil {
		d.seen().Remove(after.GetUID())
	}
}

func (d *departed) has(uid types.UID) bool {
	_, gone := d.seen().Get(uid)
	return gone
}

// readEntryAttachment reads the attachment of an entry; nil when there is none, or none of that UID any more.
func (c *Controller) readEntryAttachment(ctx context.Context, entry *volumesv1alpha1.NodeAttachment) (*storagev1.VolumeAttachment, error) {
	if entry.AttachmentName == "" || c.departed.has(entry.AttachmentUID) {
		return nil, nil
	}
	return c.readAttachment(ctx, entry.AttachmentName)
}
