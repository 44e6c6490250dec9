/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package bare

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/test/bench/attach/stage"
)

// attachPod attaches in mode Replace.
func (c *Client) attachPod(ctx context.Context, v *volume, pod *corev1.Pod) error {
	i := podIntent(v, pod)
	if err := c.request(ctx, func() error { return c.api.Create(ctx, i) }); err != nil {
		return fmt.Errorf("creating the intent: %w", err)
	}
	if err := c.lock(ctx, v); err != nil {
		return err
	}
	va, err := c.attach(ctx, v)
	if err != nil {
		return err
	}
	if err := c.confirm(ctx, v, va); err != nil {
		return err
	}
	if err := v.node.list.add(ctx, listing{corev1.UniqueVolumeName(v.Unique), true}); err != nil {
		return fmt.Errorf("listing the volume: %w", err)
	}
	return c.report(ctx, v, i)
}

// podIntent is the intent that the pod controller creates for a pod's volume.
func podIntent(v *volume, pod *corev1.Pod) *volumesv1alpha1.VolumeAttachmentIntent {
	i := v.Intent()
	i.Name = fmt.Sprintf("pod-%s-%s", pod.Name, pod.UID)
	i.Labels = map[string]string{volumesv1alpha1.PodUIDLabel: string(pod.UID)}
	i.OwnerReferences = []metav1.OwnerReference{
		{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID, Controller: ptr.To(true)}}
	i.Spec.Publisher = volumesv1alpha1.PublisherKubelet
	return i
}

// detachPod detaches in mode Replace.
func (c *Client) detachPod(ctx context.Context, v *volume) error {
	va, err := v.attachment.await(ctx, func(va *storagev1.VolumeAttachment) bool { return va != nil })
	if err != nil {
		return err
	}
	i, err := v.intent.await(ctx, func(i *volumesv1alpha1.VolumeAttachmentIntent) bool { return i != nil })
	if err != nil {
		return err
	}
	object := &volumesv1alpha1.VolumeAttachmentIntent{
		ObjectMeta: metav1.ObjectMeta{Namespace: stage.Namespace, Name: i.Name}}
	if err := c.request(ctx,
		func() error { return c.api.Delete(ctx, object, client.Preconditions{UID: &i.UID}) }); err != nil {
		return fmt.Errorf("deleting the intent: %w", err)
	}
	if err := c.markDetaching(ctx, v, va); err != nil {
		return err
	}
	if err := v.node.list.add(ctx, listing{corev1.UniqueVolumeName(v.Unique), false}); err != nil {
		return fmt.Errorf("removing the volume from the list: %w", err)
	}
	if err := c.fence(ctx, v); err != nil {
		return err
	}
	if err := c.delete(ctx, v, va); err != nil {
		return err
	}
	return c.forget(ctx, v)
}

// fence makes the node's agent reconcile its node again, and waits for that.
func (c *Client) fence(ctx context.Context, v *volume) error {
	var generation int64
	err := c.change(ctx, v, change{
		apply:   func(nvs *volumesv1alpha1.NodeVolumeState) { nvs.Spec.Protocol.Fences++ },
		written: func(nvs *volumesv1alpha1.NodeVolumeState) { generation = nvs.Generation },
	})
	if err != nil {
		return fmt.Errorf("fencing: %w", err)
	}
	_, err = v.node.state.await(ctx, func(nvs *volumesv1alpha1.NodeVolumeState) bool {
		return nvs != nil && nvs.Status.ObservedGeneration >= generation
	})
	return err
}
