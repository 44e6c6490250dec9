/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package operator_test

import (
	"testing"

	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
)

var csiDriver = storagev1.SchemeGroupVersion.WithKind("CSIDriver")

const profile = "security.openshift.io/csi-ephemeral-volume-profile"

// earlierDriver has other values in the fields that cannot change, as one of another release might.
func (s server) earlierDriver(t *testing.T) {
	check(t, s.admin.Create(t.Context(), &storagev1.CSIDriver{
		ObjectMeta: metav1.ObjectMeta{Name: volumesv1alpha1.InlineDriver, Labels: map[string]string{profile: "baseline"}},
		Spec: storagev1.CSIDriverSpec{AttachRequired: ptr.To(true),
			VolumeLifecycleModes: []storagev1.VolumeLifecycleMode{storagev1.VolumeLifecyclePersistent}},
	}))
}

func (s server) testCSIDriver(t *testing.T) {
	s.awaitDriver(t, "it was created again with the fields that cannot change", "baseline",
		func(o *unstructured.Unstructured) bool {
			required, _, err := unstructured.NestedBool(o.Object, "spec", "attachRequired")
			modes, _, also := unstructured.NestedStringSlice(o.Object, "spec", "volumeLifecycleModes")
			return err == nil && also == nil && !required && len(modes) == 1 && modes[0] == "Ephemeral"
		})
	s.kubectl(t, "label", "--overwrite", "csidriver", volumesv1alpha1.InlineDriver, profile+"=privileged",
		"app.kubernetes.io/managed-by-")
	s.awaitDriver(t, "its other labels are put back, and the profile of an administrator stays", "privileged", ours)
	s.kubectl(t, "label", "csidriver", volumesv1alpha1.InlineDriver, profile+"-")
	s.awaitDriver(t, "the profile is put back once it is removed", "restricted", ours)
	s.settle(t)
}

func ours(o *unstructured.Unstructured) bool {
	return o.GetLabels()["app.kubernetes.io/managed-by"] == "hawser-operator"
}

func (s server) awaitDriver(t *testing.T, what, wantProfile string, ok func(*unstructured.Unstructured) bool) {
	t.Helper()
	s.await(t, csiDriver, "", volumesv1alpha1.InlineDriver, what, func(o *unstructured.Unstructured) bool {
		return o.GetLabels()[profile] == wantProfile && ok(o)
	})
}
