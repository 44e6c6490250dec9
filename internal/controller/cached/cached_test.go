/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package cached

import (
	"maps"
	"reflect"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
)

// large is a pod with everything that a cache could keep.
func large() *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "1", ResourceVersion: "2",
		Labels: map[string]string{"a": "b"}, Annotations: map[string]string{"a": "b"}}}
	pod.Spec.Containers = []corev1.Container{{Name: "c", Image: "i"}}
	pod.Spec.NodeSelector = map[string]string{"disk": "fast"}
	pod.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "example.com/queue"}}
	required := corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{}}}
	pod.Spec.Affinity = &corev1.Affinity{
		NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &required,
			PreferredDuringSchedulingIgnoredDuringExecution: []corev1.PreferredSchedulingTerm{{Weight: 1}}},
		PodAffinity: &corev1.PodAffinity{},
	}
	pod.Spec.Volumes = []corev1.Volume{
		{Name: "inline", VolumeSource: corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{
			Driver: volumesv1alpha1.InlineDriver, VolumeAttributes: map[string]string{"claim": "data"},
			FSType: ptr.To("ext4")}}},
		{Name: "foreign", VolumeSource: corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{Driver: "example.com"}}},
		{Name: "empty"},
	}
	pod.Status.Phase = corev1.PodPending
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled},
		{Type: volumesv1alpha1.ConditionPlaceable, Reason: "r"}}
	return pod
}

func TestOnlyOfAPodThatIsGatedTheCacheKeepsWhatRestrictsItsNodes(t *testing.T) {
	kept := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "1", ResourceVersion: "2"}}
	kept.Spec.Volumes = []corev1.Volume{{Name: "inline", VolumeSource: corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{
		Driver: volumesv1alpha1.InlineDriver, VolumeAttributes: map[string]string{"claim": "data"}}}}}
	kept.Status.Phase = corev1.PodPending
	expectTrimmed(t, trimPod, large(), kept)

	gated := large()
	gated.Spec.SchedulingGates = append(gated.Spec.SchedulingGates,
		corev1.PodSchedulingGate{Name: volumesv1alpha1.PlacementGate})
	kept.Spec.SchedulingGates, kept.Spec.NodeSelector = gated.Spec.SchedulingGates, gated.Spec.NodeSelector
	kept.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution: gated.Spec.Affinity.NodeAffinity.
			RequiredDuringSchedulingIgnoredDuringExecution}}
	kept.Status.Conditions = gated.Status.Conditions[1:]
	expectTrimmed(t, trimPod, gated, kept)
}

func TestOfAStorageClassTheCacheKeepsWhatDecidesAboutNodes(t *testing.T) {
	class := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "fast"}, Provisioner: "d",
		Parameters: map[string]string{"csi.storage.k8s.io/provisioner-secret-name": "s"}, MountOptions: []string{"o"},
		VolumeBindingMode: ptr.To(storagev1.VolumeBindingWaitForFirstConsumer),
		AllowedTopologies: []corev1.TopologySelectorTerm{{}}}
	kept := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "fast"}, Provisioner: "d",
		VolumeBindingMode: class.VolumeBindingMode, AllowedTopologies: class.AllowedTopologies}
	expectTrimmed(t, trimStorageClass, class, kept)
}

func TestOfTheLabelsOfAVolumeTheCacheKeepsThoseOfItsZone(t *testing.T) {
	zone := map[string]string{corev1.LabelTopologyZone: "a", corev1.LabelFailureDomainBetaRegion: "r"}
	pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv", Labels: maps.Clone(zone)}}
	pv.Labels["app"] = "web"
	expectTrimmed(t, trimPersistentVolume, pv,
		&corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv", Labels: zone}})
}

func expectTrimmed(t *testing.T, trim func(any) (any, error), object, want any) {
	t.Helper()
	got, err := trim(object)
	if err != nil {
		t.Fatal(err)
	}
	if !equality.Semantic.DeepEqual(got, want) {
		t.Errorf("the cache keeps %+v, want %+v", got, want)
	}
}

func TestOfClaimsAndNamespacesTheCacheKeepsWhatDecidesAboutTheirDeletion(t *testing.T) {
	refuse := map[string]string{volumesv1alpha1.RefuseDeletionLabel: "true"}
	with := func(labels, annotations map[string]string, more ...string) metav1.ObjectMeta {
		m := metav1.ObjectMeta{Name: "data", Labels: maps.Clone(labels), Annotations: maps.Clone(annotations)}
		for _, key := range more {
			metav1.SetMetaDataLabel(&m, key, "large")
			metav1.SetMetaDataAnnotation(&m, key, "large")
		}
		return m
	}
	ofClaim := map[string]string{volumesv1alpha1.InUseAnnotation: "true", SelectedNodeAnnotation: "node-a",
		corev1.BetaStorageClassAnnotation: "fast"}
	expectTrimmed(t, trimClaim, &corev1.PersistentVolumeClaim{ObjectMeta: with(refuse, ofClaim, "app")},
		&corev1.PersistentVolumeClaim{ObjectMeta: with(refuse, ofClaim)})
	expectTrimmed(t, trimClaim, &corev1.PersistentVolumeClaim{ObjectMeta: with(nil, inUse, "app")},
		&corev1.PersistentVolumeClaim{ObjectMeta: with(nil, inUse)})
	ofNamespace := map[string]string{volumesv1alpha1.AllowedNodesAnnotation: "node-a"}
	expectTrimmed(t, trimNamespace, &metav1.PartialObjectMetadata{ObjectMeta: with(refuse, ofNamespace, "app")},
		&metav1.PartialObjectMetadata{ObjectMeta: with(refuse, ofNamespace)})
}

func TestVolumesAndClaimsOfOneSizeShareWhatSaysIt(t *testing.T) {
	of := func(size string) corev1.ResourceList {
		return corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(size)}
	}
	claim, pv := &corev1.PersistentVolumeClaim{}, &corev1.PersistentVolume{}
	claim.Spec.Resources.Requests, claim.Status.Capacity, pv.Spec.Capacity = of("2Gi"), of("1Gi"), of("1Gi")
	keptClaim, err := trimClaim(claim)
	if err != nil {
		t.Fatal(err)
	}
	keptVolume, err := trimPersistentVolume(pv)
	if err != nil {
		t.Fatal(err)
	}
	requests := keptClaim.(*corev1.PersistentVolumeClaim).Spec.Resources.Requests
	capacity := keptClaim.(*corev1.PersistentVolumeClaim).Status.Capacity
	ofVolume := keptVolume.(*corev1.PersistentVolume).Spec.Capacity
	if reflect.ValueOf(capacity).Pointer() != reflect.ValueOf(ofVolume).Pointer() {
		t.Error("a claim and a volume of one size keep a map each, want them to share one")
	}
	if !equality.Semantic.DeepEqual(requests, of("2Gi")) || !equality.Semantic.DeepEqual(capacity, of("1Gi")) {
		t.Errorf("the claim requests %v and has %v, want 2Gi and 1Gi", requests, capacity)
	}
	both := of("1Gi")
	both[corev1.ResourceCPU] = resource.MustParse("1")
	if got := shared(both); !equality.Semantic.DeepEqual(got, both) {
		t.Errorf("a list of two resources is kept as %v, want %v", got, both)
	}
}
