/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package bare

import (
	"context"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/test/bench/attach/stage"
)

// attachIntent attaches in mode Coexist. The intent wants only Attached, so its claim needs no protection.
func (c *Client) attachIntent(ctx context.Context, v *volume) error {
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
	i, err := v.intent.await(ctx, func(i *volumesv1alpha1.VolumeAttachmentIntent) bool { return i != nil })
	if err != nil {
		return err
	}
	return c.report(ctx, v, i.DeepCopy())
}

// detachIntent detaches in mode Coexist. The intent is gone by then: it wanted only Attached, so it had no finalizer.
func (c *Client) detachIntent(ctx context.Context, v *volume) error {
	va, err := v.attachment.await(ctx, func(va *storagev1.VolumeAttachment) bool { return va != nil })
	if err != nil {
		return err
	}
	if err := c.markDetaching(ctx, v, va); err != nil {
		return err
	}
	if err := c.readPods(ctx, v); err != nil {
		return err
	}
	if err := c.delete(ctx, v, va); err != nil {
		return err
	}
	return c.forget(ctx, v)
}

// readPods reads the pods that show whether upstream needs the attachment, together with the node's other volumes.
func (c *Client) readPods(ctx context.Context, v *volume) error {
	return v.node.users.add(ctx, struct{}{})
}

func (c *Client) readUsers(ctx context.Context, n *node) error {
	reads, ctx := errgroup.WithContext(ctx)
	reads.Go(func() error {
		return c.api.Get(ctx, client.ObjectKey{Name: n.name}, &corev1.Node{})
	})
	reads.Go(func() error {
		return c.api.List(ctx, &corev1.PodList{}, client.InNamespace(stage.Namespace),
			client.MatchingFields{"spec.nodeName": n.name})
	})
	return reads.Wait()
}
