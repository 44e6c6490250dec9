/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package images

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/test/csiloop/ledger"
	"github.com/hawser-io/hawser/test/system"
)

// The load on node-a.
const (
	loadIntents = 50
	loadPods    = 10
)

// load is what uses volumes on node-a while Hawser is changed.
type load struct {
	suite
	// inline: every other pod has the volume of its claim as an inline one.
	inline bool
	// paths of the published volumes on the node, and the handles of all volumes.
	paths, handles []string
	pods           []*corev1.Pod
	// counters are the files that the pods write, on the node, and numbers what they last contained.
	counters []string
	numbers  []int
}

// state is what must not change.
type state struct {
	mounts, attachments, pods []string
	// calls that attach, mount, unmount or detach a volume of the load.
	calls []string
}

// putLoad publishes volumes and runs pods; with inline every other pod has an inline volume.
func (s suite) putLoad(t *testing.T, inline bool) *load {
	t.Helper()
	l := &load{suite: s, inline: inline, numbers: make([]int, loadPods)}
	name := func(kind string, i int) string { return fmt.Sprintf("%s-%02d", kind, i) }
	for i := range loadIntents {
		s.claim(t, name("published", i))
		s.create(t, newIntent(name("published", i), nodeA))
	}
	for i := range loadPods {
		s.claim(t, name("pod", i))
		pod := newPod(name("pod", i), "count", "/data/file")
		if l.isInline(i) {
			pod.Spec.Volumes[0].VolumeSource = inlineVolume(pod.Name)
		}
		s.create(t, pod)
		l.pods = append(l.pods, pod)
	}
	for i := range loadIntents {
		ready, err := s.AwaitReady(limited(t), "default", name("published", i))
		s.explain(t, err)
		l.paths = append(l.paths, ready.Status.Path)
	}
	for i, pod := range l.pods {
		l.pods[i] = s.awaitPod(t, pod, isRunning)
	}
	l.findVolumes(t)
	return l
}

// newPod runs the program on a claim of the pod's name. A container that ends is not started again.
func newPod(claim string, args ...string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: claim}, Spec: corev1.PodSpec{
		NodeName: nodeA, HostNetwork: true, AutomountServiceAccountToken: ptr.To(false),
		TerminationGracePeriodSeconds: ptr.To[int64](1), RestartPolicy: corev1.RestartPolicyNever,
		Containers: []corev1.Container{{Name: "user", Image: system.Image, ImagePullPolicy: corev1.PullNever, Args: args,
			VolumeMounts: []corev1.VolumeMount{{Name: "data", MountPath: "/data"}}}},
		Volumes: []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim}}}},
	}}
}

func inlineVolume(claim string) corev1.VolumeSource {
	return corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{Driver: volumesv1alpha1.InlineDriver,
		VolumeAttributes: map[string]string{volumesv1alpha1.AttributeClaim: claim}}}
}

func (l *load) isInline(pod int) bool { return l.inline && pod%2 == 1 }

// inlinePods counts the pods with inline volumes. Hawser makes an intent for each.
func (l *load) inlinePods() int {
	count := 0
	for i := range l.pods {
		if l.isInline(i) {
			count++
		}
	}
	return count
}

func isRunning(pod *corev1.Pod) bool { return pod != nil && pod.Status.Phase == corev1.PodRunning }

// findVolumes finds the handles of all volumes, and the files of the pods.
func (l *load) findVolumes(t *testing.T) {
	t.Helper()
	var volumes corev1.PersistentVolumeList
	check(t, l.Client.List(limited(t), &volumes))
	byClaim := map[string]string{}
	for _, volume := range volumes.Items {
		l.handles = append(l.handles, volume.Spec.CSI.VolumeHandle)
		byClaim[volume.Spec.ClaimRef.Name] = volume.Name
	}
	for i, pod := range l.pods {
		// The kubelet names the directory after the PersistentVolume, or after the volume in the pod.
		name := byClaim[pod.Name]
		if l.isInline(i) {
			name = pod.Spec.Volumes[0].Name
		}
		l.counters = append(l.counters, filepath.Join(l.KubeletDir(nodeA), "pods", string(pod.UID), "volumes",
			"kubernetes.io~csi", name, "mount", "file"))
	}
	if len(l.handles) != loadIntents+loadPods {
		t.Fatalf("the load has %d volumes, want %d", len(l.handles), loadIntents+loadPods)
	}
}

// state reads what must not change.
func (l *load) state(t *testing.T) state {
	t.Helper()
	var now state
	uids := make([]string, 0, len(l.pods))
	for _, pod := range l.pods {
		uids = append(uids, string(pod.UID))
		now.pods = append(now.pods, l.podLine(t, pod))
	}
	now.mounts = l.volumeMounts(t, nodeA, uids)
	var attachments storagev1.VolumeAttachmentList
	check(t, l.Client.List(limited(t), &attachments))
	for _, a := range attachments.Items {
		now.attachments = append(now.attachments, fmt.Sprintf("%s, UID %s, on %s, attached %t, deleted %t", a.Name, a.UID,
			a.Spec.NodeName, a.Status.Attached, a.DeletionTimestamp != nil))
	}
	entries, err := ledger.Read(l.BackingDir())
	check(t, err)
	for _, call := range ledger.Calls(entries) {
		if slices.Contains(l.handles, call.Volume) && changes(call.Method) {
			now.calls = append(now.calls, fmt.Sprintf("call %d: %s of volume %s on node %s at %s", call.Call, call.Method,
				call.Volume, call.Node, call.Time))
		}
	}
	return now
}

// changes reports whether a call of a driver attaches, mounts, unmounts or detaches.
func changes(method string) bool {
	return slices.Contains([]string{"ControllerPublishVolume", "ControllerUnpublishVolume", "NodeStageVolume",
		"NodeUnstageVolume", "NodePublishVolume", "NodeUnpublishVolume"}, method)
}

func (l *load) podLine(t *testing.T, pod *corev1.Pod) string {
	t.Helper()
	now := &corev1.Pod{}
	check(t, l.Client.Get(limited(t), client.ObjectKeyFromObject(pod), now))
	line := fmt.Sprintf("pod %s, UID %s, %s", now.Name, now.UID, now.Status.Phase)
	for _, c := range now.Status.ContainerStatuses {
		line += fmt.Sprintf(", container %s, %d restart(s)", c.ContainerID, c.RestartCount)
	}
	return line
}

// unchanged fails the test for each difference, and unless each volume is in use: the pods have gone on counting, and
// the published volumes can be written and read.
func (l *load) unchanged(t *testing.T, before state) {
	t.Helper()
	now := l.state(t)
	differ(t, "mounts of node "+nodeA, before.mounts, now.mounts)
	differ(t, "attachments", before.attachments, now.attachments)
	differ(t, "pods", before.pods, now.pods)
	differ(t, "calls of the driver", before.calls, now.calls)
	for _, path := range l.paths {
		l.useFile(t, nodeA, filepath.Join(path, "file"), t.Name())
	}
	for i, file := range l.counters {
		data, err := os.ReadFile(l.onNode(t, nodeA, file))
		check(t, err)
		// A number that is just being written is empty.
		number, err := strconv.Atoi(string(data))
		if err == nil && number <= l.numbers[i] {
			t.Errorf("pod %s has counted to %d, want more than the %d of before", l.pods[i].Name, number, l.numbers[i])
		}
		l.numbers[i] = max(number, l.numbers[i])
	}
}
