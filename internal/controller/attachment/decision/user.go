/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package decision

import (
	"fmt"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/exclusive"
	"github.com/hawser-io/hawser/internal/handshake"
)

// The single user of a ReadWriteOncePod volume is an intent, also where the intent was made for a pod. An intent
// becomes the user by a compare-and-swap on the volume's lock, before it is pinned. It stays the user until it is
// gone: no write says that it is released.

// LockUser that the volume is to have on the node; zero where it may have several.
func (f *Facts) LockUser(n *Node) exclusive.User {
	i := n.Candidate()
	if !f.SingleUser || i == nil {
		return exclusive.User{}
	}
	return exclusive.User{Namespace: i.Object.Namespace, Name: i.Object.Name, UID: i.Object.UID}
}

// LockNames reports whether the lock names the intent.
func (f *Facts) LockNames(i *Intent) bool { return f.Lock.User != "" && f.Lock.User == i.Object.UID }

// Locked reports whether the lock names the node and the user that the node has the volume for, and no move is under
// way.
func (f *Facts) Locked(n *Node) bool {
	user := f.LockUser(n).UID
	return f.Lock.Exists && f.Lock.Holder == n.Name && f.Lock.MovedFrom == "" && (user == "" || f.Lock.User == user)
}

// ListedForAnother reports whether the Node lists the volume for its kubelet while an intent that the agent publishes
// is to become the single user. The pods that it was listed for are gone, but the next pod on the node would get the
// volume beside that intent. So the volume is detached first, which removes it from the list.
func (f *Facts) ListedForAnother(n *Node) bool {
	i := n.Candidate()
	return f.Replace && f.SingleUser && n.Lists.Attached && i != nil && i.ByAgent() && !f.LockNames(i) && !i.Pinned()
}

// WaitForUser keeps the node out of the rest of this pass because the lock cannot leave its user. The message does
// not name the user: it may be one of another namespace.
func (n *Node) WaitForUser(lock exclusive.Lock) {
	n.SetWait(volumesv1alpha1.ReasonReadWriteOncePod,
		fmt.Sprintf("the volume's access mode ReadWriteOncePod allows a single user, "+
			"and the last one on node %s has not let go of it", lock.Holder))
}

// findUser: a volume for a single user has another one, or is about to pass to this one.
func findUser(f *Facts, n *Node, i *Intent) *Finding {
	if !f.SingleUser || i.Pinned() || f.LockNames(i) || n.State.Entry.State != handshake.Attached {
		return nil
	}
	if found := findRefusal(f, n, i); found != nil {
		return found
	}
	return not(volumesv1alpha1.ReasonReadWriteOncePod,
		"the volume's access mode ReadWriteOncePod allows a single user, and this intent is not yet the one on node %s",
		n.Name)
}
