/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package preflight

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// distribution of Kubernetes, by what the API server and the Nodes show. docs/preflight.md names the sources.
type distribution struct {
	Name string
	// managed: the provider runs the control plane, and lets no one set the flag --controllers.
	managed bool
	// flag is where --controllers of kube-controller-manager is set.
	flag string
	// list is the distribution's own value of --controllers, where it is the same in all versions.
	list string
	// kubelet is the kubelet's directory, if it is another than /var/lib/kubelet.
	kubelet string
	is      func(*Facts) bool
}

// distributions in the order in which they are recognised: one that builds on another comes first.
var distributions = []distribution{
	{Name: "EKS", managed: true, is: func(f *Facts) bool {
		return f.labelled("eks.amazonaws.com/") || f.versioned("-eks-") && f.provided("aws://")
	}},
	{Name: "GKE", managed: true, is: func(f *Facts) bool {
		return f.labelled("cloud.google.com/gke-") || f.versioned("-gke.")
	}},
	{Name: "AKS", managed: true, is: func(f *Facts) bool { return f.labelled("kubernetes.azure.com/cluster") }},
	{Name: "OpenShift", managed: true, is: func(f *Facts) bool { return f.labelled("node.openshift.io/os_id") }},
	{Name: "RKE2", is: func(f *Facts) bool { return f.versioned("+rke2") },
		flag: "kube-controller-manager-arg in /etc/rancher/rke2/config.yaml of each server; then restart rke2-server"},
	{Name: "k3s", is: func(f *Facts) bool { return f.versioned("+k3s") },
		flag: "kube-controller-manager-arg in /etc/rancher/k3s/config.yaml of each server; then restart k3s. The log of " +
			"k3s has the present value after \"Running kube-controller-manager\""},
	{Name: "k0s", kubelet: "/var/lib/k0s/kubelet", is: func(f *Facts) bool { return f.versioned("+k0s") },
		flag: "spec.controllerManager.extraArgs in k0s.yaml of each controller; then restart k0s"},
	{Name: "MicroK8s", kubelet: "/var/snap/microk8s/common/var/lib/kubelet",
		is:   func(f *Facts) bool { return f.labelled("microk8s.io/") },
		flag: "/var/snap/microk8s/current/args/kube-controller-manager on each node; then restart MicroK8s"},
	{Name: "Talos", list: "*,tokencleaner", is: func(f *Facts) bool {
		return f.node(func(n *corev1.Node) bool { return strings.HasPrefix(n.Status.NodeInfo.OSImage, "Talos") })
	}, flag: "cluster.controllerManager.extraArgs in the machine configuration of each control plane node (since Talos " +
		"1.14 extraArgs of the document KubeControllerManagerConfig)"},
	{Name: "kubeadm", list: "*,bootstrapsigner,tokencleaner", is: (*Facts).byKubeadm,
		flag: "/etc/kubernetes/manifests/kube-controller-manager.yaml on each control plane node, and for later upgrades " +
			"controllerManager.extraArgs in the ConfigMap kube-system/kubeadm-config"},
}

// unknownDistribution runs kube-controller-manager in a way that was not recognised.
var unknownDistribution = distribution{flag: "the flags of every kube-controller-manager"}

func distributionOf(f *Facts) distribution {
	if i := slices.IndexFunc(distributions, func(d distribution) bool { return d.is(f) }); i >= 0 {
		return distributions[i]
	}
	return unknownDistribution
}

// String is the name for a sentence.
func (d *distribution) String() string {
	if d.Name == "" {
		return "a distribution that was not recognised"
	}
	return d.Name
}

func (f *Facts) node(has func(*corev1.Node) bool) bool {
	return slices.ContainsFunc(f.Nodes.Items, has)
}

// labelled reports whether a node has a label whose key begins so.
func (f *Facts) labelled(prefix string) bool {
	return f.node(func(n *corev1.Node) bool {
		for key := range n.Labels {
			if strings.HasPrefix(key, prefix) {
				return true
			}
		}
		return false
	})
}

// versioned reports whether the API server or a kubelet has such a part in its version.
func (f *Facts) versioned(part string) bool {
	return strings.Contains(f.Version, part) || f.node(func(n *corev1.Node) bool {
		return strings.Contains(n.Status.NodeInfo.KubeletVersion, part)
	})
}

func (f *Facts) provided(prefix string) bool {
	return f.node(func(n *corev1.Node) bool { return strings.HasPrefix(n.Spec.ProviderID, prefix) })
}

// byKubeadm goes by the annotation of its Nodes, which newer versions leave out, and that of its API servers.
func (f *Facts) byKubeadm() bool {
	const (
		node = "kubeadm.alpha.kubernetes.io/cri-socket"
		pod  = "kubeadm.kubernetes.io/kube-apiserver.advertise-address.endpoint"
	)
	return f.node(func(n *corev1.Node) bool { return n.Annotations[node] != "" }) ||
		slices.ContainsFunc(f.ControlPlane.Items, func(p *corev1.Pod) bool { return p.Annotations[pod] != "" })
}
