/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package attachment

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/attachment/decision"
	"github.com/hawser-io/hawser/internal/controller/cached"
	"github.com/hawser-io/hawser/internal/controller/exclusive"
	"github.com/hawser-io/hawser/internal/controller/index"
	"github.com/hawser-io/hawser/internal/controller/liveness"
	"github.com/hawser-io/hawser/internal/controller/volume"
	"github.com/hawser-io/hawser/internal/handshake"
)

// addDeclared adds the volumes of attachments whose declaration came, went or changed.
func (c *Controller) addDeclared(ctx context.Context, was, is *volumesv1alpha1.NodeVolumeState, q queue) {
	before, after := handshake.NodeOf(was, ""), handshake.NodeOf(is, "")
	changed := map[types.UID]bool{}
	for _, d := range append(before.Declared, after.Declared...) {
		old, had := before.Declares(d.UID)
		now, has := after.Declares(d.UID)
		if had != has || old != now {
			changed[d.UID] = true
		}
	}
	if len(changed) == 0 {
		return
	}
	for name, entry := range entriesOf(is) {
		if changed[entry.AttachmentUID] {
			c.enqueue(q, name)
		}
	}
	for name, use := range usesOf(is) {
		if changed[use.uid] {
			c.enqueue(q, name)
		}
	}
	attachments, err := index.AttachmentsOf(ctx, c.Client, is.Name)
	if err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "finding the volumes that were declared released", "node", is.Name)
		return
	}
	for i := range attachments {
		if changed[attachments[i].UID] {
			c.attachmentChanged(ctx, nil, &attachments[i], q)
		}
	}
}

// stateChanged wakes the volumes whose part of the node's state changed, not the others.
func (c *Controller) stateChanged(ctx context.Context, before, after client.Object, q queue) {
	was, is := &volumesv1alpha1.NodeVolumeState{}, &volumesv1alpha1.NodeVolumeState{}
	if before != nil {
		was = before.(*volumesv1alpha1.NodeVolumeState)
	}
	if after != nil {
		is = after.(*volumesv1alpha1.NodeVolumeState)
		c.Writer.Cached(is)
	}
	if after == nil {
		c.unready.Forget(was.Name)
		c.announcements.forget(was.Name)
	}
	if before == nil || after == nil || nodeDiffers(was, is) || c.Tracker.IsCurrent(was) != c.Tracker.IsCurrent(is) {
		c.addNode(ctx, is, q)
		c.addNode(ctx, was, q)
		c.addLocked(ctx, either[*volumesv1alpha1.NodeVolumeState](before, after).Name, nil, q)
		return
	}
	wasAttached, isAttached := entriesOf(was), entriesOf(is)
	for name, entry := range isAttached {
		looked := looksSince(was, is, entry.Protocol.UnlistedGeneration) ||
			looksSince(was, is, entry.Protocol.RebootGeneration)
		if old := wasAttached[name]; old == nil || looked || !equality.Semantic.DeepEqual(old, entry) {
			c.enqueue(q, name)
		}
	}
	for name := range wasAttached {
		if isAttached[name] == nil {
			c.enqueue(q, name)
		}
	}
	wasUsed, isUsed := usesOf(was), usesOf(is)
	for name := range isUsed {
		if wasUsed[name] != isUsed[name] {
			c.enqueue(q, name)
		}
	}
	for name := range wasUsed {
		if _, ok := isUsed[name]; !ok {
			c.enqueue(q, name)
		}
	}
	c.addDeclared(ctx, was, is, q)
	if len(isAttached) < len(wasAttached) || publications(is) < publications(was) {
		c.addRefused(ctx, is.Name, q)
	}
}

// stateFound wakes the volumes that the node's state has. What else is wanted, attached or locked on the node is found
// by itself.
func (c *Controller) stateFound(_ context.Context, _, after client.Object, q queue) {
	nvs := after.(*volumesv1alpha1.NodeVolumeState)
	c.Writer.Cached(nvs)
	c.addVolumes(nvs, q)
}

// publications counts those that the state lists: most of what its size varies by beside the entries.
func publications(nvs *volumesv1alpha1.NodeVolumeState) int {
	n := 0
	for i := range nvs.Status.Volumes {
		n += len(nvs.Status.Volumes[i].Publications)
	}
	return n
}

// agentHeard wakes the volumes of a node whose agent was heard: what it has reported counts from now on. It does so too
// where access was cut, or given back. All agents are heard at once where the watch of their Leases has ended, so those
// volumes come first that may wait for it.
func (c *Controller) agentHeard(ctx context.Context, node string, q queue) {
	nvs := &volumesv1alpha1.NodeVolumeState{}
	if err := c.Client.Get(ctx, client.ObjectKey{Name: node}, nvs); err != nil {
		if client.IgnoreNotFound(err) != nil {
			ctrl.LoggerFrom(ctx).Error(err, "reading the state of a node", "node", node)
		}
		return
	}
	addMoving(nvs, q)
	c.addIntentsIf(ctx, index.Node, node, underWay, q)
	c.addNode(ctx, nvs, afterwards(q))
	c.addLocked(ctx, node, entriesOf(nvs), q)
}

// looksSince reports whether the agent has come to observe that generation.
func looksSince(was, is *volumesv1alpha1.NodeVolumeState, generation int64) bool {
	return generation > was.Status.ObservedGeneration && generation <= is.Status.ObservedGeneration
}

// nodeDiffers reports whether something changed that concerns every volume of the node. The silence of an agent does
// only where a taint or a fence says that its machine is off.
func nodeDiffers(was, is *volumesv1alpha1.NodeVolumeState) bool {
	off := is.Status.Node.OutOfService != nil || len(is.Status.Node.Fences) > 0
	return !equality.Semantic.DeepEqual(was.Status.Node.OutOfService, is.Status.Node.OutOfService) ||
		!equality.Semantic.DeepEqual(was.Status.Node.Fences, is.Status.Node.Fences) ||
		!equality.Semantic.DeepEqual(was.Status.Node.Absence, is.Status.Node.Absence) ||
		off && handshake.Silent(was) != handshake.Silent(is) ||
		handshake.NodeOf(was, "").Reported != handshake.NodeOf(is, "").Reported ||
		was.Status.BootID != is.Status.BootID || was.UID != is.UID
}

func entriesOf(nvs *volumesv1alpha1.NodeVolumeState) map[string]*volumesv1alpha1.NodeAttachment {
	m := make(map[string]*volumesv1alpha1.NodeAttachment, len(nvs.Spec.Attachments))
	for i := range nvs.Spec.Attachments {
		m[nvs.Spec.Attachments[i].VolumeName] = &nvs.Spec.Attachments[i]
	}
	return m
}

// use is what of a line in status.volumes matters here.
type use struct {
	uid                     types.UID
	inUse, waiting, foreign bool
	by                      volumesv1alpha1.Publisher
}

// usesOf has the line of each volume that counts, as handshake.VolumeOf selects it.
func usesOf(nvs *volumesv1alpha1.NodeVolumeState) map[string]use {
	m := make(map[string]use, len(nvs.Status.Volumes))
	for i := range nvs.Status.Volumes {
		v := &nvs.Status.Volumes[i]
		if first, more := m[v.VolumeName]; !more || v.InUse && !first.inUse {
			m[v.VolumeName] = use{uid: v.AttachmentUID, inUse: v.InUse, waiting: v.Waiting, foreign: v.Machine != nil,
				by: v.PublishedBy}
		}
	}
	return m
}

// addVolumes adds those that the state has.
func (c *Controller) addVolumes(nvs *volumesv1alpha1.NodeVolumeState, q queue) {
	for name := range entriesOf(nvs) {
		c.enqueue(q, name)
	}
	for name := range usesOf(nvs) {
		c.enqueue(q, name)
	}
}

// addNode adds every volume that the node lists, is wanted on or is attached to.
func (c *Controller) addNode(ctx context.Context, nvs *volumesv1alpha1.NodeVolumeState, q queue) {
	c.addVolumes(nvs, q)
	if nvs.Name == "" {
		return
	}
	c.addIntents(ctx, index.Node, nvs.Name, q)
	c.addAttached(ctx, nvs.Name, q)
	if c.Replace {
		c.addOfKubelet(ctx, nvs.Name, q)
	}
}

// addAttached adds what is attached to the node and ours to detach, although no state lists it: a manager may attach
// after another one has taken over from it. In Replace everything is ours.
func (c *Controller) addAttached(ctx context.Context, name string, q queue) {
	attachments := &storagev1.VolumeAttachmentList{}
	if err := c.Client.List(ctx, attachments, client.MatchingFields{index.Node: name}); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "listing the attachments of a node", "node", name)
	}
	for i := range attachments.Items {
		if c.Replace || decision.IsHeld(&attachments.Items[i]) {
			c.addAttachmentVolume(ctx, &attachments.Items[i], q)
		}
	}
}

// addOfKubelet adds what the kubelet lists.
func (c *Controller) addOfKubelet(ctx context.Context, name string, q queue) {
	node := &corev1.Node{}
	if err := c.Client.Get(ctx, client.ObjectKey{Name: name}, node); client.IgnoreNotFound(err) != nil {
		ctrl.LoggerFrom(ctx).Error(err, "reading a node", "node", name)
	}
	for name := range listed(node) {
		c.enqueueListed(q, name)
	}
}

// enqueueListed wakes a volume that a Node lists. Those of iSCSI and other plugins are not Hawser's.
func (c *Controller) enqueueListed(q queue, name corev1.UniqueVolumeName) {
	if volume.IsUniqueName(string(name)) {
		c.enqueue(q, string(name))
	}
}

// addLocked adds the exclusive volumes that were last on the node and are not among the known ones: a volume that waits
// for a fence there need have nothing else to do with the node.
func (c *Controller) addLocked(
	ctx context.Context, node string, known map[string]*volumesv1alpha1.NodeAttachment, q queue,
) {
	objects := &corev1.ConfigMapList{}
	if err := c.Client.List(ctx, objects, client.MatchingFields{index.Node: node}); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "listing the locks of a node", "node", node)
		return
	}
	for i := range objects.Items {
		volumes, err := exclusive.ByNode(&objects.Items[i])
		if err != nil {
			ctrl.LoggerFrom(ctx).Error(err, "finding the locks of a node", "node", node)
		}
		for _, name := range volumes[node] {
			if known[name] == nil {
				c.enqueue(q, name)
			}
		}
	}
}

// addRefused adds the volumes that the node's state was too large for.
func (c *Controller) addRefused(ctx context.Context, node string, q queue) {
	c.addIntentsIf(ctx, index.Node, node, func(i *volumesv1alpha1.VolumeAttachmentIntent) bool {
		attached := meta.FindStatusCondition(i.Status.Conditions, volumesv1alpha1.ConditionAttached)
		return attached != nil && attached.Reason == volumesv1alpha1.ReasonNodeStateTooLarge
	}, q)
}

// nodeChanged wakes the volumes that the kubelet lists differently and, where the node as such changed, all of the
// node's.
func (c *Controller) nodeChanged(ctx context.Context, before, after client.Object, q queue) {
	node := either[*corev1.Node](before, after)
	if after == nil || liveness.Ready(node) {
		c.unready.Forget(node.Name)
	}
	if before == nil || after == nil || nodeConditionsDiffer(before.(*corev1.Node), node) {
		nvs := &volumesv1alpha1.NodeVolumeState{}
		if err := c.Client.Get(ctx, client.ObjectKey{Name: node.Name}, nvs); client.IgnoreNotFound(err) != nil {
			ctrl.LoggerFrom(ctx).Error(err, "reading the state of a node", "node", node.Name)
		}
		nvs = nvs.DeepCopy()
		nvs.Name = node.Name
		c.addNode(ctx, nvs, q)
		return
	}
	was, is := listed(before.(*corev1.Node)), listed(node)
	for name, lists := range is {
		if was[name] != lists {
			c.enqueueListed(q, name)
		}
	}
	for name := range was {
		if _, ok := is[name]; !ok {
			c.enqueueListed(q, name)
		}
	}
}

// nodeFound wakes the volumes that the kubelet lists: in Replace these are all that may have nothing else.
func (c *Controller) nodeFound(ctx context.Context, _, after client.Object, q queue) {
	if c.Replace {
		c.addOfKubelet(ctx, after.GetName(), q)
	}
}

func nodeConditionsDiffer(was, is *corev1.Node) bool {
	return liveness.Ready(was) != liveness.Ready(is) || managed(was) != managed(is) ||
		!equality.Semantic.DeepEqual(handshake.OutOfService(was), handshake.OutOfService(is)) ||
		cached.NodeLabelsDiffer(was, is) || was.DeletionTimestamp.IsZero() != is.DeletionTimestamp.IsZero()
}

// managed: the Node's kubelet leaves attaching to a controller.
func managed(node *corev1.Node) bool { return node.Annotations[cached.ManagedNodeAnnotation] == "true" }

// listed maps each volume to the Node's lists that contain it.
func listed(node *corev1.Node) map[corev1.UniqueVolumeName]handshake.KubeletLists {
	m := map[corev1.UniqueVolumeName]handshake.KubeletLists{}
	for _, v := range node.Status.VolumesAttached {
		m[v.Name] = handshake.KubeletLists{Attached: true}
	}
	for _, name := range node.Status.VolumesInUse {
		lists := m[name]
		lists.InUse = true
		m[name] = lists
	}
	return m
}
