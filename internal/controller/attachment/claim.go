/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package attachment

import (
	"context"
	"fmt"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/nodestate"
	"github.com/hawser-io/hawser/internal/controller/volume"
	"github.com/hawser-io/hawser/internal/handshake"
)

// +kubebuilder:rbac:groups=coordination.k8s.io,resources=leases,namespace=hawser-system,verbs=get;create;update

func claimKey(volumeName string) client.ObjectKey {
	return client.ObjectKey{Namespace: volumesv1alpha1.InstallNamespace, Name: volume.ClaimName(volumeName)}
}

// claimOf is lease as the protocol sees it; the zero Claim when lease is nil.
func claimOf(lease *coordinationv1.Lease) handshake.Claim {
	if lease == nil {
		return handshake.Claim{}
	}
	return handshake.Claim{
		Exists:    true,
		Holder:    ptr.Deref(lease.Spec.HolderIdentity, ""),
		MovedFrom: lease.Annotations[volumesv1alpha1.MovedFromAnnotation],
	}
}

// readClaim reads the claim live; nil when there is none.
func (c *Controller) readClaim(ctx context.Context, volumeName string) (*coordinationv1.Lease, error) {
	lease := &coordinationv1.Lease{}
	err := c.Reader.Get(ctx, claimKey(volumeName), lease)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the claim of %s: %w", volumeName, err)
	}
	return lease, nil
}

// takeClaim makes the exclusive claim name n, moving it where it has to be. It says whether it does now.
func (c *Controller) takeClaim(ctx context.Context, f *Facts, n *Node) (bool, error) {
	if !f.Exclusive || f.Claim == (handshake.Claim{Exists: true, Holder: n.Name}) {
		return true, nil
	}
	lease, err := c.findClaim(ctx, f, n)
	if lease == nil || err != nil {
		return false, err
	}
	f.Claim = claimOf(lease)
	if f.Claim.MovedFrom != "" {
		if lease, err = c.fence(ctx, f, n, lease); lease == nil || err != nil {
			return false, err
		}
	}
	if f.Claim.Holder == n.Name {
		return true, nil
	}
	if lease, err = c.moveClaim(ctx, f, n, lease); lease == nil || err != nil {
		return false, err
	}
	if f.Claim.MovedFrom == "" {
		// Nobody held it.
		return true, nil
	}
	lease, err = c.fence(ctx, f, n, lease)
	return lease != nil, err
}

// findClaim reads the claim live, or creates it. Where the cache knows none the creation comes first: it is the check.
func (c *Controller) findClaim(ctx context.Context, f *Facts, n *Node) (*coordinationv1.Lease, error) {
	if !f.Claim.Exists {
		if lease, err := c.createClaim(ctx, f, n); lease != nil || err != nil {
			return lease, err
		}
	}
	lease, err := c.readClaim(ctx, f.Volume)
	if lease == nil && err == nil {
		n.wait("", "")
	}
	return lease, err
}

// createClaim returns nil where somebody else was first.
func (c *Controller) createClaim(ctx context.Context, f *Facts, n *Node) (*coordinationv1.Lease, error) {
	key := claimKey(f.Volume)
	now := metav1.NewMicroTime(c.Clock.Now())
	lease := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: key.Namespace, Name: key.Name,
			Labels:      map[string]string{volumesv1alpha1.ExclusiveClaimLabel: "true"},
			Annotations: map[string]string{volumesv1alpha1.VolumeNameAnnotation: f.Volume},
		},
		Spec: coordinationv1.LeaseSpec{HolderIdentity: &n.Name, AcquireTime: &now},
	}
	err := c.Client.Create(ctx, lease)
	if apierrors.IsAlreadyExists(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("creating the claim of %s: %w", f.Volume, err)
	}
	return lease, nil
}

// moveClaim is the first of the three writes of a move: the claim names n and remembers its holder, if it had one.
func (c *Controller) moveClaim(ctx context.Context, f *Facts, n *Node, lease *coordinationv1.Lease) (*coordinationv1.Lease, error) {
	if free, err := c.leaveHolder(ctx, f, n, lease); err != nil || !free {
		return nil, err
	}
	now := metav1.NewMicroTime(c.Clock.Now())
	lease.Spec.HolderIdentity, lease.Spec.AcquireTime = &n.Name, &now
	return c.updateClaim(ctx, f, n, lease)
}

// leaveHolder takes the holder out of lease where the claim may leave it, and says whether it may. It is n that waits for it.
func (c *Controller) leaveHolder(ctx context.Context, f *Facts, n *Node, lease *coordinationv1.Lease) (bool, error) {
	if f.Claim.Holder == "" {
		return true, nil
	}
	holder := f.node(f.Claim.Holder)
	nvs, err := c.readState(ctx, holder.Name)
	if err != nil {
		return false, err
	}
	holder.observe(nvs, f.Volume)
	va, err := c.readAttachments(ctx, f, holder)
	if err != nil {
		return false, err
	}
	if guard := c.Protocol.MayMoveClaim(f.Claim, holder.State, va); guard != handshake.GuardNone {
		n.waitFor(holder, guard)
		return false, nil
	}
	metav1.SetMetaDataAnnotation(&lease.ObjectMeta, volumesv1alpha1.MovedFromAnnotation, holder.Name)
	lease.Spec.HolderIdentity = nil
	lease.Spec.LeaseTransitions = ptr.To(ptr.Deref(lease.Spec.LeaseTransitions, 0) + 1)
	return true, nil
}

// fence does the other two: the node that the claim was moved from is fenced, and the claim forgets it. lease was read
// live, with MovedFrom, before anything that is read here. It is n that waits for it.
func (c *Controller) fence(ctx context.Context, f *Facts, n *Node, lease *coordinationv1.Lease) (*coordinationv1.Lease, error) {
	if fenced, err := c.fenceHolder(ctx, f, n); err != nil || !fenced {
		return nil, err
	}
	delete(lease.Annotations, volumesv1alpha1.MovedFromAnnotation)
	return c.updateClaim(ctx, f, n, lease)
}

// fenceHolder fences the node that the claim was moved from, and says whether it did.
func (c *Controller) fenceHolder(ctx context.Context, f *Facts, n *Node) (bool, error) {
	from := f.node(f.Claim.MovedFrom)
	guard := handshake.GuardNone
	_, err := c.Writer.Apply(ctx, from.Name, func(ctx context.Context, nvs *volumesv1alpha1.NodeVolumeState) (nodestate.Change, error) {
		from.observe(nvs, f.Volume)
		va, err := c.readAttachments(ctx, f, from)
		if err != nil {
			return nil, err
		}
		if guard = c.Protocol.MayFence(from.State, va); guard != handshake.GuardNone || nvs == nil {
			return nil, nil
		}
		return func(nvs *volumesv1alpha1.NodeVolumeState) { nvs.Spec.Fences++ }, nil
	})
	if err != nil {
		return false, fmt.Errorf("fencing node %s: %w", from.Name, err)
	}
	if guard != handshake.GuardNone {
		n.waitFor(from, guard)
		return false, nil
	}
	return true, nil
}

// updateClaim writes at the version that was read; nil where somebody else was first, which an event will tell.
func (c *Controller) updateClaim(ctx context.Context, f *Facts, n *Node, lease *coordinationv1.Lease) (*coordinationv1.Lease, error) {
	err := c.Client.Update(ctx, lease)
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		n.wait("", "")
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("updating the claim of %s: %w", f.Volume, err)
	}
	f.Claim = claimOf(lease)
	return lease, nil
}

// readAttachments reads, live, every attachment of the volume to the node that is known or that could be: the
// one of the shared name, that of the entry, and those of other names. The answer is the first that is not gone.
func (c *Controller) readAttachments(ctx context.Context, f *Facts, n *Node) (handshake.Attachment, error) {
	names := map[string]bool{volume.AttachmentName(f.Driver, f.VolumeHandle, n.Name): true}
	if n.Entry != nil && n.Entry.AttachmentName != "" {
		names[n.Entry.AttachmentName] = true
	}
	for i := range n.Attachments {
		names[n.Attachments[i].Name] = true
	}
	var gone handshake.Attachment
	for name := range names {
		va, err := c.readAttachment(ctx, name)
		if err != nil {
			return gone, err
		}
		if a := handshake.AttachmentFrom(va); !a.Gone() {
			return a, nil
		} else if a.Exists {
			gone = a
		}
	}
	return gone, nil
}
