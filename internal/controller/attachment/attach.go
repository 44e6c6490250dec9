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
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/attachment/capacity"
	"github.com/hawser-io/hawser/internal/controller/attachment/decision"
	"github.com/hawser-io/hawser/internal/controller/nodestate"
	"github.com/hawser-io/hawser/internal/controller/volume"
	"github.com/hawser-io/hawser/internal/handshake"
)

// +kubebuilder:rbac:groups=storage.k8s.io,resources=volumeattachments,verbs=get;create;patch;delete

// attacher attaches volumes, and lets nodes use them.
type attacher struct {
	client      client.Client
	reader      client.Reader
	writer      *nodestate.Writer
	protocol    handshake.Protocol
	clock       clock.PassiveClock
	attachTimes *attachTimes
	own         *ownWrites
	gate        capacity.Gate
	locker      locker
	live        liveReader
	changes     attachmentWriter
}

func (c *Controller) attacher() attacher {
	return attacher{
		client: c.Client, reader: c.Reader, writer: c.Writer, protocol: c.Protocol, clock: c.Clock,
		attachTimes: &c.attachTimes, own: &c.ownWrites,
		gate: c.gate(), locker: c.locker(), live: c.live(), changes: c.attachments(),
	}
}

// gate keeps the controller within the nodes' limits.
func (c *Controller) gate() capacity.Gate { return capacity.Gate{Client: c.Client, Limits: &c.limits} }

// attach creates the attachment where the node has capacity for it.
func (at attacher) attach(ctx context.Context, f *decision.Facts, n *decision.Node) error {
	return at.gate.Attach(ctx, f, n, at.create)
}

// create makes the attachment under upstream's name, held from the start. The driver's attacher carries it out.
func (at attacher) create(ctx context.Context, f *decision.Facts, n *decision.Node) error {
	entry := decision.EntryOf(f, n.Candidate())
	if waitForRoom(n, entry.Namespace, nodestate.RoomFor(at.writer.Known(ctx, n.Name), entry)) {
		return nil
	}
	taken, err := at.locker.take(ctx, f, n)
	if err != nil || !taken {
		return err
	}
	va := &storagev1.VolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{
			Name: volume.AttachmentName(f.Driver, f.VolumeHandle, n.Name),
			Annotations: map[string]string{
				volumesv1alpha1.HoldAnnotation: at.changes.now(), volumesv1alpha1.VolumeNameAnnotation: f.Volume,
			},
		},
		Spec: storagev1.VolumeAttachmentSpec{
			Attacher: f.Driver, NodeName: n.Name,
			Source: n.Candidate().Result.Source.Attachment,
		},
	}
	err = at.client.Create(ctx, va)
	if apierrors.IsAlreadyExists(err) {
		return at.adopt(ctx, f, n, va.Name)
	}
	if err != nil {
		return fmt.Errorf("creating attachment %s: %w", va.Name, err)
	}
	at.own.note("", va)
	n.AddAttachment(va)
	return nil
}

// adopt takes an attachment that was there first into the facts; the next decision says what it is good for.
func (at attacher) adopt(ctx context.Context, f *decision.Facts, n *decision.Node, name string) error {
	va, err := at.live.readAttachment(ctx, name)
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
	return noteOther(ctx, at.client, f, ptr.Deref(va.Spec.Source.PersistentVolumeName, ""))
}
