/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package bare

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
)

// change of a node's state; one without apply has it only read. What it rests on is read after the state was.
type change struct {
	read  func(context.Context) error
	apply func(*volumesv1alpha1.NodeVolumeState)
	// written is told the state as it was written.
	written func(*volumesv1alpha1.NodeVolumeState)
}

// writeState reads the node's state live, then what the changes rest on, and writes at that version.
func (c *Client) writeState(ctx context.Context, n *node, group []change) error {
	for {
		nvs := &volumesv1alpha1.NodeVolumeState{}
		if err := c.request(func() error { return c.api.Get(ctx, client.ObjectKey{Name: n.name}, nvs) }); err != nil {
			return fmt.Errorf("reading the state of node %s: %w", n.name, err)
		}
		reads, readCtx := errgroup.WithContext(ctx)
		for _, one := range group {
			if one.read != nil {
				reads.Go(func() error { return one.read(readCtx) })
			}
		}
		if err := reads.Wait(); err != nil {
			return err
		}
		err := c.updateState(ctx, nvs, group)
		if !apierrors.IsConflict(err) {
			return err
		}
	}
}

func (c *Client) updateState(ctx context.Context, nvs *volumesv1alpha1.NodeVolumeState, group []change) error {
	changes := false
	for _, one := range group {
		if one.apply != nil {
			one.apply(nvs)
			changes = true
		}
	}
	if !changes {
		return nil
	}
	if err := c.request(func() error { return c.api.Update(ctx, nvs) }); err != nil {
		return err
	}
	for _, one := range group {
		if one.written != nil {
			one.written(nvs)
		}
	}
	return nil
}

// change goes out with others of the volume's node.
func (c *Client) change(ctx context.Context, v *volume, one change) error {
	return v.node.spec.add(ctx, one)
}

func (v *volume) entry(state volumesv1alpha1.AttachmentState, uid types.UID) volumesv1alpha1.NodeAttachment {
	csi := v.PersistentVolume.Spec.CSI
	size := v.PersistentVolume.Spec.Capacity[corev1.ResourceStorage]
	return volumesv1alpha1.NodeAttachment{
		VolumeName: v.Unique, State: state, AttachmentUID: uid, AttachmentName: v.Attachment,
		Driver: csi.Driver, VolumeHandle: csi.VolumeHandle, FSType: csi.FSType, Capacity: &size,
		PersistentVolumeName: v.PersistentVolume.Name, VolumeMode: corev1.PersistentVolumeFilesystem,
		AccessModes: v.PersistentVolume.Spec.AccessModes,
	}
}

func put(nvs *volumesv1alpha1.NodeVolumeState, e volumesv1alpha1.NodeAttachment) {
	remove(nvs, e.VolumeName)
	nvs.Spec.Attachments = append(nvs.Spec.Attachments, e)
}

func remove(nvs *volumesv1alpha1.NodeVolumeState, name string) {
	nvs.Spec.Attachments = slices.DeleteFunc(nvs.Spec.Attachments, func(a volumesv1alpha1.NodeAttachment) bool { return a.VolumeName == name })
}

// listing is a change of the Node's list of attached volumes.
type listing struct {
	name     corev1.UniqueVolumeName
	attached bool
}

// writeList reads the Node and its state live and writes the list at that version of the Node.
func (c *Client) writeList(ctx context.Context, n *node, group []listing) error {
	for {
		object := &corev1.Node{}
		for _, o := range []client.Object{object, &volumesv1alpha1.NodeVolumeState{}} {
			if err := c.request(func() error { return c.api.Get(ctx, client.ObjectKey{Name: n.name}, o) }); err != nil {
				return fmt.Errorf("reading node %s: %w", n.name, err)
			}
		}
		list := slices.Clone(object.Status.VolumesAttached)
		for _, one := range group {
			list = slices.DeleteFunc(list, func(a corev1.AttachedVolume) bool { return a.Name == one.name })
			if one.attached {
				list = append(list, corev1.AttachedVolume{Name: one.name})
			}
		}
		err := c.request(func() error {
			return c.api.Status().Patch(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.name}}, merge(map[string]any{
				"metadata": map[string]any{"resourceVersion": object.ResourceVersion},
				"status":   map[string]any{"volumesAttached": list},
			}))
		})
		if !apierrors.IsConflict(err) {
			return err
		}
	}
}

func merge(body map[string]any) client.Patch {
	data, err := json.Marshal(body)
	if err != nil {
		panic(err) // it is made of plain fields
	}
	return client.RawPatch(types.MergePatchType, data)
}
