/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package attachment

import (
	"context"
	"fmt"
	"slices"

	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hawser-io/hawser/internal/controller/index"
	"github.com/hawser-io/hawser/internal/controller/volume"
	"github.com/hawser-io/hawser/internal/handshake"
)

func attachmentName(f *Facts, node string) string {
	return volume.AttachmentName(f.Driver, f.VolumeHandle, node)
}

// gatherLimit finds out whether the node has room for the volume where it is to be attached.
func (c *Controller) gatherLimit(ctx context.Context, f *Facts, n *Node) error {
	limit, known, err := c.limitOf(ctx, f, n)
	if err != nil || !known {
		n.Limit = Limit{}
		return err
	}
	c.limits.mu.Lock()
	defer c.limits.mu.Unlock()
	_, err = c.lookForRoom(ctx, f, n, limit)
	return err
}

// attachWithin reserves room for the attachment and creates it. Where there is no room the node waits.
func (c *Controller) attachWithin(ctx context.Context, f *Facts, n *Node, create func(context.Context, *Facts, *Node) error) error {
	limit, known, err := c.limitOf(ctx, f, n)
	if err != nil {
		return err
	}
	if !known {
		return create(ctx, f, n)
	}
	s, err := c.takeRoom(ctx, f, n, limit)
	if err != nil || n.Limit.reached() {
		return err
	}
	err = create(ctx, f, n)
	c.settleRoom(f, n, s, err)
	return err
}

// settleRoom ties what was reserved to the attachment that came of it, or gives it back where nothing can come of it.
func (c *Controller) settleRoom(f *Facts, n *Node, s slots, err error) {
	name := attachmentName(f, n.Name)
	c.limits.mu.Lock()
	defer c.limits.mu.Unlock()
	switch a := n.named(name); {
	case a != nil:
		c.limits.created(s, name, a.UID)
	case err == nil || answered(err):
		c.limits.release(s, name)
	}
}

// answered says whether the API server refused: then nothing came of the request. Otherwise something may come yet.
func answered(err error) bool {
	return apierrors.ReasonForError(err) != metav1.StatusReasonUnknown && !apierrors.IsTimeout(err) && !apierrors.IsServerTimeout(err) && !apierrors.IsInternalError(err)
}

func (c *Controller) takeRoom(ctx context.Context, f *Facts, n *Node, limit int) (slots, error) {
	c.limits.mu.Lock()
	defer c.limits.mu.Unlock()
	s, err := c.lookForRoom(ctx, f, n, limit)
	if err != nil {
		return s, err
	}
	if n.Limit.reached() {
		n.wait("", "")
		return s, nil
	}
	if n.Limit.Known {
		c.limits.reserve(s, attachmentName(f, n.Name), f.Volume)
	}
	return s, nil
}

// lookForRoom sets n.Limit. The lock of the limits is held, so that what is reserved cannot become present in between.
func (c *Controller) lookForRoom(ctx context.Context, f *Facts, n *Node, limit int) (slots, error) {
	s := slots{n.Name, f.Driver}
	list := &storagev1.VolumeAttachmentList{}
	if err := c.Client.List(ctx, list, client.MatchingFields{index.Node: n.Name}); err != nil {
		return s, fmt.Errorf("listing the attachments of node %s: %w", n.Name, err)
	}
	present := map[string]bool{}
	for i := range list.Items {
		if va := &list.Items[i]; va.Spec.Attacher == f.Driver && !handshake.AttachmentFrom(va).Gone() {
			present[va.Name] = true
		}
	}
	i := n.candidate()
	n.Limit = c.limits.look(s, limit, present, attachmentName(f, n.Name), waiter{volume: f.Volume, since: i.Object.CreationTimestamp, intent: i.name()})
	return s, nil
}

// limitOf is the node's limit for the driver where the volume has yet to be attached to the node.
func (c *Controller) limitOf(ctx context.Context, f *Facts, n *Node) (int, bool, error) {
	if !f.AttachRequired || len(n.Attachments) > 0 || n.State.Entry.State != handshake.Absent || n.candidate() == nil {
		return 0, false, nil
	}
	csiNode := &storagev1.CSINode{}
	if err := c.Client.Get(ctx, client.ObjectKey{Name: n.Name}, csiNode); err != nil {
		return 0, false, client.IgnoreNotFound(err)
	}
	i := slices.IndexFunc(csiNode.Spec.Drivers, func(d storagev1.CSINodeDriver) bool { return d.Name == f.Driver })
	if i < 0 || csiNode.Spec.Drivers[i].Allocatable == nil || csiNode.Spec.Drivers[i].Allocatable.Count == nil {
		return 0, false, nil
	}
	return int(*csiNode.Spec.Drivers[i].Allocatable.Count), true, nil
}
