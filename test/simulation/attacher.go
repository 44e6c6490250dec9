/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package simulation

import (
	"slices"
	"time"

	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const attacherFinalizer = "external-attacher/simulated"

// attach plays the driver's external-attacher, one change at a time for each attachment, until the world ends.
func (w *World) attach() {
	all := &storagev1.VolumeAttachment{}
	seen := uint64(0)
	busy := map[string]bool{}
	for {
		w.mu.Lock()
		changes, grown := w.api.since(all, seen), w.api.grown
		for _, c := range changes {
			seen = c.version
			name := c.Object.(client.Object).GetName()
			if !busy[name] {
				busy[name] = true
				w.later(w.chance.between("attacher", time.Millisecond, 5*time.Second), func() {
					w.mu.Lock()
					defer w.mu.Unlock()
					delete(busy, name)
					w.carryOut(name)
				})
			}
		}
		w.mu.Unlock()
		select {
		case <-grown:
		case <-w.over:
			return
		}
	}
}

// carryOut the next step for one attachment; the change that it makes brings the one after.
func (w *World) carryOut(name string) {
	o, ok := w.api.kind(&storagev1.VolumeAttachment{}).objects[client.ObjectKey{Name: name}]
	if !ok {
		return
	}
	va := o.DeepCopyObject().(*storagev1.VolumeAttachment)
	if w.asleep[name] {
		return
	}
	handle, m := handleOf(*va.Spec.Source.PersistentVolumeName), w.nodes[va.Spec.NodeName]
	ours := slices.Contains(va.Finalizers, attacherFinalizer)
	w.by = "attacher"
	switch {
	case va.DeletionTimestamp != nil && !ours || va.DeletionTimestamp == nil && va.Status.Attached:
	case w.chance.happens("attacher", attachFails):
		w.later(w.chance.between("attacher", time.Second, 20*time.Second), func() {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.carryOut(name)
		})
	case va.DeletionTimestamp != nil:
		for _, m := range w.all() {
			if m.name == va.Spec.NodeName {
				w.unpublish(m, handle, va.UID)
			}
		}
		va.Finalizers = slices.DeleteFunc(va.Finalizers, func(f string) bool { return f == attacherFinalizer })
		_, err := w.api.update(va, false)
		w.must(err)
	case !ours && w.twins && w.beginsWithTwin(va):
	case !ours:
		va.Finalizers = append(va.Finalizers, attacherFinalizer)
		_, err := w.api.update(va, false)
		w.must(err)
	default:
		if d, there := m.devices[handle]; !there || d.uid != va.UID {
			w.chance.reach(attached)
		}
		w.open(va.Spec.NodeName, handle, va.UID)
		w.logLocked("the attacher opens %s for %s (%s)", handle, m.name, va.UID)
		va.Status.Attached = true
		va.Status.AttachmentMetadata = map[string]string{"since": metav1.Now().UTC().Format(time.RFC3339)}
		_, err := w.api.update(va, true)
		w.must(err)
	}
}
