/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package kubelet

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// use writes to the Node whether the volume is in use.
func (k *Kubelet) use(ctx context.Context, volumeName string, inUse bool) error {
	k.mu.Lock()
	same := k.inUse[volumeName] == inUse
	if inUse {
		k.inUse[volumeName] = true
	} else {
		delete(k.inUse, volumeName)
	}
	k.mu.Unlock()
	if same {
		return nil
	}
	if err := k.report(ctx); err != nil {
		// The content of the Node is unknown now, so it has to be written again.
		k.mu.Lock()
		defer k.mu.Unlock()
		if inUse {
			delete(k.inUse, volumeName)
		} else {
			k.inUse[volumeName] = true
		}
		return err
	}
	return nil
}

// report patches volumesInUse as a kubelet does, whatever its value was.
func (k *Kubelet) report(ctx context.Context) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	names := slices.Sorted(maps.Keys(k.inUse))
	if names == nil {
		names = []string{}
	}
	return k.patchStatus(ctx, &corev1.Node{}, k.Node, "", map[string]any{"volumesInUse": names})
}

func (k *Kubelet) patchStatus(ctx context.Context, o client.Object, name, namespace string,
	status map[string]any) error {
	body, err := json.Marshal(map[string]any{"status": status})
	if err != nil {
		return fmt.Errorf("encoding a status: %w", err)
	}
	o.SetName(name)
	o.SetNamespace(namespace)
	if err := k.Client.Status().Patch(ctx, o, client.RawPatch(types.MergePatchType, body)); err != nil {
		return fmt.Errorf("writing the status of %T %s: %w", o, name, err)
	}
	return nil
}

func lists(node *corev1.Node, volumeName string) bool {
	return slices.Contains(node.Status.VolumesInUse, corev1.UniqueVolumeName(volumeName)) &&
		slices.ContainsFunc(node.Status.VolumesAttached,
			func(v corev1.AttachedVolume) bool { return string(v.Name) == volumeName })
}

// enqueueUsed enqueues every volume in use.
func (k *Kubelet) enqueueUsed() {
	k.mu.Lock()
	defer k.mu.Unlock()
	for name := range k.inUse {
		if pv, ok := k.persistentVolumes[name]; ok {
			k.queue.Add(pv)
		}
	}
}

// started reports that the pod's container runs, unless it does already.
func (k *Kubelet) started(ctx context.Context, pod *corev1.Pod) error {
	if pod.Status.Phase == corev1.PodRunning {
		return nil
	}
	return k.tell(ctx, pod, corev1.PodRunning, corev1.ContainerState{Running: &corev1.ContainerStateRunning{}})
}

func (k *Kubelet) tell(ctx context.Context, pod *corev1.Pod, phase corev1.PodPhase, state corev1.ContainerState) error {
	statuses := []corev1.ContainerStatus{{Name: pod.Spec.Containers[0].Name, State: state}}
	err := k.patchStatus(ctx, &corev1.Pod{}, pod.Name, pod.Namespace,
		map[string]any{"phase": phase, "containerStatuses": statuses})
	return client.IgnoreNotFound(err)
}

// stopped reports that the container of a deleted pod has ended, if it ran.
func (k *Kubelet) stopped(ctx context.Context, pod *corev1.Pod) error {
	if len(pod.Status.ContainerStatuses) == 0 || pod.Status.ContainerStatuses[0].State.Running == nil {
		return nil
	}
	return k.tell(ctx, pod, pod.Status.Phase, corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}})
}

// finish deletes a pod once none of its volumes is left.
func (k *Kubelet) finish(ctx context.Context, pod *corev1.Pod) error {
	if left, err := k.publishedFor(string(pod.UID)); left || err != nil {
		return err // the pass of the volume that is left calls finish again
	}
	err := k.Client.Delete(ctx, pod, client.GracePeriodSeconds(0), client.Preconditions{UID: &pod.UID})
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("deleting pod %s: %w", pod.Name, err)
	}
	return nil
}
