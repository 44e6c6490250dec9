/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package simulation

import (
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
)

// twin is a second PersistentVolume, with a claim, of the handle of the shared volume.
const twin = "rwx-twin"

// handleOf the claim's volume, and of the PersistentVolume, which has the same name.
func handleOf(claim string) string { return "vol-" + strings.TrimSuffix(claim, "-twin") }

// claimOfVolume is the claim that an intent for the volume names: where there are two, the one or the other.
func (w *World) claimOfVolume(volume string) string {
	if w.twins && volume == "rwx" && w.exists(twin) && w.chance.draw("wish", "twin").IntN(2) == 0 {
		return twin
	}
	return volume
}

func (w *World) exists(persistentVolume string) bool {
	_, err := w.api.get(&corev1.PersistentVolume{}, client.ObjectKey{Name: persistentVolume})
	return err == nil
}

// beginsWithTwin is what may befall an attachment of twins before the attacher puts its finalizer on it: the
// PersistentVolume goes, which an attacher does not attach, or the attacher sleeps between its read and its patch.
// It reports whether there is nothing else to do.
func (w *World) beginsWithTwin(va *storagev1.VolumeAttachment) bool {
	name := *va.Spec.Source.PersistentVolumeName
	if name == twin && w.exists(twin) && w.chance.happens("attacher", volumeVanishes) {
		w.logLocked("PersistentVolume %s vanishes", twin)
		w.must(w.api.delete(&corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: twin}}, nil))
	}
	switch {
	case !w.exists(name):
		if va.Status.AttachError == nil {
			va.Status.AttachError = &storagev1.VolumeError{Time: w.api.now(), Message: "persistentvolume not found"}
			_, err := w.api.update(va, true)
			w.must(err)
		}
		return true
	case handleOf(name) == handleOf(twin) && w.chance.happens("attacher", attacherAsleep):
		w.asleep[va.Name] = true
		w.later(w.chance.between("attacher", time.Second, time.Minute), func() {
			w.mu.Lock()
			defer w.mu.Unlock()
			delete(w.asleep, va.Name)
			w.patchFinalizer(va)
			w.carryOut(va.Name)
		})
		return true
	}
	return false
}

// patchFinalizer as an external-attacher does: by the name of the attachment that it has read, without its UID.
func (w *World) patchFinalizer(read *storagev1.VolumeAttachment) {
	o, err := w.api.get(read, client.ObjectKeyFromObject(read))
	if err != nil {
		return
	}
	w.by = "attacher"
	va := o.DeepCopyObject().(*storagev1.VolumeAttachment)
	if va.DeletionTimestamp != nil || slices.Contains(va.Finalizers, attacherFinalizer) {
		return
	}
	if va.UID != read.UID {
		w.logLocked("the attacher takes %s for %s", va.UID, read.UID)
	}
	va.Finalizers = append(va.Finalizers, attacherFinalizer)
	_, err = w.api.update(va, false)
	w.must(err)
}

// besideTwin reports whether the intent can be had beside one for the twin of its volume on its node.
func (w *World) besideTwin(i *volumesv1alpha1.VolumeAttachmentIntent) bool {
	claim := i.Spec.Volume.PersistentVolumeClaim.ClaimName
	if !w.exists(claim) {
		return false
	}
	for _, other := range w.intents() {
		if other.Name == i.Name {
			return true
		}
		its := other.Spec.Volume.PersistentVolumeClaim.ClaimName
		if its != claim && handleOf(its) == handleOf(claim) && other.Spec.NodeName == i.Spec.NodeName && w.exists(its) {
			return false
		}
	}
	return true
}
