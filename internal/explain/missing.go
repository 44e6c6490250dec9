/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package explain

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/hawser-io/hawser/internal/explain/catalog"
	"github.com/hawser-io/hawser/internal/explain/facts"
)

// unlessFound names the object that a pod lacks, and makes a wait of it for one that exists by now.
func (b *builder) unlessFound(a about, e facts.Event) about {
	ref, known := facts.NotFoundIn(e.Message, b.f.Pod.Ref.Namespace)
	if !known {
		return a
	}
	if err, read := b.f.Missing[ref]; read && err == nil {
		a.reason, a.detail = catalog.Outdated, join(a.reason, a.detail)+"; but "+ref.String()+" exists"
		a.says = ref.String() + " exists now, and the kubelet tries again within about two minutes."
		return a
	}
	a.says = ref.String() + " does not exist, and a volume of the pod needs it."
	return a
}

// filled names what fills the only node that a pod may use: the limit, and the pods whose volumes count.
func (b *builder) filled(a about, node string) about {
	a.says = "Node " + node + " has as many volumes as it can take, and the pod may use no other node."
	if a.places == nil {
		a.places = map[string]string{}
	}
	a.places["node"] = node
	n, _ := b.f.NodeOf(node)
	for i := range b.f.Volumes {
		v := &b.f.Volumes[i]
		driver := v.Driver
		if v.Class.Found {
			driver = cmp.Or(driver, v.Class.Value.Provisioner)
		}
		limit, count := limitOf(&n, driver), b.f.Filling.Count(driver)
		if limit < 0 || count < limit {
			continue
		}
		a.says = fmt.Sprintf("Node %s has as many volumes of driver %s as it can take (%d), and the pod may use no other "+
			"node.", node, driver, limit)
		if users := b.f.Filling.UsersOf(driver); len(users) > 0 {
			a.detail = "used there by pods " + strings.Join(users[:min(len(users), mostFilling)], ", ") +
				more(len(users)-mostFilling) + "; " + a.detail
		}
		break
	}
	return a
}

// mostFilling is how many of the pods are named whose volumes fill a node: nearly all that there are.
const mostFilling = 20

func more(n int) string {
	if n <= 0 {
		return ""
	}
	return fmt.Sprintf(" and %d more", n)
}

// limitOf is how many volumes of a driver a node can take; negative if that is not known.
func limitOf(n *facts.Node, driver string) int {
	if !n.CSINode.Found {
		return -1
	}
	for i := range n.CSINode.Value.Spec.Drivers {
		d := &n.CSINode.Value.Spec.Drivers[i]
		if limit := LimitOf(d); d.Name == driver && limit != nil {
			return int(*limit)
		}
	}
	return -1
}

// LimitOf is how many volumes of a driver a node can take; nil if its CSINode does not have that.
func LimitOf(d *storagev1.CSINodeDriver) *int32 {
	if d.Allocatable == nil {
		return nil
	}
	return d.Allocatable.Count
}

// ended names the pods that an advised out-of-service taint ends on a node; empty if none is advised, or if they are
// not known.
func (b *builder) ended(commands []string, node string) string {
	advised := slices.ContainsFunc(commands, func(c string) bool { return strings.Contains(c, "out-of-service=") })
	n, known := b.f.NodeOf(node)
	if !advised || !known {
		return ""
	}
	var names []string
	for i := range n.Pods.Items {
		if pod := &n.Pods.Items[i]; !facts.Ended(pod) && !slices.ContainsFunc(pod.Spec.Tolerations, tolerates) {
			names = append(names, pod.Namespace+"/"+pod.Name)
		}
	}
	if len(names) == 0 {
		return ""
	}
	return fmt.Sprintf(" Pods that it ends: %d, %s.", len(names), shortList(names))
}

// tolerates reports whether a pod may stay on a node that is out of service.
func tolerates(t corev1.Toleration) bool {
	return (t.Effect == "" || t.Effect == corev1.TaintEffectNoExecute) && t.TolerationSeconds == nil &&
		(t.Key == "" && t.Operator == corev1.TolerationOpExists || t.Key == corev1.TaintNodeOutOfService)
}
