/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package attachment

import (
	"context"
	"fmt"

	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/attachment/capacity"
	"github.com/hawser-io/hawser/internal/controller/attachment/decision"
	"github.com/hawser-io/hawser/internal/controller/nodestate"
	"github.com/hawser-io/hawser/internal/controller/volume"
)

// +kubebuilder:rbac:groups=storage.k8s.io,resources=volumeattachments,verbs=get;create;patch;delete

// counter keeps the controller within the nodes' limits.
func (c *Controller) counter() capacity.Counter {
	return capacity.Counter{Client: c.Client, Limits: &c.limits}
}

// attach creates the attachment where the node has capacity for it.
func (c *Controller) attach(ctx context.Context, f *decision.Facts, n *decision.Node) error {
	return c.counter().Attach(ctx, f, n, c.createAttachment)
}

// createAttachment makes the attachment under upstream's name, held from the start. The driver's attacher carries it
// out.
func (c *Controller) createAttachment(ctx context.Context, f *decision.Facts, n *decision.Node) error {
	entry := decision.EntryOf(f, n.Candidate())
	if waitForRoom(n, entry.Namespace, nodestate.RoomFor(c.Writer.Known(ctx, n.Name), entry)) {
		return nil
	}
	taken, err := c.takeLock(ctx, f, n)
	if err != nil || !taken {
		return err
	}
	va := &storagev1.VolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{
			Name: volume.AttachmentName(f.Driver, f.VolumeHandle, n.Name),
			Annotations: map[string]string{
				volumesv1alpha1.HoldAnnotation: c.holdValue(), volumesv1alpha1.VolumeNameAnnotation: f.Volume,
			},
		},
		Spec: storagev1.VolumeAttachmentSpec{
			Attacher: f.Driver, NodeName: n.Name,
			Source: n.Candidate().Result.Source.Attachment,
		},
	}
	err = c.Client.Create(ctx, va)
	if apierrors.IsAlreadyExists(err) {
		return c.adoptAttachment(ctx, f, n, va.Name)
	}
	if err != nil {
		return fmt.Errorf("creating attachment %s: %w", va.Name, err)
	}
	c.ownWrites.note("", va)
	n.AddAttachment(va)
	return nil
}

// adoptAttachment takes an attachment that was there first into the facts; the next decision says what it is good for.
func (c *Controller) adoptAttachment(ctx context.Context, f *decision.Facts, n *decision.Node, name string) error {
	va, err := c.readAttachment(ctx, name)
	if err != nil {
		return err
	}
	if va == nil {
		n.SetWait("", "")
		return nil
	}
	if va.Spec.NodeName != n.Name || va.Spec.Attacher != f.Driver {
		n.SetWait(volumesv1alpha1.ReasonAttachFailed, fmt.Sprintf(
			"VolumeAttachment %s exists for node %s and driver %s", name, va.Spec.NodeName, va.Spec.Attacher,
		))
		return nil
	}
	n.AddAttachment(va)
	return noteOther(ctx, c.Client, f, ptr.Deref(va.Spec.Source.PersistentVolumeName, ""))
}
