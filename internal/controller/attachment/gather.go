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

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/index"
	"github.com/hawser-io/hawser/internal/controller/resolve"
	"github.com/hawser-io/hawser/internal/controller/volume"
	"github.com/hawser-io/hawser/internal/handshake"
	"github.com/hawser-io/hawser/internal/status"
)

// +kubebuilder:rbac:groups=storage.k8s.io,resources=csidrivers;csinodes;volumeattachments,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=nodes;pods;persistentvolumes;persistentvolumeclaims,verbs=get;list;watch
// +kubebuilder:rbac:groups=volumes.hawser.io,resources=nodevolumestates;volumeattachmentintents,verbs=get;list;watch

// gather collects everything about one volume from the cache.
func (c *Controller) gather(ctx context.Context, name string) (*Facts, error) {
	f := &Facts{Replace: c.Replace, PolicyMissing: c.Policies.Missing(), Volume: name, Exclusive: true, AttachRequired: true}
	volumes, err := resolve.Volumes(ctx, c.Client, name)
	if err != nil {
		return nil, err
	}
	for _, gather := range []func(context.Context, *Facts, []corev1.PersistentVolume) error{
		c.gatherIntents, c.gatherStates, c.gatherAttachments, c.gatherLock, c.gatherListed,
	} {
		if err := gather(ctx, f, volumes); err != nil {
			return nil, err
		}
	}
	describe(f, volumes)
	if err := c.gatherDriver(ctx, f); err != nil {
		return nil, err
	}
	for _, n := range f.Nodes {
		c.addOwnWrites(f, n)
		if err := c.gatherNode(ctx, f, n, volumes); err != nil {
			return nil, err
		}
	}
	doubtSilence(f)
	return f, nil
}

// gatherIntents finds the intents that are pinned to the volume and those that resolve to it. One that is pinned between the two
// lists stands in the second: were it missed, nobody would want its volume.
func (c *Controller) gatherIntents(ctx context.Context, f *Facts, volumes []corev1.PersistentVolume) error {
	list := &volumesv1alpha1.VolumeAttachmentIntentList{}
	if err := c.Client.List(ctx, list, client.MatchingFields{index.Volume: f.Volume}); err != nil {
		return fmt.Errorf("listing the intents of %s: %w", f.Volume, err)
	}
	found := list.Items
	for i := range volumes {
		ref := volumes[i].Spec.ClaimRef
		if ref == nil {
			continue
		}
		ofClaim := &volumesv1alpha1.VolumeAttachmentIntentList{}
		if err := c.Client.List(ctx, ofClaim, client.MatchingFields{index.Claim: index.ClaimKey(ref.Namespace, ref.Name)}); err != nil {
			return fmt.Errorf("listing the intents of claim %s/%s: %w", ref.Namespace, ref.Name, err)
		}
		for _, intent := range ofClaim.Items {
			known := slices.ContainsFunc(found, func(o volumesv1alpha1.VolumeAttachmentIntent) bool { return o.UID == intent.UID })
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

func (c *Controller) addIntent(ctx context.Context, f *Facts, object *volumesv1alpha1.VolumeAttachmentIntent) error {
	if !object.DeletionTimestamp.IsZero() {
		version, released := c.released.Load(object.UID)
		if status.Finalized(object) && !(released && version == object.ResourceVersion) {
			n := f.node(object.Spec.NodeName)
			n.Leaving = append(n.Leaving, &Intent{Object: object})
		}
		return nil
	}
	facts, err := resolve.Gather(ctx, c.Client, object)
	if err != nil {
		return fmt.Errorf("resolving intent %s/%s: %w", object.Namespace, object.Name, err)
	}
	i := &Intent{Object: object, Result: resolve.Intent(facts), Volume: facts.Volume, Claim: facts.Claim}
	if !i.pinned() && (!i.Result.OK || i.Result.Pins.UniqueVolumeName != f.Volume) {
		return nil
	}
	i.Protected = (!status.NeedsFinalizer(object) || status.Finalized(object)) &&
		(!status.HoldsClaim(object) || facts.Claim != nil && controllerutil.ContainsFinalizer(facts.Claim, volumesv1alpha1.ClaimFinalizer))
	n := f.node(object.Spec.NodeName)
	n.Wanted = append(n.Wanted, i)
	return nil
}

// gatherStates finds the nodes that list the volume.
func (c *Controller) gatherStates(ctx context.Context, f *Facts, _ []corev1.PersistentVolume) error {
	states := &volumesv1alpha1.NodeVolumeStateList{}
	if err := c.Client.List(ctx, states, client.MatchingFields{index.Volume: f.Volume}); err != nil {
		return fmt.Errorf("listing the nodes of %s: %w", f.Volume, err)
	}
	for i := range states.Items {
		f.node(states.Items[i].Name)
	}
	return nil
}

// gatherAttachments finds the volume's attachments under whatever name, whoever made them.
func (c *Controller) gatherAttachments(ctx context.Context, f *Facts, volumes []corev1.PersistentVolume) error {
	names := map[string]bool{}
	for i := range volumes {
		names[volumes[i].Name] = true
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
			f.node(list.Items[i].Spec.NodeName).addAttachment(&list.Items[i])
		}
	}
	return c.gatherNamed(ctx, f)
}

// addListed adds the attachment that the node's entry speaks of, where nothing else tells any more that it is one of the volume.
func (c *Controller) addListed(ctx context.Context, n *Node) error {
	if n.Entry == nil || n.Entry.AttachmentName == "" || n.named(n.Entry.AttachmentName) != nil {
		return nil
	}
	va := &storagev1.VolumeAttachment{}
	err := c.Client.Get(ctx, client.ObjectKey{Name: n.Entry.AttachmentName}, va)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("reading attachment %s: %w", n.Entry.AttachmentName, err)
	}
	if err == nil && va.UID == n.Entry.AttachmentUID {
		n.addAttachment(va)
	}
	return nil
}

// gatherNamed finds the attachments that say themselves which volume they are of.
func (c *Controller) gatherNamed(ctx context.Context, f *Facts) error {
	list := &storagev1.VolumeAttachmentList{}
	if err := c.Client.List(ctx, list, client.MatchingFields{index.Volume: f.Volume}); err != nil {
		return fmt.Errorf("listing the attachments that name %s: %w", f.Volume, err)
	}
	for i := range list.Items {
		va := &list.Items[i]
		f.node(va.Spec.NodeName).addAttachment(va)
	}
	return nil
}

// addOwnWrites adds what the cache does not show yet of our own writes.
func (c *Controller) addOwnWrites(f *Facts, n *Node) {
	if name := volume.AttachmentName(f.Driver, f.VolumeHandle, n.Name); len(n.Attachments) == 0 {
		if va := c.answers.newer(name, ""); va != nil {
			n.addAttachment(va)
		}
	}
	for i := range n.Attachments {
		if va := c.answers.newer(n.Attachments[i].Name, n.Attachments[i].ResourceVersion); va != nil {
			n.addAttachment(va)
		}
	}
}

func (n *Node) addAttachment(va *storagev1.VolumeAttachment) {
	a := Attachment{
		Name: va.Name, ResourceVersion: va.ResourceVersion, Finalizers: va.Finalizers,
		Attachment:  handshake.AttachmentFrom(va),
		AttachError: va.Status.AttachError, DetachError: va.Status.DetachError,
		PublishContext: va.Status.AttachmentMetadata,
	}
	a.Held = isHeld(va)
	if va.DeletionTimestamp != nil {
		a.Deleted = va.DeletionTimestamp.Time
	}
	if i := slices.IndexFunc(n.Attachments, func(b Attachment) bool { return b.Name == a.Name }); i >= 0 {
		n.Attachments[i] = a
		return
	}
	n.Attachments = append(n.Attachments, a)
}

// isHeld says whether Hawser counts on the attachment.
func isHeld(va *storagev1.VolumeAttachment) bool {
	_, held := va.Annotations[volumesv1alpha1.HoldAnnotation]
	return held
}

// gatherLock reads the exclusive lock and brings the nodes that it names into the facts.
func (c *Controller) gatherLock(ctx context.Context, f *Facts, _ []corev1.PersistentVolume) error {
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
			f.node(name)
		}
	}
	return nil
}

// describe says what kind of volume it is: from its PersistentVolumes or, where there are none, from its name.
func describe(f *Facts, volumes []corev1.PersistentVolume) {
	shared := len(volumes) > 0
	f.Described = shared
	f.Driver, f.VolumeHandle = volume.Split(f.Volume)
	for i := range volumes {
		pv := &volumes[i]
		shared = shared && !volume.Exclusive(pv)
		if ref := pv.Spec.ClaimRef; ref != nil {
			f.Bound = append(f.Bound, client.ObjectKey{Namespace: ref.Namespace, Name: ref.Name})
		}
		f.SingleUser = f.SingleUser || volume.SingleUser(pv)
	}
	f.Shared, f.Exclusive = shared, !shared || f.Lock.Exists || f.LockUnreadable != nil
}

// gatherDriver reads what the driver asks for. One that is not described attaches, as upstream has it.
func (c *Controller) gatherDriver(ctx context.Context, f *Facts) error {
	driver := &storagev1.CSIDriver{}
	err := c.Client.Get(ctx, client.ObjectKey{Name: f.Driver}, driver)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("reading driver %s: %w", f.Driver, err)
	}
	if err != nil {
		return nil
	}
	f.AttachRequired = driver.Spec.AttachRequired == nil || *driver.Spec.AttachRequired
	f.CutsAccess = driver.Annotations[volumesv1alpha1.CutsAccessAnnotation] == "true"
	if driver.Spec.FSGroupPolicy != nil {
		f.FSGroupPolicy = *driver.Spec.FSGroupPolicy
	}
	return nil
}

// gatherNode completes one node's part.
func (c *Controller) gatherNode(ctx context.Context, f *Facts, n *Node, volumes []corev1.PersistentVolume) error {
	nvs := &volumesv1alpha1.NodeVolumeState{}
	err := c.Client.Get(ctx, client.ObjectKey{Name: n.Name}, nvs)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("reading the state of node %s: %w", n.Name, err)
	}
	if err == nil {
		n.takeOver(c.Writer.Vouched(nvs), f.Volume)
	}
	if err := c.addListed(ctx, n); err != nil {
		return err
	}
	if n.DriverMissing, err = c.driverMissing(ctx, f.Driver, n.Name); err != nil {
		return err
	}
	if n.Pods, err = c.podsUse(ctx, n.Name, volumes); err != nil {
		return err
	}
	if err := c.gatherLists(ctx, f, n); err != nil {
		return err
	}
	return c.gatherEvidence(ctx, n)
}

func (c *Controller) driverMissing(ctx context.Context, driver, node string) (bool, error) {
	csiNode := &storagev1.CSINode{}
	err := c.Client.Get(ctx, client.ObjectKey{Name: node}, csiNode)
	if client.IgnoreNotFound(err) != nil {
		return false, fmt.Errorf("reading the drivers of node %s: %w", node, err)
	}
	return !slices.ContainsFunc(csiNode.Spec.Drivers, func(d storagev1.CSINodeDriver) bool { return d.Name == driver }), nil
}

// podsUse says whether pods that have not ended are bound to the node and name a claim of the volume.
func (c *Controller) podsUse(ctx context.Context, node string, volumes []corev1.PersistentVolume) (bool, error) {
	for i := range volumes {
		ref := volumes[i].Spec.ClaimRef
		if ref == nil {
			continue
		}
		pods := &corev1.PodList{}
		if err := c.Client.List(ctx, pods, client.MatchingFields{index.NodeClaim: index.NodeClaimKey(node, ref.Namespace, ref.Name)}); err != nil {
			return false, fmt.Errorf("listing the pods of claim %s/%s: %w", ref.Namespace, ref.Name, err)
		}
		if len(pods.Items) > 0 {
			return true, nil
		}
	}
	return false, nil
}
