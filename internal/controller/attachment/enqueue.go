/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package attachment

import (
	"context"
	"sync"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/attachment/capacity"
	"github.com/hawser-io/hawser/internal/controller/exclusive"
	"github.com/hawser-io/hawser/internal/controller/index"
	"github.com/hawser-io/hawser/internal/controller/liveness"
	"github.com/hawser-io/hawser/internal/controller/outage"
	"github.com/hawser-io/hawser/internal/controller/resolve"
	"github.com/hawser-io/hawser/internal/controller/volume"
	"github.com/hawser-io/hawser/internal/status"
)

type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// wake adds to the queue the volumes that a change from before to after is about; one of the two may be nil.
type wake func(ctx context.Context, before, after client.Object, q queue)

func (w wake) handler() handler.EventHandler {
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, q queue) { w(ctx, nil, e.Object, q) },
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q queue) { w(ctx, e.ObjectOld, e.ObjectNew, q) },
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q queue) { w(ctx, e.Object, nil, q) },
	}
}

// enqueuer finds the volumes that an event concerns, and adds them to the queue.
type enqueuer struct {
	client        client.Client
	replace       bool
	tracker       *liveness.Tracker
	locks         *exclusive.Store
	events        events.EventRecorder
	unready       *outage.Watch
	attachTimes   *attachTimes
	ownWrites     *ownWrites
	limits        *capacity.Limits
	uses          *capacity.Uses
	announcements *announcements
	deletions     *deletions
	released      *sync.Map
}

func (c *Controller) enqueuer() enqueuer {
	return enqueuer{
		client: c.Client, replace: c.Replace, tracker: c.Tracker, locks: c.Locks, events: c.Events,
		unready: &c.unready, attachTimes: &c.attachTimes, ownWrites: &c.ownWrites, limits: &c.limits, uses: &c.uses,
		announcements: &c.announcements, deletions: &c.deletions, released: &c.released,
	}
}

// add a volume, if it has a name.
func (e enqueuer) add(q queue, volumeName string) {
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

func (e enqueuer) intentChanged(ctx context.Context, before, after client.Object, q queue) {
	if after == nil {
		e.attachTimes.forget(before.GetUID())
		e.released.Delete(before.GetUID())
	}
	was, _ := before.(*volumesv1alpha1.VolumeAttachmentIntent)
	is, _ := after.(*volumesv1alpha1.VolumeAttachmentIntent)
	e.add(q, e.uses.IntentChanged(was, is))
	for _, o := range []client.Object{before, after} {
		if o != nil {
			e.addIntentVolume(ctx, o.(*volumesv1alpha1.VolumeAttachmentIntent), q)
		}
	}
}

func (e enqueuer) addIntentVolume(ctx context.Context, intent *volumesv1alpha1.VolumeAttachmentIntent, q queue) {
	name, err := resolve.VolumeName(ctx, e.client, intent)
	if err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "finding the volume of an intent", "intent", client.ObjectKeyFromObject(intent))
		return
	}
	e.add(q, name)
}

func (e enqueuer) pvcChanged(ctx context.Context, before, after client.Object, q queue) {
	claim := either[*corev1.PersistentVolumeClaim](before, after)
	e.addIntents(ctx, index.Claim, index.ClaimKey(claim.Namespace, claim.Name), q)
}

func (e enqueuer) addIntents(ctx context.Context, field, key string, q queue) {
	intents := &volumesv1alpha1.VolumeAttachmentIntentList{}
	if err := e.client.List(ctx, intents, client.MatchingFields{field: key}); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "listing intents", "by", field, "key", key)
		return
	}
	for i := range intents.Items {
		e.addIntentVolume(ctx, &intents.Items[i], q)
	}
}

func (e enqueuer) volumeChanged(_ context.Context, before, after client.Object, q queue) {
	e.add(q, volume.UniqueNameOf(either[*corev1.PersistentVolume](before, after)))
}

func (e enqueuer) attachmentChanged(ctx context.Context, before, after client.Object, q queue) {
	e.limits.AttachmentChanged(before, after)
	e.deletions.observe(before, after)
	va := either[*storagev1.VolumeAttachment](before, after)
	if after == nil {
		e.ownWrites.forget(va.Name)
	}
	e.addAttachmentVolume(ctx, va, q)
}

func (e enqueuer) addAttachmentVolume(ctx context.Context, va *storagev1.VolumeAttachment, q queue) {
	said := volume.AttachedUniqueName(va)
	e.add(q, said)
	if va.Spec.Source.PersistentVolumeName == nil {
		return
	}
	// What its PersistentVolume is by now may be another volume, which waits for this attachment to go.
	name := *va.Spec.Source.PersistentVolumeName
	pv := &corev1.PersistentVolume{}
	if err := e.client.Get(ctx, client.ObjectKey{Name: name}, pv); err == nil {
		if other := volume.UniqueNameOf(pv); other != said {
			e.add(q, other)
		}
		return
	}
	if said != "" {
		return
	}
	// The PersistentVolume is gone: the entries that name it know the volume.
	states := &volumesv1alpha1.NodeVolumeStateList{}
	if err := e.client.List(ctx, states, client.MatchingFields{index.PersistentVolume: name}); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "listing the nodes of a volume", "persistentVolume", name)
		return
	}
	for i := range states.Items {
		for j := range states.Items[i].Spec.Attachments {
			if a := &states.Items[i].Spec.Attachments[j]; a.PersistentVolumeName == name {
				e.add(q, a.VolumeName)
			}
		}
	}
}

func (e enqueuer) locksChanged(ctx context.Context, before, after client.Object, q queue) {
	old, _ := before.(*corev1.ConfigMap)
	object, _ := after.(*corev1.ConfigMap)
	volumes, err := e.locks.Changed(old, object)
	if err != nil {
		e.reportUnreadable(object)
		locks := either[*corev1.ConfigMap](before, after).Name
		e.addIntentVolumes(ctx, q, func(_ *volumesv1alpha1.VolumeAttachmentIntent, name string) bool {
			return exclusive.Key(name).Name == locks
		})
		return
	}
	for _, name := range volumes {
		e.add(q, name)
	}
}

// EventLocksUnreadable is the reason of an event on a ConfigMap: the locks in it cannot be read.
const EventLocksUnreadable = "LocksUnreadable"

// reportUnreadable puts an event on locks that cannot be read; nil is for a ConfigMap that is gone.
func (e enqueuer) reportUnreadable(locks *corev1.ConfigMap) {
	if _, err := exclusive.Locks(locks); err != nil {
		e.events.Eventf(locks, nil, corev1.EventTypeWarning, EventLocksUnreadable, "Read",
			"%s", status.ShortenNote(err.Error()+
				"; the volumes that they are of are neither attached nor moved until an administrator has repaired them"))
	}
}

// policiesChanged adds every volume that an intent waits for.
func (e enqueuer) policiesChanged(ctx context.Context, _ event.GenericEvent, q queue) {
	e.addIntentVolumes(ctx, q, func(intent *volumesv1alpha1.VolumeAttachmentIntent, _ string) bool {
		return !meta.IsStatusConditionTrue(intent.Status.Conditions, volumesv1alpha1.ConditionAttached)
	})
}

// addIntentVolumes adds the volumes of all intents that asked selects.
func (e enqueuer) addIntentVolumes(
	ctx context.Context, q queue, asked func(*volumesv1alpha1.VolumeAttachmentIntent, string) bool,
) {
	intents := &volumesv1alpha1.VolumeAttachmentIntentList{}
	if err := e.client.List(ctx, intents); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "listing intents")
		return
	}
	for i := range intents.Items {
		intent := &intents.Items[i]
		name, err := resolve.VolumeName(ctx, e.client, intent)
		if err != nil {
			ctrl.LoggerFrom(ctx).Error(err, "finding the volume of an intent", "intent", client.ObjectKeyFromObject(intent))
		} else if asked(intent, name) {
			e.add(q, name)
		}
	}
}

func (e enqueuer) csiNodeChanged(ctx context.Context, before, after client.Object, q queue) {
	name := either[*storagev1.CSINode](before, after).Name
	e.limits.NodeChanged(name)
	e.addIntents(ctx, index.Node, name, q)
}

// csiDriverChanged adds every volume of the driver. Drivers hardly ever change.
func (e enqueuer) csiDriverChanged(ctx context.Context, before, after client.Object, q queue) {
	driver := either[*storagev1.CSIDriver](before, after)
	volumes := &corev1.PersistentVolumeList{}
	if err := e.client.List(ctx, volumes); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "listing the volumes of a driver", "driver", driver.Name)
		return
	}
	for i := range volumes.Items {
		if pv := &volumes.Items[i]; volume.DriverOf(pv) == driver.Name {
			e.add(q, volume.UniqueNameOf(pv))
		}
	}
}

func (e enqueuer) podChanged(ctx context.Context, before, after client.Object, q queue) {
	was, _ := before.(*corev1.Pod)
	is, _ := after.(*corev1.Pod)
	if was != nil && is != nil && was.UID == is.UID && index.UsesVolumes(was) == index.UsesVolumes(is) {
		return
	}
	for _, pod := range []*corev1.Pod{was, is} {
		if pod != nil {
			e.addPodVolumes(ctx, pod, q)
		}
	}
}

// addPodVolumes adds the volumes that the pod has in itself, and those of its claims while it uses them.
func (e enqueuer) addPodVolumes(ctx context.Context, pod *corev1.Pod, q queue) {
	for _, pv := range volume.InlineOf(pod) {
		e.add(q, volume.UniqueNameOf(pv))
	}
	if !index.UsesVolumes(pod) {
		return
	}
	for _, name := range index.PodClaims(pod) {
		claim := &corev1.PersistentVolumeClaim{}
		if err := e.client.Get(ctx, client.ObjectKey{Namespace: pod.Namespace, Name: name}, claim); err != nil ||
			claim.Spec.VolumeName == "" {
			continue
		}
		pv := &corev1.PersistentVolume{}
		if err := e.client.Get(ctx, client.ObjectKey{Name: claim.Spec.VolumeName}, pv); err == nil {
			e.add(q, volume.UniqueNameOf(pv))
		}
	}
}
