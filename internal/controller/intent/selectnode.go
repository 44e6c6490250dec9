/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package intent

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hawser-io/hawser/internal/controller/cached"
	"github.com/hawser-io/hawser/internal/controller/resolve"
	"github.com/hawser-io/hawser/internal/status"
)

// +kubebuilder:rbac:groups="",resources=persistentvolumeclaims,verbs=patch

// selectNode names the intent's node to a claim that waits for its first consumer, as the scheduler would
// for a pod. Where a node is named already, another consumer was first. A provisioner that cannot make the volume on
// the node removes the name, so that the scheduler may name another. Here it is named again, after a wait that doubles:
// each time is a call of the driver. It returns that wait, and notes in r what it waits for.
func (c *Controller) selectNode(ctx context.Context, f resolve.Facts, r *resolve.Result) (time.Duration, error) {
	if !r.SelectNode || f.Claim.Annotations[cached.SelectedNodeAnnotation] != "" {
		return 0, nil
	}
	id, now := string(f.Claim.UID), c.Named.Clock.Now()
	again := c.Named.Get(id)
	if again > status.FirstBackoff {
		r.Message = fmt.Sprintf("the provisioner of claim %s/%s has given back the node that was named to it: the claim's "+
			"events have the cause. Node %s is named again", f.Claim.Namespace, f.Claim.Name, f.Node.Name)
	}
	if c.Named.IsInBackOffSinceUpdate(id, now) {
		return again, nil
	}
	claim := f.Claim.DeepCopy()
	metav1.SetMetaDataAnnotation(&claim.ObjectMeta, cached.SelectedNodeAnnotation, f.Node.Name)
	err := c.Client.Patch(ctx, claim, client.MergeFromWithOptions(f.Claim, client.MergeFromWithOptimisticLock{}))
	switch {
	case err == nil:
		c.Named.GC()
		c.Named.Next(id, now)
		return 0, nil
	case apierrors.IsConflict(err) || apierrors.IsNotFound(err):
		return 0, nil
	}
	return 0, fmt.Errorf("naming node %s to claim %s/%s: %w", f.Node.Name, claim.Namespace, claim.Name, err)
}
