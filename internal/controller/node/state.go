/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package node

import (
	"context"
	"errors"
	"fmt"
	"time"

	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/index"
	"github.com/hawser-io/hawser/internal/controller/nodestate"
)

// +kubebuilder:rbac:groups="",resources=nodes,verbs=get;list;watch
// +kubebuilder:rbac:groups=storage.k8s.io,resources=volumeattachments,verbs=get;list;watch
// +kubebuilder:rbac:groups=volumes.hawser.io,resources=nodevolumestates,verbs=get;list;watch;create;update;delete
// +kubebuilder:rbac:groups=coordination.k8s.io,resources=leases,namespace=hawser-system,verbs=get;list;watch

// create makes the state of a node: with the Node, and for a Node that is gone while an attachment of
// ours is left there, because nothing can be detached before that is written down.
func (c *Controller) create(ctx context.Context, name string, node bool) error {
	if !node {
		held, err := c.held(ctx, name)
		if err != nil {
			return err
		}
		if !held {
			c.Tracker.Forget(name)
			return nil
		}
	}
	err := c.Client.Create(ctx, &volumesv1alpha1.NodeVolumeState{
		ObjectMeta: metav1.ObjectMeta{Name: name, Finalizers: []string{volumesv1alpha1.ReleaseFinalizer}},
	})
	if err == nil || apierrors.IsAlreadyExists(err) {
		return nil
	}
	return fmt.Errorf("creating the state of node %s: %w", name, err)
}

// held reports whether an attachment that Hawser counts on, or has to detach, is left on the node.
func (c *Controller) held(ctx context.Context, node string) (bool, error) {
	attachments, err := c.attachments(ctx, node)
	if err != nil {
		return false, err
	}
	for i := range attachments {
		if _, ok := attachments[i].Annotations[volumesv1alpha1.HoldAnnotation]; ok || c.Replace {
			return true, nil
		}
	}
	return false, nil
}

func (c *Controller) attachments(ctx context.Context, node string) ([]storagev1.VolumeAttachment, error) {
	list := &storagev1.VolumeAttachmentList{}
	if err := c.Client.List(ctx, list, client.MatchingFields{index.Node: node}); err != nil {
		return nil, fmt.Errorf("listing the attachments of node %s: %w", node, err)
	}
	return list.Items, nil
}

// remove lets the state of a Node that is gone go too, once nothing is attached or in use there. It returns when to
// reconcile again for whether the agent is still silent.
func (c *Controller) remove(ctx context.Context, nvs *volumesv1alpha1.NodeVolumeState) (time.Duration, error) {
	held, err := c.held(ctx, nvs.Name)
	if err != nil || held || left(nvs) == something {
		return never, err
	}
	most := nothing
	if left(nvs) == unnamed {
		if wait := goneAfter - c.Tracker.Silence(nvs.Name); wait > 0 {
			return wait, nil
		}
		most = unnamed
	}
	if nvs.DeletionTimestamp.IsZero() {
		err := c.Client.Delete(
			ctx, nvs, client.Preconditions{UID: ptr.To(nvs.UID), ResourceVersion: ptr.To(nvs.ResourceVersion)},
		)
		// Also after a conflict: what another one wrote may be nothing that wakes us.
		if client.IgnoreNotFound(err) != nil {
			return never, fmt.Errorf("deleting the state of node %s: %w", nvs.Name, err)
		}
		return never, nil
	}
	return never, c.release(ctx, nvs.Name, most)
}

// release takes the finalizer off when no more than most is left on the node.
func (c *Controller) release(ctx context.Context, node string, most remains) error {
	_, err := c.Writer.Apply(ctx, node,
		func(_ context.Context, nvs *volumesv1alpha1.NodeVolumeState) (nodestate.Change, error) {
			return dropFinalizer(nvs, most)
		})
	if err != nil && !errors.Is(err, errNotIdle) && !apierrors.IsNotFound(err) {
		return fmt.Errorf("releasing the state of node %s: %w", node, err)
	}
	return nil
}

// dropFinalizer lets the state go when no more than most is left on the node.
func dropFinalizer(nvs *volumesv1alpha1.NodeVolumeState, most remains) (nodestate.Change, error) {
	switch {
	case nvs == nil || !controllerutil.ContainsFinalizer(nvs, volumesv1alpha1.ReleaseFinalizer):
		return nil, nil
	case left(nvs) > most:
		return nil, errNotIdle
	}
	return func(nvs *volumesv1alpha1.NodeVolumeState) {
		controllerutil.RemoveFinalizer(nvs, volumesv1alpha1.ReleaseFinalizer)
	}, nil
}
