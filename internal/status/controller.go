/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package status

import (
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
)

// SetReadyByController is SetReady for the cluster controller. It does not change an intent that an agent carries out,
// once the volume is resolved and attached: only the agent knows if it is Ready. Only the agent replaces
// AgentUnreachable too. Before that the agent has nothing to do, and the controller's own conditions are the reason.
func SetReadyByController(intent *volumesv1alpha1.VolumeAttachmentIntent) bool {
	if CarriedOutByAgent(intent) && (isTrue(intent, volumesv1alpha1.ConditionResolved) &&
		isTrue(intent, volumesv1alpha1.ConditionAttached) || Unreachable(intent)) {
		return false
	}
	return SetReady(intent)
}

// SetUnreachable sets Ready to Unknown for an agent that does not report.
func SetUnreachable(intent *volumesv1alpha1.VolumeAttachmentIntent, message string) bool {
	return Set(intent, volumesv1alpha1.ConditionReady, metav1.ConditionUnknown,
		volumesv1alpha1.ReasonAgentUnreachable, message)
}

// Unreachable reports whether Ready is Unknown because the agent does not report.
func Unreachable(intent *volumesv1alpha1.VolumeAttachmentIntent) bool {
	c := meta.FindStatusCondition(intent.Status.Conditions, volumesv1alpha1.ConditionReady)
	return c != nil && c.Reason == volumesv1alpha1.ReasonAgentUnreachable
}

func isTrue(intent *volumesv1alpha1.VolumeAttachmentIntent, conditionType string) bool {
	return meta.IsStatusConditionTrue(intent.Status.Conditions, conditionType)
}
