/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package capacity

import (
	"context"
	"fmt"
	"slices"

	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hawser-io/hawser/internal/controller/attachment/decision"
	"github.com/hawser-io/hawser/internal/controller/index"
	"github.com/hawser-io/hawser/internal/handshake"
)

// Queue sets n.Limit if the volume is to be attached to the node. A volume that the node cannot take is queued.
func (c Counter) Queue(ctx context.Context, f *decision.Facts, n *decision.Node) error {
	limit, known, err := c.limitOf(ctx, f, n)
	if err != nil || !known {
		n.Limit = decision.Limit{}
		return err
	}
	c.Limits.mu.Lock()
	defer c.Limits.mu.Unlock()
	_, err = c.count(ctx, f, n, limit)
	return err
}

// Attach reserves capacity for the attachment and creates it. Without capacity the node waits.
func (c Counter) Attach(ctx context.Context, f *decision.Facts, n *decision.Node, create func(
	context.Context, *decision.Facts, *decision.Node,
) error) error {
	limit, known, err := c.limitOf(ctx, f, n)
	if err != nil {
		return err
	}
	if !known {
		return create(ctx, f, n)
	}
	s, err := c.reserve(ctx, f, n, limit)
	if err != nil || n.Limit.Reached() {
		return err
	}
	err = create(ctx, f, n)
	c.settle(f, n, s, err)
	return err
}

// settle ties the reservation to the attachment that was created, or cancels it if none can have been.
func (c Counter) settle(f *decision.Facts, n *decision.Node, s driverOnNode, err error) {
	name := decision.AttachmentName(f, n.Name)
	c.Limits.mu.Lock()
	defer c.Limits.mu.Unlock()
	switch a := n.AttachmentNamed(name); {
	case a != nil:
		c.Limits.created(s, name, a.UID)
	case err == nil || answered(err):
		c.Limits.release(s, name)
	}
}

// answered reports whether the API server refused the request. Without an answer, the request may still have an effect.
func answered(err error) bool {
	return apierrors.ReasonForError(err) != metav1.StatusReasonUnknown && !apierrors.IsTimeout(err) &&
		!apierrors.IsServerTimeout(err) && !apierrors.IsInternalError(err)
}

func (c Counter) reserve(ctx context.Context, f *decision.Facts, n *decision.Node, limit int) (driverOnNode, error) {
	c.Limits.mu.Lock()
	defer c.Limits.mu.Unlock()
	s, err := c.count(ctx, f, n, limit)
	if err != nil {
		return s, err
	}
	if n.Limit.Reached() {
		n.SetWait("", "")
		return s, nil
	}
	if n.Limit.Known {
		c.Limits.reserve(s, decision.AttachmentName(f, n.Name), f.Volume)
	}
	return s, nil
}

// count sets n.Limit. The lock of the limits is held, so that what is reserved cannot become present in between.
func (c Counter) count(ctx context.Context, f *decision.Facts, n *decision.Node, limit int) (driverOnNode, error) {
	s := driverOnNode{n.Name, f.Driver}
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
	i := n.Candidate()
	n.Limit = c.Limits.check(s, limit, present, decision.AttachmentName(f, n.Name), waitingVolume{
		volume: f.Volume, since: i.Object.CreationTimestamp, intent: i.Name(),
	})
	return s, nil
}

// limitOf is the node's limit for the driver, if the volume has yet to be attached to the node.
func (c Counter) limitOf(ctx context.Context, f *decision.Facts, n *decision.Node) (int, bool, error) {
	if !f.AttachRequired || len(n.Attachments) > 0 || n.State.Entry.State != handshake.Absent || n.Candidate() == nil {
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
