/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package intent

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hawser-io/hawser/internal/controller/cached"
	"github.com/hawser-io/hawser/internal/controller/resolve"
)

// +kubebuilder:rbac:groups="",resources=persistentvolumeclaims,verbs=patch

// selectNode names the intent's node to a claim that waits for its first consumer, as the scheduler would
// for a pod. Where a node is named already, another consumer was first.
func (c *Controller) selectNode(ctx context.Context, f resolve.Facts, r resolve.Result) error {
	if !r.SelectNode || f.Claim.Annotations[cached.SelectedNodeAnnotation] != "" {
		return nil
	}
	claim := f.Claim.DeepCopy()
	metav1.SetMetaDataAnnotation(&claim.ObjectMeta, cached.SelectedNodeAnnotation, f.Node.Name)
	err := c.Client.Patch(ctx, claim, client.MergeFromWithOptions(f.Claim, client.MergeFromWithOptimisticLock{}))
	if err == nil || apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return nil
	}
	return fmt.Errorf("naming node %s to claim %s/%s: %w", f.Node.Name, claim.Namespace, claim.Name, err)
}
