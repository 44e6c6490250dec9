/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package kubelet

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hawser-io/hawser/internal/agent/inline"
	"github.com/hawser-io/hawser/test/csiloop/faults"
	"github.com/hawser-io/hawser/test/system"
)

// soon is when a pod has to be gone that was deleted. The kubelet's own call may take two minutes.
const soon = time.Minute

func TestAPodDeletedWithForceGivesItsInlineVolumeToTheNextOneOnAnotherNode(t *testing.T) {
	inlineVolumes(t)
	v := newVolume(t, corev1.PersistentVolumeFilesystem)
	v.meanwhile = []string{"insist", v.path(), "by the first"}
	first := v.inline(nodeA, v.claimed(), nil)
	runs(t, first)
	if err := sys.Client.Delete(limited(t), first, client.GracePeriodSeconds(0)); err != nil {
		t.Fatal(err)
	}
	v.meanwhile = []string{"pause"}
	second := v.inline(nodeB, v.claimed(), nil, v.read("by the first"))
	gone(t, first)
	runs(t, second)
	awaitNoPod(t, nodeA, first)
	remove(t, second)
	v.leavesNothing(sys.Nodes...)
}

func TestAPodDeletedWhileItWaitsForItsInlineVolumeIsGoneSoon(t *testing.T) {
	inlineVolumes(t)
	v := newVolume(t, corev1.PersistentVolumeFilesystem)
	holder := v.inline(nodeA, v.claimed(), nil, v.write("of the holder"))
	runs(t, holder)
	for name, meanwhile := range map[string]func(){
		"":                               func() {},
		", whose kubelet starts again":   func() { startAgain(t, system.Kubelet(nodeB)) },
		", whose agent starts again":     func() { startAgain(t, system.Agent(nodeB)) },
		", whose node starts both again": func() { startAgain(t, system.Agent(nodeB)); startAgain(t, system.Kubelet(nodeB)) },
	} {
		t.Run("a pod"+name, func(t *testing.T) {
			pod := v.inline(nodeB, v.claimed(), nil, v.read("of the holder"))
			awaitEvent(t, pod, inline.ReasonWaitingForIntent, "is held by node "+nodeA)
			if err := sys.Client.Delete(limited(t), pod); err != nil {
				t.Fatal(err)
			}
			meanwhile()
			within(t, pod, soon)
			awaitNoPod(t, nodeB, pod)
		})
	}
	v.notUnstaged()
	remove(t, holder)
	v.leavesNothing(sys.Nodes...)
}

// TestAPodDeletedWhileItsKubeletIsDownIsGoneSoonAfterItIsBack deletes pods that run.
func TestAPodDeletedWhileItsKubeletIsDownIsGoneSoonAfterItIsBack(t *testing.T) {
	inlineVolumes(t)
	v := newVolume(t, corev1.PersistentVolumeFilesystem)
	intent := v.intent(nodeA)
	var pods []*corev1.Pod
	for _, attributes := range []map[string]string{intentNamed(intent), v.claimed(), v.claimed()} {
		pods = append(pods, v.inline(nodeA, attributes, nil))
	}
	for _, pod := range pods {
		runs(t, pod)
	}
	if err := sys.Kill(system.Kubelet(nodeA)); err != nil {
		t.Fatal(err)
	}
	for _, pod := range pods {
		if err := sys.Client.Delete(limited(t), pod); err != nil {
			t.Fatal(err)
		}
	}
	startAgain(t, system.Kubelet(nodeA))
	for _, pod := range pods {
		within(t, pod, soon)
		awaitNoPod(t, nodeA, pod)
	}
	v.release(intent)
	v.leavesNothing(nodeA)
}

// TestAPodGetsItsInlineVolumeAlthoughAProgramOfTheNodeIsKilledMeanwhile kills the kubelet or the agent while the driver
// is at each of its calls.
func TestAPodGetsItsInlineVolumeAlthoughAProgramOfTheNodeIsKilledMeanwhile(t *testing.T) {
	inlineVolumes(t)
	for _, program := range []string{system.Kubelet(nodeA), system.Agent(nodeA)} {
		for _, method := range []string{"NodeStageVolume", "NodePublishVolume", "NodeUnpublishVolume", "NodeUnstageVolume"} {
			t.Run(program+" in "+method, func(t *testing.T) {
				v := newVolume(t, corev1.PersistentVolumeFilesystem)
				id := fault(t, faults.Fault{Method: method, Volume: v.handle, Action: faults.Hang, IgnoreCancel: true})
				pod := v.inline(nodeA, v.claimed(), nil, v.write("kept"))
				ends := method == "NodeUnpublishVolume" || method == "NodeUnstageVolume"
				if ends {
					runs(t, pod)
					if err := sys.Client.Delete(limited(t), pod); err != nil {
						t.Fatal(err)
					}
				}
				struck(t, id)
				if err := sys.Kill(program); err != nil {
					t.Fatal(err)
				}
				removeFault(t, id)
				startAgain(t, program)
				if !ends {
					runs(t, pod)
				}
				remove(t, pod)
				next := v.inline(nodeB, v.claimed(), nil, v.read("kept"))
				runs(t, next)
				remove(t, next)
				v.leavesNothing(sys.Nodes...)
			})
		}
	}
}

func TestAnEvictedPodGivesItsInlineVolumeBack(t *testing.T) {
	inlineVolumes(t)
	v := newVolume(t, corev1.PersistentVolumeFilesystem)
	pod := v.inline(nodeA, v.claimed(), nil, v.write("of the evicted"))
	runs(t, pod)
	eviction := &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: pod.Name},
		DeleteOptions: &metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](1)}}
	if err := sys.Client.SubResource("eviction").Create(limited(t), pod, eviction); err != nil {
		t.Fatal(err)
	}
	gone(t, pod)
	next := v.inline(nodeB, v.claimed(), nil, v.read("of the evicted"))
	runs(t, next)
	remove(t, next)
	v.leavesNothing(sys.Nodes...)
}
