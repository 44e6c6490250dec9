/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package handshake

import "k8s.io/apimachinery/pkg/types"

// Held is what the agent knows of its own hold on a volume.
type Held struct {
	// Released: unpublish and unstage are known to be done, and were done after every earlier call had ended: a
	// call that outlived its agent may undo an unstage that came before its end.
	Released bool
	// CallsEnded: no earlier driver call can still be running.
	CallsEnded bool
	// Mounted: the mount table shows the volume.
	Mounted bool
}

// MaySetInUse reports whether the agent may write inUse for attachment uid, at the version of n. What it holds under
// another UID it has released and cleared before. n is of the agent's present session: it was written or read after
// the first report of that session.
func (p Protocol) MaySetInUse(n Node, uid types.UID) Guard {
	return first(
		p.refuse(GuardConfirmed, !n.Unconfirmed),
		p.refuse(GuardSameMachine, !n.Use.Foreign),
		p.refuse(GuardEntryAttached, n.Entry.State == Attached && n.Entry.UID == uid),
	)
}

// MayStage reports whether the agent may call the driver for attachment uid. n is the state that the last write of this
// process was acknowledged with, and no write of unknown outcome came after it; a state that was only read is not
// enough. The record on disk is written before the call.
func (p Protocol) MayStage(n Node, uid types.UID) Guard {
	return p.refuse(GuardUseRecorded, n.Use.InUse && n.Use.UID == uid && !n.Use.Foreign)
}

// MayPublish reports whether the agent may publish for an intent: n as for MayStage, i as it was read live after n
// was acknowledged.
func (p Protocol) MayPublish(n Node, uid types.UID, i Intent) Guard {
	return first(
		p.MayStage(n, uid),
		p.refuse(GuardIntentLive, i.Exists && !i.Deleting),
	)
}

// MayClearInUse reports whether the agent may take back inUse.
func (p Protocol) MayClearInUse(h Held) Guard {
	return first(
		p.refuse(GuardReleased, h.Released),
		p.refuse(GuardCallsEnded, h.CallsEnded),
		p.refuse(GuardMountTable, !h.Mounted),
	)
}

// MayDropForeign reports whether the agent may drop the line of another machine, at the version of n: an administrator
// has said of that attachment that the machine is off, or that it was released there, and its entry is detached or
// gone. The passing of time says nothing of that machine: it may be cut off, and go on. And where the driver knows both
// by one name, the next attachment would open its access again.
func (p Protocol) MayDropForeign(n Node) Guard {
	return p.refuse(GuardSameMachine, n.machineDeclaredGone())
}

// machineDeclaredGone reports whether an administrator has ended what another machine uses. A use that names no
// attachment belongs to the entry.
func (n Node) machineDeclaredGone() bool {
	uid := n.Use.UID
	if uid == "" {
		uid = n.Entry.UID
	}
	_, declared := n.Declares(uid)
	if n.Entry.UID != uid {
		return declared
	}
	return n.Entry.State == Detaching && n.Entry.Detached && (declared || n.Entry.Declared)
}
