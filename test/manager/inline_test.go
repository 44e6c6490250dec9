/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package manager

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/cached"
)

// TestIntentsOfInlineVolumes runs with intents of pods switched on and off, as in attach modes Replace and Coexist.
func TestIntentsOfInlineVolumes(t *testing.T) {
	w := newWorld(t)
	for mode, enabled := range map[string]bool{"replace": true, "coexist": false} {
		t.Run(mode, func(t *testing.T) {
			_, stop := w.manage(t, withPods(enabled))
			defer stop()
			for name, scenario := range map[string]func(*testing.T, *world, string){
				"a pod's claim is published and released":                     anInlineClaimIsPublishedAndReleased,
				"a claim that two volumes of a pod name gets one intent":      anInlineClaimNamedTwiceGetsOneIntent,
				"a claim that waits for its first consumer gets its node":     anInlineClaimThatWaitsGetsItsNode,
				"a volume for a single pod waits for the first and names it":  anInlineClaimForASinglePodWaits,
				"a pod that is not bound, or names an intent, gets no intent": podsWithoutAnInlineClaimGetNoIntent,
				"a pod that comes before its Node gets its intent after it":   anInlineClaimComesBeforeItsNode,
			} {
				t.Run(name, func(t *testing.T) { scenario(t, w, mode) })
			}
		})
	}
}

// inlinePod is a pod on the node with an inline volume for each claim, named v0, v1 and so on.
func inlinePod(name, node string, claims ...string) *corev1.Pod {
	p := newPod(name, node, claims...)
	for i := range p.Spec.Volumes {
		p.Spec.Volumes[i].VolumeSource = corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{
			Driver:           volumesv1alpha1.InlineDriver,
			VolumeAttributes: map[string]string{volumesv1alpha1.AttributeClaim: claims[i]},
		}}
	}
	return p
}

// inlineIntent is the intent that the agent looks for.
func inlineIntent(p *corev1.Pod, claim string) *volumesv1alpha1.VolumeAttachmentIntent {
	return &volumesv1alpha1.VolumeAttachmentIntent{ObjectMeta: metav1.ObjectMeta{
		Namespace: p.Namespace, Name: volumesv1alpha1.InlineIntentName(p.Name, p.UID, claim)}}
}

func (w *world) inlineIntent(t *testing.T, p *corev1.Pod, claim string) *volumesv1alpha1.VolumeAttachmentIntent {
	t.Helper()
	return until(t, w, inlineIntent(p, claim), "the pod's intent is created", exists)
}

func anInlineClaimIsPublishedAndReleased(t *testing.T, w *world, mode string) {
	name := "inline-" + mode
	w.node(t, name) // its kubelet does not have to leave attaching to a controller
	w.volume(t, name, volumeOptions{})
	p := inlinePod(name, name, name)
	p.Spec.Volumes[0].CSI.ReadOnly = ptr.To(true)
	w.create(t, p)
	intent := w.inlineIntent(t, p, name)
	owner := metav1.GetControllerOf(intent)
	switch spec := intent.Spec; {
	case spec.Publisher != volumesv1alpha1.PublisherAgent, spec.DesiredState != volumesv1alpha1.DesiredPublished,
		spec.NodeName != name, !spec.ReadOnly, claimOf(intent) != name:
		t.Errorf("intent %s: %+v, want the claim published read-only by the agent of node %s", intent.Name, spec, name)
	case owner == nil || owner.UID != p.UID, intent.Labels[volumesv1alpha1.PodUIDLabel] != string(p.UID):
		t.Errorf("intent %s: owner %v, labels %v, want those of pod %s", intent.Name, owner, intent.Labels, p.UID)
	case !slices.Contains(intent.Finalizers, volumesv1alpha1.ReleaseFinalizer):
		t.Errorf("intent %s: finalizers %v, want the one that keeps it until it is released", intent.Name,
			intent.Finalizers)
	}
	w.attached(t, intent)
	w.run(t, p, true)
	w.delete(t, p)
	until(t, w, p, "the pod is being deleted", func(p *corev1.Pod) bool { return p.DeletionTimestamp != nil })
	w.run(t, p, false)
	gone(t, w, intent)
	w.kill(t, p)
	gone(t, w, attachmentOf(name, name))
}

func anInlineClaimNamedTwiceGetsOneIntent(t *testing.T, w *world, mode string) {
	name := "inline-twice-" + mode
	w.node(t, name)
	w.volume(t, name, volumeOptions{modes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOncePod}})
	p := inlinePod(name, name, name, name)
	p.Spec.Volumes[0].CSI.ReadOnly = ptr.To(true)
	w.create(t, p)
	intent := w.inlineIntent(t, p, name)
	if intent.Spec.ReadOnly {
		t.Errorf("intent %s is read-only, want that it is not: one of the volumes is for writing", intent.Name)
	}
	w.attached(t, intent)
	w.kill(t, p)
	gone(t, w, intent)
}

func anInlineClaimThatWaitsGetsItsNode(t *testing.T, w *world, mode string) {
	name := "inline-first-" + mode
	w.node(t, name)
	class := &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Provisioner: driverName,
		VolumeBindingMode: ptr.To(storagev1.VolumeBindingWaitForFirstConsumer),
	}
	claim := newClaim(name, volumeOptions{})
	claim.Spec.StorageClassName = &class.Name
	w.create(t, class, claim)
	p := inlinePod(name, name, name)
	w.create(t, p)
	until(t, w, claim, "the pod's node is named to the claim", func(c *corev1.PersistentVolumeClaim) bool {
		return c.Annotations[cached.SelectedNodeAnnotation] == name
	})
	w.create(t, newVolume(claim, volumeOptions{}))
	w.bind(t, claim)
	w.attached(t, w.inlineIntent(t, p, name))
	w.kill(t, p)
	gone(t, w, inlineIntent(p, name))
}

func anInlineClaimForASinglePodWaits(t *testing.T, w *world, mode string) {
	name := "inline-single-" + mode
	w.node(t, name)
	w.volume(t, name, volumeOptions{modes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOncePod}})
	first, second := inlinePod(name, name, name), inlinePod(name+"-2", name, name)
	w.create(t, first)
	w.attached(t, w.inlineIntent(t, first, name))
	w.create(t, second)
	waits := w.inlineIntent(t, second, name)
	w.reason(t, waits, volumesv1alpha1.ConditionAttached, metav1.ConditionFalse, volumesv1alpha1.ReasonReadWriteOncePod)
	w.podEvent(t, second, "FailedAttachVolume", "allows a single user, which is pod default/"+first.Name)
	w.kill(t, first)
	w.attached(t, waits)
	w.kill(t, second)
	gone(t, w, waits)
}

func anInlineClaimComesBeforeItsNode(t *testing.T, w *world, mode string) {
	name, known := "inline-late-"+mode, "inline-known-"+mode
	w.node(t, known)
	w.volume(t, name, volumeOptions{})
	w.volume(t, known, volumeOptions{})
	early, last := inlinePod(name, name, name), inlinePod(known, known, known)
	w.create(t, early, last)
	w.attached(t, w.inlineIntent(t, last, known))
	w.podIntents(t, early) // It came before the last one, which has its intent.
	w.node(t, name)
	w.attached(t, w.inlineIntent(t, early, name))
	for _, p := range []*corev1.Pod{early, last} {
		w.kill(t, p)
		gone(t, w, inlineIntent(p, p.Name))
	}
}

func podsWithoutAnInlineClaimGetNoIntent(t *testing.T, w *world, mode string) {
	name := "inline-none-" + mode
	w.node(t, name)
	w.volume(t, name, volumeOptions{})
	unbound := inlinePod(name+"-unbound", "", name)
	both, named := inlinePod(name+"-both", name, name), inlinePod(name+"-named", name, name)
	both.Spec.Volumes[0].CSI.VolumeAttributes[volumesv1alpha1.AttributeIntent] = name
	named.Spec.Volumes[0].CSI.VolumeAttributes = map[string]string{volumesv1alpha1.AttributeIntent: name}
	last := inlinePod(name, name, name)
	w.create(t, unbound, both, named, last)
	w.attached(t, w.inlineIntent(t, last, name))
	for _, p := range []*corev1.Pod{unbound, both, named} { // they came before the last one, which has its intent
		w.podIntents(t, p)
	}
	w.kill(t, last)
	gone(t, w, inlineIntent(last, name))
}
