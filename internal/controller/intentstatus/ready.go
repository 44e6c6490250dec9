/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package intentstatus

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/status"
)

// setReady computes Ready. It does not change an intent that an agent carries out, once the volume is resolved and
// attached: only the agent knows if it is Ready. Only the agent replaces AgentUnreachable too. Before that the agent
// has nothing to do, and the controller's own conditions are the reason.
func setReady(intent *volumesv1alpha1.VolumeAttachmentIntent) {
	attached := isTrue(intent, volumesv1alpha1.ConditionResolved) && isTrue(intent, volumesv1alpha1.ConditionAttached)
	if !status.CarriedOutByAgent(intent) || !attached && !unreachable(intent) {
		status.SetReady(intent)
	}
}

// setLeaving sets what a deleted intent waits for, if its agent cannot: a namespace may wait for the intent. No agent
// writes the status of an intent that the kubelet publishes; such an intent waits while its policy may be needed.
func setLeaving(intent *volumesv1alpha1.VolumeAttachmentIntent, whyUnreachable string) {
	kubelet := intent.Spec.Publisher == volumesv1alpha1.PublisherKubelet && status.AwaitsRelease(intent)
	switch {
	case intent.Status.UniqueVolumeName == "":
	case whyUnreachable != "" && (kubelet || status.CarriedOutByAgent(intent)):
		setUnreachable(intent, whyUnreachable+
			". The intent is being deleted and waits until the volume is released: by the agent"+otherwise(intent))
	case kubelet:
		status.Set(intent, volumesv1alpha1.ConditionReady, metav1.ConditionFalse, volumesv1alpha1.ReasonReleasing,
			"the intent is being deleted and waits until the kubelet of node "+intent.Spec.NodeName+
				" has let go of the volume and the agent has seen that"+otherwise(intent))
	}
}

// otherwise is what else releases the volume of a deleted intent.
func otherwise(intent *volumesv1alpha1.VolumeAttachmentIntent) string {
	text := ""
	if policy := intent.Spec.DetachPolicy; policy != nil {
		text = ", " + policy.ForceAfter.Duration.String() + " after the node was found not Ready"
	}
	return text + ", after the Node was deleted, or with the taint " + corev1.TaintNodeOutOfService +
		" on it if the machine is off"
}

// setUnreachable sets Ready to Unknown for an agent that does not report.
func setUnreachable(intent *volumesv1alpha1.VolumeAttachmentIntent, message string) {
	status.Set(intent, volumesv1alpha1.ConditionReady, metav1.ConditionUnknown,
		volumesv1alpha1.ReasonAgentUnreachable, message)
}

// unreachable reports whether Ready is Unknown because the agent does not report.
func unreachable(intent *volumesv1alpha1.VolumeAttachmentIntent) bool {
	c := meta.FindStatusCondition(intent.Status.Conditions, volumesv1alpha1.ConditionReady)
	return c != nil && c.Reason == volumesv1alpha1.ReasonAgentUnreachable
}

func isTrue(intent *volumesv1alpha1.VolumeAttachmentIntent, conditionType string) bool {
	return meta.IsStatusConditionTrue(intent.Status.Conditions, conditionType)
}
