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

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/attachment/decision"
	"github.com/hawser-io/hawser/internal/controller/nodestate"
	"github.com/hawser-io/hawser/internal/handshake"
)

// freshness is how old what a DELETE rests on may be, on the monotonic clock, when it is sent.
const freshness = time.Second

// errOutdated: the API server was too slow. To read again at once would keep it slow; the queue's backoff gives it
// time.
var errOutdated = fmt.Errorf("what the delete rests on was read more than %s ago", freshness)

// discard writes Detaching for an attachment that keeps another PersistentVolume of the same handle away, after it has
// read live that nothing on the node names it.
func (c *Controller) discard(ctx context.Context, f *decision.Facts, s decision.Step) error {
	free, _, err := c.unwantedByPods(ctx, f, s.Node, s.Attachment)
	if err != nil {
		return err
	}
	if !free {
		s.Node.SetWait("", "")
		return nil
	}
	return c.markDetaching(ctx, f, s)
}

// deleteAttachment deletes the attachment, unless upstream's pods need it: then the hold comes off and it is theirs.
// The DELETE carries the UID and the resourceVersion that it was decided on.
func (c *Controller) deleteAttachment(
	ctx context.Context, f *decision.Facts, n *decision.Node, a *decision.Attachment,
) error {
	if n.State.Entry.Forced && !n.Live {
		// What evidence there is may have changed; the rest of what a delete asks for never does.
		return c.readNow(ctx, f, n)
	}
	asked, err := c.noteLift(ctx, f, n)
	if err != nil {
		return err
	}
	if c.Protocol.MayDelete(n.State, a.Attachment) != handshake.GuardNameHeld {
		return c.deleteReleased(ctx, f, n, a, asked)
	}
	return c.patchAttachment(ctx, n, a, map[string]any{
		"finalizers": append(slices.Clone(a.Finalizers), volumesv1alpha1.ForcedAwayFinalizer),
	})
}

// deleteReleased deletes what may be deleted. asked is when the fence was read on which that rests; zero for none.
func (c *Controller) deleteReleased(
	ctx context.Context, f *decision.Facts, n *decision.Node, a *decision.Attachment, asked time.Time,
) error {
	if err := c.checkOther(ctx, f, n, a); err != nil {
		return err
	}
	if f.Replace {
		return c.deleteUnderKubelet(ctx, n, a, asked)
	}
	if guard := c.Protocol.MayDelete(n.State, a.Attachment); guard != handshake.GuardNone {
		n.SetWait("", "")
		return nil
	}
	free, since, err := c.mayDeleteForPods(ctx, f, n, a)
	switch {
	case err != nil:
		return err
	case !free && a.Held && !n.RestsOnCut() && !decision.Uncovered(f, n):
		return c.patchAttachment(ctx, n, a, map[string]any{
			"annotations": map[string]*string{volumesv1alpha1.HoldAnnotation: nil},
		})
	case !free:
		n.SetWait("", "")
		return nil
	case c.Clock.Since(since) > freshness || c.outdated(asked):
		return errOutdated
	}
	return c.sendDelete(ctx, n, a)
}

// cutFreshness is how old the reading of a fence may be when what rests on it is deleted. A reading lists all objects
// of the source, for many volumes at a time.
const cutFreshness = 5 * time.Second

// outdated reports whether a fence was read too long ago, asked being when; zero where nothing rests on one.
func (c *Controller) outdated(asked time.Time) bool {
	return !asked.IsZero() && c.Clock.Since(asked) > cutFreshness
}

// mayDeleteForPods reports whether no pod has a use for the attachment, and since when that is known.
func (c *Controller) mayDeleteForPods(
	ctx context.Context, f *decision.Facts, n *decision.Node, a *decision.Attachment,
) (free bool, since time.Time, err error) {
	if decision.InTheWay(f, n, a) {
		return c.unwantedByPods(ctx, f, n, a)
	}
	return c.freeOfPods(ctx, f, n)
}

// deleteUnderKubelet: the volume is unlisted, so no kubelet can take it up any more.
func (c *Controller) deleteUnderKubelet(
	ctx context.Context, n *decision.Node, a *decision.Attachment, asked time.Time,
) error {
	if guard := c.Protocol.MayDeleteUnderKubelet(n.State, a.Attachment); guard != handshake.GuardNone {
		n.SetWait("", "")
		return nil
	}
	if c.outdated(asked) {
		return errOutdated
	}
	return c.sendDelete(ctx, n, a)
}

// forgetEntry removes the entry of an attachment that is gone, or marks it detached while the agent has yet to
// report that nothing is left of a forced detach.
func (c *Controller) forgetEntry(ctx context.Context, f *decision.Facts, n *decision.Node) error {
	nvs, err := c.Writer.Apply(ctx, n.Name, func(
		ctx context.Context, nvs *volumesv1alpha1.NodeVolumeState,
	) (nodestate.Change, error) {
		entry := handshake.AttachmentOf(decision.OrEmpty(nvs), f.Volume)
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
				decision.RemoveEntry(nvs, f.Volume)
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
	n.Observe(nvs, f.Volume)
	if n.State.Entry.State != handshake.Absent && !n.State.Entry.Detached {
		n.SetWait("", "")
	}
	return nil
}

// freeName takes our finalizer off an attachment that was forced away, once the agent has reported.
func (c *Controller) freeName(ctx context.Context, f *decision.Facts, n *decision.Node, a *decision.Attachment) error {
	if !n.Live {
		return c.readNow(ctx, f, n)
	}
	finalizers := slices.DeleteFunc(slices.Clone(a.Finalizers), func(s string) bool {
		return s == volumesv1alpha1.ForcedAwayFinalizer
	})
	if err := c.patchAttachment(ctx, n, a, map[string]any{"finalizers": finalizers}); err != nil {
		return err
	}
	n.SetWait("", "")
	return nil
}
