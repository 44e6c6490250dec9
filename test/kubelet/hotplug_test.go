/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package kubelet

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/agent/inline"
	"github.com/hawser-io/hawser/test/system"
)

// app is the label that the directories of these tests select by.
const app = "app"

func selecting(value string) map[string]string {
	return map[string]string{volumesv1alpha1.AttributeIntents: app + "=" + value}
}

// receives has every container of the pod see later mounts.
func receives(pod *corev1.Pod) {
	mounts(pod, func(m *corev1.VolumeMount) { m.MountPropagation = ptr.To(corev1.MountPropagationHostToContainer) })
}

// label sets the label of an intent.
func label(t *testing.T, i *volumesv1alpha1.VolumeAttachmentIntent, value string) {
	t.Helper()
	patch := fmt.Appendf(nil, `{"metadata":{"labels":{%q:%q}}}`, app, value)
	if err := sys.Client.Patch(limited(t), i, client.RawPatch("application/merge-patch+json", patch)); err != nil {
		t.Fatal(err)
	}
}

// processOf is the process of the pod's container that has the volume.
func processOf(t *testing.T, pod *corev1.Pod) int {
	t.Helper()
	pid, err := system.ContainerProcess(pod, "/data")
	if err != nil {
		t.Fatal(err)
	}
	return pid
}

// onNode is the number that the process has on its node, which has process numbers of its own.
func onNode(t *testing.T, pid int) string {
	t.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(data)) {
		if fields := strings.Fields(line); len(fields) > 2 && fields[0] == "NSpid:" {
			return "process " + fields[2]
		}
	}
	t.Fatalf("process %d is in no namespace of a node, want that it is", pid)
	return ""
}

// inContainer is a path in the container of the process, as the test can open it.
func inContainer(pid int, path string) string { return fmt.Sprintf("/proc/%d/root%s", pid, path) }

// sees waits until the directory in the container has exactly these intents, and each has a file with that content.
func (v *volume) sees(pid int, want map[string]string) (took time.Duration) {
	v.t.Helper()
	begin := time.Now()
	v.eventually(fmt.Sprintf("directory of process %d with %v", pid, want), func() (bool, error) {
		entries, err := os.ReadDir(inContainer(pid, "/data"))
		if err != nil || len(entries) != len(want) {
			return false, err
		}
		for name, content := range want {
			got, err := os.ReadFile(inContainer(pid, filepath.Join("/data", name, "file")))
			if errors.Is(err, fs.ErrNotExist) { // its mount has yet to come
				return false, nil
			}
			if err != nil || string(got) != content {
				return false, err
			}
		}
		return true, nil
	})
	return time.Since(begin)
}

// filled is a volume with content, and its intent on the node.
func filled(t *testing.T, node, content string) (*volume, *volumesv1alpha1.VolumeAttachmentIntent) {
	t.Helper()
	v := newVolume(t, corev1.PersistentVolumeFilesystem)
	i := v.intent(node)
	pod := v.inline(node, intentNamed(i), nil, v.write(content))
	runs(t, pod)
	remove(t, pod)
	return v, i
}

func TestADirectoryOfIntentsFollowsTheirLabels(t *testing.T) {
	inlineVolumes(t)
	for _, node := range sys.Nodes { // the kubelet's directory of one of them is a symbolic link
		t.Run("on "+node, func(t *testing.T) {
			v, first := filled(t, node, "first")
			w, second := filled(t, node, "second")
			label(t, first, "follow")
			pod := v.inline(node, selecting("follow"), receives)
			runs(t, pod)
			pid := processOf(t, pod)
			v.sees(pid, map[string]string{first.Name: "first"})
			label(t, second, "follow")
			both := map[string]string{first.Name: "first", second.Name: "second"}
			t.Logf("labelled -> seen %.3f s", v.sees(pid, both).Seconds())
			label(t, first, "other")
			v.sees(pid, map[string]string{second.Name: "second"})
			label(t, first, "follow")
			v.sees(pid, both)

			v.release(first)
			v.sees(pid, map[string]string{second.Name: "second"})
			v.eventually("the volume unstaged", func() (bool, error) { return v.unstaged(), nil })
			again := v.intent(node)
			label(t, again, "follow")
			v.sees(pid, map[string]string{again.Name: "first", second.Name: "second"})
			if processOf(t, pod) != pid {
				t.Errorf("pod %s has another process than before, want that it ran through", pod.Name)
			}
			remove(t, pod)
			v.publishes(node, again, "first")
			w.publishes(node, second, "second")
			v.release(again)
			w.release(second)
			v.leavesNothing(node)
		})
	}
}

func TestAVolumeThatAPodHasOpenStaysInItsDirectory(t *testing.T) {
	inlineVolumes(t)
	v, i := filled(t, nodeA, "held")
	label(t, i, "held")
	v.meanwhile = []string{"hold", "/data/" + i.Name + "/file"}
	pod := v.inline(nodeA, selecting("held"), receives)
	runs(t, pod)
	pid := processOf(t, pod)
	v.eventually("the file open", func() (bool, error) { return hasOpen(pid, "/file") })
	label(t, i, "other")
	awaitEvent(t, pod, inline.ReasonVolumeHeld, onNode(t, pid))
	v.sees(pid, map[string]string{i.Name: "held"})
	if err := sys.Client.Delete(limited(t), i); err != nil {
		t.Fatal(err)
	}
	_, err := system.Await(limited(t), sys, &volumesv1alpha1.VolumeAttachmentIntentList{}, client.ObjectKeyFromObject(i),
		func(i *volumesv1alpha1.VolumeAttachmentIntent) bool {
			if i == nil {
				return false
			}
			c := meta.FindStatusCondition(i.Status.Conditions, volumesv1alpha1.ConditionPublished)
			return c != nil && c.Reason == volumesv1alpha1.ReasonUsedByPods &&
				strings.Contains(c.Message, "pod "+pod.Namespace+"/"+pod.Name) &&
				strings.Contains(c.Message, onNode(t, pid))
		})
	if err != nil {
		dump(t)
		t.Errorf("intent %s does not name pod and process: %v", i.Name, err)
	}
	// An agent that comes after knows it too.
	if err := sys.Kill(system.Agent(nodeA)); err != nil {
		t.Fatal(err)
	}
	startAgain(t, system.Agent(nodeA))
	v.notUnstaged()
	v.sees(pid, map[string]string{i.Name: "held"})
	if err := syscall.Kill(pid, syscall.SIGUSR1); err != nil { // it closes the file
		t.Fatal(err)
	}
	v.sees(pid, nil)
	if err := sys.AwaitGone(limited(t), namespace, i.Name); err != nil {
		dump(t)
		t.Error(err)
	}
	remove(t, pod)
	v.leavesNothing(nodeA)
}

func hasOpen(pid int, suffix string) (bool, error) {
	links, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	return slices.ContainsFunc(links, func(link string) bool {
		path, err := os.Readlink(link)
		return err == nil && strings.HasSuffix(path, suffix)
	}), err
}

func TestTheVolumesOfADirectorySurviveTheirPods(t *testing.T) {
	inlineVolumes(t)
	v, i := filled(t, nodeA, "kept")
	label(t, i, "kept")
	pod := v.inline(nodeA, selecting("kept"), receives)
	runs(t, pod)
	pid := processOf(t, pod)
	v.sees(pid, map[string]string{i.Name: "kept"})
	// A tenant lays links in the volume: they lead nowhere but in the container.
	if err := os.Symlink("/etc", inContainer(pid, filepath.Join("/data", i.Name, "link"))); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/etc", inContainer(pid, "/data/link")); !errors.Is(err, syscall.EROFS) {
		t.Errorf("laying a link in the directory: error %v, want %v", err, syscall.EROFS)
	}

	// The container ends, and the next one sees the directory as it is.
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if _, err := awaitPod(t, pod.Name, func(p *corev1.Pod) bool {
		return p != nil && isReady(p) && p.Status.ContainerStatuses[0].RestartCount > 0
	}); err != nil {
		dump(t)
		t.Fatal(err)
	}
	pid = processOf(t, pod)
	v.sees(pid, map[string]string{i.Name: "kept"})
	label(t, i, "other")
	v.sees(pid, nil)
	label(t, i, "kept")
	v.sees(pid, map[string]string{i.Name: "kept"})

	// The pod is deleted with force while no agent runs. The kubelet waits for one.
	if err := sys.Kill(system.Agent(nodeA)); err != nil {
		t.Fatal(err)
	}
	if err := sys.Client.Delete(limited(t), pod, client.GracePeriodSeconds(0)); err != nil {
		t.Fatal(err)
	}
	gone(t, pod)
	v.eventually("the container ended", func() (bool, error) {
		_, err := os.Stat(fmt.Sprintf("/proc/%d", pid))
		return errors.Is(err, fs.ErrNotExist), nil
	})
	v.publishes(nodeA, i, "kept")
	startAgain(t, system.Agent(nodeA))
	v.eventually("the record of the pod gone", func() (bool, error) {
		records, err := filepath.Glob(filepath.Join(sys.AgentRoot(nodeA), "pods", "*"))
		return len(records) == 0, err
	})
	v.publishes(nodeA, i, "kept")
	v.release(i)
	v.leavesNothing(nodeA)
}

func TestADirectoryIsReadOnlyAndRefusedAsThePodAsks(t *testing.T) {
	inlineVolumes(t)
	v, i := filled(t, nodeA, "read")
	label(t, i, "read")
	file := "/data/" + i.Name + "/file"
	reader := v.inline(nodeA, selecting("read"), func(pod *corev1.Pod) {
		receives(pod)
		readOnly(pod)
	}, []string{"read", file, "read"}, []string{"refused", file})
	runs(t, reader)
	writer := v.inline(nodeA, selecting("read"), receives, []string{"write", file, "read"},
		[]string{"refused", "/data/" + "file"})
	runs(t, writer)
	deaf := v.inline(nodeA, selecting("read"), nil, []string{"read", file, "read"})
	runs(t, deaf)
	awaitEvent(t, deaf, inline.ReasonMountPropagation, "without mountPropagation HostToContainer")
	refused(t, v.inline(nodeA, selecting("read"), func(pod *corev1.Pod) {
		mounts(pod, func(m *corev1.VolumeMount) { m.SubPath = i.Name })
	}), "mounts a subPath of it")
	refused(t, v.inline(nodeA, map[string]string{volumesv1alpha1.AttributeIntents: ""}, receives), "is an empty selector")
	refused(t, v.inline(nodeA, map[string]string{volumesv1alpha1.AttributeIntents: "app=read",
		volumesv1alpha1.AttributeIntent: i.Name}, receives), "name one of them")

	// The deaf pod has a copy that no change reaches, so the volume stays until it has ended.
	label(t, i, "other")
	awaitEvent(t, deaf, inline.ReasonVolumeHeld, "without mountPropagation HostToContainer")
	v.sees(processOf(t, reader), nil)
	v.sees(processOf(t, deaf), map[string]string{i.Name: "read"})
	for _, pod := range []*corev1.Pod{deaf, reader, writer} {
		remove(t, pod)
	}
	v.publishes(nodeA, i, "read")
	v.release(i)
	v.leavesNothing(nodeA)
}
