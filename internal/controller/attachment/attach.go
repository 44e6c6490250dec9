/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package attachment

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/volume"
)

// +kubebuilder:rbac:groups=storage.k8s.io,resources=volumeattachments,verbs=get;create;patch;delete

// attach creates the attachment where the node has capacity for it.
func (c *Controller) attach(ctx context.Context, f *Facts, n *Node) error {
	return c.attachWithin(ctx, f, n, c.create)
}

// create makes the attachment under upstream's name, held from the start. The driver's attacher carries it out.
func (c *Controller) create(ctx context.Context, f *Facts, n *Node) error {
	taken, err := c.takeLock(ctx, f, n)
	if err != nil || !taken {
		return err
	}
	pv := n.candidate().Volume
	va := &storagev1.VolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{
			Name: volume.AttachmentName(f.Driver, f.VolumeHandle, n.Name),
			Annotations: map[string]string{
				volumesv1alpha1.HoldAnnotation: c.now(), volumesv1alpha1.VolumeNameAnnotation: f.Volume,
			},
		},
		Spec: storagev1.VolumeAttachmentSpec{
			Attacher: f.Driver, NodeName: n.Name,
			Source: volume.AttachmentSource(pv),
		},
	}
	err = c.Client.Create(ctx, va)
	if apierrors.IsAlreadyExists(err) {
		return c.adopt(ctx, f, n, va.Name)
	}
	if err != nil {
		return fmt.Errorf("creating attachment %s: %w", va.Name, err)
	}
	c.answers.note("", va)
	n.addAttachment(va)
	return nil
}

// adopt takes an attachment that was there first into the facts; the next decision says what it is good for.
func (c *Controller) adopt(ctx context.Context, f *Facts, n *Node, name string) error {
	va, err := c.readAttachment(ctx, name)
	if err != nil {
		return err
	}
	if va == nil {
		n.wait("", "")
		return nil
	}
	if va.Spec.NodeName != n.Name || va.Spec.Attacher != f.Driver {
		n.wait(volumesv1alpha1.ReasonAttachFailed, fmt.Sprintf("VolumeAttachment %s exists for node %s and driver %s", name, va.Spec.NodeName, va.Spec.Attacher))
		return nil
	}
	n.addAttachment(va)
	return nil
}

// readAttachment reads an attachment live; nil when there is none.
func (c *Controller) readAttachment(ctx context.Context, name string) (*storagev1.VolumeAttachment, error) {
	va := &storagev1.VolumeAttachment{}
	err := c.Reader.Get(ctx, client.ObjectKey{Name: name}, va)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading attachment %s: %w", name, err)
	}
	return va, nil
}

// hold makes a foreign attachment one that we count on. It counts only if the answer is not terminating.
func (c *Controller) hold(ctx context.Context, f *Facts, n *Node, a *Attachment) error {
	return c.patchAttachment(ctx, n, a, map[string]any{
		"annotations": map[string]string{volumesv1alpha1.HoldAnnotation: c.now(), volumesv1alpha1.VolumeNameAnnotation: f.Volume},
	})
}

// patchAttachment changes an attachment's metadata under the UID and the resourceVersion that were decided on, and
// takes the answer over. Where somebody else was first the node waits for the event.
func (c *Controller) patchAttachment(ctx context.Context, n *Node, a *Attachment, metadata map[string]any) error {
	metadata["uid"], metadata["resourceVersion"] = a.UID, a.ResourceVersion
	body, err := json.Marshal(map[string]any{"metadata": metadata})
	if err != nil {
		return fmt.Errorf("encoding the change of attachment %s: %w", a.Name, err)
	}
	va := &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: a.Name}}
	err = c.Client.Patch(ctx, va, client.RawPatch(types.MergePatchType, body))
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		n.wait("", "")
		return nil
	}
	if err != nil {
		return fmt.Errorf("changing attachment %s: %w", a.Name, err)
	}
	c.answers.note(a.ResourceVersion, va)
	n.addAttachment(va)
	return nil
}

func (c *Controller) now() string { return c.Clock.Now().UTC().Format(time.RFC3339) }
