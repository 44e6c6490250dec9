/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package kubelet

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hawser-io/hawser/internal/agent/inline"
	"github.com/hawser-io/hawser/test/csiloop/ledger"
	"github.com/hawser-io/hawser/test/system"
)

// mounts changes how every container of the pod mounts the volume.
func mounts(pod *corev1.Pod, change func(*corev1.VolumeMount)) {
	for _, containers := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range containers {
			change(&containers[i].VolumeMounts[0])
		}
	}
}

func TestPodsMountInlineVolumesAsOtherVolumes(t *testing.T) {
	inlineVolumes(t)
	v := newVolume(t, corev1.PersistentVolumeFilesystem)
	intent := v.intent(nodeA)
	group := v.inline(nodeA, intentNamed(intent), func(pod *corev1.Pod) {
		pod.Spec.SecurityContext = &corev1.PodSecurityContext{RunAsUser: ptr.To[int64](1000),
			RunAsGroup: ptr.To[int64](1000), FSGroup: ptr.To[int64](2000)}
	}, v.write("of the group")) // whose root is the superuser's
	runs(t, group)
	part := v.inline(nodeA, v.claimed(), func(pod *corev1.Pod) {
		mounts(pod, func(m *corev1.VolumeMount) { m.SubPath = "part" })
	}, v.write("in the part"), v.read("in the part"))
	runs(t, part)
	v.publishes(nodeA, intent, "of the group")
	reader := v.inline(nodeA, intentNamed(intent), func(pod *corev1.Pod) {
		mounts(pod, func(m *corev1.VolumeMount) {
			m.ReadOnly, m.RecursiveReadOnly = true, ptr.To(corev1.RecursiveReadOnlyIfPossible)
		})
	}, v.read("of the group"), []string{"refused", v.path()})
	runs(t, reader)
	receiver := v.inline(nodeA, intentNamed(intent), func(pod *corev1.Pod) {
		mounts(pod, func(m *corev1.VolumeMount) {
			m.MountPropagation = ptr.To(corev1.MountPropagationHostToContainer)
		})
	}, v.read("of the group"))
	runs(t, receiver)
	for _, pod := range []*corev1.Pod{group, part, reader, receiver} {
		remove(t, pod)
	}
	v.release(intent)
	v.leavesNothing(nodeA)
}

func TestManyPodsShareOneIntent(t *testing.T) {
	inlineVolumes(t)
	v := newVolume(t, corev1.PersistentVolumeFilesystem)
	intent := v.intent(nodeA)
	const count = 10
	begin := time.Now()
	var pods []*corev1.Pod
	for range count {
		pods = append(pods, v.inline(nodeA, intentNamed(intent), nil, v.write("shared"), v.read("shared")))
	}
	for _, pod := range pods {
		runs(t, pod)
	}
	t.Logf("%d pods created -> all running %.1f s", count, time.Since(begin).Seconds())
	for _, pod := range pods {
		if err := sys.Client.Delete(limited(t), pod); err != nil {
			t.Error(err)
		}
	}
	for _, pod := range pods {
		gone(t, pod)
	}
	v.publishes(nodeA, intent, "shared")
	v.release(intent)
	v.leavesNothing(nodeA)
}

func TestAPodWithAnInlineVolumeThatIsDeletedWithForceKeepsItUntilItsKubeletIsBack(t *testing.T) {
	inlineVolumes(t)
	v := newVolume(t, corev1.PersistentVolumeFilesystem)
	first := v.inline(nodeA, v.claimed(), nil, v.write("kept"))
	runs(t, first)
	if err := sys.Kill(system.Kubelet(nodeA)); err != nil {
		t.Fatal(err)
	}
	if err := sys.Client.Delete(limited(t), first, client.GracePeriodSeconds(0)); err != nil {
		t.Fatal(err)
	}
	gone(t, first) // from the API, not from the node
	second := v.inline(nodeB, v.claimed(), nil, v.read("kept"))
	awaitEvent(t, second, inline.ReasonWaitingForIntent, "is held by node "+nodeA)
	v.notUnstaged()
	startAgain(t, system.Kubelet(nodeA))
	awaitReady(t, nodeA)
	runs(t, second)
	remove(t, second)
	v.leavesNothing(nodeA, nodeB)
}

// TestPodsWithInlineVolumesRunAgainAfterAReboot ends everything on the node at once. Nothing is mounted afterwards, but
// the records of the pods and those of the kubelet are there.
func TestPodsWithInlineVolumesRunAgainAfterAReboot(t *testing.T) {
	inlineVolumes(t)
	v := newVolume(t, corev1.PersistentVolumeFilesystem)
	v.meanwhile = []string{"insist", v.path(), "still here"}
	intent := v.intent(nodeA)
	pods := []*corev1.Pod{v.inline(nodeA, intentNamed(intent), nil), v.inline(nodeA, v.claimed(), nil)}
	for _, pod := range pods {
		runs(t, pod)
	}
	if err := sys.Kill(system.Machine(nodeA)); err != nil {
		t.Fatal(err)
	}
	if err := ledger.NoteReboot(sys.BackingDir(), nodeA); err != nil {
		t.Fatal(err)
	}
	startMachine(t, nodeA)
	for _, pod := range pods {
		_, err := awaitPod(t, pod.Name, func(p *corev1.Pod) bool {
			return p != nil && isReady(p) && p.Status.ContainerStatuses[0].RestartCount > 0
		})
		if err != nil {
			dump(t)
			t.Fatalf("pod %s does not run again after the reboot: %v", pod.Name, err)
		}
	}
	v.publishes(nodeA, intent, "still here")
	for _, pod := range pods {
		remove(t, pod)
	}
	v.release(intent)
	v.leavesNothing(nodeA)
}
