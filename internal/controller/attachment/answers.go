/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package attachment

import (
	"sync"
	"time"

	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/utils/clock"
)

// answers remembers what the API server answered to our own writes of attachments until the cache shows it,
// so that a pass in between does not write again. It only saves requests: nothing of it is kept for longer than a moment,
// and what rests on it carries the UID, or is read live.
type answers struct {
	clock clock.PassiveClock

	mu   sync.Mutex
	last map[string]*answer
}

type answer struct {
	at time.Time
	// superseded are the resourceVersions that we wrote upon; empty for none.
	superseded map[string]bool
	object     *storagev1.VolumeAttachment
}

// note takes down the answer to a write upon the version base, which is empty for a create.
func (a *answers) note(base string, va *storagev1.VolumeAttachment) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.last == nil {
		a.last = map[string]*answer{}
	}
	known := a.last[va.Name]
	if known == nil {
		known = &answer{superseded: map[string]bool{}}
		a.last[va.Name] = known
	}
	known.at, known.object = a.clock.Now(), va
	known.superseded[base] = true
}

// newer returns the answer for the attachment of that name if the cache, which holds it at version cached (empty when it does
// not hold it), is known not to show it yet; otherwise nil.
func (a *answers) newer(name, cached string) *storagev1.VolumeAttachment {
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
func (a *answers) forget(name string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.last, name)
}
