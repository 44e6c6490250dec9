/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package read

import (
	"maps"
	"slices"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/volume"
	"github.com/hawser-io/hawser/internal/explain"
	"github.com/hawser-io/hawser/internal/explain/facts"
	"github.com/hawser-io/hawser/internal/handshake"
)

// Trim removes from an object what no check needs. It reports whether the object itself is needed. An object that was
// trimmed stays as it is. Ten thousand pods as an API server has them are a hundred megabytes.
func Trim(object client.Object) bool {
	writes := object.GetManagedFields()
	object.SetManagedFields(nil)
	switch o := object.(type) {
	case *corev1.Pod:
		return trimPod(o)
	case *corev1.PersistentVolumeClaim:
		o.Annotations, o.Labels = nil, nil
		o.Spec.Selector, o.Spec.DataSource, o.Spec.DataSourceRef = nil, nil, nil
		asked := o.Spec.Resources.Requests[corev1.ResourceStorage]
		if asked.Cmp(o.Status.Capacity[corev1.ResourceStorage]) > 0 {
			o.ManagedFields = writes // they have since when it asks for more
		}
	case *corev1.PersistentVolume:
		trimVolume(o)
	case *corev1.Node:
		trimNode(o)
		if handshake.OutOfService(o) != nil {
			o.ManagedFields = writes // they have since when
		}
	case *corev1.Event:
		o.ObjectMeta = metav1.ObjectMeta{Name: o.Name, Namespace: o.Namespace, CreationTimestamp: o.CreationTimestamp}
	case *storagev1.VolumeAttachment:
		keep(o, volume.NodeIDAnnotation, volumesv1alpha1.HoldAnnotation, volumesv1alpha1.VolumeNameAnnotation)
		o.Labels, o.Status.AttachmentMetadata = nil, nil
	case *storagev1.CSINode:
		o.Annotations, o.ManagedFields = nil, newest(writes)
	case *storagev1.StorageClass:
		o.Parameters, o.Annotations = nil, nil
	case *coordinationv1.Lease:
		o.ManagedFields = writes // they have when it was renewed
	case *volumesv1alpha1.NodeVolumeState:
		for i := range o.Spec.Attachments {
			e := &o.Spec.Attachments[i]
			e.VolumeAttributes, e.PublishContext, e.MountOptions = nil, nil, nil
		}
	}
	return true
}

// trimPod keeps pods that wait, and those that use volumes which others may use too.
func trimPod(pod *corev1.Pod) bool {
	if pod.Status.Phase != corev1.PodPending && !slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool {
		_, claim := facts.ClaimOf(pod, &v)
		return claim || v.CSI != nil
	}) {
		pod.Spec, pod.Status = corev1.PodSpec{}, corev1.PodStatus{Phase: pod.Status.Phase}
		return false
	}
	for i := range pod.Spec.Volumes {
		pod.Spec.Volumes[i].Projected, pod.Spec.Volumes[i].DownwardAPI = nil, nil
	}
	spec, status := &pod.Spec, &pod.Status
	pod.ObjectMeta = metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID,
		CreationTimestamp: pod.CreationTimestamp, DeletionTimestamp: pod.DeletionTimestamp}
	pod.Spec = corev1.PodSpec{NodeName: spec.NodeName, Volumes: spec.Volumes, Containers: labelled(spec),
		NodeSelector: spec.NodeSelector, SchedulingGates: spec.SchedulingGates, SecurityContext: securityOf(spec),
		SchedulerName: spec.SchedulerName}
	trimmed := corev1.PodStatus{Phase: status.Phase, Reason: status.Reason, Message: status.Message,
		StartTime: status.StartTime, Conditions: status.Conditions}
	if !explain.PodSettled(pod) {
		trimmed.ContainerStatuses, trimmed.InitContainerStatuses = status.ContainerStatuses, status.InitContainerStatuses
	} else {
		trimmed.Conditions = slices.DeleteFunc(trimmed.Conditions, func(c corev1.PodCondition) bool {
			return c.Type != corev1.ContainersReady
		})
	}
	pod.Status = trimmed
	return true
}

// securityOf has what decides about SELinux labels.
func securityOf(spec *corev1.PodSpec) *corev1.PodSecurityContext {
	s := spec.SecurityContext
	if s == nil || s.SELinuxOptions == nil && s.SELinuxChangePolicy == nil {
		return nil
	}
	return &corev1.PodSecurityContext{SELinuxOptions: s.SELinuxOptions, SELinuxChangePolicy: s.SELinuxChangePolicy}
}

// labelled are the containers with their volumes and SELinux labels; none if no label is set.
func labelled(spec *corev1.PodSpec) []corev1.Container {
	var containers []corev1.Container
	any := securityOf(spec) != nil
	for i := range spec.Containers {
		c := corev1.Container{Name: spec.Containers[i].Name, VolumeMounts: spec.Containers[i].VolumeMounts}
		if s := spec.Containers[i].SecurityContext; s != nil && s.SELinuxOptions != nil {
			c.SecurityContext, any = &corev1.SecurityContext{SELinuxOptions: s.SELinuxOptions}, true
		}
		containers = append(containers, c)
	}
	if !any {
		return nil
	}
	return containers
}

func trimVolume(pv *corev1.PersistentVolume) {
	if volume.Migrated(pv) {
		return // its labels and annotations are part of what it translates to
	}
	pv.Annotations, pv.Labels = nil, nil
	if csi := pv.Spec.CSI; csi != nil {
		pv.Spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: csi.Driver, VolumeHandle: csi.VolumeHandle}
	}
	if ref := pv.Spec.ClaimRef; ref != nil {
		pv.Spec.ClaimRef = &corev1.ObjectReference{Namespace: ref.Namespace, Name: ref.Name, UID: ref.UID}
	}
}

func trimNode(node *corev1.Node) {
	node.Annotations = nil
	node.Status = corev1.NodeStatus{VolumesInUse: node.Status.VolumesInUse,
		Conditions: slices.DeleteFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
			return c.Type != corev1.NodeReady
		})}
}

// keep removes all annotations but these.
func keep(object client.Object, annotations ...string) {
	kept := object.GetAnnotations()
	maps.DeleteFunc(kept, func(name, _ string) bool { return !slices.Contains(annotations, name) })
}

// newest is the last write alone.
func newest(writes []metav1.ManagedFieldsEntry) []metav1.ManagedFieldsEntry {
	last := explain.Written(writes, "")
	if last.IsZero() {
		return nil
	}
	return []metav1.ManagedFieldsEntry{{Time: &metav1.Time{Time: last}, FieldsV1: &metav1.FieldsV1{}}}
}
