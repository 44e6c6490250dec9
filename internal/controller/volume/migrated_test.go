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
				t.Errorf("volume pv of %s: %s, name %s, UID %s; want %s, pv, u", c.driver, volume.UniqueNameOf(got), got.Name,
					got.UID, want)
			}
			if !equality.Semantic.DeepEqual(pv, before) {
				t.Errorf("PersistentVolume pv of %s: %+v, want it unchanged: %+v", c.driver, pv, before)
			}
			if !volume.Migrated(got) {
				t.Errorf("translated PersistentVolume pv of %s is not marked as migrated, want that it is", c.driver)
			}
			if again, err := volume.Translated(got); err != nil || again != got {
				t.Errorf("PersistentVolume pv of %s, translated again: %+v, error %v; want the same object", c.driver, again, err)
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
			t.Errorf("PersistentVolume with source %+v: %+v, error %v; want the same object, not migrated", source, got, err)
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
		t.Errorf("access modes of the translated PersistentVolume: %s, want ReadWriteOnce, which is exclusive",
			got.Spec.AccessModes)
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
			t.Errorf("error of PersistentVolume pv: %v, want %q in it", err, word)
		}
		if got != pv || volume.UniqueNameOf(got) != "" {
			t.Errorf("PersistentVolume pv that cannot be translated: %+v, want the same object without a volume name", got)
		}
	}
}
