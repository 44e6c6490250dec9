/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package images

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
)

// growing is a class whose volumes can grow. They are xfs: a mounted ext4 grows only with a capability that not every
// machine gives. An xfs has at least 300 MiB.
const (
	growing          = "growing"
	smaller, greater = "320Mi", "384Mi"
)

// exercise takes a new volume through its whole life: attached, published, grown in use, taken back, published again
// and released. Then a pod uses another one.
func (s suite) exercise(t *testing.T, name string) {
	t.Helper()
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec: corev1.PersistentVolumeClaimSpec{StorageClassName: ptr.To(growing),
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources:   corev1.VolumeResourceRequirements{Requests: storage(smaller)}}}
	s.create(t, claim)
	intent := newIntent(name, nodeA)
	intent.Spec.DesiredState = volumesv1alpha1.DesiredAttached
	s.create(t, intent)
	s.reach(t, intent)
	path := s.desire(t, intent, volumesv1alpha1.DesiredPublished).Status.Path
	s.wantMounted(t, path, true)
	s.useFile(t, nodeA, path+"/file", name)
	s.grow(t, claim)
	s.desire(t, intent, volumesv1alpha1.DesiredAttached)
	s.wantMounted(t, path, false)
	s.desire(t, intent, volumesv1alpha1.DesiredPublished)
	s.wantMounted(t, path, true)
	check(t, s.Client.Delete(limited(t), intent))
	s.explain(t, s.AwaitGone(limited(t), intent.Namespace, intent.Name))
	s.wantMounted(t, path, false)
	s.discard(t, claim)
	s.exercisePod(t, name+"-pod")
}

func storage(size string) corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(size)}
}

// desire changes the desired state and waits until it is reached.
func (s suite) desire(t *testing.T, intent *volumesv1alpha1.VolumeAttachmentIntent,
	desired volumesv1alpha1.DesiredState) *volumesv1alpha1.VolumeAttachmentIntent {
	t.Helper()
	before := intent.DeepCopy()
	intent.Spec.DesiredState = desired
	check(t, s.Client.Patch(limited(t), intent, client.MergeFrom(before)))
	return s.reach(t, intent)
}

// reach waits until an intent is Ready and the volume is no further than desired.
func (s suite) reach(t *testing.T, intent *volumesv1alpha1.VolumeAttachmentIntent,
) *volumesv1alpha1.VolumeAttachmentIntent {
	t.Helper()
	want := intent.Spec.DesiredState == volumesv1alpha1.DesiredPublished
	reached, err := s.AwaitIntent(limited(t), intent.Namespace, intent.Name,
		func(now *volumesv1alpha1.VolumeAttachmentIntent) bool {
			return now != nil && now.Generation >= intent.Generation && now.Status.ObservedGeneration == now.Generation &&
				meta.IsStatusConditionTrue(now.Status.Conditions, volumesv1alpha1.ConditionReady) &&
				meta.IsStatusConditionTrue(now.Status.Conditions, volumesv1alpha1.ConditionPublished) == want
		})
	s.explain(t, err)
	return reached
}

func (s suite) wantMounted(t *testing.T, path string, want bool) {
	t.Helper()
	if got := s.isMounted(t, nodeA, path); got != want {
		t.Errorf("node %s: a volume is mounted at %s: %t, want %t", nodeA, path, got, want)
	}
}

// grow requests a larger volume and waits until node and claim have it.
func (s suite) grow(t *testing.T, claim *corev1.PersistentVolumeClaim) {
	t.Helper()
	before, want := claim.DeepCopy(), resource.MustParse(greater)
	claim.Spec.Resources.Requests = storage(greater)
	check(t, s.Client.Patch(limited(t), claim, client.MergeFrom(before)))
	_, err := s.AwaitIntent(limited(t), claim.Namespace, claim.Name,
		func(intent *volumesv1alpha1.VolumeAttachmentIntent) bool {
			return intent != nil && intent.Status.Capacity != nil && intent.Status.Capacity.Cmp(want) >= 0
		})
	s.explain(t, err)
	_, err = s.AwaitClaim(limited(t), claim.Namespace, claim.Name, func(now *corev1.PersistentVolumeClaim) bool {
		return now != nil && now.Status.Capacity.Storage().Cmp(want) >= 0
	})
	s.explain(t, err)
}

// discard deletes a claim and waits until its volume is detached and gone.
func (s suite) discard(t *testing.T, claim *corev1.PersistentVolumeClaim) {
	t.Helper()
	bound := &corev1.PersistentVolumeClaim{}
	check(t, s.Client.Get(limited(t), client.ObjectKeyFromObject(claim), bound))
	var attachments storagev1.VolumeAttachmentList
	check(t, s.Client.List(limited(t), &attachments))
	for _, a := range attachments.Items {
		if ptr.Deref(a.Spec.Source.PersistentVolumeName, "") == bound.Spec.VolumeName {
			s.explain(t, s.AwaitAttachmentGone(limited(t), a.Name))
		}
	}
	check(t, s.Client.Delete(limited(t), bound))
	_, err := s.AwaitClaim(limited(t), bound.Namespace, bound.Name,
		func(now *corev1.PersistentVolumeClaim) bool { return now == nil })
	s.explain(t, err)
	s.explain(t, s.AwaitVolumeGone(limited(t), bound.Spec.VolumeName))
}

// exercisePod runs a pod on a new volume and deletes it.
func (s suite) exercisePod(t *testing.T, name string) {
	t.Helper()
	s.claim(t, name)
	pod := newPod(name, "count", "/data/file")
	s.create(t, pod)
	s.awaitPod(t, pod, isRunning)
	check(t, s.Client.Delete(limited(t), pod))
	s.awaitPod(t, pod, func(now *corev1.Pod) bool { return now == nil })
	s.discard(t, &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}})
}
