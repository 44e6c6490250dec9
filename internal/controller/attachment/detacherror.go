/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package attachment

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/nodestate"
	"github.com/hawser-io/hawser/internal/handshake"
)

// EventFailedDetach is the reason of an event on a NodeVolumeState: a volume is to be detached and its driver does not.
const EventFailedDetach = "FailedDetachVolume"

// longestDetachError in bytes, as an event takes it too.
const longestDetachError = 900

// attacherPatience is how long a driver's attacher may take to detach a volume, or to say why it cannot.
const attacherPatience = 2 * time.Minute

// noteSilence takes it for a failure that the attacher has neither detached the volume nor said why not. It returns when that is due.
func (c *Controller) noteSilence(f *Facts, n *Node) time.Duration {
	a := n.attachmentOf(n.detaching())
	if a == nil || a.Deleted.IsZero() || a.Gone() || a.DetachError != nil {
		return 0
	}
	if left := attacherPatience - c.Clock.Since(a.Deleted); left > 0 {
		return left
	}
	finalizers := slices.DeleteFunc(slices.Clone(a.Finalizers), func(s string) bool { return s == volumesv1alpha1.ForcedAwayFinalizer })
	a.DetachError = &storagev1.VolumeError{Time: metav1.NewTime(a.Deleted.Add(attacherPatience)), Message: fmt.Sprintf(
		"the attacher of driver %s has neither detached the volume nor said why not since %s, when VolumeAttachment %s was deleted; "+
			"that waits for its finalizer %s: see that the driver's external-attacher runs",
		f.Driver, a.Deleted.UTC().Format(time.RFC3339), a.Name, strings.Join(finalizers, ", "))}
	return 0
}

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
