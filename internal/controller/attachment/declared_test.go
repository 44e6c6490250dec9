/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package attachment

import (
	"slices"
	"testing"

	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
)

// declaredState is a node's state in which attachments 1 to 5 are declared released.
func declaredState() *volumesv1alpha1.NodeVolumeState {
	nvs := reported("a")
	nvs.Annotations = map[string]string{"other": "1"}
	for _, uid := range []string{"1", "2", "3", "4", "5"} {
		nvs.Annotations[volumesv1alpha1.DeclaredReleasedPrefix+uid] = "scrapped"
	}
	nvs.Spec.Attachments = []volumesv1alpha1.NodeAttachment{
		{VolumeName: "v1", AttachmentUID: "1", State: volumesv1alpha1.AttachmentDetaching},
	}
	nvs.Status.Volumes = []volumesv1alpha1.NodeVolume{{VolumeName: "v2", AttachmentUID: "2", InUse: true}}
	return nvs
}

func attachmentWithUID(uid types.UID, node string) *storagev1.VolumeAttachment {
	return &storagev1.VolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{Name: "va-" + string(uid), UID: uid},
		Spec: storagev1.VolumeAttachmentSpec{
			NodeName: node, Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: ptr.To("pv")},
		},
	}
}

func TestADeclarationEnqueuesItsVolume(t *testing.T) {
	pv := persistentVolume()
	c, _ := over(t, pv, attachmentWithUID("3", "a"))
	without := func(uid string) *volumesv1alpha1.NodeVolumeState {
		nvs := declaredState()
		delete(nvs.Annotations, volumesv1alpha1.DeclaredReleasedPrefix+uid)
		return nvs
	}
	for uid, want := range map[string][]string{
		"1": {"v1"}, "2": {"v2"}, "3": {"kubernetes.io/csi/d^h"}, "4": nil,
	} {
		if got := woken(t, c.stateChanged, without(uid), declaredState()); !slices.Equal(got, want) {
			t.Errorf("the declaration of %s wakes %v, want %v", uid, got, want)
		}
	}
	other := declaredState()
	other.Annotations["other"] = "2"
	if got := woken(t, c.stateChanged, declaredState(), other); got != nil {
		t.Errorf("volumes that an annotation which declares nothing wakes: %v, want none", got)
	}
}
