/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package pod

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
)

// inlineClaim is the claim that an inline volume names; empty where the volume names none. One that names an intent too
// is refused by the agent.
func inlineClaim(v *corev1.Volume) string {
	if v.CSI == nil || v.CSI.Driver != volumesv1alpha1.InlineDriver || len(v.CSI.VolumeAttributes) != 1 {
		return ""
	}
	return v.CSI.VolumeAttributes[volumesv1alpha1.AttributeClaim]
}

// inlineVolumes are the inline volumes of the pod that name a claim. Each gets an intent of its own, also where several
// name the same claim: the agent finds it by the name of the volume.
func (c *Controller) inlineVolumes(pod *corev1.Pod) []podVolume {
	var volumes []podVolume
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		if claim := inlineClaim(v); claim != "" {
			volumes = append(volumes, podVolume{pod: pod, name: v.Name, inline: true, intent: c.inlineIntent(pod, v, claim)})
		}
	}
	return volumes
}

// inlineIntent has the finalizer from the beginning, so it cannot be gone before the agent has released the volume.
func (c *Controller) inlineIntent(pod *corev1.Pod, v *corev1.Volume,
	claim string) *volumesv1alpha1.VolumeAttachmentIntent {
	source := volumesv1alpha1.VolumeSource{
		PersistentVolumeClaim: &volumesv1alpha1.PersistentVolumeClaimSource{ClaimName: claim},
	}
	intent := newIntent(pod, v.Name, source, c.ForceDetachAfter)
	intent.Finalizers = []string{volumesv1alpha1.ReleaseFinalizer}
	intent.Spec.Publisher, intent.Spec.DesiredState = volumesv1alpha1.PublisherAgent, volumesv1alpha1.DesiredPublished
	intent.Spec.ReadOnly = ptr.Deref(v.CSI.ReadOnly, false)
	return intent
}

// publishedByAgent: the intent was made for an inline volume.
func publishedByAgent(intent *volumesv1alpha1.VolumeAttachmentIntent) bool {
	return intent.Spec.Publisher != volumesv1alpha1.PublisherKubelet
}

// concerns reports whether the controller may have something to do for the pod.
func (c *Controller) concerns(o client.Object) bool {
	pod, ok := o.(*corev1.Pod)
	if !ok || c.Enabled {
		return true
	}
	for i := range pod.Spec.Volumes {
		if inlineClaim(&pod.Spec.Volumes[i]) != "" {
			return true
		}
	}
	return false
}
