/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package doctor

import (
	"cmp"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/hawser-io/hawser/internal/explain"
	"github.com/hawser-io/hawser/internal/explain/catalog"
	"github.com/hawser-io/hawser/internal/explain/facts"
)

// selinuxConflicts finds pods that wait on a node where another pod uses the same volume with another label, and the
// driver mounts volumes with a label. Where both run, the node has no SELinux.
func selinuxConflicts(x *examination) {
	for _, pv := range x.c.Volumes.Items {
		if csi := x.translated(pv.Name).Spec.CSI; csi == nil || !x.mountsLabels(csi.Driver) {
			continue
		}
		claim := x.claimOf(pv)
		users := living(x.podsOf[keyOf(claim)])
		for _, pod := range users {
			if explain.PodSettled(pod) || pod.Spec.NodeName == "" || !x.old(startOf(pod), podWaits) {
				continue
			}
			i := slices.IndexFunc(users, func(other *corev1.Pod) bool {
				return other.Spec.NodeName == pod.Spec.NodeName && explain.PodSettled(other) &&
					differ(labelOf(pod, claim.Name), labelOf(other, claim.Name))
			})
			if i < 0 {
				continue
			}
			x.once[selinux+" "+string(pod.UID)] = true
			f := x.find(about{severity: Outage, reason: catalog.SELinuxConflict, object: refOf(facts.KindPod, pod),
				claim: claim, since: startOf(pod), detail: fmt.Sprintf("%s has level %s, and pod %s on node %s has %s",
					pod.Name, labelOf(pod, claim.Name).Level, users[i].Name, pod.Spec.NodeName,
					labelOf(users[i], claim.Name).Level)})
			f.Waiting, f.Waiters = 1, []facts.Ref{f.Object}
		}
	}
}

// selinux is what is remembered of a pod that selinuxConflicts has found.
const selinux = "selinux"

func (x *examination) mountsLabels(driver string) bool {
	d := of(x.drivers, driver)
	return d != nil && ptr.Deref(d.Spec.SELinuxMount, false)
}

// labelOf is the SELinux label with which a pod mounts a claim; nil if it has none, if its containers have several, or
// if the pod does not want the mount to have it.
func labelOf(pod *corev1.Pod, claim string) *corev1.SELinuxOptions {
	var of *corev1.SELinuxOptions
	if s := pod.Spec.SecurityContext; s != nil {
		if ptr.Deref(s.SELinuxChangePolicy, "") == corev1.SELinuxChangePolicyRecursive {
			return nil
		}
		of = s.SELinuxOptions
	}
	var label *corev1.SELinuxOptions
	for i := range pod.Spec.Containers {
		c := &pod.Spec.Containers[i]
		if !slices.ContainsFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return isOf(pod, m.Name, claim) }) {
			continue
		}
		own := of
		if c.SecurityContext != nil {
			own = cmp.Or(c.SecurityContext.SELinuxOptions, of)
		}
		if own == nil || label != nil && *label != *own {
			return nil
		}
		label = own
	}
	return label
}

// isOf reports whether a volume of a pod is of the claim.
func isOf(pod *corev1.Pod, name, claim string) bool {
	return slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool {
		of, ok := facts.ClaimOf(pod, &v)
		return ok && v.Name == name && of == claim
	})
}

// differ reports whether two labels cannot be those of one mount. A part that is not set does not differ.
func differ(a, b *corev1.SELinuxOptions) bool {
	if a == nil || b == nil {
		return false
	}
	part := func(x, y string) bool { return x != "" && y != "" && x != y }
	return part(a.User, b.User) || part(a.Role, b.Role) || part(a.Type, b.Type) || part(a.Level, b.Level)
}
