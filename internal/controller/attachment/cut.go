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

	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/attachment/decision"
	"github.com/hawser-io/hawser/internal/controller/index"
	"github.com/hawser-io/hawser/internal/fencing"
	"github.com/hawser-io/hawser/internal/handshake"
)

// gatherCut finds in what is known of the fences whether the node's access to the volume is cut, or when that may be
// evidence. Other evidence is about the machine, and comes first.
func (c *Controller) gatherCut(
	ctx context.Context, f *decision.Facts, n *decision.Node, nvs *volumesv1alpha1.NodeVolumeState,
) error {
	if n.Evidence != nil || n.Missing || nvs == nil {
		return nil
	}
	node := &corev1.Node{}
	if err := c.Client.Get(ctx, client.ObjectKey{Name: n.Name}, node); err != nil {
		return client.IgnoreNotFound(err)
	}
	cutting := c.cutting(ctx, f, n.State, n.Entry, node, nvs)
	switch due := c.countsIn(n.Name, nvs); {
	case len(cutting) == 0:
	case due == 0:
		n.Evidence, n.EvidenceDue = cutEvidence(f, n.Name, cutting[0]), 0
	default: // the mark of a silent agent wakes no volume for this evidence
		n.EvidenceDue = sooner(n.EvidenceDue, due)
	}
	return nil
}

// confirmCut reads the Node, and then the fences that are known to cut its access to the volume, after nvs and the
// agent's Lease. One that cannot be read is no evidence, and none is while the agent is heard: what drivers report of a
// node's addresses may be of an earlier connection, or of an earlier machine of that name.
func (c *Controller) confirmCut(
	ctx context.Context, f *decision.Facts, n *decision.Node, nvs *volumesv1alpha1.NodeVolumeState, state handshake.Node,
) (*volumesv1alpha1.DetachEvidence, error) {
	node := &corev1.Node{}
	if err := c.Client.Get(ctx, client.ObjectKey{Name: n.Name}, node); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	cutting := c.cutting(ctx, f, state, handshake.AttachmentOf(nvs, f.Volume), node, nvs)
	if len(cutting) == 0 {
		return nil, nil
	}
	if due := c.countsIn(n.Name, nvs); due > 0 {
		n.EvidenceDue = sooner(n.EvidenceDue, due)
		return nil, nil
	}
	live := &corev1.Node{}
	if err := c.Reader.Get(ctx, client.ObjectKey{Name: n.Name}, live); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	for _, fence := range cutting {
		cuts, err := c.Fences.Cuts(ctx, fence, live, nvs, volumeIn(f, nvs))
		if err != nil {
			ctrl.LoggerFrom(ctx).Error(err, "a fence cannot be read", "node", n.Name, "source", fence.Source)
		}
		if cuts && err == nil {
			n.Evidence, n.EvidenceDue = cutEvidence(f, n.Name, fence), 0
			return n.Evidence, nil
		}
	}
	n.EvidenceDue = sooner(n.EvidenceDue, fenceAgain)
	return nil, nil
}

// cutting are the fences that may count, given the volume's part of the node's state, which may be newer than nvs. One
// that was seen to be lifted does not, whatever it shows later: storage may have been opened.
func (c *Controller) cutting(ctx context.Context, f *decision.Facts, state handshake.Node,
	entry *volumesv1alpha1.NodeAttachment, node *corev1.Node, nvs *volumesv1alpha1.NodeVolumeState,
) []volumesv1alpha1.FenceReference {
	if nvs == nil || c.Protocol.MayRelyOnCut(state) != handshake.GuardNone {
		return nil
	}
	cutting := c.Fences.Cutting(ctx, node, nvs, volumeIn(f, nvs))
	if !state.Entry.Lifted {
		return cutting
	}
	return slices.DeleteFunc(cutting, func(r volumesv1alpha1.FenceReference) bool { return r == *entry.Evidence.Fence })
}

// volumeIn is the volume as nvs has it.
func volumeIn(f *decision.Facts, nvs *volumesv1alpha1.NodeVolumeState) fencing.Volume {
	v := fencing.Volume{Driver: f.Driver, Handle: f.VolumeHandle}
	if e := handshake.AttachmentOf(nvs, f.Volume); e != nil {
		v.Attributes = e.VolumeAttributes
	}
	return v
}

func cutEvidence(
	f *decision.Facts, node string, fence volumesv1alpha1.FenceReference,
) *volumesv1alpha1.DetachEvidence {
	return &volumesv1alpha1.DetachEvidence{Type: volumesv1alpha1.EvidenceFenced, Fence: &fence, Message: fmt.Sprintf(
		"%s of fence source %s cuts the access of node %s to volumes of driver %s, and its agent is silent", fence.Name,
		fence.Source, node, f.Driver)}
}

// noteLift reads live, after the node's state, whether the fence was lifted that alone keeps the volume from the node,
// and writes that into the evidence. What is decided next is then decided on that. It returns when it began to read;
// zero where there is no such fence.
func (c *Controller) noteLift(ctx context.Context, f *decision.Facts, n *decision.Node) (asked time.Time, err error) {
	if c.Protocol.CutOf(n.State, n.Entry, f.CutsAccess) == nil {
		return time.Time{}, nil
	}
	asked = c.Clock.Now()
	lifted, err := c.readLift(ctx, f, n)
	if err != nil || !lifted {
		return asked, err
	}
	nvs, err := c.Lifts.Note(ctx, n.Name, f.Volume)
	if err != nil {
		return asked, fmt.Errorf("noting that a fence was lifted: %w", err)
	}
	n.Observe(nvs, f.Volume)
	return asked, nil
}

// readLift reads the node's state, and then whether the fence was lifted that alone keeps the volume from the node.
func (c *Controller) readLift(ctx context.Context, f *decision.Facts, n *decision.Node) (bool, error) {
	nvs, err := c.readState(ctx, n.Name)
	if err != nil {
		return false, err
	}
	n.Observe(nvs, f.Volume)
	lifted, err := c.Lifts.Lifted(ctx, nvs, f.Volume)
	if err != nil {
		return false, fmt.Errorf("reading a fence once more: %w", err)
	}
	return lifted, nil
}

// liftedElsewhere is another node from which the volume was forced away on a cut that was lifted, before its agent has
// reported; nil if there is none. It reads that node's state and then the fence live, and writes nothing.
func (c *Controller) liftedElsewhere(
	ctx context.Context, f *decision.Facts, n *decision.Node,
) (*decision.Node, error) {
	states := &volumesv1alpha1.NodeVolumeStateList{}
	if err := c.Client.List(ctx, states, client.MatchingFields{index.Volume: f.Volume}); err != nil {
		return nil, fmt.Errorf("listing the nodes of %s: %w", f.Volume, err)
	}
	for i := range states.Items {
		name := states.Items[i].Name
		m := &decision.Node{Name: name}
		if m.TakeOver(&states.Items[i], f.Volume); name == n.Name || !m.RestsOnCut() {
			continue
		}
		lifted, err := c.readLift(ctx, f, m)
		if err != nil {
			return nil, err
		}
		if lifted || c.Protocol.CutHolds(m.State) != handshake.GuardNone {
			return m, nil
		}
	}
	return nil, nil
}
