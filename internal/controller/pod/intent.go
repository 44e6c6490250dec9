/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package pod

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
)

// newIntent is the intent for one volume of pod from this source.
func newIntent(
	pod *corev1.Pod, volume string, source volumesv1alpha1.VolumeSource, forceAfter time.Duration,
) *volumesv1alpha1.VolumeAttachmentIntent {
	intent := &volumesv1alpha1.VolumeAttachmentIntent{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: pod.Namespace, Name: intentName(pod, volume),
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

// Lengths of an object's name and of the hash in an intent's.
const (
	nameLength = 253
	hashLength = 16
)

// intentName is made of the pod's name, the volume's, and a hash of the pod's UID and the volume's name, which alone
// would do.
func intentName(pod *corev1.Pod, volume string) string {
	h := sha256.Sum256([]byte(string(pod.UID) + "/" + volume))
	name := pod.Name + "-" + volume
	name = name[:min(len(name), nameLength-hashLength-1)]
	// No part of a name ends with either of these.
	return strings.TrimRight(name, "-.") + "-" + hex.EncodeToString(h[:])[:hashLength]
}
