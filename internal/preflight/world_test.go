/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package preflight

import (
	"slices"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"

	"github.com/hawser-io/hawser/internal/explain/facts"
)

var noon = time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC)

const disk = "disk.example.com"

// released is read once: the manifests are many, and no test changes them.
var released = sync.OnceValues(Load)

// sound is a kubeadm cluster with one driver in which nothing is in the way.
func sound(t *testing.T) *Facts {
	t.Helper()
	release, err := released()
	if err != nil {
		t.Fatal(err)
	}
	f := &Facts{Release: release, System: "hawser-system", Version: "v1.37.1", Errs: map[string]error{},
		Served: map[schema.GroupVersionKind]bool{}, NamespaceTrial: &Trial{}, Rights: Needed("hawser-system")}
	for _, gvk := range release.Kinds {
		f.Served[gvk] = true
	}
	for _, p := range release.Policies {
		f.PolicyTrials = append(f.PolicyTrials, Trial{Object: facts.Ref{Kind: p.GetKind(), Name: p.GetName()}})
	}
	for i := range f.Rights {
		f.Rights[i].Allowed = true
	}
	f.Endpoints.Items = []*discoveryv1.EndpointSlice{{Ports: []discoveryv1.EndpointPort{{Port: ptr.To(int32(6443))}}}}
	f.Nodes.Items = []*corev1.Node{node("node-a"), node("node-b")}
	for _, n := range f.Nodes.Items {
		n.Annotations["kubeadm.alpha.kubernetes.io/cri-socket"] = "unix:///run/containerd/containerd.sock"
		n.Status.NodeInfo.OSImage = "Ubuntu 24.04.1 LTS"
		f.CSINodes.Items = append(f.CSINodes.Items, &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: n.Name},
			Spec: storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{{Name: disk}}}})
	}
	f.Drivers.Items = []*storagev1.CSIDriver{{ObjectMeta: metav1.ObjectMeta{Name: disk}}}
	f.Volumes.Items = []*corev1.PersistentVolume{volumeOf(corev1.PersistentVolumeSource{
		CSI: &corev1.CSIPersistentVolumeSource{Driver: disk}})}
	f.Attachments.Items = []facts.Attachment{{Driver: disk, Node: "node-a", Attached: true}}
	f.DaemonSets.Items = []*appsv1.DaemonSet{plugin("/var/lib/kubelet/plugins_registry/")}
	f.ControlPlane.Items = []*corev1.Pod{static("kube-controller-manager", "--controllers=*,bootstrapsigner,tokencleaner"),
		static("kube-apiserver", "--enable-admission-plugins=NodeRestriction")}
	f.Attachers.Items = []*coordinationv1.Lease{lease("external-attacher-leader-disk-example-com", noon)}
	return f
}

func node(name string) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelOSStable: "linux"},
		Annotations: map[string]string{managedAttach: "true"}}}
}

func volumeOf(source corev1.PersistentVolumeSource) *corev1.PersistentVolume {
	return &corev1.PersistentVolume{Spec: corev1.PersistentVolumeSpec{PersistentVolumeSource: source}}
}

// plugin is the node plugin of a driver.
func plugin(registry string) *appsv1.DaemonSet {
	d := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "storage", Name: "disk-node"}}
	d.Spec.Template.Spec.Volumes = []corev1.Volume{{Name: "registration", VolumeSource: corev1.VolumeSource{
		HostPath: &corev1.HostPathVolumeSource{Path: registry}}}}
	return d
}

// static is a pod of the control plane.
func static(program string, flags ...string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: program + "-node-a"},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Command: append([]string{program}, flags...)}}}}
}

func lease(name string, renewed time.Time) *coordinationv1.Lease {
	return &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "storage", Name: name},
		Spec: coordinationv1.LeaseSpec{RenewTime: &metav1.MicroTime{Time: renewed}}}
}

// codesOf are the codes that a report found, in their order.
func codesOf(r *Report) []string {
	var codes []string
	for i := range r.Checks {
		if r.Checks[i].Finding != nil {
			codes = append(codes, r.Checks[i].Reason)
		}
	}
	return codes
}

// named is the check of a name; nil for none.
func named(r *Report, name string) *Check {
	i := slices.IndexFunc(r.Checks, func(c Check) bool { return c.Name == name })
	if i < 0 {
		return nil
	}
	return &r.Checks[i]
}
