/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package inline

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hawser-io/hawser/internal/agent/record"
)

// mirrorAnnotation has the UID that the kubelet gives a static pod. The pod in the API has another one.
const mirrorAnnotation = corev1.MirrorPodAnnotationKey

// isPod reports whether the pod of the API is the one that the kubelet starts.
func isPod(pod *corev1.Pod, wanted record.PodReference) bool {
	return pod.UID == wanted.UID || types.UID(pod.Annotations[mirrorAnnotation]) == wanted.UID
}

// examine returns why the pod cannot have a directory as its volume of that name; empty if it can. Otherwise deaf are
// the containers that do not see later changes in the directory.
func examine(pod *corev1.Pod, volume string, readOnly bool) (problem string, deaf []string) {
	switch {
	case pod.Spec.HostUsers != nil && !*pod.Spec.HostUsers:
		return "hostUsers is false: a directory of intents cannot map the owners of volumes that appear later", nil
	case !readOnly && pod.Spec.SecurityContext != nil && pod.Spec.SecurityContext.FSGroup != nil:
		return "the kubelet would give the files of every volume in the directory to the pod's fsGroup; take fsGroup out " +
			"of the pod and set mount.fsGroup in the intents, or set readOnly in the volume", nil
	}
	for name, m := range mountsOf(pod, volume) {
		if m.SubPath != "" || m.SubPathExpr != "" {
			return fmt.Sprintf("container %s mounts a subPath of it, which does not see volumes that appear later", name), nil
		}
		if m.ReadOnly && !readOnly {
			return fmt.Sprintf("container %s mounts it with readOnly, which leaves the volumes in it writable; set readOnly in "+
				"the volume instead, for all containers", name), nil
		}
		if m.MountPropagation == nil || *m.MountPropagation == corev1.MountPropagationNone {
			deaf = append(deaf, name)
		}
	}
	slices.Sort(deaf)
	return "", slices.Compact(deaf)
}

// mountsOf yields the mounts of the pod's volume with the names of their containers.
func mountsOf(pod *corev1.Pod, volume string) func(yield func(string, corev1.VolumeMount) bool) {
	containers := slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers)
	for _, c := range pod.Spec.EphemeralContainers {
		containers = append(containers, corev1.Container(c.EphemeralContainerCommon))
	}
	return func(yield func(string, corev1.VolumeMount) bool) {
		for i := range containers {
			for _, m := range containers[i].VolumeMounts {
				if m.Name == volume && !yield(containers[i].Name, m) {
					return
				}
			}
		}
	}
}
