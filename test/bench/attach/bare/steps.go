/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package bare

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/exclusive"
	"github.com/hawser-io/hawser/test/bench/attach/stage"
)

// attach creates the attachment with a hold, and waits until the driver has attached the volume.
func (c *Client) attach(ctx context.Context, v *volume) (*storagev1.VolumeAttachment, error) {
	va := &storagev1.VolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{
			Name:        v.Attachment,
			Annotations: map[string]string{volumesv1alpha1.HoldAnnotation: time.Now().UTC().Format(time.RFC3339)},
		},
		Spec: storagev1.VolumeAttachmentSpec{
			Attacher: stage.DriverName, NodeName: v.Node,
			Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &v.PersistentVolume.Name},
		},
	}
	if err := c.request(ctx, func() error { return c.api.Create(ctx, va) }); err != nil {
		return nil, fmt.Errorf("creating the attachment: %w", err)
	}
	return v.attachment.await(ctx, func(seen *storagev1.VolumeAttachment) bool {
		return seen != nil && seen.UID == va.UID && seen.Status.Attached
	})
}

// confirm writes Attached, after it has read the node's state, the lock and the attachment, in this order.
func (c *Client) confirm(ctx context.Context, v *volume, va *storagev1.VolumeAttachment) error {
	return c.change(ctx, v, change{
		read: func(ctx context.Context) error {
			if err := c.api.Get(ctx, exclusive.Key(v.Unique), &corev1.ConfigMap{}); err != nil {
				return fmt.Errorf("reading the lock: %w", err)
			}
			return c.api.Get(ctx, client.ObjectKey{Name: v.Attachment}, &storagev1.VolumeAttachment{})
		},
		apply: func(nvs *volumesv1alpha1.NodeVolumeState) {
			put(nvs, v.entry(volumesv1alpha1.AttachmentAttached, va.UID))
		},
	})
}

// report writes the intent's status once the volume is attached.
func (c *Client) report(ctx context.Context, v *volume, i *volumesv1alpha1.VolumeAttachmentIntent) error {
	now := metav1.NowMicro()
	s := &i.Status
	s.ObservedGeneration, s.ClaimUID, s.VolumeName, s.VolumeUID = i.Generation, v.Claim.UID, v.PersistentVolume.Name,
		v.PersistentVolume.UID
	s.UniqueVolumeName, s.VolumeMode = v.Unique, corev1.PersistentVolumeFilesystem
	s.Timeline = &volumesv1alpha1.Timeline{Requested: &now, Attached: &now}
	for _, condition := range []metav1.Condition{
		{Type: volumesv1alpha1.ConditionResolved, Reason: volumesv1alpha1.ReasonResolved,
			Message: "the claim is bound to volume " + v.PersistentVolume.Name},
		{Type: volumesv1alpha1.ConditionAttached, Reason: volumesv1alpha1.ReasonAttached,
			Message: "attached to node " + v.Node + " by VolumeAttachment " + v.Attachment},
		{Type: volumesv1alpha1.ConditionReady, Reason: volumesv1alpha1.ReasonReady, Message: "the volume is Attached"},
	} {
		condition.Status, condition.ObservedGeneration = metav1.ConditionTrue, i.Generation
		meta.SetStatusCondition(&s.Conditions, condition)
	}
	return c.request(ctx, func() error { return c.api.Status().Update(ctx, i) })
}

// markDetaching writes Detaching, at a version at which the volume is not in use.
func (c *Client) markDetaching(ctx context.Context, v *volume, va *storagev1.VolumeAttachment) error {
	return c.change(ctx, v, change{apply: func(nvs *volumesv1alpha1.NodeVolumeState) {
		e := v.entry(volumesv1alpha1.AttachmentDetaching, va.UID)
		e.Evidence = &volumesv1alpha1.DetachEvidence{
			Type: volumesv1alpha1.EvidenceAgentReleased, Time: metav1.Now(), BootID: nvs.Status.BootID,
			Message: "the agent of node " + v.Node + " reports the volume not in use",
		}
		put(nvs, e)
	}})
}

// delete deletes the attachment and waits until it is gone.
func (c *Client) delete(ctx context.Context, v *volume, va *storagev1.VolumeAttachment) error {
	err := c.request(ctx, func() error {
		return c.api.Delete(ctx, &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: va.Name}},
			client.Preconditions{UID: ptr.To(va.UID), ResourceVersion: ptr.To(va.ResourceVersion)})
	})
	if err != nil {
		return fmt.Errorf("deleting the attachment: %w", err)
	}
	_,
		err = v.attachment.await(ctx,
		func(seen *storagev1.VolumeAttachment) bool { return seen == nil || seen.UID != va.UID })
	return err
}

// forget removes the entry. A UID that a watch has shown as deleted does not return.
func (c *Client) forget(ctx context.Context, v *volume) error {
	return c.change(ctx, v, change{apply: func(nvs *volumesv1alpha1.NodeVolumeState) { remove(nvs, v.Unique) }})
}
