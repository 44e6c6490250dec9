/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package read

import (
	"strings"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hawser-io/hawser/internal/controller/volume"
	"github.com/hawser-io/hawser/internal/preflight"
)

// trim removes from an object what no check needs. It reports whether the object itself is needed.
func trim(object client.Object) bool {
	object.SetManagedFields(nil)
	switch o := object.(type) {
	case *corev1.Node:
		o.Status = corev1.NodeStatus{NodeInfo: o.Status.NodeInfo, VolumesAttached: o.Status.VolumesAttached}
	case *corev1.PersistentVolume:
		if !volume.Migrated(o) { // otherwise labels and annotations are part of what it translates to
			o.ObjectMeta = metav1.ObjectMeta{Name: o.Name}
		}
		if csi := o.Spec.CSI; csi != nil {
			o.Spec = corev1.PersistentVolumeSpec{PersistentVolumeSource: corev1.PersistentVolumeSource{
				CSI: &corev1.CSIPersistentVolumeSource{Driver: csi.Driver}}}
		}
	case *corev1.Pod:
		o.Status, o.Spec.Volumes = corev1.PodStatus{}, nil
	case *coordinationv1.Lease:
		return strings.HasPrefix(o.Name, preflight.LeaseOfAttachers)
	}
	return true
}
