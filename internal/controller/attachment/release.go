/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package attachment

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/attachment/decision"
	"github.com/hawser-io/hawser/internal/controller/nodestate"
	"github.com/hawser-io/hawser/internal/handshake"
)

// +kubebuilder:rbac:groups=volumes.hawser.io,resources=volumeattachmentintents,verbs=patch

// release takes the finalizer off intents whose node has let go. The claim's finalizer follows when the intent is gone.
func (c *Controller) release(ctx context.Context, n *decision.Node, intents []*decision.Intent) error {
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
			failures = append(failures, fmt.Errorf("releasing intent %s: %w", i.Name(), err))
		}
	}
	n.Drop(intents)
	return errors.Join(failures...)
}

// releaseUnheard releases the intents of a node whose agent is not heard. The write to the node's state makes sure that
// no agent has begun a session since that was read; one that begins later publishes for no intent that is being
// deleted.
func (c *Controller) releaseUnheard(
	ctx context.Context, f *decision.Facts, n *decision.Node, intents []*decision.Intent,
) error {
	guard := handshake.GuardNone
	nvs, err := c.Writer.Apply(ctx, n.Name, func(
		ctx context.Context, nvs *volumesv1alpha1.NodeVolumeState,
	) (nodestate.Change, error) {
		leased, err := c.leased(ctx, n.Name)
		if err != nil {
			return nil, err
		}
		guard = c.Protocol.MayReleaseUnheard(handshake.NodeOf(nvs, f.Volume), leased, c.Tracker.MayBeRestored())
		if guard != handshake.GuardNone {
			return nil, nil
		}
		return func(nvs *volumesv1alpha1.NodeVolumeState) { nvs.Spec.Protocol.Fences++ }, nil
	})
	if err != nil {
		return fmt.Errorf("fencing node %s, which has no agent: %w", n.Name, err)
	}
	n.Observe(nvs, f.Volume)
	if guard != handshake.GuardNone {
		n.SetWait("", "")
		return nil
	}
	return c.release(ctx, n, intents)
}
