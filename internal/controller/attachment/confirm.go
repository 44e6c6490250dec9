/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package attachment

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/uuid"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/attachment/decision"
	"github.com/hawser-io/hawser/internal/controller/nodestate"
	"github.com/hawser-io/hawser/internal/controller/volume"
	"github.com/hawser-io/hawser/internal/handshake"
)

// confirmAttached writes Attached: from then on the node may use the volume. Everything is read in the order that the
// protocol asks for, the node's state, then live the lock and the attachment, and written at that version of the state.
func (c *Controller) confirmAttached(
	ctx context.Context, f *decision.Facts, n *decision.Node, a *decision.Attachment,
) error {
	taken, err := c.takeLock(ctx, f, n)
	if err != nil || !taken {
		return err
	}
	entry := decision.EntryOf(f, n.Candidate())
	guard := handshake.GuardNone
	nvs, err := c.Writer.Apply(ctx, n.Name, func(
		ctx context.Context, nvs *volumesv1alpha1.NodeVolumeState,
	) (nodestate.Change, error) {
		state := handshake.NodeOf(nvs, f.Volume)
		user, err := nodestate.UserElsewhere(ctx, c.Client, n.Name, f.Volume)
		if err != nil {
			return nil, err
		}
		if guard = c.Protocol.MayBringIn(f.Exclusive, user != ""); guard != handshake.GuardNone {
			return nil, nil
		}
		lock, va, err := c.readForConfirm(ctx, f, nvs, a)
		if err != nil {
			return nil, err
		}
		exclusive, err := c.readExclusive(ctx, f, n)
		if err != nil {
			return nil, err
		}
		guard = c.Protocol.MayWriteAttached(state, n.Name, exclusive, lock, handshake.AttachmentFrom(va))
		if guard == handshake.GuardNone && lock.Exists {
			guard, err = c.freeElsewhere(ctx, f, n)
		}
		if err != nil {
			return nil, err
		}
		if guard == handshake.GuardNone && a != nil && !decision.IsHeld(va) {
			// One that was created again meanwhile: upstream could delete it under a mount.
			guard = handshake.GuardAttachmentLive
		}
		if guard != handshake.GuardNone {
			f.Lock = lock
			return nil, nil
		}
		wanted := decision.WithAttachment(entry, va)
		if old := handshake.AttachmentOf(nvs, f.Volume); old != nil && equality.Semantic.DeepEqual(*old, wanted) {
			return nil, nil
		}
		return func(nvs *volumesv1alpha1.NodeVolumeState) { decision.PutEntry(nvs, wanted) }, nil
	})
	if waitForRoom(n, entry.Namespace, err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("writing Attached: %w", err)
	}
	n.Observe(nvs, f.Volume)
	c.attachTimes.attached(f.Driver, c.Clock.Now())
	if guard != handshake.GuardNone || decision.Stale(f, n, n.Candidate()) {
		n.SetWait("", "")
	}
	return nil
}

// waitForRoom has the node wait if err is that its state has no room for an entry of the namespace. It reports whether
// it is.
func waitForRoom(n *decision.Node, namespace string, err error) bool {
	switch {
	case errors.Is(err, nodestate.ErrTooLarge):
		n.SetWait(volumesv1alpha1.ReasonNodeStateTooLarge, fmt.Sprintf(
			"the NodeVolumeState of node %s is full; detach other volumes first", n.Name,
		))
	case errors.Is(err, nodestate.ErrShare):
		n.SetWait(volumesv1alpha1.ReasonNodeStateTooLarge, fmt.Sprintf(
			"the volumes of namespace %s have as much of the NodeVolumeState of node %s as is left for those of all other "+
				"namespaces; detach other volumes of this namespace first", namespace, n.Name,
		))
	default:
		return false
	}
	return true
}

// readForConfirm reads the lock and then the attachment. A driver without attach has one that is made up: the entry's
// own UID or a new one, under which the node's flags speak of this stay of the volume.
func (c *Controller) readForConfirm(
	ctx context.Context, f *decision.Facts, nvs *volumesv1alpha1.NodeVolumeState, a *decision.Attachment,
) (handshake.Lock, *storagev1.VolumeAttachment, error) {
	live, err := c.Locks.Read(ctx, f.Volume)
	if err != nil {
		return handshake.Lock{}, nil, err
	}
	lock := live.Handshake()
	if a != nil {
		va, err := c.readAttachment(ctx, a.Name)
		return lock, va, err
	}
	va := &storagev1.VolumeAttachment{Status: storagev1.VolumeAttachmentStatus{Attached: true}}
	va.UID = uuid.NewUUID()
	if nvs != nil {
		if old := handshake.AttachmentOf(nvs, f.Volume); old != nil && old.AttachmentName == "" {
			va.UID = old.AttachmentUID
		}
	}
	return lock, va, nil
}

// readExclusive reads the access modes live where the cache shows a volume that several nodes may have.
func (c *Controller) readExclusive(ctx context.Context, f *decision.Facts, n *decision.Node) (bool, error) {
	if f.Exclusive {
		return true, nil
	}
	key := client.ObjectKey{Name: n.Candidate().Result.Source.PersistentVolume}
	if key.Name == "" { // a volume in the pod itself: its access modes cannot change
		return false, nil
	}
	pv := &corev1.PersistentVolume{}
	err := c.Reader.Get(ctx, key, pv)
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("reading the volume's access modes: %w", err)
	}
	return volume.Exclusive(pv), nil
}

// freeElsewhere refuses while the volume has an attachment to another node that has to do with it. The lock was read
// before. A leader that took the volume for a shared one, and has yet to write Attached there, had seen that
// attachment; to delete it is to write that node's state.
func (c *Controller) freeElsewhere(ctx context.Context, f *decision.Facts, n *decision.Node) (handshake.Guard, error) {
	for _, m := range f.Nodes {
		if m == n {
			continue
		}
		va, err := c.readAttachments(ctx, f, m)
		if err != nil || !va.Gone() {
			return handshake.GuardAttachmentGone, err
		}
	}
	return handshake.GuardNone, nil
}
