/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package manager

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/test/apiserver"
)

// TestTheSchedulerBindsGatedPodsOnlyWhereTheirVolumesCanGo runs the scheduler of Kubernetes beside the manager.
func TestTheSchedulerBindsGatedPodsOnlyWhereTheirVolumesCanGo(t *testing.T) {
	w := newWorld(t)
	w.kubectl(t)("", "apply", "-k", "rbac")
	w.kubectl(t)("", "apply", "-k", "admission")
	w.manage(t, managerOptions{})
	for name, zone := range map[string]string{"node-a": "a", "node-b": "b", "node-c": "b"} {
		w.schedulable(t, name, zone)
	}
	w.gatesPods(t)
	w.schedule(t)

	// Node node-b has little room, so the scheduler prefers the others: only the volume leads there.
	w.fill(t, "node-b")
	for i := range 5 {
		name := fmt.Sprintf("zonal-%d", i)
		w.volumeIn(t, name, "b", corev1.ReadWriteMany)
		if node := w.bound(t, w.ofClaims(t, name, name)); node == "node-a" {
			t.Errorf("pod %s was bound to node-a in zone a, want zone b, where its volume is", name)
		}
	}

	// node-c is full, and the scheduler does not know it.
	w.fullFor(t, "node-c", "small.example.com")
	for i := range 3 {
		name := fmt.Sprintf("elsewhere-%d", i)
		w.volumeOf(t, name, "small.example.com", "b")
		if node := w.bound(t, w.ofClaims(t, name, name)); node != "node-b" {
			t.Errorf("pod %s was bound to %s, want node-b: node-c is full, and node-a is in another zone", name, node)
		}
	}

	w.intent(t, "pinned", "node-a", "none")
	pinned := gatedPod("pinned", volumesv1alpha1.AttributeIntent, "pinned")
	w.create(t, pinned)
	if node := w.bound(t, pinned); node != "node-a" {
		t.Errorf("pod pinned was bound to %s, want node-a, the node of its intent", node)
	}

	// A volume that is held elsewhere keeps its pod from the scheduler.
	w.volumeIn(t, "held", "b")
	holder := w.intent(t, "holder", "node-b", "held")
	held := w.ofClaims(t, "held", "held")
	w.waits(t, held, volumesv1alpha1.ReasonVolumeInUse, "held by node node-b: intent default/holder")
	w.delete(t, holder)
	if node := w.bound(t, held); node == "node-a" {
		t.Errorf("pod held was bound to node-a, want a node of zone b")
	}
}

// schedulable makes a Node that pods can be bound to.
func (w *world) schedulable(t *testing.T, name, zone string) {
	t.Helper()
	w.bareNode(t, name)
	w.labelNode(t, name, corev1.LabelTopologyZone, zone)
	node := nodeNamed(name)
	w.changeStatus(t, node, func() {
		node.Status.Allocatable = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("8"),
			corev1.ResourceMemory: resource.MustParse("8Gi"), corev1.ResourcePods: resource.MustParse("100")}
		node.Status.Capacity = node.Status.Allocatable
		node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	})
	w.change(t, node, func() { node.Spec.Taints = nil })
}

// fill has a pod on the node that requests most of its resources.
func (w *world) fill(t *testing.T, node string) {
	t.Helper()
	pod := gatedPod("fills-"+node, "", "")
	pod.Spec.Volumes, pod.Spec.SchedulingGates, pod.Labels = nil, nil, nil
	pod.Spec.NodeName = node
	pod.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("7"),
		corev1.ResourceMemory: resource.MustParse("7Gi")}
	w.create(t, pod)
}

// fullFor has the node reach its limit for a driver.
func (w *world) fullFor(t *testing.T, node, driver string) {
	t.Helper()
	limits := csiNode(node)
	w.change(t, limits, func() {
		limits.Spec.Drivers = append(limits.Spec.Drivers, storagev1.CSINodeDriver{Name: driver, NodeID: node,
			Allocatable: &storagev1.VolumeNodeResources{Count: ptr.To(int32(1))}})
	})
	va := attachmentOf("fills", node)
	va.Spec = storagev1.VolumeAttachmentSpec{Attacher: driver, NodeName: node,
		Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: ptr.To("another")}}
	w.create(t, va)
}

// volumeOf makes a claim that is bound to a volume of the driver and the zone.
func (w *world) volumeOf(t *testing.T, name, driver, zone string) {
	t.Helper()
	claim := newClaim(name, volumeOptions{})
	w.create(t, claim)
	pv := zonal(newVolume(claim, volumeOptions{}), zone)
	pv.Spec.CSI.Driver = driver
	w.create(t, pv)
	w.bind(t, claim)
}

// bound waits until the scheduler has bound the pod, and returns its node.
func (w *world) bound(t *testing.T, pod *corev1.Pod) string {
	t.Helper()
	until(t, w, pod, "pod "+pod.Name+" is bound", func(p *corev1.Pod) bool { return exists(p) && p.Spec.NodeName != "" })
	return pod.Spec.NodeName
}

// schedule runs kube-scheduler until the test ends.
func (w *world) schedule(t *testing.T) {
	t.Helper()
	program, err := filepath.Abs(filepath.Join(os.Getenv(apiserver.AssetsVariable), "kube-scheduler"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(program); err != nil {
		t.Skipf("LEFT OUT (needs kube-scheduler in %s; make test builds it)", apiserver.AssetsVariable)
	}
	kubeconfig := apiserver.Kubeconfig(t, w.config)
	scheduler := exec.CommandContext(t.Context(), program, "--kubeconfig="+kubeconfig, "--leader-elect=false",
		"--secure-port=0", "--authentication-kubeconfig="+kubeconfig, "--authorization-kubeconfig="+kubeconfig)
	var output bytes.Buffer
	scheduler.Stdout, scheduler.Stderr = &output, &output
	if err := scheduler.Start(); err != nil {
		t.Fatalf("starting kube-scheduler: %v", err)
	}
	var ended sync.WaitGroup
	ended.Go(func() { _ = scheduler.Wait() })
	t.Cleanup(func() {
		_ = scheduler.Process.Kill()
		ended.Wait()
		if t.Failed() {
			t.Logf("kube-scheduler:\n%s", output.String())
		}
	})
}
