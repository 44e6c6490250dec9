/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package liveness

import (
	corev1 "k8s.io/api/core/v1"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/cached"
)

// NeverHadAgent reports whether no agent ever ran on the node: by its nature none can, and none has reported. nvs may
// be nil. What the DaemonSet of the agents selects does not count, nor that no report is known: a restored API is of
// the past, and a node may have been selected, and have used volumes, since.
func NeverHadAgent(node *corev1.Node, nvs *volumesv1alpha1.NodeVolumeState) bool {
	return takesNoAgent(node) && (nvs == nil || nvs.Status.Protocol.Reports == 0 && nvs.Status.Protocol.Session == 0 &&
		len(nvs.Spec.Attachments) == 0 && len(nvs.Status.Volumes) == 0)
}

// takesNoAgent: it does not run Linux, by what its kubelet reports, or it starts no pods of a DaemonSet. A virtual
// kubelet mounts nothing by itself, so it does not leave attaching to a controller: a kubelet that does is a machine,
// whatever its labels are.
func takesNoAgent(node *corev1.Node) bool {
	if os := node.Status.NodeInfo.OperatingSystem; os != "" && os != "linux" {
		return true
	}
	if node.Labels["eks.amazonaws.com/compute-type"] == "fargate" {
		return true
	}
	virtual := node.Labels["type"] == "virtual-kubelet" || node.Labels[corev1.LabelInstanceTypeStable] == "eklet"
	return virtual && node.Annotations[cached.ManagedNodeAnnotation] != "true"
}
