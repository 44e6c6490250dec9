/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package operator

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/operator/render"
	"github.com/hawser-io/hawser/internal/operator/usage"
)

// Kinds are those that the operator applies on one cluster.
type Kinds struct {
	// watched have a label by which the cache finds the operator's objects. All clusters have them.
	watched []schema.GroupVersionKind
	// namespaced is true for each watched kind with a namespace.
	namespaced map[schema.GroupVersionKind]bool
	// mutating is true if the API server has MutatingAdmissionPolicy; it does not before Kubernetes 1.36.
	mutating bool
}

// FindKinds asks the API server for the kinds. What it serves without a CustomResourceDefinition does not change while
// it runs.
func FindKinds(mapper meta.RESTMapper) (Kinds, error) {
	all, err := render.Kinds()
	if err != nil {
		return Kinds{}, err
	}
	found := Kinds{namespaced: map[schema.GroupVersionKind]bool{}}
	for _, kind := range all {
		if unwatched(kind) || slices.Contains(render.Monitoring, kind) {
			continue
		}
		mapping, err := mapper.RESTMapping(kind.GroupKind(), kind.Version)
		if meta.IsNoMatchError(err) && (kind == render.MutatingPolicy || kind == render.MutatingPolicyBinding) {
			continue
		}
		if err != nil {
			return Kinds{}, fmt.Errorf("asking the API server for the kind %s: %w", kind.Kind, err)
		}
		found.watched = append(found.watched, kind)
		found.namespaced[kind] = mapping.Scope.Name() == meta.RESTScopeNameNamespace
		found.mutating = found.mutating || kind == render.MutatingPolicy
	}
	return found, nil
}

// unwatched kinds are applied once by a process, the Secret also after its account. To watch Secrets would be to read
// them. The namespace and its quota are the operator's home.
func unwatched(kind schema.GroupVersionKind) bool {
	return kind.Group == "" && slices.Contains([]string{"Secret", "Namespace", "ResourceQuota"}, kind.Kind)
}

// CacheOptions restrict the cache to the operator's own objects, and to what it reads of the others.
func (k Kinds) CacheOptions(namespace string) cache.Options {
	own := labels.SelectorFromSet(labels.Set{render.ManagedByLabel: render.ManagedBy})
	byObject := map[client.Object]cache.ByObject{
		&corev1.Pod{}: {Namespaces: map[string]cache.Config{
			namespace: {LabelSelector: labels.SelectorFromSet(labels.Set{"app.kubernetes.io/name": "hawser"})}}},
	}
	for _, kind := range k.watched {
		if k.namespaced[kind] {
			byObject[newObject(kind)] = cache.ByObject{Namespaces: map[string]cache.Config{namespace: {LabelSelector: own}}}
		} else {
			byObject[newObject(kind)] = cache.ByObject{Label: own}
		}
	}
	return cache.Options{
		ByObject:          byObject,
		DefaultNamespaces: map[string]cache.Config{namespace: {}},
		DefaultTransform:  strip,
	}
}

func newObject(kind schema.GroupVersionKind) *unstructured.Unstructured {
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(kind)
	return object
}

// strip removes what the operator does not read of the objects of others, which may be many.
func strip(in any) (any, error) {
	switch object := in.(type) {
	case *corev1.Node:
		object.Spec = corev1.NodeSpec{Taints: object.Spec.Taints}
		object.Status = corev1.NodeStatus{Conditions: object.Status.Conditions}
		object.ManagedFields = nil
	case *corev1.Pod:
		object.Spec = corev1.PodSpec{NodeName: object.Spec.NodeName, Affinity: object.Spec.Affinity}
		object.ManagedFields = nil
	case *volumesv1alpha1.NodeVolumeState:
		stripState(object)
	case *volumesv1alpha1.VolumeAttachmentIntent:
		stripIntent(object)
	case *metav1.PartialObjectMetadata:
		object.ManagedFields, object.Annotations = nil, nil
	}
	return in, nil
}

func stripState(state *volumesv1alpha1.NodeVolumeState) {
	state.ManagedFields = nil
	spec, status := volumesv1alpha1.NodeVolumeStateSpec{}, volumesv1alpha1.NodeVolumeStateStatus{}
	for i := range state.Spec.Attachments {
		a := &state.Spec.Attachments[i]
		spec.Attachments = append(spec.Attachments, volumesv1alpha1.NodeAttachment{VolumeName: a.VolumeName,
			AttachmentUID: a.AttachmentUID, State: a.State, DetachedTime: a.DetachedTime, DetachError: a.DetachError})
	}
	for i := range state.Status.Volumes {
		v := &state.Status.Volumes[i]
		volume := volumesv1alpha1.NodeVolume{VolumeName: v.VolumeName, AttachmentUID: v.AttachmentUID, InUse: v.InUse,
			Machine: v.Machine, PublishedBy: v.PublishedBy, PublicationCount: v.PublicationCount}
		for _, p := range v.Publications {
			volume.Publications = append(volume.Publications, volumesv1alpha1.Publication{Orphan: p.Orphan})
		}
		status.Volumes = append(status.Volumes, volume)
	}
	if s := state.Status.Summary; s != nil && s.Directories > 0 {
		status.Summary = &volumesv1alpha1.NodeVolumeSummary{Directories: s.Directories}
	}
	state.Spec, state.Status = spec, status
}

// stripPod keeps what a removal reads of the pods of all namespaces.
func stripPod(in any) (any, error) {
	pod, ok := in.(*corev1.Pod)
	if !ok {
		return in, nil
	}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID,
			ResourceVersion: pod.ResourceVersion, DeletionTimestamp: pod.DeletionTimestamp},
		Spec: corev1.PodSpec{NodeName: pod.Spec.NodeName, Volumes: usage.InlineVolumes(pod),
			SchedulingGates: pod.Spec.SchedulingGates},
		Status: corev1.PodStatus{Phase: pod.Status.Phase},
	}, nil
}

func stripIntent(intent *volumesv1alpha1.VolumeAttachmentIntent) {
	intent.ManagedFields, intent.Annotations = nil, nil
	intent.Spec = volumesv1alpha1.VolumeAttachmentIntentSpec{NodeName: intent.Spec.NodeName,
		Publisher: intent.Spec.Publisher}
	status := volumesv1alpha1.VolumeAttachmentIntentStatus{UniqueVolumeName: intent.Status.UniqueVolumeName}
	if ready := meta.FindStatusCondition(intent.Status.Conditions, volumesv1alpha1.ConditionReady); ready != nil {
		status.Conditions = []metav1.Condition{{Type: ready.Type, Reason: ready.Reason}}
	}
	intent.Status = status
}
