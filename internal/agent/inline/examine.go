/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package inline

import (
	"fmt"
	"path"
	"slices"
	"strings"

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

// sandboxed reports whether the pod seems to run in a sandbox, such as gVisor's or a virtual machine of Kata
// Containers, which do not pass mounts of the node on to containers. It is recognized by an overhead, which a
// RuntimeClass has for what a sandbox needs itself, and by the customary names. A sandbox of another name without an
// overhead is not noticed: the handler is a name too, and the kernel shows nothing of a pod that has not started.
func sandboxed(pod *corev1.Pod) bool {
	class := pod.Spec.RuntimeClassName
	return class != nil && (len(pod.Spec.Overhead) > 0 ||
		slices.ContainsFunc([]string{"gvisor", "runsc", "kata"}, func(name string) bool {
			return strings.Contains(*class, name)
		}))
}

// unreached returns why an unmount in the directory may leave mounts of the pod behind, so that the kernel's answer to
// it does not cover all uses; empty if it covers them. A container may be added to the pod later, none is taken away.
func unreached(pod *corev1.Pod, volume string) (because string) {
	if sandboxed(pod) {
		return fmt.Sprintf("runtime class %s runs the pod in a sandbox, which may have mounts of its own",
			*pod.Spec.RuntimeClassName)
	}
	for _, c := range containersOf(pod) {
		if mayMount(c.SecurityContext) {
			return fmt.Sprintf("container %s may mount: it is privileged or has CAP_SYS_ADMIN", c.Name)
		}
	}
	for name, m := range mountsOf(pod, volume) {
		if m.MountPropagation == nil || *m.MountPropagation == corev1.MountPropagationNone {
			return fmt.Sprintf("container %s mounts volume %s without mountPropagation HostToContainer", name, volume)
		}
	}
	for _, c := range containersOf(pod) {
		if inner := within(c, volume); inner != "" {
			return fmt.Sprintf("container %s has %s mounted in volume %s", c.Name, inner, volume)
		}
	}
	return ""
}

// mayMount reports whether a container with these rights may change its mounts.
func mayMount(s *corev1.SecurityContext) bool {
	switch {
	case s == nil:
		return false
	case s.Privileged != nil && *s.Privileged:
		return true
	}
	return s.Capabilities != nil && slices.ContainsFunc(s.Capabilities.Add, func(c corev1.Capability) bool {
		name := strings.TrimPrefix(strings.ToUpper(string(c)), "CAP_")
		return name == "SYS_ADMIN" || name == "ALL"
	})
}

// within returns a path below the volume at which the container has something else mounted. The kernel does not ask a
// mount that has another one on it whether it is in use.
func within(c corev1.Container, volume string) string {
	paths := []string{c.TerminationMessagePath}
	for _, m := range c.VolumeMounts {
		paths = append(paths, m.MountPath)
	}
	for _, d := range c.VolumeDevices {
		paths = append(paths, d.DevicePath)
	}
	for _, m := range c.VolumeMounts {
		prefix := strings.TrimSuffix(path.Clean("/"+m.MountPath), "/") + "/"
		for _, p := range paths {
			if m.Name == volume && strings.HasPrefix(path.Clean("/"+p), prefix) {
				return p
			}
		}
	}
	return ""
}

// containersOf are all containers of the pod.
func containersOf(pod *corev1.Pod) []corev1.Container {
	containers := slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers)
	for _, c := range pod.Spec.EphemeralContainers {
		containers = append(containers, corev1.Container(c.EphemeralContainerCommon))
	}
	return containers
}

// mountsOf yields the mounts of the pod's volume with the names of their containers.
func mountsOf(pod *corev1.Pod, volume string) func(yield func(string, corev1.VolumeMount) bool) {
	containers := containersOf(pod)
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
