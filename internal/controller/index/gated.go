/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package index

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
)

// Inline returns the claim or the intent that an inline volume names, and false for any other volume.
func Inline(v *corev1.Volume) (claim, intent string, ok bool) {
	if v.CSI == nil || v.CSI.Driver != volumesv1alpha1.InlineDriver {
		return "", "", false
	}
	claim, ofClaim := v.CSI.VolumeAttributes[volumesv1alpha1.AttributeClaim]
	intent, ofIntent := v.CSI.VolumeAttributes[volumesv1alpha1.AttributeIntent]
	return claim, intent, ofClaim || ofIntent
}

// Ungated reports whether the pod does not have the gate of its placement.
func Ungated(pod *corev1.Pod) bool {
	return !slices.ContainsFunc(pod.Spec.SchedulingGates, func(g corev1.PodSchedulingGate) bool {
		return g.Name == volumesv1alpha1.PlacementGate
	})
}

// Placeable returns the pod's condition of this type, or nil.
func Placeable(pod *corev1.Pod) *corev1.PodCondition {
	for i := range pod.Status.Conditions {
		if c := &pod.Status.Conditions[i]; c.Type == volumesv1alpha1.ConditionPlaceable {
			return c
		}
	}
	return nil
}

func podInlineClaims(o client.Object) []string {
	return inlineKeys(o.(*corev1.Pod), func(claim, _ string) string { return claim })
}

// podInlineIntents has gated pods only: nothing else waits for an intent to come.
func podInlineIntents(o client.Object) []string {
	pod := o.(*corev1.Pod)
	if Ungated(pod) {
		return nil
	}
	return inlineKeys(pod, func(_, intent string) string { return intent })
}

func inlineKeys(pod *corev1.Pod, name func(claim, intent string) string) []string {
	if Terminated(pod) {
		return nil
	}
	var keys []string
	for i := range pod.Spec.Volumes {
		claim, intent, _ := Inline(&pod.Spec.Volumes[i])
		if named := name(claim, intent); named != "" {
			keys = append(keys, ClaimKey(pod.Namespace, named))
		}
	}
	return keys
}

func podGated(o client.Object) []string {
	pod := o.(*corev1.Pod)
	if Ungated(pod) || Terminated(pod) {
		return nil
	}
	if c := Placeable(pod); c != nil {
		return []string{AnyReason, c.Reason}
	}
	return []string{AnyReason}
}
