/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package pod

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/selinux"
)

// mountOf is how the containers that mount one of the inline volumes of a claim need it mounted: with their SELinux
// label, if it is one and has a level. Without a level the container runtime chooses one when the pod starts.
func mountOf(pod *corev1.Pod, claim string) *volumesv1alpha1.MountSpec {
	ofPod := ptr.Deref(pod.Spec.SecurityContext, corev1.PodSecurityContext{})
	if ptr.Deref(ofPod.SELinuxChangePolicy, "") == corev1.SELinuxChangePolicyRecursive {
		return nil
	}
	var label *corev1.SELinuxOptions
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		if !slices.ContainsFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return names(pod, m.Name, claim) }) {
			continue
		}
		own := cmp.Or(ptr.Deref(c.SecurityContext, corev1.SecurityContext{}).SELinuxOptions, ofPod.SELinuxOptions)
		if own == nil || !selinux.Valid(own) || label != nil && *label != *own {
			return nil
		}
		label = own
	}
	if label == nil {
		return nil
	}
	return &volumesv1alpha1.MountSpec{SELinuxOptions: label.DeepCopy()}
}

// names reports whether the inline volume of that name names the claim.
func names(pod *corev1.Pod, volume, claim string) bool {
	return slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool {
		return v.Name == volume && inlineClaim(&v) == claim
	})
}
