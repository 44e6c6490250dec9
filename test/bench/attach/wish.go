/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package attach

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/test/bench/attach/feed"
	"github.com/hawser-io/hawser/test/bench/attach/stage"
)

// wish is how a volume is requested on a node, and how the judge sees that it is attached or detached.
type wish struct {
	// object that requests the volume.
	object func(*stage.Volume) client.Object
	// toDetach is how many things must be seen until a volume counts as detached.
	toDetach int
	// listen reports to the arena's races what the watches show, except attachments that are gone.
	listen func(ctx context.Context, a *arena) error
}

// intentWish is attached when the intent's condition is True. It is detached when the attachment and the intent
// are gone.
var intentWish = wish{
	object:   func(v *stage.Volume) client.Object { return v.Intent() },
	toDetach: 2,
	listen: func(ctx context.Context, a *arena) error {
		return feed.On(ctx, a.feed, &volumesv1alpha1.VolumeAttachmentIntent{},
			func(i *volumesv1alpha1.VolumeAttachmentIntent) {
				if i.DeletionTimestamp == nil &&
					meta.IsStatusConditionTrue(i.Status.Conditions, volumesv1alpha1.ConditionAttached) {
					a.attaching.Load().Saw(i.Name, "Attached")
				}
			}, func(i *volumesv1alpha1.VolumeAttachmentIntent) { a.detaching.Load().Saw(i.Name, "intent") })
	},
}

// podWish is attached when the Node lists the volume, which the kubelet waits for. It is detached when the
// attachment is gone.
var podWish = wish{
	object:   func(v *stage.Volume) client.Object { return v.Pod() },
	toDetach: 1,
	listen: func(ctx context.Context, a *arena) error {
		return feed.On(ctx, a.feed, &corev1.Node{}, func(node *corev1.Node) {
			for _, attached := range node.Status.VolumesAttached {
				a.attaching.Load().Saw(a.names[string(attached.Name)], "listed")
			}
		}, nil)
	},
}

// listen reports what the watches show to the races.
func (a *arena) listen(ctx context.Context) error {
	if err := a.wish.listen(ctx, a); err != nil {
		return err
	}
	return feed.On(ctx, a.feed, &storagev1.VolumeAttachment{}, nil, func(va *storagev1.VolumeAttachment) {
		a.detaching.Load().Saw(a.names[va.Name], "attachment")
	})
}

// come creates the wish for a volume.
func (a *arena) come(ctx context.Context, v *stage.Volume) error {
	object := a.wish.object(v)
	a.attaching.Load().Begin(v.Name)
	if err := a.load.Create(ctx, object); err != nil {
		return fmt.Errorf("creating the wish for volume %s: %w", v.Name, err)
	}
	return nil
}

// leave deletes the wish.
func (a *arena) leave(ctx context.Context, v *stage.Volume) error {
	a.detaching.Load().Begin(v.Name)
	if err := a.load.Delete(ctx, a.wish.object(v), client.GracePeriodSeconds(0)); err != nil {
		return fmt.Errorf("deleting the wish for volume %s: %w", v.Name, err)
	}
	return nil
}
