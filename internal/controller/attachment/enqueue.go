/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package attachment

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/exclusive"
	"github.com/hawser-io/hawser/internal/controller/index"
	"github.com/hawser-io/hawser/internal/controller/resolve"
	"github.com/hawser-io/hawser/internal/controller/volume"
	"github.com/hawser-io/hawser/internal/status"
)

type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// wake adds to the queue the volumes that a change from before to after is about; one of the two may be nil.
type wake func(ctx context.Context, before, after client.Object, q queue)

// handler of these changes, and of the objects that were there when the controller started; nil where others lead to
// their volumes by name: see cached.SinceStart.
func (w wake) handler(found wake) handler.EventHandler {
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, q queue) {
			switch {
			case !e.IsInInitialList:
				w(ctx, nil, e.Object, q)
			case found != nil:
				found(ctx, nil, e.Object, ofInitial(e.Object, q))
			}
		},
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q queue) { w(ctx, e.ObjectOld, e.ObjectNew, q) },
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q queue) { w(ctx, e.Object, nil, q) },
	}
}

// ofInitial is the queue for an object that was there before this process. All are looked at once, which takes long
// where there are many. Those of which something is under way come first.
func ofInitial(o client.Object, q queue) queue {
	switch o := o.(type) {
	case *volumesv1alpha1.VolumeAttachmentIntent:
		if underWay(o) {
			return q
		}
	case *volumesv1alpha1.NodeVolumeState:
		addMoving(o, q)
	}
	return afterwards(q)
}

// underWay: the intent's volume is not attached, or is to be released.
func underWay(i *volumesv1alpha1.VolumeAttachmentIntent) bool {
	return !i.DeletionTimestamp.IsZero() ||
		!meta.IsStatusConditionTrue(i.Status.Conditions, volumesv1alpha1.ConditionAttached)
}

// addMoving adds the volumes that the node lists and that are not Attached there.
func addMoving(nvs *volumesv1alpha1.NodeVolumeState, q queue) {
	for i := range nvs.Spec.Attachments {
		if e := &nvs.Spec.Attachments[i]; e.State != volumesv1alpha1.AttachmentAttached {
			q.Add(reconcile.Request{NamespacedName: client.ObjectKey{Name: e.VolumeName}})
		}
	}
}

// afterwards is the same queue for what comes after everything else.
func afterwards(q queue) queue {
	if lanes, ok := q.(interface {
		Later() queue
	}); ok {
		return lanes.Later()
	}
	return q
}

// enqueue a volume, if it has a name.
func (c *Controller) enqueue(q queue, volumeName string) {
	if volumeName != "" {
		q.Add(reconcile.Request{NamespacedName: client.ObjectKey{Name: volumeName}})
	}
}

// either returns the newer of the two.
func either[T client.Object](before, after client.Object) T {
	if after != nil {
		return after.(T)
	}
	return before.(T)
}

func (c *Controller) intentChanged(ctx context.Context, before, after client.Object, q queue) {
	if before != nil && (after == nil || after.GetUID() != before.GetUID()) {
		c.attachTimes.forget(before.GetUID())
		c.released.Delete(before.GetUID())
	}
	was, _ := before.(*volumesv1alpha1.VolumeAttachmentIntent)
	is, _ := after.(*volumesv1alpha1.VolumeAttachmentIntent)
	c.uses.IntentChanged(was, is)
	for _, o := range []client.Object{before, after} {
		if o != nil {
			c.addIntentVolume(ctx, o.(*volumesv1alpha1.VolumeAttachmentIntent), q)
		}
	}
}

func (c *Controller) addIntentVolume(ctx context.Context, intent *volumesv1alpha1.VolumeAttachmentIntent, q queue) {
	name, err := resolve.VolumeName(ctx, c.Client, intent)
	if err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "finding the volume of an intent", "intent", client.ObjectKeyFromObject(intent))
		return
	}
	c.enqueue(q, name)
}

func (c *Controller) pvcChanged(ctx context.Context, before, after client.Object, q queue) {
	claim := either[*corev1.PersistentVolumeClaim](before, after)
	c.addIntents(ctx, index.Claim, index.ClaimKey(claim.Namespace, claim.Name), q)
}

// pvcFound wakes the volume of intents that have none yet: when they were found, the claim may have had none. The
// others lead to their volume by its name.
func (c *Controller) pvcFound(ctx context.Context, _, after client.Object, q queue) {
	c.addUnpinned(ctx, index.ClaimKey(after.GetNamespace(), after.GetName()), q)
}

func (c *Controller) addUnpinned(ctx context.Context, claim string, q queue) {
	c.addIntentsIf(ctx, index.Claim, claim, func(i *volumesv1alpha1.VolumeAttachmentIntent) bool {
		return i.Status.UniqueVolumeName == ""
	}, q)
}

func (c *Controller) addIntents(ctx context.Context, field, key string, q queue) {
	c.addIntentsIf(ctx, field, key, func(*volumesv1alpha1.VolumeAttachmentIntent) bool { return true }, q)
}

// addIntentsIf adds the volumes of those intents that are selected.
func (c *Controller) addIntentsIf(
	ctx context.Context, field, key string, selected func(*volumesv1alpha1.VolumeAttachmentIntent) bool, q queue,
) {
	intents := &volumesv1alpha1.VolumeAttachmentIntentList{}
	if err := c.Client.List(ctx, intents, client.MatchingFields{field: key}); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "listing intents", "by", field, "key", key)
		return
	}
	for i := range intents.Items {
		if selected(&intents.Items[i]) {
			c.addIntentVolume(ctx, &intents.Items[i], q)
		}
	}
}

func (c *Controller) volumeChanged(_ context.Context, before, after client.Object, q queue) {
	c.enqueue(q, volume.UniqueNameOf(either[*corev1.PersistentVolume](before, after)))
}

// volumeFound is pvcFound of the claim that the volume belongs to.
func (c *Controller) volumeFound(ctx context.Context, _, after client.Object, q queue) {
	if ref := after.(*corev1.PersistentVolume).Spec.ClaimRef; ref != nil {
		c.addUnpinned(ctx, index.ClaimKey(ref.Namespace, ref.Name), q)
	}
}

func (c *Controller) attachmentChanged(ctx context.Context, before, after client.Object, q queue) {
	c.limits.AttachmentChanged(before, after)
	c.deletions.observe(before, after)
	va := either[*storagev1.VolumeAttachment](before, after)
	if after == nil {
		c.ownWrites.forget(va.Name)
	}
	c.addAttachmentVolume(ctx, va, q)
}

func (c *Controller) addAttachmentVolume(ctx context.Context, va *storagev1.VolumeAttachment, q queue) {
	said := volume.AttachedUniqueName(va)
	c.enqueue(q, said)
	if va.Spec.Source.PersistentVolumeName == nil {
		return
	}
	// What its PersistentVolume is by now may be another volume, which waits for this attachment to go.
	name := *va.Spec.Source.PersistentVolumeName
	pv := &corev1.PersistentVolume{}
	if err := c.Client.Get(ctx, client.ObjectKey{Name: name}, pv); err == nil {
		if other := volume.UniqueNameOf(pv); other != said {
			c.enqueue(q, other)
		}
		return
	}
	if said != "" {
		return
	}
	// The PersistentVolume is gone: the entries that name it know the volume. That is rare, and no index is kept for it.
	states := &volumesv1alpha1.NodeVolumeStateList{}
	if err := c.Client.List(ctx, states); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "listing the nodes of a volume", "persistentVolume", name)
		return
	}
	for i := range states.Items {
		for j := range states.Items[i].Spec.Attachments {
			if a := &states.Items[i].Spec.Attachments[j]; a.PersistentVolumeName == name {
				c.enqueue(q, a.VolumeName)
			}
		}
	}
}

func (c *Controller) locksChanged(ctx context.Context, before, after client.Object, q queue) {
	old, _ := before.(*corev1.ConfigMap)
	object, _ := after.(*corev1.ConfigMap)
	volumes, err := c.Locks.Changed(old, object)
	if err != nil {
		c.reportUnreadable(object)
		locks := either[*corev1.ConfigMap](before, after).Name
		c.addIntentVolumes(ctx, q, func(_ *volumesv1alpha1.VolumeAttachmentIntent, name string) bool {
			return exclusive.Key(name).Name == locks
		})
		return
	}
	for _, name := range volumes {
		c.enqueue(q, name)
	}
}

// EventLocksUnreadable is the reason of an event on a ConfigMap: the locks in it cannot be read.
const EventLocksUnreadable = "LocksUnreadable"

// reportUnreadable puts an event on locks that cannot be read; nil is for a ConfigMap that is gone.
func (c *Controller) reportUnreadable(locks *corev1.ConfigMap) {
	if _, err := exclusive.Locks(locks); err != nil {
		c.Events.Eventf(locks, nil, corev1.EventTypeWarning, EventLocksUnreadable, "Read",
			"%s", status.ShortenNote(err.Error()+
				"; the volumes that they are of are neither attached nor moved until an administrator has repaired them"))
	}
}

// policiesChanged adds every volume that an intent waits for.
func (c *Controller) policiesChanged(ctx context.Context, _ event.GenericEvent, q queue) {
	c.addIntentVolumes(ctx, q, func(intent *volumesv1alpha1.VolumeAttachmentIntent, _ string) bool {
		return !meta.IsStatusConditionTrue(intent.Status.Conditions, volumesv1alpha1.ConditionAttached)
	})
}

// addIntentVolumes adds the volumes of all intents that asked selects.
func (c *Controller) addIntentVolumes(
	ctx context.Context, q queue, asked func(*volumesv1alpha1.VolumeAttachmentIntent, string) bool,
) {
	intents := &volumesv1alpha1.VolumeAttachmentIntentList{}
	if err := c.Client.List(ctx, intents); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "listing intents")
		return
	}
	for i := range intents.Items {
		intent := &intents.Items[i]
		name, err := resolve.VolumeName(ctx, c.Client, intent)
		if err != nil {
			ctrl.LoggerFrom(ctx).Error(err, "finding the volume of an intent", "intent", client.ObjectKeyFromObject(intent))
		} else if asked(intent, name) {
			c.enqueue(q, name)
		}
	}
}

func (c *Controller) csiNodeChanged(ctx context.Context, before, after client.Object, q queue) {
	name := either[*storagev1.CSINode](before, after).Name
	c.limits.NodeChanged(name)
	c.addIntents(ctx, index.Node, name, q)
}

// csiDriverChanged adds every volume of the driver. Drivers hardly ever change.
func (c *Controller) csiDriverChanged(ctx context.Context, before, after client.Object, q queue) {
	driver := either[*storagev1.CSIDriver](before, after)
	volumes := &corev1.PersistentVolumeList{}
	if err := c.Client.List(ctx, volumes); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "listing the volumes of a driver", "driver", driver.Name)
		return
	}
	for i := range volumes.Items {
		if pv := &volumes.Items[i]; volume.DriverOf(pv) == driver.Name {
			c.enqueue(q, volume.UniqueNameOf(pv))
		}
	}
}

func (c *Controller) podChanged(ctx context.Context, before, after client.Object, q queue) {
	was, _ := before.(*corev1.Pod)
	is, _ := after.(*corev1.Pod)
	if was != nil && is != nil && was.UID == is.UID && index.UsesVolumes(was) == index.UsesVolumes(is) {
		return
	}
	for _, pod := range []*corev1.Pod{was, is} {
		if pod != nil {
			c.addPodVolumes(ctx, pod, q)
		}
	}
}

// addPodVolumes adds the volumes that the pod has in itself, and those of its claims while it uses them.
func (c *Controller) addPodVolumes(ctx context.Context, pod *corev1.Pod, q queue) {
	for _, pv := range volume.InlineOf(pod) {
		c.enqueue(q, volume.UniqueNameOf(pv))
	}
	if !index.UsesVolumes(pod) {
		return
	}
	for _, name := range index.PodClaims(pod) {
		claim := &corev1.PersistentVolumeClaim{}
		if err := c.Client.Get(ctx, client.ObjectKey{Namespace: pod.Namespace, Name: name}, claim); err != nil ||
			claim.Spec.VolumeName == "" {
			continue
		}
		pv := &corev1.PersistentVolume{}
		if err := c.Client.Get(ctx, client.ObjectKey{Name: claim.Spec.VolumeName}, pv); err == nil {
			c.enqueue(q, volume.UniqueNameOf(pv))
		}
	}
}
