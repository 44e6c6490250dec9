/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package nodestate

import (
	"context"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/index"
	"github.com/hawser-io/hawser/internal/handshake"
)

// UsedElsewhere reports whether the volume is in use on another node than this one, and was not forced away from there. See
// handshake.Protocol.MayBringIn.
func UsedElsewhere(ctx context.Context, c client.Reader, node, volumeName string) (bool, error) {
	states := &volumesv1alpha1.NodeVolumeStateList{}
	if err := c.List(ctx, states, client.MatchingFields{index.Volume: volumeName}); err != nil {
		return false, fmt.Errorf("listing the nodes of %s: %w", volumeName, err)
	}
	for i := range states.Items {
		if n := handshake.NodeOf(&states.Items[i], volumeName); states.Items[i].Name != node && n.InUse() && !n.Entry.Forced {
			return true, nil
		}
	}
	return false, nil
}
