/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package attachment

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/attachment/decision"
	"github.com/hawser-io/hawser/internal/controller/nodestate"
	"github.com/hawser-io/hawser/internal/handshake"
)

// markDetaching writes Detaching, with the evidence that it rests on, at a version of the node's state at which it may.
func (c *Controller) markDetaching(ctx context.Context, f *decision.Facts, s decision.Step) error {
	uid, name := s.Node.State.Entry.UID, ""
	if uid == "" {
		// The Node lists a volume that is not attached: the entry that it is unlisted under needs a UID of its own.
		uid = uuid.NewUUID()
	}
	if s.Attachment != nil {
		uid, name = s.Attachment.UID, s.Attachment.Name
	}
	err := c.writeDetaching(ctx, f, s.Node, uid, name, func(
		ctx context.Context, nvs *volumesv1alpha1.NodeVolumeState, state handshake.Node,
	) (*volumesv1alpha1.DetachEvidence, error) {
		forced := decision.MarkedDetaching(state, uid) && state.Entry.Forced
		lifted := c.Protocol.CutHolds(state) != handshake.GuardNone
		if forced && !lifted && !s.Node.RestsOnCut() {
			return nil, nil
		}
		if declared := decision.DeclarationOf(state, uid); declared != nil && s.Evidence {
			return declared, nil
		}
		if !decision.MarkedDetaching(state, uid) && !decision.Uncovered(f, s.Node) &&
			c.Protocol.MayMarkDetaching(state, uid, false) == handshake.GuardNone {
			return &volumesv1alpha1.DetachEvidence{
				Type:    volumesv1alpha1.EvidenceAgentReleased,
				Message: fmt.Sprintf("the agent of node %s reports the volume not in use", s.Node.Name),
			}, nil
		}
		if !s.Evidence {
			return nil, nil
		}
		evidence, err := c.confirmEvidence(ctx, s.Node, nvs)
		if evidence == nil && err == nil && (lifted || !forced) {
			evidence, err = c.confirmCut(ctx, f, s.Node, nvs, state)
		}
		if err != nil {
			c.forgetOutage(s.Node)
		}
		return evidence, err
	})
	if err != nil && s.Evidence {
		c.unready.Missed(s.Node.Name)
		if undecided(err) { // then it may take no write of an agent either
			c.Tracker.Doubt(s.Node.Name)
		}
	}
	return err
}

// undecided reports whether the API server has not decided on the request that failed: it did not answer, was not in
// time, or failed itself.
func undecided(err error) bool {
	var answer apierrors.APIStatus
	if !errors.As(err, &answer) {
		return true
	}
	code := answer.Status().Code
	return code == http.StatusTooManyRequests || code >= http.StatusInternalServerError
}

// markLost writes Detaching for an attachment that went, or is going, without us. Whether the node still uses it or
// not, it cannot be counted on any more.
func (c *Controller) markLost(ctx context.Context, f *decision.Facts, n *decision.Node) error {
	uid, name := n.Entry.AttachmentUID, n.Entry.AttachmentName
	return c.writeDetaching(ctx, f, n, uid, name, func(
		ctx context.Context, _ *volumesv1alpha1.NodeVolumeState, state handshake.Node,
	) (*volumesv1alpha1.DetachEvidence, error) {
		if decision.MarkedDetaching(state, uid) {
			return nil, nil
		}
		va, err := c.readAttachment(ctx, name)
		if err != nil {
			return nil, err
		}
		if va != nil && va.UID == uid && va.DeletionTimestamp.IsZero() {
			return nil, nil
		}
		evidence := &volumesv1alpha1.DetachEvidence{
			Type:    volumesv1alpha1.EvidenceAttachmentLost,
			Message: fmt.Sprintf("VolumeAttachment %s was deleted, not by Hawser", name),
		}
		if !decision.Uncovered(f, n) && c.Protocol.MayMarkDetaching(state, uid, false) == handshake.GuardNone {
			evidence.Type = volumesv1alpha1.EvidenceAgentReleased
		}
		return evidence, nil
	})
}

// justify returns the evidence for a detach, given the node's state as it was just read, and the volume's part of it;
// nil where there is none.
type justify func(
	ctx context.Context, nvs *volumesv1alpha1.NodeVolumeState, state handshake.Node,
) (*volumesv1alpha1.DetachEvidence, error)

func (c *Controller) writeDetaching(
	ctx context.Context, f *decision.Facts, n *decision.Node, uid types.UID, name string, why justify,
) error {
	written := false
	nvs, err := c.Writer.Apply(ctx, n.Name, func(
		ctx context.Context, nvs *volumesv1alpha1.NodeVolumeState,
	) (nodestate.Change, error) {
		state := handshake.NodeOf(nvs, f.Volume)
		written = false
		if nvs == nil {
			return nil, nil
		}
		why, err := why(ctx, nvs, state)
		if err != nil || why == nil {
			return nil, err
		}
		forced := why.Type != volumesv1alpha1.EvidenceAgentReleased
		if c.Protocol.MayMarkDetaching(state, uid, forced) != handshake.GuardNone {
			return nil, nil
		}
		why.Unprotected = forced && !f.CutsAccess && !decision.CutsAccess(why)
		// The agent could ask nothing but its mount table.
		if !forced && slices.Contains(nvs.Status.MountTableReleases,
			volumesv1alpha1.MountTableRelease{VolumeName: f.Volume, AttachmentUID: uid}) {
			why.MountTableOnly = true
			why.Message += "; the volume has no block device, so this rests on the node's mount table alone"
		}
		old := handshake.AttachmentOf(nvs, f.Volume)
		if !forced && old != nil && old.VolumeMode == corev1.PersistentVolumeBlock {
			why.Message += "; for a raw device this rests on a search of all processes, because no open of it excludes others"
		}
		why.Time, why.BootID = metav1.NewTime(c.Clock.Now()), nvs.Status.BootID
		written = true
		entry := decision.DetachingEntry(f, old, uid, name, *why)
		return func(nvs *volumesv1alpha1.NodeVolumeState) { decision.PutEntry(nvs, entry) }, nil
	})
	if err != nil {
		return fmt.Errorf("writing Detaching: %w", err)
	}
	n.Observe(nvs, f.Volume)
	if !decision.MarkedDetaching(n.State, uid) {
		n.SetWait("", "")
		return nil
	}
	if written {
		c.announceDetach(nvs, n.Entry)
	}
	return nil
}
