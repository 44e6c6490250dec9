/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package pod

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
)

// newIntent is the intent of that name for a volume of pod from this source.
func newIntent(
	pod *corev1.Pod, name string, source volumesv1alpha1.VolumeSource, forceAfter time.Duration,
) *volumesv1alpha1.VolumeAttachmentIntent {
	intent := &volumesv1alpha1.VolumeAttachmentIntent{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: pod.Namespace, Name: name,
			Labels: map[string]string{volumesv1alpha1.PodUIDLabel: string(pod.UID)},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: corev1.SchemeGroupVersion.String(), Kind: "Pod", Name: pod.Name, UID: pod.UID,
				Controller: ptr.To(true), BlockOwnerDeletion: ptr.To(false),
			}},
		},
		Spec: volumesv1alpha1.VolumeAttachmentIntentSpec{
			NodeName: pod.Spec.NodeName, Volume: source,
			DesiredState: volumesv1alpha1.DesiredAttached, Publisher: volumesv1alpha1.PublisherKubelet,
		},
	}
	if forceAfter > 0 {
		intent.Spec.DetachPolicy = &volumesv1alpha1.DetachPolicy{ForceAfter: metav1.Duration{Duration: forceAfter}}
		intent.Finalizers = []string{volumesv1alpha1.ReleaseFinalizer}
	}
	return intent
}
