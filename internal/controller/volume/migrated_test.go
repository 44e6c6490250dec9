/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package volume_test

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/hawser-io/hawser/internal/controller/volume"
)

func TestASourceOfOldIsTheVolumeOfItsDriver(t *testing.T) {
	for _, c := range []struct {
		source         corev1.PersistentVolumeSource
		driver, handle string
	}{
		{corev1.PersistentVolumeSource{GCEPersistentDisk: &corev1.GCEPersistentDiskVolumeSource{PDName: "d"}},
			"pd.csi.storage.gke.io", "projects/UNSPECIFIED/zones/zone-1/disks/d"},
		{corev1.PersistentVolumeSource{
			AWSElasticBlockStore: &corev1.AWSElasticBlockStoreVolumeSource{VolumeID: "aws://zone-1/vol-1"},
		}, "ebs.csi.aws.com", "vol-1"},
		{corev1.PersistentVolumeSource{Cinder: &corev1.CinderPersistentVolumeSource{VolumeID: "c-1"}},
			"cinder.csi.openstack.org", "c-1"},
		{corev1.PersistentVolumeSource{
			AzureDisk: &corev1.AzureDiskVolumeSource{DiskName: "d", DataDiskURI: "/subscriptions/s/d"},
		}, "disk.csi.azure.com", "/subscriptions/s/d"},
		{corev1.PersistentVolumeSource{
			AzureFile: &corev1.AzureFilePersistentVolumeSource{SecretName: "azure-storage-account-a-secret", ShareName: "s"},
		}, "file.csi.azure.com", "#a#s#pv#ns"},
		{corev1.PersistentVolumeSource{VsphereVolume: &corev1.VsphereVirtualDiskVolumeSource{VolumePath: "[store] a.vmdk"}},
			"csi.vsphere.vmware.com", "[store] a.vmdk"},
		{corev1.PersistentVolumeSource{PortworxVolume: &corev1.PortworxVolumeSource{VolumeID: "p"}}, "pxd.portworx.com", "p"},
	} {
		t.Run(c.driver, func(t *testing.T) {
			pv := &corev1.PersistentVolume{
				ObjectMeta: metav1.ObjectMeta{Name: "pv", UID: "u", Labels: map[string]string{corev1.LabelTopologyZone: "zone-1"}},
				Spec: corev1.PersistentVolumeSpec{
					PersistentVolumeSource: c.source, ClaimRef: &corev1.ObjectReference{Namespace: "ns"},
				},
			}
			before := pv.DeepCopy()
			got, err := volume.Translated(pv)
			if err != nil {
				t.Fatal(err)
			}
			if want := volume.UniqueName(c.driver, c.handle); volume.UniqueNameOf(got) != want || got.Name != "pv" ||
				got.UID != "u" {
				t.Errorf("%s, want %s", volume.UniqueNameOf(got), want)
			}
			if !equality.Semantic.DeepEqual(pv, before) {
				t.Error("the volume itself was changed")
			}
			if !volume.Migrated(got) {
				t.Error("nothing tells that it was translated")
			}
			if again, err := volume.Translated(got); err != nil || again != got {
				t.Errorf("a volume that was translated is translated again: %v", err)
			}
		})
	}
}

func TestOtherVolumesAreLeftAsTheyAre(t *testing.T) {
	for _, source := range []corev1.PersistentVolumeSource{
		{CSI: &corev1.CSIPersistentVolumeSource{Driver: "pd.csi.storage.gke.io", VolumeHandle: "h"}},
		{NFS: &corev1.NFSVolumeSource{}}, {Local: &corev1.LocalVolumeSource{}},
		{ISCSI: &corev1.ISCSIPersistentVolumeSource{}},
	} {
		pv := &corev1.PersistentVolume{Spec: corev1.PersistentVolumeSpec{PersistentVolumeSource: source}}
		if got, err := volume.Translated(pv); got != pv || err != nil || volume.Migrated(pv) {
			t.Errorf("%+v: %+v, %v", source, got, err)
		}
	}
}

func TestAVolumeThatTheOldPluginLetManyReadAndOneWriteIsExclusive(t *testing.T) {
	pv := &corev1.PersistentVolume{Spec: corev1.PersistentVolumeSpec{
		AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadOnlyMany, corev1.ReadWriteOnce},
		PersistentVolumeSource: corev1.PersistentVolumeSource{
			GCEPersistentDisk: &corev1.GCEPersistentDiskVolumeSource{PDName: "d"},
		},
	}}
	got, err := volume.Translated(pv)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(got.Spec.AccessModes, []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}) ||
		!volume.Exclusive(got) {
		t.Errorf("access modes %s", got.Spec.AccessModes)
	}
}

func TestASourceThatCannotBeTranslatedHasAReason(t *testing.T) {
	for word, source := range map[string]corev1.PersistentVolumeSource{
		"Invalid format": {AWSElasticBlockStore: &corev1.AWSElasticBlockStoreVolumeSource{VolumeID: "aws://a/b/c"}},
		"Dedicated":      {AzureDisk: &corev1.AzureDiskVolumeSource{Kind: ptr.To(corev1.AzureDedicatedBlobDisk)}},
	} {
		pv := &corev1.PersistentVolume{
			ObjectMeta: metav1.ObjectMeta{Name: "pv"}, Spec: corev1.PersistentVolumeSpec{PersistentVolumeSource: source},
		}
		got, err := volume.Translated(pv)
		if err == nil || !strings.Contains(err.Error(), word) {
			t.Errorf("%v does not say %s", err, word)
		}
		if got != pv || volume.UniqueNameOf(got) != "" {
			t.Error("something else than the volume itself was returned")
		}
	}
}
