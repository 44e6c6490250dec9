/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package volumes

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/pkg/volumes"
	"github.com/hawser-io/hawser/test/apiserver"
)

const (
	podName = "web"
	podUID  = "b1d0a5a6-0000-4000-8000-000000000001"
)

func podWith(list ...corev1.Volume) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: podName, UID: podUID},
		Spec: corev1.PodSpec{Volumes: list}}
}

func inline(name, attribute, value string, readOnly bool) corev1.Volume {
	return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{
		Driver: volumesv1alpha1.InlineDriver, ReadOnly: ptr.To(readOnly),
		VolumeAttributes: map[string]string{attribute: value}}}}
}

func ofClaim(name, claim string, readOnly bool) corev1.Volume {
	return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{
		PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim, ReadOnly: readOnly}}}
}

// published creates an intent that is Ready at a path.
func published(t *testing.T, c client.Client, i *volumesv1alpha1.VolumeAttachmentIntent, volume, path string) {
	t.Helper()
	create(t, c, i)
	i.Status.VolumeName, i.Status.Path, i.Status.VolumeMode = volume, path, corev1.PersistentVolumeFilesystem
	observe(t, c, i, volumesv1alpha1.ConditionReady, metav1.ConditionTrue, "Published", "")
}

// ownedBy is an intent that Hawser creates for a pod.
func ownedBy(uid, name, claim string) *volumesv1alpha1.VolumeAttachmentIntent {
	i := newIntent(name, claim)
	i.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(
		&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: podName, UID: podUID}}, corev1.SchemeGroupVersion.WithKind("Pod"))}
	i.OwnerReferences[0].UID = podUID
	if uid != podUID {
		i.OwnerReferences = nil
	}
	return i
}

func TestVolumesOfAPodHaveWhatTheirClaimsAndIntentsHave(t *testing.T) {
	config, c := apiserver.Borrow(t)
	for name, group := range map[string]string{"data": "1234", "shared": "", "plain": "99", "replaced": "not a number"} {
		create(t, c, newVolume("pv-"+name, group))
		create(t, c, newClaim(name, "pv-"+name))
	}
	create(t, c, newClaim("unbound", ""))
	ofData := volumesv1alpha1.InlineIntentName(podName, podUID, "data")
	published(t, c, ownedBy(podUID, ofData, "data"), "pv-data", "/published/data")
	shared := newIntent("shared-here", "shared")
	shared.Spec.ReadOnly = true
	published(t, c, shared, "pv-shared", "/published/shared")
	ofReplaced := volumesv1alpha1.PodIntentName(podName, podUID, "replaced")
	published(t, c, ownedBy(podUID, ofReplaced, "replaced"), "pv-replaced", "")
	foreign := volumesv1alpha1.InlineIntentName(podName, podUID, "unbound")
	published(t, c, ownedBy("another", foreign, "plain"), "pv-plain", "/published/foreign")

	pod := podWith(
		inline("data", volumesv1alpha1.AttributeClaim, "data", true),
		inline("shared", volumesv1alpha1.AttributeIntent, "shared-here", false),
		corev1.Volume{Name: "config", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{}}},
		ofClaim("plain", "plain", false), ofClaim("replaced", "replaced", true),
		inline("unbound", volumesv1alpha1.AttributeClaim, "unbound", false),
		inline("missing", volumesv1alpha1.AttributeIntent, "missing", false),
		ofClaim("none", "none", false))
	pod.Spec.SecurityContext = &corev1.PodSecurityContext{SupplementalGroups: []int64{99}}

	got, err := newClient(t, config).VolumesOfPod(limited(t), pod)
	if err != nil {
		t.Fatal(err)
	}
	want := []volumes.Volume{
		{Name: "data", Intent: keyOf(ofData), Claim: "data", PersistentVolume: "pv-data", Ready: true,
			Path: "/published/data", Mode: corev1.PersistentVolumeFilesystem, ReadOnly: true,
			SupplementalGroup: ptr.To[int64](1234)},
		{Name: "shared", Intent: keyOf("shared-here"), Claim: "shared", PersistentVolume: "pv-shared", Ready: true,
			Path: "/published/shared", Mode: corev1.PersistentVolumeFilesystem, ReadOnly: true},
		{Name: "plain", Claim: "plain", PersistentVolume: "pv-plain", Mode: corev1.PersistentVolumeFilesystem},
		{Name: "replaced", Intent: keyOf(ofReplaced), Claim: "replaced", PersistentVolume: "pv-replaced", Ready: true,
			Mode: corev1.PersistentVolumeFilesystem, ReadOnly: true},
		{Name: "unbound", Intent: keyOf(foreign), Claim: "unbound", Mode: corev1.PersistentVolumeFilesystem},
		{Name: "missing", Intent: keyOf("missing")},
		{Name: "none", Claim: "none"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the volumes of the pod differ (-want +got):\n%s", diff)
	}
}

func TestADirectoryOfIntentsCountsForEachIntentThatItSelects(t *testing.T) {
	config, c := apiserver.Borrow(t)
	labelled := func(i *volumesv1alpha1.VolumeAttachmentIntent) *volumesv1alpha1.VolumeAttachmentIntent {
		i.Labels = map[string]string{"app": "db"}
		return i
	}
	first := labelled(newIntent("disk-1", "one"))
	published(t, c, first, "pv-one", "/published/one")
	create(t, c, labelled(newIntent("disk-2", "two")))
	create(t, c, newIntent("disk-3", "three"))
	create(t, c, labelled(ownedBy(podUID, "of-a-pod", "four")))
	ofSet := labelled(newIntent("disk-3-of-a-set", "three"))
	ofSet.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(
		&volumesv1alpha1.VolumeAttachmentIntentSet{ObjectMeta: metav1.ObjectMeta{Name: "disks", UID: "set"}},
		volumesv1alpha1.GroupVersion.WithKind("VolumeAttachmentIntentSet"))}
	create(t, c, ofSet)
	kubelets, staged := labelled(newIntent("of-the-kubelet", "six")), labelled(newIntent("only-staged", "seven"))
	kubelets.Spec.Publisher, kubelets.Spec.DesiredState = volumesv1alpha1.PublisherKubelet, volumesv1alpha1.DesiredAttached
	staged.Spec.DesiredState = volumesv1alpha1.DesiredStaged
	create(t, c, kubelets)
	create(t, c, staged)
	elsewhere := labelled(newIntent("disk-5", "five"))
	elsewhere.Spec.NodeName = "elsewhere"
	create(t, c, elsewhere)
	pod := podWith(inline("disks", volumesv1alpha1.AttributeIntents, "app=db", true),
		inline("refused", volumesv1alpha1.AttributeIntents, " ", false))
	pod.Spec.NodeName = first.Spec.NodeName
	got, err := newClient(t, config).VolumesOfPod(limited(t), pod)
	if err != nil {
		t.Fatal(err)
	}
	want := []volumes.Volume{
		{Name: "disks", Intent: client.ObjectKeyFromObject(first), Claim: "one", PersistentVolume: "pv-one", Ready: true,
			Path: "/published/one", Mode: corev1.PersistentVolumeFilesystem, ReadOnly: true},
		{Name: "disks", Intent: keyOf("disk-2"), Claim: "two", ReadOnly: true},
		{Name: "disks", Intent: keyOf("disk-3-of-a-set"), Claim: "three", ReadOnly: true},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the volumes of the pod differ (-want +got):\n%s", diff)
	}
}
