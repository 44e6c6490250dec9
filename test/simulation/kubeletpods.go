/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package simulation

import (
	"encoding/json"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// startContainer of the pod.
func (k *kubelet) startContainer(v *podVolume, pod *corev1.Pod) error {
	err := k.onDisk("starting a container", func() error {
		if _, runs := k.m.containers[pod.UID]; !runs && pod.DeletionTimestamp == nil {
			k.m.world.chance.reach(running)
			k.m.containers[pod.UID] = v.name
		}
		return nil
	})
	if err != nil || pod.DeletionTimestamp != nil || isRunning(pod) {
		return err
	}
	return k.writeStatus(pod, corev1.PodRunning, corev1.ContainerState{Running: &corev1.ContainerStateRunning{}})
}

func isRunning(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.ContainerStatuses, func(c corev1.ContainerStatus) bool {
		return c.State.Running != nil
	})
}

// writeStatus writes what the pod's container does.
func (k *kubelet) writeStatus(pod *corev1.Pod, phase corev1.PodPhase, state corev1.ContainerState) error {
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": pod.UID}, "status": map[string]any{
		"phase": phase, "containerStatuses": []corev1.ContainerStatus{{Name: "main", State: state}},
	}})
	k.m.world.must(err)
	target := &corev1.Pod{}
	target.Namespace, target.Name = pod.Namespace, pod.Name
	return client.IgnoreNotFound(k.api.Status().Patch(k.ctx, target, client.RawPatch(types.MergePatchType, body)))
}

// endContainers stops the containers of pods that are gone or being deleted. That takes up to their time of grace.
func (k *kubelet) endContainers(v *podVolume) {
	for uid, pod := range k.users(v.name) {
		if pod != nil && pod.DeletionTimestamp == nil {
			continue
		}
		begun := false
		k.set(func() { begun, k.ending[uid] = k.ending[uid], true })
		if begun {
			continue
		}
		k.m.world.later(k.p.between(0, 30*time.Second), func() {
			if k.isOver() {
				return
			}
			k.m.world.mu.Lock()
			delete(k.m.containers, uid)
			k.m.world.mu.Unlock()
			v.rouse()
		})
	}
}

// finishPods reports the end of containers of pods that are being deleted, and deletes the pods for which nothing is
// published. False: try again.
func (k *kubelet) finishPods(v *podVolume, users map[types.UID]*corev1.Pod) bool {
	done := true
	for pod, published := range k.deleted(v) {
		if _, uses := users[pod.UID]; uses {
			continue
		}
		if isRunning(pod) {
			ended := corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}}
			done = k.writeStatus(pod, pod.Status.Phase, ended) == nil && done
			continue
		}
		if published {
			continue
		}
		err := k.api.Delete(k.ctx, pod, client.GracePeriodSeconds(0), client.Preconditions{UID: ptr.To(pod.UID)})
		done = client.IgnoreNotFound(err) == nil && done
	}
	return done
}

// deleted are the pods of the volume that are being deleted, and whether it is published for them.
func (k *kubelet) deleted(v *podVolume) map[*corev1.Pod]bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	pods := map[*corev1.Pod]bool{}
	for uid, pod := range k.pods {
		if claimOf(pod) == v.name && pod.DeletionTimestamp != nil {
			_, pods[pod] = v.published[uid]
		}
	}
	return pods
}
