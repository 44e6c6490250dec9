/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package manager

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
)

// TestASetOfIntents runs every scenario of a set on one control plane.
func TestASetOfIntents(t *testing.T) {
	w := newWorld(t)
	requests, _ := w.manage(t, managerOptions{releaseTaints: []string{"example.com/going"}})
	t.Run("a set follows the nodes", func(t *testing.T) { aSetFollowsTheNodes(t, w, requests) })
	t.Run("what is to go with its node lets an autoscaler end", func(t *testing.T) { theNodeOfAnAutoscaler(t, w) })
	t.Run("a listed taint has a set let its node go", func(t *testing.T) { aListedTaintHasASetLetItsNodeGo(t, w) })
	t.Run("a set waits for a volume that is attached already", func(t *testing.T) {
		aSetTakesUpAVolumeThatIsAttachedAlready(t, w)
	})
}

func shared() volumeOptions {
	return volumeOptions{modes: []corev1.PersistentVolumeAccessMode{corev1.ReadOnlyMany}}
}

func newSet(name, pool, claim string) *volumesv1alpha1.VolumeAttachmentIntentSet {
	return &volumesv1alpha1.VolumeAttachmentIntentSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec: volumesv1alpha1.VolumeAttachmentIntentSetSpec{
			NodeSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"pool": pool}},
			Template: volumesv1alpha1.IntentTemplate{Spec: volumesv1alpha1.IntentTemplateSpec{
				ReadOnly: true,
				Volume: &volumesv1alpha1.TemplateVolumeSource{
					PersistentVolumeClaim: volumesv1alpha1.PersistentVolumeClaimSource{ClaimName: claim}},
			}},
		},
	}
}

// pool gives a Node the label of a pool, or takes it with an empty name.
func (w *world) pool(t *testing.T, node, pool string) {
	t.Helper()
	object := nodeNamed(node)
	w.change(t, object, func() { metav1.SetMetaDataLabel(&object.ObjectMeta, "pool", pool) })
}

// awaitSet waits until the set is Ready with so many intents.
func (w *world) awaitSet(t *testing.T, set *volumesv1alpha1.VolumeAttachmentIntentSet, intents int32) {
	t.Helper()
	until(t, w, set, fmt.Sprintf("set %s is Ready with %d intents", set.Name, intents),
		func(s *volumesv1alpha1.VolumeAttachmentIntentSet) bool {
			return meta.IsStatusConditionTrue(s.Status.Conditions, volumesv1alpha1.ConditionReady) &&
				s.Status.ObservedGeneration == s.Generation && s.Status.Ready == intents &&
				s.Status.Desired == intents && s.Status.Updated == intents
		})
}

func intentOf(set, node string) *volumesv1alpha1.VolumeAttachmentIntent {
	return &volumesv1alpha1.VolumeAttachmentIntent{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: set + "-" + node}}
}

// aSetFollowsTheNodes: nodes come, lose their label and go, and the template changes.
func aSetFollowsTheNodes(t *testing.T, w *world, requests *requestCounter) {
	const name = "follows"
	w.volume(t, name, shared())
	for _, node := range []string{"follows-a", "follows-b", "follows-c"} {
		w.node(t, node)
		w.pool(t, node, name)
	}
	requests.reset()
	set := newSet(name, name, name)
	w.create(t, set)
	w.awaitSet(t, set, 3)
	if n := requests.count("POST volumeattachmentintents"); n != 3 {
		t.Errorf("set %s with 3 nodes cost %d creates of intents, want 3", name, n)
	}
	// A status at the beginning, and one for each half second in which intents changed.
	if n := requests.count("PUT volumeattachmentintentsets/status"); n > 8 {
		t.Errorf("set %s cost %d updates of its status until it was ready, want at most 8", name, n)
	}
	first := until(t, w, intentOf(name, "follows-a"), "the intent exists", exists).UID

	w.change(t, set, func() { set.Spec.Template.Metadata.Annotations = map[string]string{"example.com/a": "b"} })
	w.awaitSet(t, set, 3)
	if again := until(t, w, intentOf(name, "follows-a"), "the intent exists", exists); again.UID == first ||
		again.Annotations["example.com/a"] != "b" {
		t.Errorf("intent %s has UID %s and annotations %v after the template changed, want another UID and the annotation",
			again.Name, again.UID, again.Annotations)
	}
	w.pool(t, "follows-b", "")
	gone(t, w, intentOf(name, "follows-b"))
	w.awaitSet(t, set, 2)
	w.node(t, "follows-d")
	w.pool(t, "follows-d", name)
	w.awaitSet(t, set, 3)
}

// aSetTakesUpAVolumeThatIsAttachedAlready: another intent uses the volume on the node.
func aSetTakesUpAVolumeThatIsAttachedAlready(t *testing.T, w *world) {
	const name = "taken-up"
	w.volume(t, name, shared())
	w.node(t, "taken-up-a")
	w.pool(t, "taken-up-a", name)
	intent := newIntent("by-hand", "taken-up-a", name)
	intent.Spec.ReadOnly = true
	w.create(t, intent)
	w.reason(t, intent, volumesv1alpha1.ConditionReady, metav1.ConditionTrue, volumesv1alpha1.ReasonReady)
	set := newSet(name, name, name)
	w.create(t, set)
	w.awaitSet(t, set, 1)
}

// theNodeOfAnAutoscaler has its finalizer until nothing is attached to the node. The set and one author let go by
// themselves, another author is waited for.
// aListedTaintHasASetLetItsNodeGo, and take it up again once the taint is gone. Another taint, or another intent,
// changes nothing.
func aListedTaintHasASetLetItsNodeGo(t *testing.T, w *world) {
	const name = "tainted-set"
	w.volume(t, name, shared())
	w.volume(t, name+"-author", shared())
	w.node(t, name)
	w.pool(t, name, name)
	set, author := newSet(name, name, name), newIntent(name+"-author", name, name+"-author")
	author.Spec.ReadOnly, author.Spec.OnNodeDeletion = true, volumesv1alpha1.OnNodeDeletionRelease
	w.create(t, set, author)
	w.awaitSet(t, set, 1)
	until(t, w, author, "the intent is Ready", isReady)
	taint := func(keys ...string) {
		node := nodeNamed(name)
		w.change(t, node, func() {
			node.Spec.Taints = nil
			for _, key := range keys {
				node.Spec.Taints = append(node.Spec.Taints, corev1.Taint{Key: key, Effect: corev1.TaintEffectNoSchedule})
			}
		})
	}
	first := until(t, w, intentOf(name, name), "the intent exists", exists).UID
	taint("example.com/other")
	taint("example.com/other", "example.com/going")
	gone(t, w, attachmentOf(name, name))
	w.awaitSet(t, set, 0)
	taint("example.com/other")
	w.awaitSet(t, set, 1)
	if again := until(t, w, intentOf(name, name), "the intent exists", exists); again.UID == first {
		t.Errorf("intent %s after its node was tainted: UID %s, want another one", again.Name, again.UID)
	}
	until(t, w, author, "the author's intent stayed", isReady)
}

func theNodeOfAnAutoscaler(t *testing.T, w *world) {
	const name = "scaled"
	for _, claim := range []string{"of-set", "goes", "stays"} {
		w.volume(t, claim, shared())
	}
	w.node(t, name)
	w.pool(t, name, name)
	set := newSet("of-set", name, "of-set")
	goes, stays := newIntent("goes", name, "goes"), newIntent("stays", name, "stays")
	goes.Spec.ReadOnly, stays.Spec.ReadOnly = true, true
	goes.Spec.OnNodeDeletion = volumesv1alpha1.OnNodeDeletionRelease
	w.create(t, set, goes, stays)
	w.awaitSet(t, set, 1)
	ready := func(intent *volumesv1alpha1.VolumeAttachmentIntent) {
		w.reason(t, intent, volumesv1alpha1.ConditionReady, metav1.ConditionTrue, volumesv1alpha1.ReasonReady)
	}
	ready(goes)
	ready(stays)

	node := nodeNamed(name)
	w.change(t, node, func() { node.Finalizers = append(node.Finalizers, "example.com/termination") })
	w.delete(t, node)

	gone(t, w, intentOf("of-set", name))
	gone(t, w, goes)
	for _, claim := range []string{"of-set", "goes"} {
		gone(t, w, attachmentOf(claim, name))
	}
	// Made again, as Git does: it waits, and is not deleted again.
	again := newIntent("goes", name, "goes")
	again.Spec.ReadOnly, again.Spec.OnNodeDeletion = true, volumesv1alpha1.OnNodeDeletionRelease
	w.create(t, again)
	w.reason(t, again, volumesv1alpha1.ConditionReady, metav1.ConditionFalse, volumesv1alpha1.ReasonNodeDeleting)
	ready(stays)
	w.delete(t, stays)
	w.delete(t, again)
	gone(t, w, stays)
	gone(t, w, again)
	gone(t, w, attachmentOf("stays", name))
	w.change(t, node, func() { node.Finalizers = nil })
	gone(t, w, node)
}
