/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package attachment

import (
	"context"
	"errors"
	"fmt"
	"slices"

	storagev1 "k8s.io/api/storage/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/attachment/decision"
	"github.com/hawser-io/hawser/internal/controller/index"
	"github.com/hawser-io/hawser/internal/controller/resolve"
	"github.com/hawser-io/hawser/internal/controller/volume"
	"github.com/hawser-io/hawser/internal/status"
)

// +kubebuilder:rbac:groups=storage.k8s.io,resources=csidrivers;volumeattachments,verbs=get;list;watch
// +kubebuilder:rbac:groups=storage.k8s.io,resources=csinodes,verbs=list;watch
// +kubebuilder:rbac:groups="",resources=nodes;pods;persistentvolumes;persistentvolumeclaims,verbs=get;list;watch
// +kubebuilder:rbac:groups=volumes.hawser.io,resources=nodevolumestates;volumeattachmentintents,verbs=get;list;watch

// gather collects everything about one volume from the cache.
func (c *Controller) gather(ctx context.Context, name string) (*decision.Facts, error) {
	f := &decision.Facts{
		Replace: c.Replace, PolicyMissing: c.Policies.Missing(), Volume: name, Exclusive: true, AttachRequired: true,
	}
	sources, err := resolve.Sources(ctx, c.Client, name)
	if err != nil {
		return nil, err
	}
	for _, gather := range []func(context.Context, *decision.Facts, []*volume.Source) error{
		c.gatherIntents, c.gatherStates, c.gatherAttachments, c.gatherLock, c.gatherListed,
	} {
		if err := gather(ctx, f, sources); err != nil {
			return nil, err
		}
	}
	decision.Describe(f, sources)
	if err := c.gatherDriver(ctx, f); err != nil {
		return nil, err
	}
	for _, n := range f.Nodes {
		c.addOwnWrites(f, n)
		for i := range n.Attachments {
			if err := noteOther(ctx, c.Client, f, n.Attachments[i].PersistentVolume); err != nil {
				return nil, err
			}
		}
		if err := c.gatherNode(ctx, f, n, sources); err != nil {
			return nil, err
		}
	}
	decision.DoubtSilence(f)
	return f, nil
}

// gatherIntents finds the intents that are pinned to the volume and those that resolve to it. One that is pinned
// between the two lists is in the second: if it were missed, its volume would seem unwanted.
func (c *Controller) gatherIntents(ctx context.Context, f *decision.Facts, sources []*volume.Source) error {
	list := &volumesv1alpha1.VolumeAttachmentIntentList{}
	if err := c.Client.List(ctx, list, client.MatchingFields{index.Volume: f.Volume}); err != nil {
		return fmt.Errorf("listing the intents of %s: %w", f.Volume, err)
	}
	found := list.Items
	for _, s := range sources {
		ref := s.Claim
		if ref == nil {
			continue
		}
		ofClaim := &volumesv1alpha1.VolumeAttachmentIntentList{}
		if err := c.Client.List(ctx, ofClaim,
			client.MatchingFields{index.Claim: index.ClaimKey(ref.Namespace, ref.Name)}); err != nil {
			return fmt.Errorf("listing the intents of claim %s/%s: %w", ref.Namespace, ref.Name, err)
		}
		for _, intent := range ofClaim.Items {
			known := slices.ContainsFunc(found, func(o volumesv1alpha1.VolumeAttachmentIntent) bool {
				return o.UID == intent.UID
			})
			unpinned := intent.Status.UniqueVolumeName == "" && intent.DeletionTimestamp.IsZero()
			if !known && (unpinned || intent.Status.UniqueVolumeName == f.Volume) {
				found = append(found, intent)
			}
		}
	}
	for i := range found {
		if err := c.addIntent(ctx, f, &found[i]); err != nil {
			return err
		}
	}
	return nil
}

func (c *Controller) addIntent(
	ctx context.Context, f *decision.Facts, object *volumesv1alpha1.VolumeAttachmentIntent,
) error {
	if !object.DeletionTimestamp.IsZero() {
		version, released := c.released.Load(object.UID)
		if status.Finalized(object) && !(released && version == object.ResourceVersion) {
			n := f.Node(object.Spec.NodeName)
			n.Leaving = append(n.Leaving, &decision.Intent{Object: object})
		}
		return nil
	}
	facts, err := resolve.Gather(ctx, c.Client, object)
	if err != nil {
		return fmt.Errorf("resolving intent %s/%s: %w", object.Namespace, object.Name, err)
	}
	i := &decision.Intent{Object: object, Result: resolve.Intent(facts), Claim: facts.Claim}
	if !i.Pinned() && (!i.Result.OK || i.Result.Pins.UniqueVolumeName != f.Volume) {
		return nil
	}
	i.Protected = (!status.NeedsFinalizer(object) || status.Finalized(object)) &&
		(!status.HoldsClaim(object) || facts.Claim != nil && controllerutil.ContainsFinalizer(
			facts.Claim, volumesv1alpha1.ClaimFinalizer,
		))
	n := f.Node(object.Spec.NodeName)
	n.Wanted = append(n.Wanted, i)
	return nil
}

// gatherStates finds the nodes that list the volume.
func (c *Controller) gatherStates(ctx context.Context, f *decision.Facts, _ []*volume.Source) error {
	states := &volumesv1alpha1.NodeVolumeStateList{}
	if err := c.Client.List(ctx, states, client.MatchingFields{index.Volume: f.Volume}); err != nil {
		return fmt.Errorf("listing the nodes of %s: %w", f.Volume, err)
	}
	for i := range states.Items {
		f.Node(states.Items[i].Name)
	}
	return nil
}

// gatherAttachments finds the volume's attachments under whatever name, including those of others.
func (c *Controller) gatherAttachments(ctx context.Context, f *decision.Facts, sources []*volume.Source) error {
	names := map[string]bool{}
	for _, s := range sources {
		names[s.PersistentVolume] = true
	}
	for _, n := range f.Nodes {
		for _, i := range append(slices.Clone(n.Wanted), n.Leaving...) {
			if name := i.Object.Status.VolumeName; name != "" {
				names[name] = true
			}
		}
	}
	for name := range names {
		list := &storagev1.VolumeAttachmentList{}
		if err := c.Client.List(ctx, list, client.MatchingFields{index.PersistentVolume: name}); err != nil {
			return fmt.Errorf("listing the attachments of %s: %w", name, err)
		}
		for i := range list.Items {
			f.Node(list.Items[i].Spec.NodeName).AddAttachment(&list.Items[i])
		}
	}
	return c.gatherNamed(ctx, f)
}

// gatherNamed finds the attachments that say themselves which volume they are of.
func (c *Controller) gatherNamed(ctx context.Context, f *decision.Facts) error {
	list := &storagev1.VolumeAttachmentList{}
	if err := c.Client.List(ctx, list, client.MatchingFields{index.Volume: f.Volume}); err != nil {
		return fmt.Errorf("listing the attachments that name %s: %w", f.Volume, err)
	}
	for i := range list.Items {
		va := &list.Items[i]
		f.Node(va.Spec.NodeName).AddAttachment(va)
	}
	return nil
}

// gatherLock reads the exclusive lock and brings the nodes that it names into the facts.
func (c *Controller) gatherLock(ctx context.Context, f *decision.Facts, _ []*volume.Source) error {
	lock, err := c.Locks.Known(ctx, f.Volume)
	if errors.As(err, &f.LockUnreadable) {
		return nil
	}
	if err != nil {
		return err
	}
	f.Lock = lock.Handshake()
	for _, name := range []string{f.Lock.Holder, f.Lock.MovedFrom} {
		if name != "" {
			f.Node(name)
		}
	}
	return nil
}
