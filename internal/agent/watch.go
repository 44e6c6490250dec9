/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package agent

import (
	"context"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
)

// volumeIndex finds intents by the unique name of their volume.
const volumeIndex = "volume"

// watch has the node's intents and its state bring the volumes that they speak of into the queue.
func (a *Agent) watch(ctx context.Context) error {
	intent := &volumesv1alpha1.VolumeAttachmentIntent{}
	err := a.Cache.IndexField(ctx, intent, volumeIndex, func(o client.Object) []string {
		if name := o.(*volumesv1alpha1.VolumeAttachmentIntent).Status.UniqueVolumeName; name != "" {
			return []string{name}
		}
		return nil
	})
	if err != nil {
		return err
	}
	intents, err := a.Cache.GetInformer(ctx, intent)
	if err != nil {
		return err
	}
	if _, err := intents.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { a.intentChanged(nil, o) },
		UpdateFunc: a.intentChanged,
		DeleteFunc: func(o any) { a.intentChanged(o, nil) },
	}); err != nil {
		return err
	}
	states, err := a.Cache.GetInformer(ctx, &volumesv1alpha1.NodeVolumeState{})
	if err != nil {
		return err
	}
	_, err = states.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { a.stateChanged(nil, o) },
		UpdateFunc: a.stateChanged,
		DeleteFunc: func(any) { a.state.Vanished() },
	})
	return err
}

func (a *Agent) intentChanged(before, after any) {
	if d, ok := before.(toolscache.DeletedFinalStateUnknown); ok {
		before = d.Obj
	}
	for _, o := range []any{before, after} {
		i, ok := o.(*volumesv1alpha1.VolumeAttachmentIntent)
		if !ok {
			continue
		}
		if i.Status.UniqueVolumeName == "" {
			a.queue.queue.Add(key{intent: client.ObjectKeyFromObject(i)})
		}
		a.queue.add(i.Status.UniqueVolumeName)
		a.plugin.changes.Exists(client.ObjectKeyFromObject(i), after != nil && i.DeletionTimestamp.IsZero())
		a.plugin.IntentChanged(client.ObjectKeyFromObject(i))
		if after == nil {
			a.intents.Forget(i.UID)
		}
	}
}

// stateChanged brings only those volumes into the queue whose entry changed, so that cost grows with what changes.
func (a *Agent) stateChanged(before, after any) {
	now := after.(*volumesv1alpha1.NodeVolumeState)
	a.state.Observe(now)
	a.queue.stateAppeared()
	entries := map[string]*volumesv1alpha1.NodeAttachment{}
	var uid = now.UID
	old, ok := before.(*volumesv1alpha1.NodeVolumeState)
	if !ok || old.UID != now.UID || old.Generation != now.Generation {
		a.observer.ObserveSoon()
	}
	if ok {
		uid = old.UID
		for i := range old.Spec.Attachments {
			entries[old.Spec.Attachments[i].VolumeName] = &old.Spec.Attachments[i]
		}
	}
	if ok && old.Spec.Protocol.ConfirmedSession != now.Spec.Protocol.ConfirmedSession {
		a.queueAll()
	}
	for i := range now.Spec.Attachments {
		e := &now.Spec.Attachments[i]
		if uid != now.UID || !equality.Semantic.DeepEqual(entries[e.VolumeName], e) {
			a.queue.add(e.VolumeName)
		}
		delete(entries, e.VolumeName)
	}
	for name := range entries {
		a.queue.add(name)
	}
}

// queueAll brings every volume that is known into the queue.
func (a *Agent) queueAll() {
	a.mu.Lock()
	names := slices.Collect(maps.Keys(a.volumes))
	a.mu.Unlock()
	if nvs := a.state.Newest(); nvs != nil {
		for _, e := range nvs.Spec.Attachments {
			names = append(names, e.VolumeName)
		}
	}
	for _, name := range names {
		a.queue.add(name)
	}
}
