/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package pod

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
)

// inlineClaim is the claim that an inline volume names; empty where the volume names none. The agent refuses one with
// another attribute, except for those that the kubelet replaces.
func inlineClaim(v *corev1.Volume) string {
	if v.CSI == nil || v.CSI.Driver != volumesv1alpha1.InlineDriver {
		return ""
	}
	for key := range v.CSI.VolumeAttributes {
		if key != volumesv1alpha1.AttributeClaim && !strings.HasPrefix(key, volumesv1alpha1.KubeletAttributes) {
			return ""
		}
	}
	return v.CSI.VolumeAttributes[volumesv1alpha1.AttributeClaim]
}

// inlineVolumes are the claims that inline volumes of the pod name, each once. A claim is read-only for the pod if all
// its volumes name it so; the agent binds each as it asks.
func (c *Controller) inlineVolumes(pod *corev1.Pod) []podVolume {
	var volumes []podVolume
	known := map[string]int{}
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		claim := inlineClaim(v)
		if claim == "" {
			continue
		}
		readOnly := ptr.Deref(v.CSI.ReadOnly, false)
		if at, ok := known[claim]; ok {
			spec := &volumes[at].intent.Spec
			spec.ReadOnly = spec.ReadOnly && readOnly
			continue
		}
		known[claim] = len(volumes)
		volumes = append(volumes,
			podVolume{pod: pod, name: v.Name, inline: true, intent: c.inlineIntent(pod, claim, readOnly)})
	}
	return volumes
}

// inlineIntent has the finalizer from the beginning, so it cannot be gone before the agent has released the volume.
func (c *Controller) inlineIntent(pod *corev1.Pod, claim string,
	readOnly bool) *volumesv1alpha1.VolumeAttachmentIntent {
	source := volumesv1alpha1.VolumeSource{
		PersistentVolumeClaim: &volumesv1alpha1.PersistentVolumeClaimSource{ClaimName: claim},
	}
	intent := newIntent(pod, volumesv1alpha1.InlineIntentName(pod.Name, pod.UID, claim), source, c.ForceDetachAfter)
	intent.Finalizers = []string{volumesv1alpha1.ReleaseFinalizer}
	intent.Spec.Publisher, intent.Spec.DesiredState = volumesv1alpha1.PublisherAgent, volumesv1alpha1.DesiredPublished
	intent.Spec.ReadOnly, intent.Spec.Mount = readOnly, mountOf(pod, claim)
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
