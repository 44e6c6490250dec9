/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package kubelet

import (
	"os"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/test/csiloop/faults"
	"github.com/hawser-io/hawser/test/csiloop/ledger"
	"github.com/hawser-io/hawser/test/system"
)

// None of these tests is parallel: each kills or stops a program that all volumes need.

func TestAPodDeletedWithForceKeepsItsVolumeUntilTheKubeletHasReleasedIt(t *testing.T) {
	reportsOften(t)
	v := newVolume(t, corev1.PersistentVolumeFilesystem)
	first := v.pod(nodeA, v.write("kept"))
	runs(t, first)
	id := fault(t, faults.Fault{Method: "NodeUnpublishVolume", Volume: v.handle, Action: faults.Hang, IgnoreCancel: true})

	if err := sys.Client.Delete(limited(t), first, client.GracePeriodSeconds(0)); err != nil {
		t.Fatal(err)
	}
	gone(t, first) // from the API, not from the node
	second := v.pod(nodeB, v.read("kept"))
	v.refused(second)
	struck(t, id)
	if nodes := v.attachedTo(); !slices.Equal(nodes, []string{nodeA}) {
		t.Errorf("volume %s is attached to %v, want %s alone while its kubelet releases it", v.handle, nodes, nodeA)
	}
	removeFault(t, id)
	runs(t, second)
}

// refused waits until an event of a pod reports that another node holds its volume.
func (v *volume) refused(pod *corev1.Pod) {
	v.t.Helper()
	if err := sys.AwaitEvent(limited(v.t), namespace, pod.Name, "FailedAttachVolume"); err != nil {
		dump(v.t)
		v.t.Fatal(err)
	}
}

// attachedTo lists the nodes of the volume's VolumeAttachments.
func (v *volume) attachedTo() []string {
	v.t.Helper()
	var nodes []string
	for _, a := range v.attachments() {
		nodes = append(nodes, a.Spec.NodeName)
	}
	return nodes
}

func (v *volume) attachments() []storagev1.VolumeAttachment {
	v.t.Helper()
	claim := &corev1.PersistentVolumeClaim{}
	if err := sys.Client.Get(limited(v.t), client.ObjectKey{Namespace: namespace, Name: v.claim}, claim); err != nil {
		v.t.Fatal(err)
	}
	var list storagev1.VolumeAttachmentList
	if err := sys.Client.List(limited(v.t), &list); err != nil {
		v.t.Fatal(err)
	}
	return slices.DeleteFunc(list.Items, func(a storagev1.VolumeAttachment) bool {
		return ptr.Deref(a.Spec.Source.PersistentVolumeName, "") != claim.Spec.VolumeName
	})
}

func TestAPodDeletedWithForceKeepsItsVolumeUntilItsStoppedKubeletIsBackAndHasReleasedIt(t *testing.T) {
	reportsOften(t)
	for _, mode := range []corev1.PersistentVolumeMode{corev1.PersistentVolumeFilesystem, corev1.PersistentVolumeBlock} {
		t.Run(string(mode), func(t *testing.T) {
			v := newVolume(t, mode)
			first := v.pod(nodeA, v.write("kept"))
			runs(t, first)
			if err := sys.Kill(system.Kubelet(nodeA)); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { startAgain(t, system.Kubelet(nodeA)) })
			if err := sys.Client.Delete(limited(t), first, client.GracePeriodSeconds(0)); err != nil {
				t.Fatal(err)
			}
			second := v.pod(nodeB, v.read("kept"))
			v.refused(second)
			if nodes := v.attachedTo(); !slices.Equal(nodes, []string{nodeA}) {
				t.Errorf("volume %s is attached to %v, want %s alone while its container runs", v.handle, nodes, nodeA)
			}
			startAgain(t, system.Kubelet(nodeA))
			runs(t, second)
		})
	}
}

// TestAVolumeIsTakenFromAStoppedKubeletOnlyOnceTheNodeIsOutOfService leaves the container running. After the
// detach, its writes do not reach the volume any more.
// TestAVolumeIsTakenFromAStoppedKubeletOnlyOnceTheNodeIsOutOfService: while the agent of the machine is heard, the
// taint is wrong, and it stays void until it is set again.
func TestAVolumeIsTakenFromAStoppedKubeletOnlyOnceTheNodeIsOutOfService(t *testing.T) {
	reportsOften(t)
	v := newVolume(t, corev1.PersistentVolumeFilesystem)
	byForce = append(byForce, v.handle)
	v.meanwhile = []string{"insist", v.path(), "kept"}
	runs(t, v.pod(nodeA, v.write("kept")))
	v.meanwhile = []string{"pause"}
	if err := sys.Kill(system.Kubelet(nodeA)); err != nil {
		t.Fatal(err)
	}
	programs := []string{system.Kubelet(nodeA)}
	contradicted := func() {}
	if os.Getenv(attachVariable) == hawser {
		programs = append(programs, system.Agent(nodeA))
		contradicted = v.taintContradicted
	}
	back := func() {
		for _, name := range programs {
			startAgain(t, name)
		}
	}
	v.comeBack(back, v.takeOver(contradicted))
}

// taintContradicted waits until the agent of node A has contradicted the taint, and checks that this moves nothing. It
// then ends the agent, and sets the taint again.
func (v *volume) taintContradicted() {
	v.t.Helper()
	await := func(done func(*volumesv1alpha1.NodeVolumeState) bool) {
		v.t.Helper()
		if _, err := system.Await(limited(v.t), sys, &volumesv1alpha1.NodeVolumeStateList{},
			client.ObjectKey{Name: nodeA}, done); err != nil {
			v.t.Fatal(err)
		}
	}
	await(func(s *volumesv1alpha1.NodeVolumeState) bool {
		return s != nil && meta.IsStatusConditionFalse(s.Status.Conditions, volumesv1alpha1.ConditionTaintConsistent)
	})
	if nodes := v.attachedTo(); !slices.Equal(nodes, []string{nodeA}) {
		v.t.Errorf("volume %s is attached to %v, want %s alone while the agent there is heard", v.handle, nodes, nodeA)
	}
	if err := sys.Kill(system.Agent(nodeA)); err != nil {
		v.t.Fatal(err)
	}
	outOfService(v.t, nodeA, false)
	await(func(s *volumesv1alpha1.NodeVolumeState) bool { return s != nil && s.Status.Node.OutOfService == nil })
	outOfService(v.t, nodeA, true)
}

// TestAVolumeIsTakenFromAMachineWithoutPowerOnlyOnceTheNodeIsOutOfService ends everything on the node at once.
// A pod that waits there when the machine returns gets the volume.
func TestAVolumeIsTakenFromAMachineWithoutPowerOnlyOnceTheNodeIsOutOfService(t *testing.T) {
	reportsOften(t)
	v := newVolume(t, corev1.PersistentVolumeFilesystem)
	runs(t, v.pod(nodeA, v.write("kept")))
	if err := sys.Kill(system.Machine(nodeA)); err != nil {
		t.Fatal(err)
	}
	if err := ledger.NoteReboot(sys.BackingDir(), nodeA); err != nil {
		t.Fatal(err)
	}
	holder := v.takeOver(func() {})
	outOfService(t, nodeA, false)
	// At its start the kubelet finds its records of the old mount, and a pod that waits for the volume.
	// A controller that evicts may still see the taint.
	v.tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
	waiting := v.pod(nodeA, v.read("KEPT"))
	startMachine(t, nodeA)
	awaitReady(t, nodeA)
	remove(t, holder)
	runs(t, waiting)
}

// takeOver waits until node A is not Ready, and checks that this alone moves nothing. It then puts the node out
// of service, and a pod on node B gets the volume once tainted was called.
func (v *volume) takeOver(tainted func()) *corev1.Pod {
	v.t.Helper()
	second := v.pod(nodeB, v.read("kept"), v.write("KEPT"))
	v.refused(second)
	if _,
		err := awaitNode(v.t, nodeA,
		func(n *corev1.Node) bool { return nodeReady(n) == corev1.ConditionUnknown }); err != nil {
		v.t.Fatal(err)
	}
	if nodes := v.attachedTo(); !slices.Equal(nodes, []string{nodeA}) {
		v.t.Errorf("volume %s is attached to %v, want %s alone before it is out of service", v.handle, nodes, nodeA)
	}
	v.t.Cleanup(func() { outOfService(v.t, nodeA, false) })
	outOfService(v.t, nodeA, true)
	tainted()
	runs(v.t, second)
	return second
}

// comeBack puts node A back into service and waits until nothing of the old attachment is left there. Then it
// gives the volume to a pod there.
func (v *volume) comeBack(start func(), holder *corev1.Pod) {
	v.t.Helper()
	start()
	awaitReady(v.t, nodeA)
	outOfService(v.t, nodeA, false)
	for _, a := range v.attachments() {
		if a.Spec.NodeName != nodeA {
			continue
		}
		if err := sys.AwaitAttachmentGone(limited(v.t), a.Name); err != nil {
			dump(v.t)
			v.t.Fatal(err)
		}
	}
	remove(v.t, holder)
	runs(v.t, v.pod(nodeA, v.read("KEPT")))
}

// outOfService sets or removes the out-of-service taint of a node.
func outOfService(t *testing.T, name string, out bool) {
	t.Helper()
	if err := sys.SetOutOfService(limited(t), name, out); err != nil {
		t.Fatal(err)
	}
}

// awaitReady waits until a node is Ready.
func awaitReady(t *testing.T, name string) {
	t.Helper()
	if _,
		err := awaitNode(t, name, func(n *corev1.Node) bool { return nodeReady(n) == corev1.ConditionTrue }); err != nil {
		t.Fatal(err)
	}
}

func nodeReady(node *corev1.Node) corev1.ConditionStatus {
	if node == nil {
		return ""
	}
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status
		}
	}
	return ""
}

// startMachine starts all processes of a node, as after a power cut.
func startMachine(t *testing.T, node string) {
	t.Helper()
	for _, name := range []string{
		system.Machine(node), system.Containerd(node), system.Kubelet(node), system.NodeDriver(node),
	} {
		startAgain(t, name)
	}
	if os.Getenv(attachVariable) == hawser {
		startAgain(t, system.Agent(node))
	}
}

// startAgain starts a process after it has verified that the earlier one has ended.
func startAgain(t *testing.T, name string) {
	t.Helper()
	if err := sys.StopProcess(limited(t), name); err != nil {
		t.Fatal(err)
	}
	if err := sys.StartAgain(limited(t), name); err != nil {
		t.Fatal(err)
	}
}

func TestAControllerKilledInTheMiddleAttachesAndDetachesAfterwards(t *testing.T) {
	if os.Getenv(attachVariable) != hawser {
		t.Skip("only Hawser's controller is killed")
	}
	reportsOften(t)
	for _, method := range []string{"ControllerPublishVolume", "NodeUnpublishVolume", "ControllerUnpublishVolume"} {
		t.Run(method, func(t *testing.T) {
			filesystem, block := newVolume(t, corev1.PersistentVolumeFilesystem), newVolume(t, corev1.PersistentVolumeBlock)
			volumes := map[string]*volume{nodeA: filesystem, nodeB: block}
			id := fault(t, faults.Fault{Method: method, Action: faults.Hang, IgnoreCancel: true})
			pods := map[*volume]*corev1.Pod{}
			for node, v := range volumes {
				pods[v] = v.pod(node, v.write("kept"))
			}
			if method != "ControllerPublishVolume" {
				for _, pod := range pods {
					runs(t, pod)
					if err := sys.Client.Delete(limited(t), pod); err != nil {
						t.Fatal(err)
					}
				}
			}
			struck(t, id)
			if err := sys.Kill(system.Manager); err != nil {
				t.Fatal(err)
			}
			removeFault(t, id)
			startAgain(t, system.Manager)
			if method == "ControllerPublishVolume" {
				for v, pod := range pods {
					runs(t, pod)
					remove(v.t, pod)
				}
			}
			runs(t, filesystem.pod(nodeB, filesystem.read("kept")))
			runs(t, block.pod(nodeA, block.read("kept")))
		})
	}
}

// fault puts a fault on the driver until the test ends.
func fault(t *testing.T, f faults.Fault) string {
	t.Helper()
	id, err := faults.Add(sys.BackingDir(), f)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { removeFault(t, id) })
	return id
}

// removeFault removes a fault.
func removeFault(t *testing.T, id string) {
	t.Helper()
	if err := faults.Remove(sys.BackingDir(), id); err != nil {
		t.Error(err)
	}
}

// struck waits until a fault has struck.
func struck(t *testing.T, id string) {
	t.Helper()
	if err := faults.WaitHits(limited(t), sys.BackingDir(), id, 1); err != nil {
		dump(t)
		t.Fatal(err)
	}
}
