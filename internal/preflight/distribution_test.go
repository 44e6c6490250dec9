/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package preflight

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/hawser-io/hawser/internal/explain/catalog"
)

// on makes the cluster one of another distribution: the version of its API server, and what its nodes have.
func on(version string, mark func(*corev1.Node), pods ...*corev1.Pod) func(*Facts) {
	return func(f *Facts) {
		f.Version, f.ControlPlane.Items = version, pods
		for _, n := range f.Nodes.Items {
			delete(n.Annotations, "kubeadm.alpha.kubernetes.io/cri-socket")
			n.Status.NodeInfo.KubeletVersion = version
			if mark != nil {
				mark(n)
			}
		}
	}
}

func label(key, value string) func(*corev1.Node) {
	return func(n *corev1.Node) { n.Labels[key] = value }
}

func TestEachDistributionIsRecognisedAndItsFlagIsNamed(t *testing.T) {
	for _, tt := range []struct {
		want   string
		change func(*Facts)
		// replace is true where the mode is possible, and text what is said of the flag.
		replace bool
		text    []string
	}{
		{"kubeadm", func(*Facts) {}, true, []string{
			"--controllers=*,bootstrapsigner,tokencleaner,-persistentvolume-attach-detach-controller",
			"/etc/kubernetes/manifests/kube-controller-manager.yaml", "kubeadm-config"}},
		{"kubeadm", on("v1.37.1", nil, func() *corev1.Pod { // newer versions do not annotate the nodes
			pod := static("kube-apiserver")
			pod.Annotations = map[string]string{
				"kubeadm.kubernetes.io/kube-apiserver.advertise-address.endpoint": "10.0.0.1:6443"}
			return pod
		}()), true, []string{"bootstrapsigner"}},
		{"k3s", on("v1.36.2+k3s1", label("node.kubernetes.io/instance-type", "k3s")), true,
			[]string{"add -persistentvolume-attach-detach-controller to the value",
				"kube-controller-manager-arg in /etc/rancher/k3s/config.yaml", "restart k3s"}},
		{"RKE2", on("v1.36.2+rke2r1", nil, static("kube-controller-manager",
			"--controllers=*,tokencleaner,-service,-route,-cloud-node-lifecycle")), true,
			[]string{"-cloud-node-lifecycle,-persistentvolume-attach-detach-controller", "/etc/rancher/rke2/config.yaml"}},
		{"Talos", on("v1.36.0", func(n *corev1.Node) { n.Status.NodeInfo.OSImage = "Talos (v1.13.0)" },
			static("/usr/local/bin/kube-controller-manager", "--controllers=*,tokencleaner")), true,
			[]string{"cluster.controllerManager.extraArgs", "*,tokencleaner,-persistentvolume"}},
		{"k0s", on("v1.36.2+k0s", nil), true, []string{"spec.controllerManager.extraArgs"}},
		{"MicroK8s", on("v1.36.2", label("microk8s.io/cluster", "true")), true,
			[]string{"/var/snap/microk8s/current/args/kube-controller-manager"}},
		{"EKS", on("v1.36.2-eks-1a2b3c4", label("eks.amazonaws.com/nodegroup", "a")), false, []string{"EKS runs"}},
		{"EKS", on("v1.36.2-eks-1a2b3c4", func(n *corev1.Node) { n.Spec.ProviderID = "aws:///eu-west-1a/i-1" }), false, nil},
		{"GKE", on("v1.36.2-gke.1234000", label("cloud.google.com/gke-nodepool", "a")), false, []string{"GKE runs"}},
		{"AKS", on("v1.36.2", label("kubernetes.azure.com/cluster", "MC_group")), false, []string{"AKS runs"}},
		{"OpenShift", on("v1.36.2", label("node.openshift.io/os_id", "rhcos")), false, []string{"not possible"}},
		{"", on("v1.37.0", func(n *corev1.Node) { n.Spec.ProviderID = "aws:///eu-west-1a/i-1" }), true, nil},
	} {
		f := sound(t)
		tt.change(f)
		r := Examine(f, noon)
		if r.Distribution != tt.want || r.AttachMode.Replace != tt.replace || r.AttachMode.Mode != "Coexist" {
			t.Errorf("%s: recognised as %q with %+v, want the mode Coexist, Replace possible %t", tt.want, r.Distribution,
				r.AttachMode, tt.replace)
		}
		for _, text := range tt.text {
			if !strings.Contains(r.AttachMode.Text, text) {
				t.Errorf("%s: %q, want %q in it", tt.want, r.AttachMode.Text, text)
			}
		}
		onItsPage(t, r)
	}
}

// onItsPage holds the page of a cluster, where there is one, to what the report ends with.
func onItsPage(t *testing.T, r *Report) {
	t.Helper()
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "clusters", strings.ToLower(r.Distribution)+".md"))
	switch {
	case errors.Is(err, fs.ErrNotExist) && slices.Contains([]string{"k0s", "MicroK8s", ""}, r.Distribution):
	case err != nil:
		t.Error(err)
	case !strings.Contains(string(page), "\n    Attach mode: "+r.AttachMode.Mode+". "+r.AttachMode.Text+".\n"):
		t.Errorf("the page of %s has not what preflight ends with: Attach mode: %s. %s", r.Distribution,
			r.AttachMode.Mode, r.AttachMode.Text)
	}
}

func TestWhetherTheControllerRunsIsSeenByFlagsOrByWhatItWrote(t *testing.T) {
	attached := func(f *Facts) {
		f.ControlPlane.Items = nil
		f.Nodes.Items[0].Status.VolumesAttached = []corev1.AttachedVolume{{Name: "kubernetes.io/csi/d^h"}}
	}
	for name, tt := range map[string]struct {
		change func(*Facts)
		want   string
	}{
		"flags":           {func(*Facts) {}, "on, by the flags of kube-controller-manager-node-a"},
		"no flag is set":  {func(f *Facts) { f.ControlPlane.Items[0] = static("kube-controller-manager") }, "by the flags"},
		"attached":        {attached, "list 1 attached volumes"},
		"managed":         {on("v1.36.2-gke.1", nil), "GKE runs it"},
		"k3s, and a node": {func(f *Facts) { on("v1.36.2+k3s1", nil)(f); attached(f) }, "list 1 attached volumes"},
	} {
		f := sound(t)
		tt.change(f)
		if c := named(Examine(f, noon), "attach/detach controller"); c == nil || !strings.Contains(c.Text, tt.want) {
			t.Errorf("%s: %+v, want OK with %q", name, c, tt.want)
		}
	}
}

func TestAValueOfControllersIsReadAsTheControllerManagerReadsIt(t *testing.T) {
	for value, want := range map[string]bool{"": true, "*": true, "*,-attachdetach": false, "tokencleaner": false,
		"*,-" + attachDetachController: false, attachDetachController: true, "-attachdetach,*": false,
		"*,bootstrapsigner": true, attachDetachController + ",-" + attachDetachController: true} {
		if got := enabled(value); got != want {
			t.Errorf("--controllers=%s: enabled %t, want %t", value, got, want)
		}
	}
	for _, words := range [][]string{{"--controllers=a,b"}, {"--controllers", "a,b"},
		{"--controllers=a", "--controllers=b"}} {
		if got := valueOf(words, "--controllers"); got != "a,b" {
			t.Errorf("the value in %q is %q, want a,b", words, got)
		}
	}
}

func TestWithoutTheControllerTheModeIsReplace(t *testing.T) {
	f := sound(t)
	f.ControlPlane.Items[0] = static("kube-controller-manager", "--controllers=*,-"+attachDetachController)
	if r := Examine(f, noon); r.AttachMode.Mode != "Replace" || r.Checks[0].Reason != catalog.AttachDetachOff {
		t.Errorf("mode %+v, found %v; want Replace, and that the controller is off", r.AttachMode, codesOf(r))
	}
}

func TestTheKubeletsDirectoryIsThatOfTheDistributionWhereNoPluginShowsIt(t *testing.T) {
	for _, tt := range []struct {
		change func(*Facts)
		want   any
	}{
		{on("v1.36.2+k0s", nil), "/var/lib/k0s/kubelet"},
		{on("v1.36.2", label("microk8s.io/cluster", "true")), "/var/snap/microk8s/common/var/lib/kubelet"},
		{on("v1.36.2+k3s1", nil), nil},
	} {
		f := sound(t)
		f.DaemonSets.Items = nil
		tt.change(f)
		if r := Examine(f, noon); r.InitialSpec["kubeletRoot"] != tt.want {
			t.Errorf("%s: kubeletRoot is %v, want %v", r.Distribution, r.InitialSpec["kubeletRoot"], tt.want)
		}
	}
}
