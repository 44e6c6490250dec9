/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package preflight

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/hawser-io/hawser/internal/explain/catalog"
	"github.com/hawser-io/hawser/internal/explain/facts"
	"github.com/hawser-io/hawser/internal/install"
)

// agentRunsOn reports whether an agent of the release runs on the node.
func agentRunsOn(n *corev1.Node, r *Release) bool { return install.AgentRunsOn(n, r.Agent.Spec) }

func nodes(x *examination) {
	var without []string
	for _, n := range x.Nodes.Items {
		if !x.hasAgent(n) {
			without = append(without, n.Name)
		}
	}
	all := len(x.Nodes.Items)
	switch {
	case len(without) == all:
		x.find(catalog.AgentsOnNoNode, facts.Ref{Kind: facts.KindNode, Name: "(all)"}, "%d nodes", all)
	case len(without) > 0:
		x.ok("an agent runs on %d of %d; not on %s, where in attach mode Replace nothing attaches volumes of pods",
			all-len(without), all, few(without))
	default:
		x.ok("an agent runs on all %d", all)
	}
}

// workload is what has a template of pods.
type workload struct {
	ref      facts.Ref
	labels   map[string]string
	template *corev1.PodTemplateSpec
	ready    int32
}

// workloads are all but Hawser's own.
func (x *examination) workloads() []workload {
	var all []workload
	add := func(kind string, meta metav1.ObjectMeta, template *corev1.PodTemplateSpec, ready int32) {
		if meta.Namespace == x.System && meta.Labels["app.kubernetes.io/name"] == "hawser" {
			return
		}
		all = append(all, workload{facts.Ref{Kind: kind, Namespace: meta.Namespace, Name: meta.Name}, meta.Labels, template,
			ready})
	}
	for _, d := range x.DaemonSets.Items {
		add(KindDaemonSet, d.ObjectMeta, &d.Spec.Template, d.Status.NumberReady)
	}
	for _, d := range x.Deployments.Items {
		add(KindDeployment, d.ObjectMeta, &d.Spec.Template, d.Status.ReadyReplicas)
	}
	for _, s := range x.StatefulSets.Items {
		add(KindStatefulSet, s.ObjectMeta, &s.Spec.Template, s.Status.ReadyReplicas)
	}
	return all
}

func hostPorts(x *examination) {
	ours := x.Release.hostPorts()
	var taken []string
	var first facts.Ref
	for _, w := range x.workloads() {
		for _, c := range slices.Concat(w.template.Spec.InitContainers, w.template.Spec.Containers) {
			for _, p := range c.Ports {
				port := p.HostPort
				if w.template.Spec.HostNetwork {
					port = p.ContainerPort
				}
				if name, known := ours[port]; known {
					taken = append(taken, fmt.Sprintf("port %d (%s) by %s", port, name, w.ref))
					first = w.ref
				}
			}
		}
	}
	if len(taken) > 0 {
		x.find(catalog.HostPortTaken, first, "%s", few(taken))
		return
	}
	x.ok("no workload uses %s of the hosts, as the agents do. Programs beside the cluster cannot be seen",
		list(slices.Sorted(maps.Keys(ours))))
}

func list[T any](values []T) string {
	return strings.Join(strings.Fields(strings.Trim(fmt.Sprint(values), "[]")), ", ")
}

// defaultKubelet is that of the kubelet and of the manifests.
const defaultKubelet = "/var/lib/kubelet"

// registry is where drivers register, below the kubelet's directory.
const registry = "plugins_registry"

func kubeletDirectory(x *examination) {
	seen := map[string][]string{}
	for _, d := range x.DaemonSets.Items {
		for _, v := range d.Spec.Template.Spec.Volumes {
			if v.HostPath == nil {
				continue
			}
			if p := path.Clean(v.HostPath.Path); path.Base(p) == registry {
				seen[path.Dir(p)] = append(seen[path.Dir(p)], d.Namespace+"/"+d.Name)
			}
		}
	}
	roots := slices.Sorted(maps.Keys(seen))
	own := x.distribution.kubelet
	switch {
	case len(roots) == 1 && roots[0] == defaultKubelet:
		x.ok("%s, by DaemonSet %s. If it is a symbolic link, nothing has to be set", defaultKubelet,
			few(seen[defaultKubelet]))
	case len(roots) == 1:
		x.find(catalog.KubeletDirectory, daemonSet(seen[roots[0]][0]), "the node plugins register in %s", roots[0])
		x.report.InitialSpec["kubeletRoot"] = roots[0]
	case len(roots) > 1:
		x.find(catalog.KubeletDirectory, daemonSet(seen[roots[0]][0]), "the node plugins register in different "+
			"directories: %s. They may be one, by a symbolic link", strings.Join(roots, ", "))
	case own != "":
		x.find(catalog.KubeletDirectory, apiServer, "no node plugin shows it; by default it is %s on %s", own,
			x.distribution.Name)
		x.report.InitialSpec["kubeletRoot"] = own
	default:
		x.unknown(KindKubeletFolder, unseen("no DaemonSet of a node plugin shows it; see --root-dir of the kubelets"))
	}
}

func daemonSet(name string) facts.Ref {
	namespace, name, _ := strings.Cut(name, "/")
	return facts.Ref{Kind: KindDaemonSet, Namespace: namespace, Name: name}
}

// withSELinux begin the names of OS images that have SELinux by default; permissive counts for Hawser too.
var withSELinux = []string{"AlmaLinux", "Amazon Linux", "Bottlerocket", "CentOS", "Fedora", "Flatcar", "Oracle Linux",
	"Red Hat", "Rocky", "SUSE Linux Enterprise Micro", "SUSE Linux Micro", "Talos", "openSUSE MicroOS"}

func seLinux(x *examination) {
	images := map[string]string{}
	for _, n := range x.Nodes.Items {
		image := n.Status.NodeInfo.OSImage
		if slices.ContainsFunc(withSELinux, func(name string) bool { return strings.HasPrefix(image, name) }) {
			images[image] = n.Name
		}
	}
	var labelling []string
	for _, d := range x.Drivers.Items {
		if ptr.Deref(d.Spec.SELinuxMount, false) {
			labelling = append(labelling, d.Name)
		}
	}
	found := slices.Sorted(maps.Keys(images))
	switch {
	case len(found) > 0 && len(labelling) > 0:
		x.find(catalog.SELinuxLimits, facts.Ref{Kind: facts.KindCSIDriver, Name: labelling[0]},
			"seLinuxMount: %s; OS images: %s", few(labelling), few(found))
	case len(labelling) > 0:
		x.ok("%s have seLinuxMount, and no OS image of the nodes is known for SELinux; whether a node has it cannot be seen",
			few(labelling))
	case len(found) > 0:
		x.ok("no CSIDriver has seLinuxMount; these OS images have SELinux, as a rule: %s", few(found))
	default:
		x.ok("no CSIDriver has seLinuxMount; whether a node has SELinux cannot be seen")
	}
}
