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
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
)

// change of a node's state. Its preconditions are read after the state.
type change struct {
	read  func(context.Context) error
	apply func(*volumesv1alpha1.NodeVolumeState)
	// written receives the state as it was written.
	written func(*volumesv1alpha1.NodeVolumeState)
}

// writeState takes the newest known version of the node's state. It reads the preconditions of the changes, and
// writes at that version. After a conflict it reads the state live.
func (c *Client) writeState(ctx context.Context, n *node, group []change) error {
	nvs, err := n.known(ctx)
	for err == nil {
		reads, readCtx := errgroup.WithContext(ctx)
		for _, one := range group {
			if one.read != nil {
				reads.Go(func() error { return one.read(readCtx) })
			}
		}
		if err := reads.Wait(); err != nil {
			return err
		}
		if err = c.updateState(ctx, n, nvs, group); !apierrors.IsConflict(err) {
			return err
		}
		nvs = &volumesv1alpha1.NodeVolumeState{}
		err = c.api.Get(ctx, client.ObjectKey{Name: n.name}, nvs)
	}
	return fmt.Errorf("reading the state of node %s: %w", n.name, err)
}

// known is a copy of the node's state: the newer one of the last write and the watch.
func (n *node) known(ctx context.Context) (*volumesv1alpha1.NodeVolumeState, error) {
	seen, err := n.state.await(ctx, func(nvs *volumesv1alpha1.NodeVolumeState) bool { return nvs != nil })
	if err != nil {
		return nil, err
	}
	if n.written != nil {
		if order, err := resourceversion.CompareResourceVersion(n.written.ResourceVersion,
			seen.ResourceVersion); err == nil && order > 0 {
			seen = n.written
		}
	}
	return seen.DeepCopy(), nil
}

func (c *Client) updateState(ctx context.Context, n *node, nvs *volumesv1alpha1.NodeVolumeState, group []change) error {
	for _, one := range group {
		one.apply(nvs)
	}
	if err := c.api.Update(ctx, nvs); err != nil {
		return err
	}
	n.written = nvs
	for _, one := range group {
		if one.written != nil {
			one.written(nvs)
		}
	}
	return nil
}

// change joins the other changes of the volume's node.
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
	nvs.Spec.Attachments = slices.DeleteFunc(nvs.Spec.Attachments,
		func(a volumesv1alpha1.NodeAttachment) bool { return a.VolumeName == name })
}

// listing is a change of the Node's list of attached volumes.
type listing struct {
	name     corev1.UniqueVolumeName
	attached bool
}

// writeList reads the Node live, and its state if a volume is added. It writes the list at that version of the Node.
func (c *Client) writeList(ctx context.Context, n *node, group []listing) error {
	for {
		object := &corev1.Node{}
		reads := []client.Object{object}
		if slices.ContainsFunc(group, func(one listing) bool { return one.attached }) {
			reads = append(reads, &volumesv1alpha1.NodeVolumeState{})
		}
		for _, o := range reads {
			if err := c.api.Get(ctx, client.ObjectKey{Name: n.name}, o); err != nil {
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
		err := c.api.Status().Patch(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.name}}, merge(map[string]any{
			"metadata": map[string]any{"resourceVersion": object.ResourceVersion},
			"status":   map[string]any{"volumesAttached": list},
		}))
		if !apierrors.IsConflict(err) {
			return err
		}
	}
}

func merge(body map[string]any) client.Patch {
	data, err := json.Marshal(body)
	if err != nil {
		panic(err) // plain fields can always be encoded
	}
	return client.RawPatch(types.MergePatchType, data)
}
