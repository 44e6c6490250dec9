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
func (d detacher) discard(ctx context.Context, f *decision.Facts, s decision.Step) error {
	free, _, err := d.live.free(ctx, f, s.Node, s.Attachment)
	if err != nil {
		return err
	}
	if !free {
		s.Node.SetWait("", "")
		return nil
	}
	return d.markDetaching(ctx, f, s)
}

// delete deletes the attachment, unless upstream's pods need it: then the hold comes off and it is theirs. The DELETE
// carries the UID and the resourceVersion that it was decided on.
func (d detacher) delete(ctx context.Context, f *decision.Facts, n *decision.Node, a *decision.Attachment) error {
	if n.State.Entry.Forced && !n.Live {
		// What evidence there is may have changed; the rest of what a delete asks for never does.
		return d.live.look(ctx, f, n)
	}
	if d.protocol.MayDelete(n.State, a.Attachment) != handshake.GuardNameHeld {
		return d.deleteReleased(ctx, f, n, a)
	}
	return d.changes.patchAttachment(ctx, n, a, map[string]any{
		"finalizers": append(slices.Clone(a.Finalizers), volumesv1alpha1.ForcedAwayFinalizer),
	})
}

func (d detacher) deleteReleased(
	ctx context.Context, f *decision.Facts, n *decision.Node, a *decision.Attachment,
) error {
	if err := d.checkOther(ctx, f, n, a); err != nil {
		return err
	}
	if f.Replace {
		return d.deleteUnderKubelet(ctx, n, a)
	}
	if guard := d.protocol.MayDelete(n.State, a.Attachment); guard != handshake.GuardNone {
		n.SetWait("", "")
		return nil
	}
	free, since, err := d.freeOfPods(ctx, f, n, a)
	switch {
	case err != nil:
		return err
	case !free && a.Held:
		return d.changes.patchAttachment(ctx, n, a, map[string]any{
			"annotations": map[string]*string{volumesv1alpha1.HoldAnnotation: nil},
		})
	case !free:
		n.SetWait("", "")
		return nil
	case d.clock.Since(since) > freshness:
		return errOutdated
	}
	return d.changes.sendDelete(ctx, n, a)
}

// freeOfPods reports whether no pod has a use for the attachment, and since when that is known.
func (d detacher) freeOfPods(
	ctx context.Context, f *decision.Facts, n *decision.Node, a *decision.Attachment,
) (free bool, since time.Time, err error) {
	if decision.InTheWay(f, n, a) {
		return d.live.free(ctx, f, n, a)
	}
	return d.live.freeOfPods(ctx, f, n)
}

// deleteUnderKubelet: the volume is unlisted, so no kubelet can take it up any more.
func (d detacher) deleteUnderKubelet(ctx context.Context, n *decision.Node, a *decision.Attachment) error {
	if guard := d.protocol.MayDeleteUnderKubelet(n.State, a.Attachment); guard != handshake.GuardNone {
		n.SetWait("", "")
		return nil
	}
	return d.changes.sendDelete(ctx, n, a)
}

// forget removes the entry of an attachment that is gone, or marks it detached while the agent has yet to
// report that nothing is left of a forced detach.
func (d detacher) forget(ctx context.Context, f *decision.Facts, n *decision.Node) error {
	nvs, err := d.writer.Apply(ctx, n.Name, func(
		ctx context.Context, nvs *volumesv1alpha1.NodeVolumeState,
	) (nodestate.Change, error) {
		entry := handshake.AttachmentOf(decision.OrEmpty(nvs), f.Volume)
		if entry == nil {
			return nil, nil
		}
		va, err := d.live.readEntryAttachment(ctx, entry)
		if err != nil {
			return nil, err
		}
		state, a := handshake.NodeOf(nvs, f.Volume), handshake.AttachmentFrom(va)
		switch {
		case d.protocol.MayForget(state, a) == handshake.GuardNone:
			return func(nvs *volumesv1alpha1.NodeVolumeState) {
				decision.RemoveEntry(nvs, f.Volume)
				nodestate.SettleDeclaration(nvs, state.Entry.UID)
			}, nil
		case !state.Entry.Detached && d.protocol.MayMarkDetached(state, a) == handshake.GuardNone:
			now := metav1.NewTime(d.clock.Now())
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
func (d detacher) freeName(ctx context.Context, f *decision.Facts, n *decision.Node, a *decision.Attachment) error {
	if !n.Live {
		return d.live.look(ctx, f, n)
	}
	finalizers := slices.DeleteFunc(slices.Clone(a.Finalizers), func(s string) bool {
		return s == volumesv1alpha1.ForcedAwayFinalizer
	})
	if err := d.changes.patchAttachment(ctx, n, a, map[string]any{"finalizers": finalizers}); err != nil {
		return err
	}
	n.SetWait("", "")
	return nil
}
