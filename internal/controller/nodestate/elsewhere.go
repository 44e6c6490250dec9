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

// UserElsewhere names a node other than this one on which the volume is in use and was not forced away from; empty if
// there is none. See handshake.Protocol.MayBringIn.
func UserElsewhere(ctx context.Context, c client.Reader, node, volumeName string) (string, error) {
	states := &volumesv1alpha1.NodeVolumeStateList{}
	if err := c.List(ctx, states, client.MatchingFields{index.Volume: volumeName}); err != nil {
		return "", fmt.Errorf("listing the nodes of %s: %w", volumeName, err)
	}
	for i := range states.Items {
		if n := handshake.NodeOf(&states.Items[i], volumeName); states.Items[i].Name != node && n.InUse() && !n.Entry.Forced {
			return states.Items[i].Name, nil
		}
	}
	return "", nil
}
