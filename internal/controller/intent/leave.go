/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package intent

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/resolve"
)

// +kubebuilder:rbac:groups=volumes.hawser.io,resources=volumeattachmentintents,verbs=delete
// +kubebuilder:rbac:groups="",resources=nodes,verbs=get

// leave deletes the intent if it goes with its Node, and the Node, read live, is being deleted or is gone. One that is
// not pinned to a volume stays, and says what keeps it: Git makes it again each time.
func (c *Controller) leave(ctx context.Context, f resolve.Facts) (bool, error) {
	intent := f.Intent
	if intent.Spec.OnNodeDeletion != volumesv1alpha1.OnNodeDeletionRelease || intent.Status.UniqueVolumeName == "" ||
		!leaves(f.Node) {
		return false, nil
	}
	node := &corev1.Node{}
	err := c.Reader.Get(ctx, client.ObjectKey{Name: intent.Spec.NodeName}, node)
	if client.IgnoreNotFound(err) != nil {
		return false, fmt.Errorf("reading node %s: %w", intent.Spec.NodeName, err)
	}
	if err == nil && !leaves(node) {
		return false, nil
	}
	err = c.Client.Delete(ctx, intent.DeepCopy(), client.Preconditions{
		UID: ptr.To(intent.UID), ResourceVersion: ptr.To(intent.ResourceVersion),
	})
	switch {
	case err == nil:
		c.Reporter.LeavesWithNode(intent)
	case !superseded(err):
		return false, fmt.Errorf("deleting intent %s, whose node %s is being deleted: %w",
			client.ObjectKeyFromObject(intent), intent.Spec.NodeName, err)
	}
	return true, nil
}

func leaves(node *corev1.Node) bool { return node == nil || !node.DeletionTimestamp.IsZero() }
