/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package operator

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
)

// announce sends an event for each condition that became bad, or bad for another reason, and one for a field without
// effect.
func (r *Reconciler) announce(before, after *volumesv1alpha1.VolumeManager) {
	if after.Spec.Verification != nil && (before.Status.ObservedGeneration != after.Generation ||
		before.Status.Version != after.Status.Version) {
		r.Recorder.Eventf(after, nil, corev1.EventTypeWarning, "FieldWithoutEffect", "Reconcile", "spec.verification is "+
			"deprecated and has no effect. Remove it: v1beta1 does not have it")
	}
	bad := map[string]metav1.ConditionStatus{volumesv1alpha1.ConditionDegraded: metav1.ConditionTrue,
		volumesv1alpha1.ConditionMonitored:         metav1.ConditionFalse,
		volumesv1alpha1.ConditionFenceSourcesReady: metav1.ConditionFalse}
	if after.Spec.AttachMode == volumesv1alpha1.AttachReplace {
		bad[volumesv1alpha1.ConditionReplaceCoversNodes] = metav1.ConditionFalse
	}
	for kind, status := range bad {
		now := meta.FindStatusCondition(after.Status.Conditions, kind)
		was := meta.FindStatusCondition(before.Status.Conditions, kind)
		if now == nil || now.Status != status || was != nil && was.Status == status && was.Reason == now.Reason {
			continue
		}
		r.Recorder.Eventf(after, nil, corev1.EventTypeWarning, now.Reason, "Reconcile", "%s", now.Message)
	}
}
