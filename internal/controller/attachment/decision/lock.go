/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package decision

import (
	"github.com/hawser-io/hawser/internal/handshake"
)

// Collectable reports whether the lock is one of a volume that is gone, or that several nodes may have by now: no
// PersistentVolume that asks for a lock, no intent, no attachment, no entry and no line of it is known anywhere.
// Collectable means that nothing needs the lock; the protocol decides whether it may be deleted.
func Collectable(f *Facts) bool {
	if !f.Lock.Exists || f.Described && !f.Shared {
		return false
	}
	for _, n := range f.Nodes {
		if len(n.Wanted)+len(n.Leaving)+len(n.Refused)+len(n.Attachments) > 0 || n.State.Entry.State != handshake.Absent ||
			n.State.Use != (handshake.Use{}) {
			return false
		}
	}
	return true
}
