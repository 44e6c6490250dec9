/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package manager

import (
	"maps"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
)

func aClaimDeletedDuringTheReleaseOfItsIntentIsRemovedAfterIt(t *testing.T, w *world) {
	w.manage(t, managerOptions{})
	a := w.node(t, "leaving-a")
	claim := w.volume(t, "leaving", volumeOptions{})
	w.volume(t, "leaving-marker", volumeOptions{})
	intent := w.intent(t, "leaving", "leaving-a", "leaving")
	until(t, w, intent, "the intent is Ready", isReady)
	a.set(func() { a.hangs = true })
	w.delete(t, intent)
	w.delete(t, claim)
	// What came later has gone through, so this one has been reconciled.
	w.attached(t, w.intent(t, "leaving-marker", "leaving-a", "leaving-marker"))
	until(t, w, intent, "the intent is still there", func(i *volumesv1alpha1.VolumeAttachmentIntent) bool {
		return exists(i) && i.DeletionTimestamp != nil
	})
	if until(t, w, claim, "the claim is still there", isTerminating); !protected(claim) {
		t.Errorf("finalizers of claim %s, whose volume is in use: %q; want that of Hawser among them", claim.Name,
			claim.Finalizers)
	}
	a.set(func() { a.hangs = false })
	gone(t, w, intent)
	gone(t, w, claim)
}

func aClaimThatNoIntentUsesAnyMoreIsRemovedAtOnce(t *testing.T, w *world) {
	requests, _ := w.manage(t, managerOptions{})
	w.node(t, "once-a")
	claim := w.volume(t, "once", volumeOptions{})
	intent := w.intent(t, "once", "once-a", "once")
	until(t, w, intent, "the intent is Ready", isReady)
	w.releaseAndDetach(t, intent, "once")
	until(t, w, claim, "the claim is still protected", protected)
	requests.reset()
	w.delete(t, claim)
	gone(t, w, claim)
	if n, what := requests.writes(); n > 1 {
		t.Errorf("%d writes to release claim %s, want at most 1: %s", n, claim.Name, what)
	}
	w.discardVolume(t, "once")

	anew := w.volume(t, "once", volumeOptions{})
	second := w.intent(t, "once-anew", "once-a", "once")
	until(t, w, second, "the claim that was made anew is used", isReady)
	if second.Status.ClaimUID != anew.UID {
		t.Errorf("status of intent %s: %s; want claim UID %s", second.Name, dump(second.Status), anew.UID)
	}
	until(t, w, anew, "it is protected too", protected)
}

// The policy on deletions goes by the mark, so a mark that stayed would refuse them for good.
func aClaimIsMarkedOnlyWhileIntentsUseItWhereItsDeletionIsRefused(t *testing.T, w *world) {
	w.manage(t, managerOptions{})
	w.node(t, "refused-a")
	marked := func(c *corev1.PersistentVolumeClaim) bool {
		return exists(c) && c.Annotations[volumesv1alpha1.InUseAnnotation] == "true"
	}
	unmarked := func(c *corev1.PersistentVolumeClaim) bool { return exists(c) && !marked(c) }
	refuse := func(o client.Object, label string) {
		w.change(t, o, func() {
			labels := maps.Clone(o.GetLabels())
			if labels == nil {
				labels = map[string]string{}
			}
			labels[volumesv1alpha1.RefuseDeletionLabel] = label
			o.SetLabels(labels)
		})
	}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
	for name, labelled := range map[string]func(claim client.Object) client.Object{
		"refused-by-claim":     func(claim client.Object) client.Object { return claim },
		"refused-by-namespace": func(client.Object) client.Object { return namespace },
	} {
		claim := w.volume(t, name, volumeOptions{})
		intent := w.intent(t, name, "refused-a", name)
		until(t, w, intent, "the intent is Ready", isReady)
		until(t, w, claim, "the claim is marked", marked)
		w.releaseAndDetach(t, intent, name)
		refuse(labelled(claim), "true")
		until(t, w, claim, "a claim that nothing uses any more is not marked once the label is set", unmarked)
		again := w.intent(t, name+"-again", "refused-a", name)
		until(t, w, claim, "it is marked again", marked)
		until(t, w, again, "the other intent is Ready", isReady)
		w.releaseAndDetach(t, again, name)
		until(t, w, claim, "the mark goes with the last intent", unmarked)
		refuse(labelled(claim), "false")
	}
}

// aClaimDeletedWhileNoManagerRanIsRemovedAtTheNextStart, unless an intent uses it.
func aClaimDeletedWhileNoManagerRanIsRemovedAtTheNextStart(t *testing.T, w *world) {
	_, stop := w.manage(t, managerOptions{})
	w.node(t, "meanwhile-a")
	unused, used := w.volume(t, "meanwhile", volumeOptions{}), w.volume(t, "meanwhile-used", volumeOptions{})
	intent, user := w.intent(t, "meanwhile", "meanwhile-a", "meanwhile"),
		w.intent(t, "meanwhile-used", "meanwhile-a", "meanwhile-used")
	until(t, w, intent, "the intent is Ready", isReady)
	until(t, w, user, "the other one is Ready", isReady)
	w.releaseAndDetach(t, intent, "meanwhile")
	stop()
	w.delete(t, unused)
	w.delete(t, used)
	until(t, w, unused, "the claim waits for a manager", isTerminating)
	w.manage(t, managerOptions{})
	gone(t, w, unused)
	if until(t, w, used, "the other one is still there", isTerminating); !protected(used) {
		t.Errorf("finalizers of claim %s, which is in use: %q; want that of Hawser among them", used.Name, used.Finalizers)
	}
	w.releaseAndDetach(t, user, "meanwhile-used")
	gone(t, w, used)
}

// aClaimOfAnIntentIsRemovedAfterASwitchToReplace, and a claim that only pods use is not protected there.
func aClaimOfAnIntentIsRemovedAfterASwitchToReplace(t *testing.T, w *world) {
	w.managedNode(t, "switched")
	claim, pods := w.volume(t, "switched", volumeOptions{}), w.volume(t, "switched-pod", volumeOptions{})
	_, stop := w.manage(t, managerOptions{})
	intent := w.intent(t, "switched", "switched", "switched")
	until(t, w, intent, "the intent is Ready", isReady)
	w.releaseAndDetach(t, intent, "switched")
	stop()
	_, stop = w.manage(t, replace)
	defer stop()
	p := w.pod(t, "switched", "switched", "switched-pod")
	w.listed(t, "switched", "switched-pod")
	until(t, w, claim, "the claim is protected as before", protected)
	w.delete(t, claim)
	gone(t, w, claim)
	if until(t, w, pods, "the other one is there", exists); protected(pods) {
		t.Errorf("finalizers of claim %s, which only pods use: %q; want none of Hawser", pods.Name, pods.Finalizers)
	}
	w.kill(t, p)
	gone(t, w, attachmentOf("switched-pod", "switched"))
}
