/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package attachment

import (
	"sync"
	"time"

	storagev1 "k8s.io/api/storage/v1"
)

// created remembers the attachments that this process made until the cache shows them, so that a pass in
// between does not make them again. It only saves requests: what it holds is dropped after a moment in any case, and no
// act rests on it without a live read.
type created struct {
	mu   sync.Mutex
	made map[string]madeAttachment
}

type madeAttachment struct {
	volume string
	at     time.Time
	object *storagev1.VolumeAttachment
}

func (c *created) add(volume string, va *storagev1.VolumeAttachment, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.made == nil {
		c.made = map[string]madeAttachment{}
	}
	c.made[va.Name] = madeAttachment{volume: volume, at: now, object: va}
}

// seen drops an attachment that the cache has shown.
func (c *created) seen(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.made, name)
}

// get returns the attachment of that name and volume while the cache may not show it yet.
func (c *created) get(volume, name string, now time.Time) *storagev1.VolumeAttachment {
	c.mu.Lock()
	defer c.mu.Unlock()
	made, ok := c.made[name]
	if !ok || made.volume != volume {
		return nil
	}
	if now.Sub(made.at) >= slow {
		delete(c.made, name)
		return nil
	}
	return made.object
}
