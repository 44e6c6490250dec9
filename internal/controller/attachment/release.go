/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package attachment

import (
	"context"
	"errors"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/status"
)

// +kubebuilder:rbac:groups=volumes.hawser.io,resources=volumeattachmentintents,verbs=patch

// acknowledged says whether the agent has answered on the intent that it no longer publishes it. No agent acts
// for an intent that the kubelet publishes, and nobody waits for it, unless its policy is needed. One that an agent may have published
// is waited for also if it wants no more than Attached by now.
func acknowledged(intent *volumesv1alpha1.VolumeAttachmentIntent) bool {
	if !status.AwaitsRelease(intent) {
		return true
	}
	c := meta.FindStatusCondition(intent.Status.Conditions, volumesv1alpha1.ConditionPublished)
	return c != nil && c.Status == metav1.ConditionFalse && c.Reason == volumesv1alpha1.ReasonReleased
}

// release takes the finalizer off intents whose node has let go. The claim's finalizer follows when the intent is gone.
func (c *Controller) release(ctx context.Context, n *Node, intents []*Intent) error {
	var failures []error
	for _, i := range intents {
		intent := i.Object.DeepCopy()
		controllerutil.RemoveFinalizer(intent, volumesv1alpha1.ReleaseFinalizer)
		// Noted before, because the event of its end may be here before the answer.
		c.released.Store(i.Object.UID, i.Object.ResourceVersion)
		err := c.Client.Patch(ctx, intent, client.MergeFromWithOptions(i.Object, client.MergeFromWithOptimisticLock{}))
		// A conflict means that a newer intent is on its way here.
		if err != nil && !apierrors.IsConflict(err) {
			c.released.Delete(i.Object.UID)
		}
		if err != nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
			failures = append(failures, fmt.Errorf("releasing intent %s: %w", i.name(), err))
		}
	}
	n.drop(intents)
	return errors.Join(failures...)
}

// drop takes intents out of those that are leaving.
func (n *Node) drop(intents []*Intent) {
	n.Leaving = slices.DeleteFunc(slices.Clone(n.Leaving), func(i *Intent) bool { return slices.Contains(intents, i) })
}
