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

// Directories are the directories of intents that the agents have yet to remove, by node: the kubelet asks for that
// after the pods have ended. A node that is gone has none.
func Directories(states []volumesv1alpha1.NodeVolumeState, nodeExists func(string) bool) []string {
	var left []string
	for i := range states {
		s := &states[i]
		if n := s.Status.Summary; n != nil && n.Directories > 0 && nodeExists(s.Name) {
			left = append(left, fmt.Sprintf("%d on node %s", n.Directories, s.Name))
		}
	}
	slices.Sort(left)
	return left
}

// DirectoriesMessage counts the nodes and names some.
func DirectoriesMessage(left []string) string {
	return fmt.Sprintf("directories of intents on %d node(s), which the agents remove once the kubelet has ended their "+
		"pods: %s", len(left), Some(left))
}

// PodsMessage counts the pods and names some.
func PodsMessage(names []string) string {
	return fmt.Sprintf("%d pod(s) with inline volumes, which the kubelet unmounts only through Hawser: %s", len(names),
		Some(names))
}

// Some are the first of the names, and the count of the others.
func Some(names []string) string {
	list := names[:min(len(names), mostNames)]
	if more := len(names) - len(list); more > 0 {
		list = append(slices.Clone(list), fmt.Sprintf("and %d more", more))
	}
	return strings.Join(list, "; ")
}
