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

// SetReadyByController is SetReady as far as the cluster controller may go: for an intent that an agent
// carries out it never says True, because only the agent knows, and leaves AgentUnreachable to the agent to take
// back. While the volume is not resolved or not attached there is nothing to carry out yet, and the
// controller's own conditions say why.
func SetReadyByController(intent *volumesv1alpha1.VolumeAttachmentIntent) bool {
	if CarriedOutByAgent(intent) && (isTrue(intent, volumesv1alpha1.ConditionResolved) && isTrue(intent, volumesv1alpha1.ConditionAttached) || Unreachable(intent)) {
		return false
	}
	return SetReady(intent)
}

// SetUnreachable says, in the agent's stead, that nothing is known of the intent any more.
func SetUnreachable(intent *volumesv1alpha1.VolumeAttachmentIntent, message string) bool {
	return Set(intent, volumesv1alpha1.ConditionReady, metav1.ConditionUnknown, volumesv1alpha1.ReasonAgentUnreachable, message)
}

// Unreachable says whether Ready is Unknown because the agent is not heard of.
func Unreachable(intent *volumesv1alpha1.VolumeAttachmentIntent) bool {
	c := meta.FindStatusCondition(intent.Status.Conditions, volumesv1alpha1.ConditionReady)
	return c != nil && c.Reason == volumesv1alpha1.ReasonAgentUnreachable
}

func isTrue(intent *volumesv1alpha1.VolumeAttachmentIntent, conditionType string) bool {
	return meta.IsStatusConditionTrue(intent.Status.Conditions, conditionType)
}
