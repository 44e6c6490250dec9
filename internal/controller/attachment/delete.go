/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package attachment

import (
	"context"
	"fmt"
	"slices"
	"time"

	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/nodestate"
	"github.com/hawser-io/hawser/internal/handshake"
)

// freshness is how old what a DELETE rests on may be, on the monotonic clock, when it is sent.
const freshness = time.Second

// errOutdated: the API server was too slow. To read again at once would keep it slow; the queue's backoff gives it time.
var errOutdated = fmt.Errorf("what the delete rests on was read more than %s ago", freshness)

// delete deletes the attachment, unless upstream's pods need it: then the hold comes off and it is theirs. The DELETE carries
// the UID and the resourceVersion that it was decided on.
func (c *Controller) delete(ctx context.Context, f *Facts, n *Node, a *Attachment) error {
	if n.State.Entry.Forced && !n.Live {
		// What evidence there is may have changed; the rest of what a delete asks for never does.
		return c.look(ctx, f, n)
	}
	if c.Protocol.MayDelete(n.State, a.Attachment) != handshake.GuardNameHeld {
		return c.deleteReleased(ctx, f, n, a)
	}
	return c.patchAttachment(ctx, n, a, map[string]any{
		"finalizers": append(slices.Clone(a.Finalizers), volumesv1alpha1.ForcedAwayFinalizer),
	})
}

func (c *Controller) deleteReleased(ctx context.Context, f *Facts, n *Node, a *Attachment) error {
	if f.Replace {
		return c.deleteUnderKubelet(ctx, n, a)
	}
	if guard := c.Protocol.MayDelete(n.State, a.Attachment); guard != handshake.GuardNone {
		n.wait("", "")
		return nil
	}
	free, since, err := c.freeOfPods(ctx, f, n)
	switch {
	case err != nil:
		return err
	case !free && a.Held:
		return c.patchAttachment(ctx, n, a, map[string]any{
			"annotations": map[string]*string{volumesv1alpha1.HoldAnnotation: nil},
		})
	case !free:
		n.wait("", "")
		return nil
	case c.Clock.Since(since) > freshness:
		return errOutdated
	}
	return c.sendDelete(ctx, n, a)
}

// deleteUnderKubelet: the volume is unlisted, so no kubelet can take it up any more.
func (c *Controller) deleteUnderKubelet(ctx context.Context, n *Node, a *Attachment) error {
	if guard := c.Protocol.MayDeleteUnderKubelet(n.State, a.Attachment); guard != handshake.GuardNone {
		n.wait("", "")
		return nil
	}
	return c.sendDelete(ctx, n, a)
}

// sendDelete deletes the attachment as it was decided on. Where somebody else was first the node waits for the event.
func (c *Controller) sendDelete(ctx context.Context, n *Node, a *Attachment) error {
	err := c.Client.Delete(ctx, &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: a.Name}},
		client.Preconditions{UID: ptr.To(a.UID), ResourceVersion: ptr.To(a.ResourceVersion)})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("deleting attachment %s: %w", a.Name, err)
	}
	c.answers.note(a.ResourceVersion, terminating(a, c.Clock.Now()))
	n.wait("", "")
	return nil
}

// terminating is a as the cache will show it once the delete has reached it.
func terminating(a *Attachment, now time.Time) *storagev1.VolumeAttachment {
	deleted := metav1.NewTime(now)
	return &storagev1.VolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{
			Name: a.Name, UID: a.UID, ResourceVersion: a.ResourceVersion, Finalizers: a.Finalizers, DeletionTimestamp: &deleted,
		},
		Status: storagev1.VolumeAttachmentStatus{Attached: a.Attached, DetachError: a.DetachError},
	}
}

// forget removes the entry of an attachment that is gone, or marks it detached while the agent has yet to
// report that nothing is left of a forced detach.
func (c *Controller) forget(ctx context.Context, f *Facts, n *Node) error {
	nvs, err := c.Writer.Apply(ctx, n.Name, func(ctx context.Context, nvs *volumesv1alpha1.NodeVolumeState) (nodestate.Change, error) {
		entry := handshake.AttachmentOf(orEmpty(nvs), f.Volume)
		if entry == nil {
			return nil, nil
		}
		va, err := c.readEntryAttachment(ctx, entry)
		if err != nil {
			return nil, err
		}
		state, a := handshake.NodeOf(nvs, f.Volume), handshake.AttachmentFrom(va)
		switch {
		case c.Protocol.MayForget(state, a) == handshake.GuardNone:
			return func(nvs *volumesv1alpha1.NodeVolumeState) {
				remove(nvs, f.Volume)
				nodestate.SettleDeclaration(nvs, state.Entry.UID)
			}, nil
		case !state.Entry.Detached && c.Protocol.MayMarkDetached(state, a) == handshake.GuardNone:
			now := metav1.NewTime(c.Clock.Now())
			return func(nvs *volumesv1alpha1.NodeVolumeState) { handshake.AttachmentOf(nvs, f.Volume).DetachedTime = &now }, nil
		}
		return nil, nil
	})
	if err != nil {
		return fmt.Errorf("removing the entry: %w", err)
	}
	n.observe(nvs, f.Volume)
	if n.State.Entry.State != handshake.Absent && !n.State.Entry.Detached {
		n.wait("", "")
	}
	return nil
}

func orEmpty(nvs *volumesv1alpha1.NodeVolumeState) *volumesv1alpha1.NodeVolumeState {
	if nvs == nil {
		return &volumesv1alpha1.NodeVolumeState{}
	}
	return nvs
}

func remove(nvs *volumesv1alpha1.NodeVolumeState, volumeName string) {
	nvs.Spec.Attachments = slices.DeleteFunc(nvs.Spec.Attachments, func(a volumesv1alpha1.NodeAttachment) bool { return a.VolumeName == volumeName })
}

// freeName takes our finalizer off an attachment that was forced away, once the agent has reported.
func (c *Controller) freeName(ctx context.Context, f *Facts, n *Node, a *Attachment) error {
	if !n.Live {
		return c.look(ctx, f, n)
	}
	finalizers := slices.DeleteFunc(slices.Clone(a.Finalizers), func(s string) bool { return s == volumesv1alpha1.ForcedAwayFinalizer })
	if err := c.patchAttachment(ctx, n, a, map[string]any{"finalizers": finalizers}); err != nil {
		return err
	}
	n.wait("", "")
	return nil
}
