/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package attachment

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/exclusive"
	"github.com/hawser-io/hawser/internal/handshake"
)

// The single user of a ReadWriteOncePod volume is an intent, also where the intent was made for a pod. An intent becomes the user by a
// compare-and-swap on the volume's lock, before it is pinned. It stays the user until it is gone: no write says that it is released.

// user that the volume is to have on the node; zero where it may have several.
func (f *Facts) user(n *Node) exclusive.User {
	i := n.candidate()
	if !f.SingleUser || i == nil {
		return exclusive.User{}
	}
	return exclusive.User{Namespace: i.Object.Namespace, Name: i.Object.Name, UID: i.Object.UID}
}

// uses reports whether the lock names the intent.
func (f *Facts) uses(i *Intent) bool { return f.Lock.User != "" && f.Lock.User == i.Object.UID }

// locked reports whether the lock names the node and the user that the node has the volume for, and no move is under way.
func (f *Facts) locked(n *Node) bool {
	user := f.user(n).UID
	return f.Lock.Exists && f.Lock.Holder == n.Name && f.Lock.MovedFrom == "" && (user == "" || f.Lock.User == user)
}

// byAgent reports whether the agent publishes for the intent, not the kubelet.
func (i *Intent) byAgent() bool { return i.Object.Spec.Publisher != volumesv1alpha1.PublisherKubelet }

// listedForAnother reports whether the Node lists the volume for its kubelet while an intent that the agent publishes is to become the
// single user. The pods are gone for which it was listed, but a pod that came to the node would get the volume beside that intent. So
// the volume is detached first, which takes it off the list.
func (f *Facts) listedForAnother(n *Node) bool {
	i := n.candidate()
	return f.Replace && f.SingleUser && n.Lists.Attached && i != nil && i.byAgent() && !f.uses(i) && !i.pinned()
}

// takeUser makes the lock, which was read live and names n, name its user too. It says whether it does now.
func (c *Controller) takeUser(ctx context.Context, f *Facts, n *Node, lock exclusive.Lock) (bool, error) {
	user := f.user(n)
	if user == (exclusive.User{}) || lock.User == user {
		return true, nil
	}
	named, err := c.readUser(ctx, lock.User)
	if err != nil {
		return false, err
	}
	nvs, err := c.readState(ctx, n.Name)
	if err != nil {
		return false, err
	}
	n.observe(nvs, f.Volume)
	if f.Replace {
		if err := c.readLists(ctx, f, n); err != nil {
			return false, err
		}
	}
	if f.listedForAnother(n) {
		n.waitForUser(lock)
		return false, nil
	}
	// The kubelet passes the volume from one of its pods to the next; what an older manager pinned is in use by that.
	i := n.candidate()
	own := n.KubeletUses && !i.byAgent() || lock.User == (exclusive.User{}) && i.pinned()
	if c.Protocol.MayTakeUser(lock.Handshake(), user.UID, named, n.State, own) != handshake.GuardNone {
		n.waitForUser(lock)
		return false, nil
	}
	_, taken, err := c.swapLock(ctx, f, n, lock, exclusive.Lock{Holder: n.Name, User: user})
	return taken, err
}

// mayPassOn says whether the lock may leave the user that it names. It is n that waits for it.
func (c *Controller) mayPassOn(ctx context.Context, f *Facts, n *Node, lock exclusive.Lock) (bool, error) {
	if lock.User == f.user(n) {
		return true, nil
	}
	named, err := c.readUser(ctx, lock.User)
	if err != nil {
		return false, err
	}
	if c.Protocol.MayPassOn(named) != handshake.GuardNone {
		n.waitForUser(lock)
		return false, nil
	}
	return true, nil
}

// readUser reads the intent live, by its UID: another one of its name is not the user. Nobody is the zero intent.
func (c *Controller) readUser(ctx context.Context, u exclusive.User) (handshake.Intent, error) {
	if u == (exclusive.User{}) {
		return handshake.Intent{}, nil
	}
	intent := &volumesv1alpha1.VolumeAttachmentIntent{}
	err := c.Reader.Get(ctx, client.ObjectKey{Namespace: u.Namespace, Name: u.Name}, intent)
	if apierrors.IsNotFound(err) || err == nil && intent.UID != u.UID {
		return handshake.Intent{}, nil
	}
	if err != nil {
		return handshake.Intent{}, fmt.Errorf("reading intent %s/%s: %w", u.Namespace, u.Name, err)
	}
	return handshake.Intent{Exists: true, Deleting: !intent.DeletionTimestamp.IsZero()}, nil
}

// waitForUser keeps the node out of the rest of this pass because the lock cannot leave its user. The user's name is not told: it may be
// one of another namespace.
func (n *Node) waitForUser(lock exclusive.Lock) {
	n.wait(volumesv1alpha1.ReasonReadWriteOncePod, fmt.Sprintf("the volume's access mode ReadWriteOncePod allows a single user, and the last one on node %s has not let go of it",
		lock.Holder))
}

// mayPin says whether the intent may be pinned to the volume, which lets the node's agent publish it.
func (c *Controller) mayPin(f *Facts, i *Intent) bool {
	return !f.SingleUser || i.pinned() || c.Protocol.MayPin(f.Lock, i.Object.UID) == handshake.GuardNone
}

// findUser: a volume for a single user has another one, or is about to pass to this one.
func findUser(f *Facts, n *Node, i *Intent) *Finding {
	if !f.SingleUser || i.pinned() || f.uses(i) || n.State.Entry.State != handshake.Attached {
		return nil
	}
	if found := findRefusal(f, n, i); found != nil {
		return found
	}
	return not(volumesv1alpha1.ReasonReadWriteOncePod, "the volume's access mode ReadWriteOncePod allows a single user, and this intent is not yet the one on node %s", n.Name)
}
