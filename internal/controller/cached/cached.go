/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

// Package cached says what the manager keeps in memory of each kind: only what is read.
package cached

import (
	"maps"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/index"
	"github.com/hawser-io/hawser/internal/controller/volume"
	"github.com/hawser-io/hawser/internal/install"
)

// Options of the manager's cache. Objects are shared, not copied, when they are read: a caller that
// changes one copies it first.
func Options() cache.Options {
	nodeAccounts := labels.SelectorFromSet(labels.Set{install.NodeAccountLabel: "true"})
	return cache.Options{
		DefaultUnsafeDisableDeepCopy: ptr.To(true),
		DefaultTransform:             cache.TransformStripManagedFields(),
		ReaderFailOnMissingInformer:  true,
		ByObject: map[client.Object]cache.ByObject{
			&corev1.Pod{}:                   {Transform: trimPod},
			&corev1.Node{}:                  {Transform: trimNode},
			&corev1.PersistentVolume{}:      {Transform: trimPersistentVolume},
			&corev1.PersistentVolumeClaim{}: {Transform: trimClaim},
			&coordinationv1.Lease{}:         {Namespaces: map[string]cache.Config{install.Namespace(): {}}},
			// A cache of one namespace by its selector: one by Namespaces finds the kind in the API's list of resources at
			// each read.
			&corev1.ConfigMap{}: {
				Label: labels.SelectorFromSet(labels.Set{volumesv1alpha1.ExclusiveLocksLabel: "true"}),
				Field: fields.OneTermEqualSelector("metadata.namespace", install.Namespace()),
			},
			&corev1.ServiceAccount{}: {
				Label: nodeAccounts, Field: fields.OneTermEqualSelector("metadata.namespace", install.Namespace()),
			},
			&appsv1.DaemonSet{}: {
				Label: labels.SelectorFromSet(install.AgentLabels),
				Field: fields.OneTermEqualSelector("metadata.namespace", install.Namespace()),
			},
			&rbacv1.Role{}:                     {Label: nodeAccounts},
			&rbacv1.RoleBinding{}:              {Label: nodeAccounts},
			&storagev1.CSIDriver{}:             {},
			&storagev1.CSINode{}:               {},
			&storagev1.CSIStorageCapacity{}:    {},
			&storagev1.StorageClass{}:          {Transform: trimStorageClass},
			&storagev1.VolumeAttachment{}:      {},
			&volumesv1alpha1.NodeVolumeState{}: {},
			namespaceMetadata():                {Transform: trimNamespace},
		},
	}
}

// trimPod keeps where a pod runs, whether it has ended or any container still runs, and which volumes it has that may
// have to be attached. Of a pod that is gated it also keeps what restricts its nodes.
func trimPod(o any) (any, error) {
	pod, ok := o.(*corev1.Pod)
	if !ok {
		return o, nil
	}
	var volumes []corev1.Volume
	for _, v := range pod.Spec.Volumes {
		switch {
		case v.Ephemeral != nil:
			v.VolumeSource = corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}
		case v.CSI != nil && v.CSI.Driver == volumesv1alpha1.InlineDriver:
			v.VolumeSource = corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{
				Driver: v.CSI.Driver, VolumeAttributes: v.CSI.VolumeAttributes, ReadOnly: v.CSI.ReadOnly,
			}}
		case v.PersistentVolumeClaim == nil && !volume.MigratedInline(&v):
			continue
		}
		volumes = append(volumes, v)
	}
	trimmed := &corev1.Pod{
		ObjectMeta: identity(pod.ObjectMeta),
		Spec:       corev1.PodSpec{NodeName: pod.Spec.NodeName, Volumes: volumes},
		Status:     corev1.PodStatus{Phase: pod.Status.Phase},
	}
	keepLabels(&trimmed.Spec, &pod.Spec)
	if index.Running(&pod.Status) {
		// One is kept for all that run.
		trimmed.Status.ContainerStatuses = []corev1.ContainerStatus{{}}
	}
	if index.Ungated(pod) {
		return trimmed, nil
	}
	trimmed.Spec.SchedulingGates, trimmed.Spec.NodeSelector = pod.Spec.SchedulingGates, pod.Spec.NodeSelector
	if pod.Spec.Affinity != nil && pod.Spec.Affinity.NodeAffinity != nil {
		trimmed.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: pod.Spec.Affinity.NodeAffinity.
				RequiredDuringSchedulingIgnoredDuringExecution,
		}}
	}
	if c := index.Placeable(pod); c != nil {
		trimmed.Status.Conditions = []corev1.PodCondition{*c}
	}
	return trimmed, nil
}

// keepLabels keeps what decides with which SELinux label an inline volume is mounted.
func keepLabels(trimmed, whole *corev1.PodSpec) {
	inline := func(v corev1.Volume) bool { return v.CSI != nil && v.CSI.Driver == volumesv1alpha1.InlineDriver }
	ofPod := ptr.Deref(whole.SecurityContext, corev1.PodSecurityContext{})
	all := slices.Concat(whole.InitContainers, whole.Containers)
	own := func(c corev1.Container) bool {
		return c.SecurityContext != nil && c.SecurityContext.SELinuxOptions != nil
	}
	if !slices.ContainsFunc(whole.Volumes, inline) || ofPod.SELinuxOptions == nil && !slices.ContainsFunc(all, own) {
		return
	}
	trimmed.SecurityContext = &corev1.PodSecurityContext{SELinuxOptions: ofPod.SELinuxOptions,
		SELinuxChangePolicy: ofPod.SELinuxChangePolicy}
	trimmed.InitContainers, trimmed.Containers = labelsOf(whole.InitContainers), labelsOf(whole.Containers)
}

func labelsOf(containers []corev1.Container) (labels []corev1.Container) {
	for _, c := range containers {
		kept := corev1.Container{VolumeMounts: c.VolumeMounts}
		if c.SecurityContext != nil {
			kept.SecurityContext = &corev1.SecurityContext{SELinuxOptions: c.SecurityContext.SELinuxOptions}
		}
		labels = append(labels, kept)
	}
	return labels
}

// trimNode keeps labels, taints, readiness, the annotation on who attaches, and what the kubelet says of volumes, of
// its machine, of its boot and of its operating system.
func trimNode(o any) (any, error) {
	node, ok := o.(*corev1.Node)
	if !ok {
		return o, nil
	}
	trimmed := &corev1.Node{ObjectMeta: identity(node.ObjectMeta)}
	trimmed.Labels = node.Labels
	trimmed.Annotations = only(node.Annotations, ManagedNodeAnnotation)
	trimmed.Spec.Taints, trimmed.Spec.ProviderID = node.Spec.Taints, node.Spec.ProviderID
	trimmed.Status.VolumesAttached = node.Status.VolumesAttached
	trimmed.Status.VolumesInUse = node.Status.VolumesInUse
	info := node.Status.NodeInfo
	trimmed.Status.NodeInfo = corev1.NodeSystemInfo{BootID: info.BootID, OperatingSystem: info.OperatingSystem,
		SystemUUID: info.SystemUUID, MachineID: info.MachineID}
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady {
			// The heartbeat is left out: what does not change does not wake anybody.
			trimmed.Status.Conditions = []corev1.NodeCondition{
				{Type: c.Type, Status: c.Status, LastTransitionTime: c.LastTransitionTime},
			}
		}
	}
	return trimmed, nil
}

// trimPersistentVolume keeps the spec, with the CSI source that a source of old translates to, and the labels of its
// zone. Other labels and annotations are kept only where that fails because of them: the next reader of the volume has
// to come to the same result.
func trimPersistentVolume(o any) (any, error) {
	pv, ok := o.(*corev1.PersistentVolume)
	if !ok {
		return o, nil
	}
	translated, err := volume.Translated(pv)
	trimmed := &corev1.PersistentVolume{ObjectMeta: identity(pv.ObjectMeta), Spec: translated.Spec}
	trimmed.Spec.Capacity = shared(trimmed.Spec.Capacity)
	trimmed.Labels = only(pv.Labels, ZoneLabels...)
	if err != nil {
		trimmed.Labels, trimmed.Annotations = pv.Labels, pv.Annotations
	}
	return trimmed, nil
}

func trimClaim(o any) (any, error) {
	claim, ok := o.(*corev1.PersistentVolumeClaim)
	if !ok {
		return o, nil
	}
	trimmed := &corev1.PersistentVolumeClaim{
		ObjectMeta: identity(claim.ObjectMeta), Spec: claim.Spec, Status: claim.Status,
	}
	trimmed.Spec.Resources.Requests = shared(trimmed.Spec.Resources.Requests)
	trimmed.Status.Capacity = shared(trimmed.Status.Capacity)
	trimmed.Finalizers = claim.Finalizers
	if owner := metav1.GetControllerOf(claim); owner != nil {
		trimmed.OwnerReferences = []metav1.OwnerReference{*owner}
	}
	trimmed.Labels = only(claim.Labels, volumesv1alpha1.RefuseDeletionLabel)
	trimmed.Annotations = only(claim.Annotations, SelectedNodeAnnotation, corev1.BetaStorageClassAnnotation,
		volumesv1alpha1.InUseAnnotation)
	if maps.Equal(trimmed.Annotations, inUse) {
		trimmed.Annotations = inUse
	}
	return trimmed, nil
}

// inUse are the annotations of most claims, which share them.
var inUse = map[string]string{volumesv1alpha1.InUseAnnotation: "true"}

// only returns what all has of the keys; nil if there is nothing.
func only(all map[string]string, keys ...string) (kept map[string]string) {
	for _, key := range keys {
		if value, ok := all[key]; ok {
			if kept == nil {
				kept = map[string]string{}
			}
			kept[key] = value
		}
	}
	return kept
}

// namespaceMetadata is how namespaces are cached: nothing reads their spec or status.
func namespaceMetadata() *metav1.PartialObjectMetadata {
	object := &metav1.PartialObjectMetadata{}
	object.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
	return object
}

// trimNamespace keeps which nodes a namespace may use, and whether the deletion of its claims is refused.
func trimNamespace(o any) (any, error) {
	namespace, ok := o.(*metav1.PartialObjectMetadata)
	if !ok {
		return o, nil
	}
	trimmed := &metav1.PartialObjectMetadata{TypeMeta: namespace.TypeMeta, ObjectMeta: identity(namespace.ObjectMeta)}
	trimmed.Annotations = only(namespace.Annotations, volumesv1alpha1.AllowedNodesAnnotation)
	trimmed.Labels = only(namespace.Labels, volumesv1alpha1.RefuseDeletionLabel)
	return trimmed, nil
}

func trimStorageClass(o any) (any, error) {
	class, ok := o.(*storagev1.StorageClass)
	if !ok {
		return o, nil
	}
	// Parameters may name secrets and are not ours to keep.
	return &storagev1.StorageClass{
		ObjectMeta: identity(class.ObjectMeta), VolumeBindingMode: class.VolumeBindingMode, Provisioner: class.Provisioner,
		AllowedTopologies: class.AllowedTopologies,
	}, nil
}

const (
	// SelectedNodeAnnotation on a claim that waits for its first consumer names the node.
	SelectedNodeAnnotation = "volume.kubernetes.io/selected-node"
	// ManagedNodeAnnotation on a Node, with the value "true", says that its kubelet leaves attaching to a controller.
	ManagedNodeAnnotation = "volumes.kubernetes.io/controller-managed-attach-detach"
)

// ZoneLabels of a PersistentVolume restrict its nodes to those with the same labels.
var ZoneLabels = []string{corev1.LabelTopologyZone, corev1.LabelTopologyRegion, corev1.LabelFailureDomainBetaZone,
	corev1.LabelFailureDomainBetaRegion}

func identity(m metav1.ObjectMeta) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Namespace: m.Namespace, Name: m.Name, UID: m.UID, ResourceVersion: m.ResourceVersion,
		Generation: m.Generation, CreationTimestamp: m.CreationTimestamp, DeletionTimestamp: m.DeletionTimestamp,
	}
}
