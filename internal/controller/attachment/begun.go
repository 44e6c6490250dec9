/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package attachment

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
)

// begun remembers since when attachments are under way. It only decides when that is worth a write; a
// restart begins anew.
type begun struct {
	mu    sync.Mutex
	since map[types.UID]time.Time
	// progress is when each driver last got something attached.
	progress map[string]time.Time
}

// attached takes note of a driver's progress.
func (b *begun) attached(driver string, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.progress == nil {
		b.progress = map[string]time.Time{}
	}
	b.progress[driver] = now
}

// left is how long to go on saying nothing of what is to be expected soon: until slow has passed, unless the volume had been attached and is not any more. While
// the driver gets other volumes attached this one is in its queue, and the silence may take up to verySlow.
func (b *begun) left(intent *volumesv1alpha1.VolumeAttachmentIntent, driver string, soon bool, now time.Time) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !soon || meta.IsStatusConditionTrue(intent.Status.Conditions, volumesv1alpha1.ConditionAttached) {
		delete(b.since, intent.UID)
		return 0
	}
	since, known := b.since[intent.UID]
	if !known {
		if b.since == nil {
			b.since = map[types.UID]time.Time{}
		}
		b.since[intent.UID], since = now, now
	}
	quiet := slow - now.Sub(since)
	if progress, ok := b.progress[driver]; ok {
		quiet = max(quiet, min(slow-now.Sub(progress), verySlow-now.Sub(since)))
	}
	return max(quiet, 0)
}

// forget drops an intent that is gone.
func (b *begun) forget(uid types.UID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.since, uid)
}
