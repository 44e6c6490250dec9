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
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/backoff"
	"github.com/hawser-io/hawser/internal/controller/batch"
	"github.com/hawser-io/hawser/internal/controller/exclusive"
	"github.com/hawser-io/hawser/internal/controller/index"
	"github.com/hawser-io/hawser/internal/controller/report"
	"github.com/hawser-io/hawser/internal/controller/resolve"
	"github.com/hawser-io/hawser/internal/controller/volume"
)

type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// wake adds to the queue the volumes that a change from before to after is about; one of the two may be nil.
type wake func(ctx context.Context, before, after client.Object, q queue)

// Register adds the controller to the manager.
func (c *Controller) Register(mgr manager.Manager) error {
	c.answers.clock = c.Clock
	c.Protocol.Kubelet = c.Replace
	c.users = batch.NewReads(c.Slots, c.readUsers)
	c.waiting = c.Slots.Queue()
	b := ctrl.NewControllerManagedBy(mgr).Named("attachment")
	for _, w := range []struct {
		object client.Object
		wake   wake
	}{
		{&volumesv1alpha1.VolumeAttachmentIntent{}, c.intentChanged},
		{&corev1.PersistentVolumeClaim{}, c.pvcChanged},
		{&corev1.PersistentVolume{}, c.volumeChanged},
		{&volumesv1alpha1.NodeVolumeState{}, c.stateChanged},
		{&storagev1.VolumeAttachment{}, c.attachmentChanged},
		{&corev1.ConfigMap{}, c.locksChanged},
		{&corev1.Node{}, c.nodeChanged},
		{&storagev1.CSINode{}, c.driversChanged},
		{&storagev1.CSIDriver{}, c.driverChanged},
		{&corev1.Pod{}, c.podChanged},
	} {
		b = b.Watches(w.object, w.wake.handler())
	}
	b = b.WatchesRawSource(source.Channel(c.Policies.Changed(), handler.Funcs{GenericFunc: c.policiesChanged}))
	return b.WatchesRawSource(source.Func(c.limits.start)).WatchesRawSource(c.Tracker.Listen(c.heard)).WithOptions(controller.Options{
		MaxConcurrentReconciles: Workers,
		// Not controller-runtime's priority queue: that looks at every key that waits for its own pass to end whenever one comes, which with so
		// many workers are many.
		NewQueue:    c.waiting.New,
		RateLimiter: backoff.Limiter(),
	}).Complete(c.waiting.Reconciler(c))
}

func (w wake) handler() handler.EventHandler {
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, q queue) { w(ctx, nil, e.Object, q) },
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q queue) { w(ctx, e.ObjectOld, e.ObjectNew, q) },
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q queue) { w(ctx, e.Object, nil, q) },
	}
}

// add a volume for what has happened on the node; empty where it is about none in particular. The volumes of a node share its writes.
func (c *Controller) add(q queue, node, volumeName string) {
	if volumeName == "" {
		return
	}
	req := reconcile.Request{NamespacedName: client.ObjectKey{Name: volumeName}}
	if c.waiting != nil && node != "" {
		c.waiting.Join(node, req)
	}
	q.Add(req)
}

// either returns the newer of the two.
func either[T client.Object](before, after client.Object) T {
	if after != nil {
		return after.(T)
	}
	return before.(T)
}

func (c *Controller) intentChanged(ctx context.Context, before, after client.Object, q queue) {
	if after == nil {
		c.begun.forget(before.GetUID())
		c.released.Delete(before.GetUID())
	}
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
	c.add(q, intent.Spec.NodeName, name)
}

func (c *Controller) pvcChanged(ctx context.Context, before, after client.Object, q queue) {
	claim := either[*corev1.PersistentVolumeClaim](before, after)
	c.addIntents(ctx, index.Claim, index.ClaimKey(claim.Namespace, claim.Name), q)
}

func (c *Controller) addIntents(ctx context.Context, field, key string, q queue) {
	intents := &volumesv1alpha1.VolumeAttachmentIntentList{}
	if err := c.Client.List(ctx, intents, client.MatchingFields{field: key}); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "listing intents", "by", field, "key", key)
		return
	}
	for i := range intents.Items {
		c.addIntentVolume(ctx, &intents.Items[i], q)
	}
}

func (c *Controller) volumeChanged(_ context.Context, before, after client.Object, q queue) {
	c.add(q, "", volume.UniqueNameOf(either[*corev1.PersistentVolume](before, after)))
}

func (c *Controller) attachmentChanged(ctx context.Context, before, after client.Object, q queue) {
	c.limits.changed(before, after)
	c.departed.observe(before, after)
	va := either[*storagev1.VolumeAttachment](before, after)
	if after == nil {
		c.answers.forget(va.Name)
	}
	c.addAttachmentVolume(ctx, va, q)
}

func (c *Controller) addAttachmentVolume(ctx context.Context, va *storagev1.VolumeAttachment, q queue) {
	if name := volume.AttachedUniqueName(va); name != "" || va.Spec.Source.PersistentVolumeName == nil {
		c.add(q, va.Spec.NodeName, name)
		return
	}
	name := *va.Spec.Source.PersistentVolumeName
	pv := &corev1.PersistentVolume{}
	if err := c.Client.Get(ctx, client.ObjectKey{Name: name}, pv); err == nil {
		c.add(q, va.Spec.NodeName, volume.UniqueNameOf(pv))
		return
	}
	// The PersistentVolume is gone: whoever still speaks of it knows the volume.
	states := &volumesv1alpha1.NodeVolumeStateList{}
	if err := c.Client.List(ctx, states, client.MatchingFields{index.PersistentVolume: name}); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "listing the nodes of a volume", "persistentVolume", name)
		return
	}
	for i := range states.Items {
		for j := range states.Items[i].Spec.Attachments {
			if a := &states.Items[i].Spec.Attachments[j]; a.PersistentVolumeName == name {
				c.add(q, va.Spec.NodeName, a.VolumeName)
			}
		}
	}
}

func (c *Controller) locksChanged(ctx context.Context, before, after client.Object, q queue) {
	old, _ := before.(*corev1.ConfigMap)
	object, _ := after.(*corev1.ConfigMap)
	volumes, err := c.Locks.Changed(old, object)
	if err != nil {
		c.tellUnreadable(object)
		locks := either[*corev1.ConfigMap](before, after).Name
		c.addIntentVolumes(ctx, q, func(_ *volumesv1alpha1.VolumeAttachmentIntent, name string) bool {
			return exclusive.Key(name).Name == locks
		})
		return
	}
	for _, name := range volumes {
		c.add(q, "", name)
	}
}

// EventLocksUnreadable is the reason of an event on a ConfigMap: the locks in it cannot be read.
const EventLocksUnreadable = "LocksUnreadable"

// tellUnreadable puts an event on locks that cannot be read; nil is for a ConfigMap that is gone.
func (c *Controller) tellUnreadable(locks *corev1.ConfigMap) {
	if _, err := exclusive.Locks(locks); err != nil {
		c.Events.Eventf(locks, nil, corev1.EventTypeWarning, EventLocksUnreadable, "Read",
			"%s", report.Shortened(err.Error()+"; the volumes that they are of are neither attached nor moved until an administrator has repaired them"))
	}
}

// policiesChanged looks at every volume that an intent waits for.
func (c *Controller) policiesChanged(ctx context.Context, _ event.GenericEvent, q queue) {
	c.addIntentVolumes(ctx, q, func(intent *volumesv1alpha1.VolumeAttachmentIntent, _ string) bool {
		return !meta.IsStatusConditionTrue(intent.Status.Conditions, volumesv1alpha1.ConditionAttached)
	})
}

// addIntentVolumes adds the volumes of all intents for which that is asked.
func (c *Controller) addIntentVolumes(ctx context.Context, q queue, asked func(*volumesv1alpha1.VolumeAttachmentIntent, string) bool) {
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
			c.add(q, intent.Spec.NodeName, name)
		}
	}
}

func (c *Controller) driversChanged(ctx context.Context, before, after client.Object, q queue) {
	name := either[*storagev1.CSINode](before, after).Name
	c.limits.nodeChanged(name)
	c.addIntents(ctx, index.Node, name, q)
}

// driverChanged looks at every volume of the driver. Drivers hardly ever change.
func (c *Controller) driverChanged(ctx context.Context, before, after client.Object, q queue) {
	driver := either[*storagev1.CSIDriver](before, after)
	volumes := &corev1.PersistentVolumeList{}
	if err := c.Client.List(ctx, volumes); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "listing the volumes of a driver", "driver", driver.Name)
		return
	}
	for i := range volumes.Items {
		if pv := &volumes.Items[i]; pv.Spec.CSI != nil && pv.Spec.CSI.Driver == driver.Name {
			c.add(q, "", volume.UniqueNameOf(pv))
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
		c.add(q, pod.Spec.NodeName, volume.UniqueNameOf(pv))
	}
	if !index.UsesVolumes(pod) {
		return
	}
	for _, name := range index.PodClaims(pod) {
		claim := &corev1.PersistentVolumeClaim{}
		if err := c.Client.Get(ctx, client.ObjectKey{Namespace: pod.Namespace, Name: name}, claim); err != nil || claim.Spec.VolumeName == "" {
			continue
		}
		pv := &corev1.PersistentVolume{}
		if err := c.Client.Get(ctx, client.ObjectKey{Name: claim.Spec.VolumeName}, pv); err == nil {
			c.add(q, pod.Spec.NodeName, volume.UniqueNameOf(pv))
		}
	}
}
