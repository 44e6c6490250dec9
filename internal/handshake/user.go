/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package handshake

import "k8s.io/apimachinery/pkg/types"

// Guards of a volume that allows a single user.
const (
	// GuardUserLocked: an intent is pinned to the volume only once the lock names it as the user.
	GuardUserLocked Guard = "UserLocked"
	// GuardUserGone: the lock passes on only once the intent that it names does not exist any more.
	GuardUserGone Guard = "UserGone"
	// GuardUseEnded: the lock passes to another user only once the node does not use the volume any more.
	GuardUseEnded Guard = "UseEnded"
)

// MayPassOn reports whether the lock may stop naming its user. named is that intent as it was read live, by its UID,
// after the lock was read. Once it is gone it never comes back, and a pin that is still on its way to it cannot
// arrive.
func (p Protocol) MayPassOn(named Intent) Guard {
	return p.refuse(GuardUserGone, !named.Exists)
}

// MayTakeUser reports whether the lock c, which names a node, may name user as its user, at the version of c. The
// caller has read c, and after that live the intent that c names and the node's state n. What the node still uses may
// be a publication of a user whose finalizer was cut off. own means that this use is the new user's.
func (p Protocol) MayTakeUser(c Lock, user types.UID, named Intent, n Node, own bool) Guard {
	if c.User == user {
		return GuardNone
	}
	return first(
		p.MayPassOn(named),
		p.refuse(GuardUseEnded, own || !n.InUse() || n.Entry.Forced),
	)
}

// MayPin reports whether the intent user may be pinned to a volume for a single user, which lets its agent publish
// it. c may be old: a lock that names an intent names it until that intent is gone. The pin is written at the version
// of the intent.
func (p Protocol) MayPin(c Lock, user types.UID) Guard {
	return p.refuse(GuardUserLocked, c.Exists && c.User == user)
}
