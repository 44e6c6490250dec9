/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package record

import (
	"reflect"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/driver"
)

const csiDir = "/k/plugins/kubernetes.io/csi/"

func TestEverySourceHasItsPlaceOnTheNode(t *testing.T) {
	p := Paths{Root: "/r", Kubelet: "/k"}
	csi, share := "kubernetes.io/csi/d^h", "share^h"
	for name, test := range map[string]struct {
		source                          VolumeSource
		staging, kubeletData, globalMap string
		dirs                            int
	}{
		"a filesystem": {
			VolumeSource{UniqueName: csi, Driver: "d", Handle: "h", PersistentVolume: "pv"},
			csiDir + "d/" + Hash("h") + "/globalmount", csiDir + "d/" + Hash("h") + "/vol_data.json",
			csiDir + "volumeDevices/pv/dev", 2,
		},
		"a filesystem without a PersistentVolume": {
			VolumeSource{UniqueName: csi, Driver: "d", Handle: "h"},
			csiDir + "d/" + Hash("h") + "/globalmount", csiDir + "d/" + Hash("h") + "/vol_data.json",
			csiDir + "volumeDevices/dev", 2,
		},
		"a device": {
			VolumeSource{UniqueName: csi, Driver: "d", Handle: "h", PersistentVolume: "pv", Mode: corev1.PersistentVolumeBlock},
			csiDir + "volumeDevices/staging/pv", csiDir + "volumeDevices/pv/data/vol_data.json",
			csiDir + "volumeDevices/pv/dev", 1,
		},
		"a device without a PersistentVolume": {
			VolumeSource{UniqueName: csi, Driver: "d", Handle: "h", Mode: corev1.PersistentVolumeBlock},
			"/r/sources/" + Hash(csi) + "/globalmount", "", "/r/sources/" + Hash(csi) + "/dev", 2,
		},
		"a filesystem that no kubelet knows": {
			VolumeSource{UniqueName: share, Driver: "d", Handle: "h"},
			"/r/sources/" + Hash(share) + "/globalmount", "", "/r/sources/" + Hash(share) + "/dev", 2,
		},
		"a device that no kubelet knows": {
			VolumeSource{UniqueName: share, Driver: "d", Handle: "h", Mode: corev1.PersistentVolumeBlock},
			"/r/sources/" + Hash(share) + "/globalmount", "", "/r/sources/" + Hash(share) + "/dev", 2,
		},
	} {
		for what, paths := range map[string][2]string{
			"stage":               {p.Staging(test.source), test.staging},
			"record of kubelet":   {p.KubeletData(test.source), test.kubeletData},
			"global map":          {p.GlobalMap(test.source), test.globalMap},
			"bind of the device":  {p.Bound(test.source, "uid"), test.globalMap + "/uid"},
			"first to be removed": {p.StagingDirs(test.source, test.staging)[0], test.staging},
		} {
			if paths[0] != paths[1] {
				t.Errorf("%s of %s (%+v): path %q, want %q", what, name, test.source, paths[0], paths[1])
			}
		}
		if dirs := p.StagingDirs(test.source, test.staging); len(dirs) != test.dirs {
			t.Errorf("%s (%+v): directories to remove %v, want %d", name, test.source, dirs, test.dirs)
		}
	}
}

func TestNamesThatLeadElsewhereAreRefused(t *testing.T) {
	for name, test := range map[string]struct {
		source  VolumeSource
		refused bool
	}{
		"plain names":            {VolumeSource{Driver: "d", PersistentVolume: "pv"}, false},
		"no PersistentVolume":    {VolumeSource{Driver: "d"}, false},
		"no driver":              {VolumeSource{PersistentVolume: "pv"}, true},
		"another directory":      {VolumeSource{Driver: "..", PersistentVolume: "pv"}, true},
		"a PersistentVolume's":   {VolumeSource{Driver: "d", PersistentVolume: "../pv"}, true},
		"the directory itself":   {VolumeSource{Driver: "d", PersistentVolume: "."}, true},
		"an end within the name": {VolumeSource{Driver: "d\x00", PersistentVolume: "pv"}, true},
	} {
		if err := test.source.Check(); (err != nil) != test.refused {
			t.Errorf("%s (%+v): error %v, want one: %t", name, test.source, err, test.refused)
		}
	}
}

func TestASourceIsKnownAgainFromWhatWasKeptOfIt(t *testing.T) {
	e := &volumesv1alpha1.NodeAttachment{VolumeName: "kubernetes.io/csi/d^h^i", Driver: "d", VolumeHandle: "h^i",
		PersistentVolumeName: "pv", VolumeMode: corev1.PersistentVolumeBlock}
	r := &Record{}
	r.SetVolumeSource(VolumeSourceOf(e))
	p := Paths{Root: "/r", Kubelet: "/k"}
	if got, want := p.Staging(r.VolumeSource()), p.Staging(VolumeSourceOf(e)); got != want {
		t.Errorf("volume %s: the record has its stage at %s, want %s", e.VolumeName, got, want)
	}
	if s := VolumeSourceNamed(e.VolumeName); s.Driver != e.Driver || s.Handle != e.VolumeHandle {
		t.Errorf("volume %s: driver %q and handle %q, want %q and %q", e.VolumeName, s.Driver, s.Handle, e.Driver,
			e.VolumeHandle)
	}
	if s := VolumeSourceNamed("share^h"); s.Driver != "" || s.Handle != "" || s.KubeletKnows() {
		t.Errorf("volume share^h: driver %q and handle %q, the kubelet knows it: %t; want neither", s.Driver, s.Handle,
			s.KubeletKnows())
	}
	if s := VolumeSourceOf(&volumesv1alpha1.NodeAttachment{}); s.Mode != corev1.PersistentVolumeFilesystem {
		t.Errorf("an entry without a mode: mode %q, want %q", s.Mode, corev1.PersistentVolumeFilesystem)
	}
}

func TestASourceIsWhatTheManagerLists(t *testing.T) {
	if got := VolumeSourceOf(nil); !reflect.DeepEqual(got, VolumeSource{}) {
		t.Errorf("the source of no entry is %+v, expected none", got)
	}
	secret := func(name string) *corev1.SecretReference { return &corev1.SecretReference{Name: name} }
	capacity, from := resource.MustParse("2Gi"), resource.MustParse("1Gi")
	entry := &volumesv1alpha1.NodeAttachment{
		VolumeName: "v", Driver: "d", VolumeHandle: "h", PersistentVolumeName: "pv", VolumeMode: corev1.PersistentVolumeBlock,
		AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, FSType: "xfs",
		MountOptions: []string{"noatime"}, VolumeAttributes: map[string]string{"a": "b"},
		PublishContext: map[string]string{"c": "d"}, FSGroupPolicy: storagev1.FileFSGroupPolicy,
		Capacity: &capacity, ExpandFrom: &from, NodeStageSecretRef: secret("stage"),
		NodePublishSecretRef: secret("publish"), NodeExpandSecretRef: secret("expand"),
	}
	want := VolumeSource{
		UniqueName: "v", Driver: "d", Handle: "h", PersistentVolume: "pv", Mode: corev1.PersistentVolumeBlock,
		AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, FSType: "xfs",
		MountOptions: []string{"noatime"}, Attributes: map[string]string{"a": "b"},
		PublishContext: map[string]string{"c": "d"}, FSGroupPolicy: storagev1.FileFSGroupPolicy,
		Capacity: &capacity, ExpandFrom: &from, StageSecret: secret("stage"), PublishSecret: secret("publish"),
		ExpandSecret: secret("expand"),
	}
	if got := VolumeSourceOf(entry); !reflect.DeepEqual(got, want) {
		t.Errorf("the source of entry %+v is %+v, expected %+v", entry, got, want)
	}
	request := driver.Volume{
		Handle: "h", PersistentVolume: "pv", Mode: corev1.PersistentVolumeBlock, FSType: "xfs",
		Attributes: map[string]string{"a": "b"}, PublishContext: map[string]string{"c": "d"},
		AccessMode: corev1.ReadWriteOnce,
	}
	if got := want.Request(); !reflect.DeepEqual(got, request) {
		t.Errorf("the request for volume v is %+v, expected %+v", got, request)
	}
	entry.VolumeMode = ""
	if got := VolumeSourceOf(entry).Mode; got != corev1.PersistentVolumeFilesystem {
		t.Errorf("without a mode volume v has mode %q, expected %s", got, corev1.PersistentVolumeFilesystem)
	}
	named := VolumeSource{
		UniqueName: "kubernetes.io/csi/d^h", Driver: "d", Handle: "h", Mode: corev1.PersistentVolumeFilesystem,
	}
	if got := VolumeSourceNamed("kubernetes.io/csi/d^h"); !reflect.DeepEqual(got, named) {
		t.Errorf("the source of a name is %+v, expected %+v", got, named)
	}
}
