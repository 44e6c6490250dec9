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
	var read confirmation // of the last try: after a conflict everything is read again
	nvs, err := c.Writer.Apply(ctx, n.Name, func(
		ctx context.Context, nvs *volumesv1alpha1.NodeVolumeState,
	) (nodestate.Change, error) {
		var err error
		if read, err = c.gatherConfirmation(ctx, f, n, a, nvs); err != nil || read.guard(c.Protocol) != handshake.GuardNone {
			return nil, err
		}
		wanted := decision.WithAttachment(entry, read.attachment)
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
	guard := read.guard(c.Protocol)
	if guard != handshake.GuardNone {
		f.Lock = read.lock
	}
	if guard == handshake.GuardCutHolds {
		n.WaitFor(read.lifted, guard)
		_, err := c.noteLift(ctx, f, read.lifted)
		return err
	}
	if guard != handshake.GuardNone || decision.Stale(f, n, n.Candidate()) {
		n.SetWait("", "")
	}
	return nil
}

// confirmation is what is read before Attached is written, in this order.
type confirmation struct {
	node  string
	state handshake.Node
	// cachedExclusive: the cache shows a volume that only one node may have. usedElsewhere: another node reports that it
	// uses the volume.
	cachedExclusive, usedElsewhere bool
	lock                           handshake.Lock
	attachment                     *storagev1.VolumeAttachment
	// needsHold: the attachment is one that upstream could delete if it has no hold.
	needsHold bool
	// exclusive: so does the API server.
	exclusive bool
	// attachedElsewhere: the lock is there, and so is an attachment to another node.
	attachedElsewhere bool
	// lifted is a node that may write again to a volume which only one node may have; nil if there is none.
	lifted *decision.Node
}

// gatherConfirmation reads what guard decides on, after nvs.
func (c *Controller) gatherConfirmation(
	ctx context.Context, f *decision.Facts, n *decision.Node, a *decision.Attachment, nvs *volumesv1alpha1.NodeVolumeState,
) (confirmation, error) {
	r := confirmation{
		node: n.Name, state: handshake.NodeOf(nvs, f.Volume), cachedExclusive: f.Exclusive, needsHold: a != nil,
	}
	if err := c.hasConfirmation(ctx, nvs); err != nil {
		return r, err
	}
	user, err := nodestate.UserElsewhere(ctx, c.Client, n.Name, f.Volume)
	if r.usedElsewhere = user != ""; err != nil {
		return r, err
	}
	if r.lock, r.attachment, err = c.readForConfirm(ctx, f, nvs, a); err != nil {
		return r, err
	}
	if r.exclusive, err = c.readExclusive(ctx, f, n); err != nil {
		return r, err
	}
	if r.lock.Exists {
		if r.attachedElsewhere, err = c.readElsewhere(ctx, f, n); err != nil {
			return r, err
		}
	}
	if r.exclusive && r.state.Entry.State != handshake.Attached { // else it has been handed over already
		r.lifted, err = c.liftedElsewhere(ctx, f, n)
	}
	return r, err
}

// errBehind: what is used elsewhere is not known yet, because the cache is older than the session of the node's agent.
var errBehind = errors.New("the cache does not show yet that the session of the node's agent is confirmed")

// hasConfirmation is an error unless the cache has the confirmation of the agent's session that nvs has. What is used
// elsewhere comes from the cache. The manager that confirmed the session had the reports of all agents, and a watch
// shows them before the confirmation. It may have been another one, which led before this one. While the session is not
// confirmed the node does not use the volume, and its confirmation asks who does.
func (c *Controller) hasConfirmation(ctx context.Context, nvs *volumesv1alpha1.NodeVolumeState) error {
	if nvs == nil || handshake.NodeOf(nvs, "").Unconfirmed {
		return nil
	}
	cached := &volumesv1alpha1.NodeVolumeState{}
	if err := c.Client.Get(ctx, client.ObjectKeyFromObject(nvs), cached); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("reading the state of node %s: %w", nvs.Name, err)
	}
	if cached.UID != nvs.UID || cached.Spec.Protocol.ConfirmedSession != nvs.Spec.Protocol.ConfirmedSession {
		return errBehind
	}
	return nil
}

// guard returns the guard that refuses Attached.
func (r confirmation) guard(p handshake.Protocol) handshake.Guard {
	if guard := p.MayBringIn(r.cachedExclusive, r.usedElsewhere); guard != handshake.GuardNone {
		return guard
	}
	guard := p.MayWriteAttached(r.state, r.node, r.exclusive, r.lock, handshake.AttachmentFrom(r.attachment))
	switch {
	case guard != handshake.GuardNone:
		return guard
	case r.lifted != nil:
		return handshake.GuardCutHolds
	case r.attachedElsewhere:
		return handshake.GuardAttachmentGone
	case r.needsHold && !decision.IsHeld(r.attachment):
		return handshake.GuardAttachmentLive // created again meanwhile: upstream could delete it under a mount
	}
	return handshake.GuardNone
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

// readElsewhere reports whether the volume has an attachment to another node that has to do with it. The lock was read
// before. A leader that took the volume for a shared one, and has yet to write Attached there, had seen that
// attachment; to delete it is to write that node's state.
func (c *Controller) readElsewhere(ctx context.Context, f *decision.Facts, n *decision.Node) (bool, error) {
	for _, m := range f.Nodes {
		if m == n {
			continue
		}
		va, err := c.readAttachments(ctx, f, m)
		if err != nil || !va.Gone() {
			return true, err
		}
	}
	return false, nil
}
