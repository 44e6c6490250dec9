/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package usage

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
)

// InlineVolumes are the volumes of the pod that the agents' CSI driver serves.
func InlineVolumes(pod *corev1.Pod) []corev1.Volume {
	return slices.DeleteFunc(slices.Clone(pod.Spec.Volumes), func(v corev1.Volume) bool {
		return v.CSI == nil || v.CSI.Driver != volumesv1alpha1.InlineDriver
	})
}

// Running are the pods that may have an inline volume mounted, by namespace and name. The kubelet unmounts such a
// volume only through the agent.
func Running(pods []corev1.Pod) []string {
	var names []string
	for i := range pods {
		pod := &pods[i]
		ended := pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
		if pod.Spec.NodeName == "" || ended || len(InlineVolumes(pod)) == 0 {
			continue
		}
		names = append(names, fmt.Sprintf("pod %s/%s on node %s", pod.Namespace, pod.Name, pod.Spec.NodeName))
	}
	slices.Sort(names)
	return names
}

// PodsMessage counts the pods and names some.
func PodsMessage(names []string) string {
	list := names[:min(len(names), mostNames)]
	if more := len(names) - len(list); more > 0 {
		list = append(slices.Clone(list), fmt.Sprintf("and %d more", more))
	}
	return fmt.Sprintf("%d pod(s) with inline volumes, which the kubelet unmounts only through Hawser: %s", len(names),
		strings.Join(list, "; "))
}
