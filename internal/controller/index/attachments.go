/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package index

import (
	"context"
	"fmt"

	storagev1 "k8s.io/api/storage/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// AttachmentsOf lists the VolumeAttachments of a node from the cache.
func AttachmentsOf(ctx context.Context, c client.Reader, node string) ([]storagev1.VolumeAttachment, error) {
	list := &storagev1.VolumeAttachmentList{}
	if err := c.List(ctx, list, client.MatchingFields{Node: node}); err != nil {
		return nil, fmt.Errorf("listing the attachments of node %s: %w", node, err)
	}
	return list.Items, nil
}
