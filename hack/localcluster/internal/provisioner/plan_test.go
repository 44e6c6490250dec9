/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package provisioner

import (
	"maps"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

const driver = "small.csi.hawser.io"

func pending(change func(*corev1.PersistentVolumeClaim)) *corev1.PersistentVolumeClaim {
	claim := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{
			Name: "data", Namespace: "web", UID: "123",
			Annotations: map[string]string{storageProvisionerAnnotation: driver},
		},
		Spec: corev1.PersistentVolumeClaimSpec{
			StorageClassName: ptr.To("small"),
			AccessModes:      []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources: corev1.VolumeResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")},
			},
		},
	}
	if change != nil {
		change(claim)
	}
	return claim
}

func TestAClaimWantsAVolumeOfItsOwnDriverOnly(t *testing.T) {
	for _, test := range []struct {
		name   string
		change func(*corev1.PersistentVolumeClaim)
		want   bool
	}{
		{"pending", nil, true},
		{"bound", func(c *corev1.PersistentVolumeClaim) { c.Spec.VolumeName = "pv" }, false},
		{"deleting", func(c *corev1.PersistentVolumeClaim) { c.DeletionTimestamp = &metav1.Time{} }, false},
		{"of another driver", func(c *corev1.PersistentVolumeClaim) { c.Annotations[storageProvisionerAnnotation] = "other" }, false},
		{"not yet handed over by the binder", func(c *corev1.PersistentVolumeClaim) { c.Annotations = nil }, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := wantsVolume(pending(test.change), driver); got != test.want {
				t.Errorf("wants a volume: %t", got)
			}
		})
	}
}

func TestAClassThatWaitsForTheFirstConsumerWaits(t *testing.T) {
	waits := &storagev1.StorageClass{VolumeBindingMode: ptr.To(storagev1.VolumeBindingWaitForFirstConsumer)}
	if !mustWait(pending(nil), waits) {
		t.Error("no node was selected, but it does not wait")
	}
	selected := pending(func(c *corev1.PersistentVolumeClaim) { c.Annotations[selectedNodeAnnotation] = "node-a" })
	if mustWait(selected, waits) {
		t.Error("a node was selected, but it waits")
	}
	if mustWait(pending(nil), &storagev1.StorageClass{}) {
		t.Error("a class that binds at once waits")
	}
}

func TestAVolumeIsDeletedOnlyWhenItIsReleasedAndThePolicySaysSo(t *testing.T) {
	offered := func(change func(*corev1.PersistentVolume)) *corev1.PersistentVolume {
		made, err := volume(pending(nil), &storagev1.StorageClass{}, driver, &csi.Volume{VolumeId: "v"})
		if err != nil {
			t.Fatal(err)
		}
		made.Status.Phase = corev1.VolumeReleased
		change(made)
		return made
	}
	for _, test := range []struct {
		name   string
		change func(*corev1.PersistentVolume)
		want   bool
	}{
		{"released", func(*corev1.PersistentVolume) {}, true},
		{"bound", func(v *corev1.PersistentVolume) { v.Status.Phase = corev1.VolumeBound }, false},
		{"bound and deleting", func(v *corev1.PersistentVolume) {
			v.Status.Phase, v.DeletionTimestamp = corev1.VolumeBound, &metav1.Time{}
		}, false},
		{"available and deleting", func(v *corev1.PersistentVolume) {
			v.Status.Phase, v.DeletionTimestamp = corev1.VolumeAvailable, &metav1.Time{}
		}, true},
		{"to be retained", func(v *corev1.PersistentVolume) {
			v.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimRetain
		}, false},
		{"made by hand", func(v *corev1.PersistentVolume) { v.Annotations = nil }, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := wantsDelete(offered(test.change), driver); got != test.want {
				t.Errorf("wants deletion: %t", got)
			}
		})
	}
}

func TestTheRequestCarriesWhatClaimAndClassSay(t *testing.T) {
	class := &storagev1.StorageClass{
		Parameters:   map[string]string{"colour": "red", parameterPrefix + "fstype": "xfs"},
		MountOptions: []string{"noatime"},
	}
	got, err := request(pending(nil), class, nil, nil, true)
	if err != nil {
		t.Fatal(err)
	}
	if got.GetName() != "pvc-123" || got.GetCapacityRange().GetRequiredBytes() != 1<<30 ||
		!maps.Equal(got.GetParameters(), map[string]string{"colour": "red"}) {
		t.Errorf("request: %v", got)
	}
	capability := got.GetVolumeCapabilities()[0]
	if capability.GetMount().GetFsType() != "xfs" || capability.GetMount().GetMountFlags()[0] != "noatime" ||
		capability.GetAccessMode().GetMode() != csi.VolumeCapability_AccessMode_SINGLE_NODE_MULTI_WRITER {
		t.Errorf("capability: %v", capability)
	}
	block := pending(func(c *corev1.PersistentVolumeClaim) { c.Spec.VolumeMode = ptr.To(corev1.PersistentVolumeBlock) })
	if got, err = request(block, class, nil, nil, false); err != nil || got.GetVolumeCapabilities()[0].GetBlock() == nil {
		t.Errorf("block: %v %v", got, err)
	}
	cloned := pending(func(c *corev1.PersistentVolumeClaim) { c.Spec.DataSource = &corev1.TypedLocalObjectReference{} })
	if _, err = request(cloned, class, nil, nil, false); err == nil {
		t.Error("a data source was ignored")
	}
}

func TestSecretsAreNamedByTheClass(t *testing.T) {
	class := &storagev1.StorageClass{Parameters: map[string]string{
		parameterPrefix + "node-stage-secret-name":      "${pvc.name}-key",
		parameterPrefix + "node-stage-secret-namespace": "${pvc.namespace}",
	}}
	got := secretReference(pending(nil), class, "node-stage")
	if got == nil || got.Name != "data-key" || got.Namespace != "web" {
		t.Errorf("reference: %v", got)
	}
	if got := secretReference(pending(nil), class, "node-publish"); got != nil {
		t.Errorf("a reference out of nothing: %v", got)
	}
}

func TestPlacesAreThoseOfTheSelectedNodeOrOfAll(t *testing.T) {
	node := func(name, zone string) (*corev1.Node, *storagev1.CSINode) {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"zone": zone}}},
			&storagev1.CSINode{
				ObjectMeta: metav1.ObjectMeta{Name: name},
				Spec:       storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{{Name: driver, TopologyKeys: []string{"zone"}}}},
			}
	}
	a, csiA := node("a", "1")
	b, csiB := node("b", "2")
	c, csiC := node("c", "2")
	nodes, csiNodes := []*corev1.Node{a, b, c}, []*storagev1.CSINode{csiA, csiB, csiC}
	for _, test := range []struct {
		name, driver, selected string
		want                   int
	}{
		{"each place once", driver, "", 2},
		{"the selected node's", driver, "b", 1},
		{"no place for an unknown node", driver, "d", 0},
		{"no place for a driver that is nowhere", "other", "", 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := requirement(test.driver, test.selected, nodes, csiNodes)
			if len(got.GetPreferred()) != test.want || (err != nil) != (test.want == 0) {
				t.Errorf("places %v, error %v", got.GetPreferred(), err)
			}
		})
	}
}
