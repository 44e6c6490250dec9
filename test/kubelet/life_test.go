/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package kubelet

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hawser-io/hawser/test/csiloop/ledger"
	"github.com/hawser-io/hawser/test/system"
)

// calls counts the driver's successful calls of a method for the volume.
func (v *volume) calls(method string) int {
	v.t.Helper()
	entries, err := ledger.Read(sys.BackingDir())
	if err != nil {
		v.t.Fatal(err)
	}
	n := 0
	for _, e := range entries {
		if e.Volume == v.handle && e.Method == method && e.Phase == ledger.Effect && e.Code == "OK" {
			n++
		}
	}
	return n
}

// mountedOnce checks that the volume was mounted a single time, for all pods and restarts so far.
func (v *volume) mountedOnce() {
	v.t.Helper()
	for method, want := range map[string]int{"NodeStageVolume": 1, "NodePublishVolume": 1, "NodeUnpublishVolume": 0,
		"NodeUnstageVolume": 0} {
		if got := v.calls(method); got != want {
			v.t.Errorf("the driver was called %d times with %s for volume %s, want %d", got, method, v.handle, want)
		}
	}
}

func TestContainersThatEndAndStartAgainKeepTheInlineVolumeOfTheirPod(t *testing.T) {
	inlineVolumes(t)
	v := newVolume(t, corev1.PersistentVolumeFilesystem)
	pod := v.inline(nodeA, v.claimed(), func(pod *corev1.Pod) {
		always := container("beside", false, "pause")
		always.RestartPolicy = ptr.To(corev1.ContainerRestartPolicyAlways)
		pod.Spec.InitContainers = append(pod.Spec.InitContainers, always)
		pod.Spec.Containers = []corev1.Container{container("ends", false, v.read("of the first")...)}
	}, v.write("of the first"), v.read("of the first"))
	_, err := awaitPod(t, pod.Name, func(p *corev1.Pod) bool {
		return p != nil && len(p.Status.ContainerStatuses) == 1 && p.Status.ContainerStatuses[0].RestartCount > 1
	})
	if err != nil {
		dump(t)
		t.Fatalf("the container of pod %s did not start again: %v", pod.Name, err)
	}
	v.mountedOnce()
	remove(t, pod)
	v.leavesNothing(nodeA)
}

// TestAPodThatHasCompletedGivesItsInlineVolumeBack leaves the pod in the API, as a Job does.
func TestAPodThatHasCompletedGivesItsInlineVolumeBack(t *testing.T) {
	inlineVolumes(t)
	v := newVolume(t, corev1.PersistentVolumeFilesystem)
	completed := v.inline(nodeA, v.claimed(), func(pod *corev1.Pod) {
		pod.Spec.RestartPolicy = corev1.RestartPolicyNever
		pod.Spec.Containers = []corev1.Container{container("ends", false, v.write("completed")...)}
	})
	if _, err := awaitPod(t, completed.Name, func(p *corev1.Pod) bool {
		return p != nil && p.Status.Phase == corev1.PodSucceeded
	}); err != nil {
		dump(t)
		t.Fatalf("pod %s has not completed: %v", completed.Name, err)
	}
	next := v.inline(nodeB, v.claimed(), nil, v.read("completed"))
	runs(t, next)
	remove(t, next)
	v.leavesNothing(sys.Nodes...)
}

func TestADebugContainerSeesTheInlineVolumeOfItsPod(t *testing.T) {
	inlineVolumes(t)
	v := newVolume(t, corev1.PersistentVolumeFilesystem)
	pod := v.inline(nodeA, v.claimed(), nil, v.write("to look at"))
	runs(t, pod)
	custom := filepath.Join(t.TempDir(), "custom.json")
	const mounts = `{"volumeMounts":[{"name":"data","mountPath":"/data"}]}`
	if err := os.WriteFile(custom, []byte(mounts), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := sys.Kubectl(limited(t), "debug", pod.Name, "-n", namespace, "--image="+system.Image,
		"--image-pull-policy=Never", "--container=looks", "--profile=general", "--custom="+custom, "--arguments-only", "--",
		"read", v.path(), "to look at")
	if err != nil {
		t.Fatalf("kubectl debug: %v\n%s", err, out)
	}
	var state corev1.ContainerState
	_, err = awaitPod(t, pod.Name, func(p *corev1.Pod) bool {
		if p == nil || len(p.Status.EphemeralContainerStatuses) == 0 {
			return false
		}
		state = p.Status.EphemeralContainerStatuses[0].State
		return state.Terminated != nil
	})
	if err != nil || state.Terminated.ExitCode != 0 {
		dump(t)
		t.Fatalf("the debug container of pod %s: %+v, error %v; want that it has read the file", pod.Name, state, err)
	}
	v.mountedOnce()
	remove(t, pod)
	v.leavesNothing(nodeA)
}

// TestADaemonSetUsesAnInlineVolume replaces the pod of the set as an update does.
func TestADaemonSetUsesAnInlineVolume(t *testing.T) {
	inlineVolumes(t)
	schedules(t)
	v := newVolume(t, corev1.PersistentVolumeFilesystem)
	labels := map[string]string{"app": "daemon"}
	spec := podSpec("", false, []string{"pause"}, []string{"append", v.path(), "$(NODE)."})
	spec.NodeSelector = map[string]string{corev1.LabelHostname: nodeA}
	spec.Volumes = inlineOf(v.claimed())
	set := &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "daemon"},
		Spec: appsv1.DaemonSetSpec{Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: spec}},
	}
	create(t, set)
	removed := func() { v.removeSet(set, labels) }
	t.Cleanup(removed)
	v.rolledOut(set)
	before := set.DeepCopy()
	set.Spec.Template.Labels = map[string]string{"app": "daemon", "revision": "2"}
	if err := sys.Client.Patch(limited(t), set, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
	v.rolledOut(set)
	removed()
	reader := v.inline(nodeB, v.claimed(), nil, v.read("node-a.node-a."))
	runs(t, reader)
	remove(t, reader)
	v.leavesNothing(sys.Nodes...)
}

// rolledOut waits until the pod of the set's present template is ready.
func (v *volume) rolledOut(set *appsv1.DaemonSet) {
	v.t.Helper()
	_, err := system.Await(limited(v.t), sys, &appsv1.DaemonSetList{}, client.ObjectKeyFromObject(set),
		func(d *appsv1.DaemonSet) bool {
			return d != nil && d.Status.ObservedGeneration == d.Generation && d.Status.DesiredNumberScheduled == 1 &&
				d.Status.UpdatedNumberScheduled == 1 && d.Status.NumberReady == 1
		})
	if err != nil {
		dump(v.t)
		v.t.Fatal(err)
	}
}

// removeSet deletes a set with its pods, whose intents then go.
func (v *volume) removeSet(set client.Object, labels map[string]string) {
	v.t.Helper()
	var pods corev1.PodList
	err := sys.Client.List(limited(v.t), &pods, client.InNamespace(namespace), client.MatchingLabels(labels))
	if err != nil {
		v.t.Error(err)
	}
	if err := client.IgnoreNotFound(sys.Client.Delete(limited(v.t), set)); err != nil {
		v.t.Error(err)
	}
	for i := range pods.Items {
		gone(v.t, &pods.Items[i])
	}
}

// TestAStaticPodWithAnInlineVolumeIsRefusedByItsKubelet shows what the documentation says of static pods. The kubelet
// reports it in its log alone: a static pod that it refuses is no object.
func TestAStaticPodWithAnInlineVolumeIsRefusedByItsKubelet(t *testing.T) {
	inlineVolumes(t)
	v := newVolume(t, corev1.PersistentVolumeFilesystem)
	intent := v.intent(nodeA)
	manifest := filepath.Join(sys.StaticPods(nodeA), "static.json")
	text := fmt.Sprintf(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"static","namespace":%q},"spec":{
"hostNetwork":true,"containers":[{"name":"main","image":%q,"imagePullPolicy":"Never","args":["pause"],
"volumeMounts":[{"name":"data","mountPath":"/data"}]}],
"volumes":[{"name":"data","csi":{"driver":"volumes.hawser.io","volumeAttributes":{"intent":%q}}}]}}`,
		namespace, system.Image, intent.Name)
	if err := os.WriteFile(manifest, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	removed := func() {
		if err := os.Remove(manifest); err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Error(err)
		}
	}
	t.Cleanup(removed)
	log := filepath.Join(sys.Dir, "logs", system.Kubelet(nodeA)+".log")
	v.eventually("the kubelet's refusal of a static pod", func() (bool, error) {
		data, err := os.ReadFile(log)
		return bytes.Contains(data, []byte("static pods may not reference csidrivers (via CSI volumes)")), err
	})
	pod := &corev1.Pod{}
	err := sys.Client.Get(limited(t), client.ObjectKey{Namespace: namespace, Name: "static-" + nodeA}, pod)
	if client.IgnoreNotFound(err) != nil || err == nil {
		t.Errorf("pod static-%s: error %v, want that it does not exist", nodeA, err)
	}
	removed()
	v.release(intent)
	v.leavesNothing(nodeA)
}

// within fails unless the pod is gone after that time.
func within(t *testing.T, pod *corev1.Pod, limit time.Duration) {
	t.Helper()
	begin := time.Now()
	gone(t, pod)
	took := time.Since(begin)
	t.Logf("pod %s deleted -> gone %.1f s", pod.Name, took.Seconds())
	if took > limit {
		dump(t)
		t.Errorf("pod %s was gone after %s, want it gone within %s", pod.Name, took, limit)
	}
}

// awaitNoPod waits until the node has nothing of the pod any more, which the API may show earlier.
func awaitNoPod(t *testing.T, node string, pod *corev1.Pod) {
	t.Helper()
	pid, err := sys.PID(system.Machine(node))
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(fmt.Sprintf("/proc/%d/root", pid), sys.KubeletDir(node), "pods", string(pod.UID))
	err = wait.PollUntilContextTimeout(t.Context(), 100*time.Millisecond, waitTimeout, true,
		func(context.Context) (bool, error) {
			_, err := os.Lstat(dir)
			return errors.Is(err, os.ErrNotExist), nil
		})
	if err != nil {
		t.Errorf("directory %s of pod %s is still there: %v", dir, pod.Name, err)
	}
}
