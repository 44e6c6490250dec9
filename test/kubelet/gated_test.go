/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package kubelet

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/test/system"
)

// lateClass is the StorageClass of claims that wait for their first consumer.
const lateClass = "loop-late"

// schedules runs the scheduler of Kubernetes until the test ends.
func schedules(t *testing.T) {
	t.Helper()
	if err := sys.StartScheduler(limited(t)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := sys.StopProcess(limited(t), system.Scheduler); err != nil {
			t.Error(err)
		}
	})
}

// gated is a pod without a node, with the volume of the claim.
func (v *volume) gated(steps ...[]string) *corev1.Pod {
	v.t.Helper()
	pod := v.inline("", v.claimed(), nil, steps...)
	if !slices.ContainsFunc(pod.Spec.SchedulingGates, func(g corev1.PodSchedulingGate) bool {
		return g.Name == volumesv1alpha1.PlacementGate
	}) {
		v.t.Errorf("pod %s was created with the gates %v, want %s", pod.Name, pod.Spec.SchedulingGates,
			volumesv1alpha1.PlacementGate)
	}
	return pod
}

// nodeOf is the node of a pod that runs.
func nodeOf(t *testing.T, pod *corev1.Pod) string {
	t.Helper()
	runs(t, pod)
	if err := sys.Client.Get(limited(t), client.ObjectKeyFromObject(pod), pod); err != nil {
		t.Fatal(err)
	}
	if len(pod.Spec.SchedulingGates) > 0 || pod.Labels[volumesv1alpha1.GatedLabel] != "" {
		t.Errorf("pod %s runs with the gates %v and the label %s=%q, want neither", pod.Name, pod.Spec.SchedulingGates,
			volumesv1alpha1.GatedLabel, pod.Labels[volumesv1alpha1.GatedLabel])
	}
	return pod.Spec.NodeName
}

// lateVolume creates a claim that is not bound before a pod uses it.
func lateVolume(t *testing.T) *volume {
	t.Helper()
	late := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: lateClass}, Provisioner: system.DriverName,
		VolumeBindingMode: ptr.To(storagev1.VolumeBindingWaitForFirstConsumer)}
	create(t, late)
	t.Cleanup(func() {
		if err := sys.Client.Delete(limited(t), late); err != nil {
			t.Error(err)
		}
	})
	spec := claimSpec(corev1.PersistentVolumeFilesystem)
	spec.StorageClassName = ptr.To(lateClass)
	return claimOf(t, spec)
}

func TestAPodIsTheFirstConsumerOfTheClaimOfItsInlineVolume(t *testing.T) {
	inlineVolumes(t)
	schedules(t)
	v := lateVolume(t)
	begin := time.Now()
	pod := v.gated(v.write("first"))
	node := nodeOf(t, pod)
	t.Logf("pod created -> provisioned, placed, running on %s %.1f s", node, time.Since(begin).Seconds())
	v.bind()
	claim := &corev1.PersistentVolumeClaim{}
	if err := sys.Client.Get(limited(t), client.ObjectKey{Namespace: namespace, Name: v.claim}, claim); err != nil {
		t.Fatal(err)
	}
	if got := claim.Annotations["volume.kubernetes.io/selected-node"]; got != node {
		t.Errorf("claim %s has the selected node %q, want %q, where pod %s runs", v.claim, got, node, pod.Name)
	}
	second := v.inline(node, v.claimed(), nil, v.read("first"))
	runs(t, second)
	remove(t, pod)
	remove(t, second)
	v.leavesNothing(sys.Nodes...)
	if !v.unstaged() {
		t.Errorf("volume %s is still staged, want it unstaged: no pod has it", v.handle)
	}
}

// TestAPodRunsWhereTheVolumeOfItsInlineVolumeCanGo has the scheduler prefer the other node each time.
func TestAPodRunsWhereTheVolumeOfItsInlineVolumeCanGo(t *testing.T) {
	inlineVolumes(t)
	schedules(t)
	for _, node := range sys.Nodes {
		t.Run("on "+node, func(t *testing.T) {
			v := newVolume(t, corev1.PersistentVolumeFilesystem)
			v.allows(node)
			fill := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, GenerateName: "fills-"},
				Spec: podSpec(node, false, []string{"pause"})}
			fill.Spec.Containers[0].VolumeMounts = nil
			fill.Spec.Containers[0].Resources.Requests = corev1.ResourceList{
				corev1.ResourceCPU: resource.MustParse("500m"), corev1.ResourceMemory: resource.MustParse("256Mi")}
			create(t, fill)
			t.Cleanup(func() { remove(t, fill) })
			pod := v.gated(v.write("placed"))
			if got := nodeOf(t, pod); got != node {
				t.Errorf("pod %s runs on %s, want %s, where its volume can go", pod.Name, got, node)
			}
			remove(t, pod)
			v.leavesNothing(sys.Nodes...)
		})
	}
}

// allows restricts the volume to a node.
func (v *volume) allows(node string) {
	v.t.Helper()
	claim := &corev1.PersistentVolumeClaim{}
	if err := sys.Client.Get(limited(v.t), client.ObjectKey{Namespace: namespace, Name: v.claim}, claim); err != nil {
		v.t.Fatal(err)
	}
	pv := &corev1.PersistentVolume{}
	if err := sys.Client.Get(limited(v.t), client.ObjectKey{Name: claim.Spec.VolumeName}, pv); err != nil {
		v.t.Fatal(err)
	}
	patch := client.MergeFrom(pv.DeepCopy())
	pv.Spec.NodeAffinity = &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{
		NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{{
			Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: []string{node}}}}}}}
	if err := sys.Client.Patch(limited(v.t), pv, patch); err != nil {
		v.t.Fatal(err)
	}
}

func TestAGatedPodNamesTheHolderOfItsVolumeAndRunsOnceThatIsGone(t *testing.T) {
	inlineVolumes(t)
	schedules(t)
	v := newVolume(t, corev1.PersistentVolumeFilesystem)
	holder := v.inline(nodeA, v.claimed(), nil, v.write("of the holder"))
	runs(t, holder)
	pod := v.gated(v.read("of the holder"))
	v.waitsFor(pod, holder.Name)
	v.notUnstaged()
	remove(t, holder)
	nodeOf(t, pod)
	remove(t, pod)
	v.leavesNothing(sys.Nodes...)

	intent := v.intent(nodeB)
	pod = v.gated(v.read("of the holder"))
	v.waitsFor(pod, intent.Name)
	v.release(intent)
	nodeOf(t, pod)
	remove(t, pod)
	v.leavesNothing(sys.Nodes...)
}

// waitsFor waits until a gated pod names the holder of its volume in its condition and in an event.
func (v *volume) waitsFor(pod *corev1.Pod, holder string) {
	v.t.Helper()
	var seen corev1.PodCondition
	_, err := awaitPod(v.t, pod.Name, func(p *corev1.Pod) bool {
		if p == nil {
			return false
		}
		for _, c := range p.Status.Conditions {
			if c.Type == volumesv1alpha1.ConditionPlaceable {
				seen = c
			}
		}
		return seen.Status == corev1.ConditionFalse && seen.Reason == volumesv1alpha1.ReasonVolumeInUse &&
			strings.Contains(seen.Message, holder) && p.Spec.NodeName == "" && len(p.Spec.SchedulingGates) == 1
	})
	if err != nil {
		dump(v.t)
		v.t.Fatalf("pod %s has the condition %+v, want it gated with the reason %s and %q named: %v", pod.Name, seen,
			volumesv1alpha1.ReasonVolumeInUse, holder, err)
	}
	awaitEvent(v.t, pod, volumesv1alpha1.ReasonVolumeInUse, holder)
}
