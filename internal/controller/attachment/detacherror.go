/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package attachment

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/nodestate"
	"github.com/hawser-io/hawser/internal/handshake"
)

// EventFailedDetach is the reason of an event on a NodeVolumeState: a volume is to be detached and its driver does not.
const EventFailedDetach = "FailedDetachVolume"

// longestDetachError in bytes, as an event takes it too.
const longestDetachError = 900

// noteDetachError puts what keeps the driver's attacher from detaching where it stays readable: by then no intent need be
// left that could say so.
func (c *Controller) noteDetachError(ctx context.Context, f *Facts, n *Node) error {
	a := n.attachmentOf(n.detaching())
	if a == nil || a.DetachError == nil || n.Entry == nil {
		return nil
	}
	message := a.DetachError.Message
	if len(message) > longestDetachError {
		message = strings.ToValidUTF8(message[:longestDetachError], "") + "..."
	}
	if n.Entry.DetachError == message {
		return nil
	}
	written := false
	nvs, err := c.Writer.Apply(ctx, n.Name, func(_ context.Context, nvs *volumesv1alpha1.NodeVolumeState) (nodestate.Change, error) {
		e := handshake.AttachmentOf(orEmpty(nvs), f.Volume)
		written = e != nil && e.State == volumesv1alpha1.AttachmentDetaching && e.AttachmentUID == a.UID && e.DetachError != message
		if !written {
			return nil, nil
		}
		return func(nvs *volumesv1alpha1.NodeVolumeState) {
			handshake.AttachmentOf(nvs, f.Volume).DetachError = message
		}, nil
	})
	if err != nil {
		return fmt.Errorf("noting why %s is not detached from node %s: %w", f.Volume, n.Name, err)
	}
	if written {
		c.Events.Eventf(nvs, nil, corev1.EventTypeWarning, EventFailedDetach, "Detach", "VolumeAttachment %s is not detached: %s", a.Name, message)
	}
	return nil
}
