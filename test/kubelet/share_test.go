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
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/test/csiloop/ledger"
	"github.com/hawser-io/hawser/test/system"
)

func TestABlockVolumeOfAPodAndAnIntentStaysUntilBothAreGone(t *testing.T) {
	if os.Getenv(attachVariable) != hawser {
		t.Skip("upstream does not know intents")
	}
	reportsOften(t)
	for _, node := range sys.Nodes { // the kubelet's directory of one of them is a symbolic link
		t.Run("the pod leaves first on "+node, func(t *testing.T) {
			v := newVolume(t, corev1.PersistentVolumeBlock)
			pod := v.pod(node, v.write("from the pod"))
			runs(t, pod)
			intent := v.intent(node)
			device := v.open(node, intent)
			device.reads("from the pod")

			remove(t, pod)
			v.isRefused(node)
			device.writes("from the intent")
			v.notUnstaged()
			device.close()
			runs(t, v.pod(node, v.read("from the intent"))) // the kubelet maps it again next to the reference
			v.notUnstaged()
			v.removePods(node)
			v.release(intent)
			v.cleanedUp(node)
		})
		t.Run("the intent leaves first on "+node, func(t *testing.T) {
			v := newVolume(t, corev1.PersistentVolumeBlock)
			intent := v.intent(node)
			device := v.open(node, intent)
			device.writes("from the intent")
			pod := v.pod(node, v.read("from the intent"), v.write("from the pod"))
			runs(t, pod)
			device.reads("from the pod")
			device.close()

			v.release(intent)
			runs(t, v.pod(node, v.read("from the pod")))
			v.notUnstaged()
			v.removePods(node)
			v.cleanedUp(node)
		})
	}
}

// intent publishes the volume on a node next to its pods.
func (v *volume) intent(node string) *volumesv1alpha1.VolumeAttachmentIntent {
	v.t.Helper()
	i := &volumesv1alpha1.VolumeAttachmentIntent{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: v.claim},
		Spec: volumesv1alpha1.VolumeAttachmentIntentSpec{
			NodeName: node,
			Volume: volumesv1alpha1.VolumeSource{
				PersistentVolumeClaim: &volumesv1alpha1.PersistentVolumeClaimSource{ClaimName: v.claim}},
		},
	}
	create(v.t, i)
	v.t.Cleanup(func() { v.release(i) })
	ready, err := sys.AwaitReady(limited(v.t), namespace, i.Name)
	if err != nil {
		dump(v.t)
		v.t.Fatal(err)
	}
	return ready
}

func (v *volume) release(i *volumesv1alpha1.VolumeAttachmentIntent) {
	v.t.Helper()
	if err := client.IgnoreNotFound(sys.Client.Delete(limited(v.t), i)); err != nil {
		v.t.Error(err)
	}
	if err := sys.AwaitGone(limited(v.t), i.Namespace, i.Name); err != nil {
		dump(v.t)
		v.t.Error(err)
	}
}

// removePods removes the volume's pods on a node.
func (v *volume) removePods(node string) {
	v.t.Helper()
	var pods corev1.PodList
	if err := sys.Client.List(limited(v.t), &pods, client.InNamespace(namespace)); err != nil {
		v.t.Fatal(err)
	}
	for _, pod := range pods.Items {
		for _, volume := range pod.Spec.Volumes {
			if c := volume.PersistentVolumeClaim; pod.Spec.NodeName == node && c != nil && c.ClaimName == v.claim {
				remove(v.t, &pod)
			}
		}
	}
}

// device is an intent's publication, open for reading and writing.
type device struct {
	t    *testing.T
	file *os.File
}

func (v *volume) open(node string, i *volumesv1alpha1.VolumeAttachmentIntent) device {
	v.t.Helper()
	pid, err := sys.PID(system.Machine(node))
	if err != nil {
		v.t.Fatal(err)
	}
	file, err := os.OpenFile(filepath.Join(fmt.Sprintf("/proc/%d/root", pid), i.Status.Path), os.O_RDWR|unix.O_SYNC, 0)
	if err != nil {
		v.t.Fatal(err)
	}
	v.t.Cleanup(func() { _ = file.Close() }) // most tests close it before
	return device{t: v.t, file: file}
}

func (d device) close() {
	d.t.Helper()
	if err := d.file.Close(); err != nil {
		d.t.Error(err)
	}
}

func (d device) reads(text string) {
	d.t.Helper()
	data := make([]byte, len(text))
	if _, err := d.file.ReadAt(data, 0); err != nil || string(data) != text {
		d.t.Errorf("device %s: content %q, error %v; want %q", d.file.Name(), data, err, text)
	}
}

func (d device) writes(text string) {
	d.t.Helper()
	if _, err := d.file.WriteAt(append([]byte(text), 0), 0); err != nil {
		d.t.Error(err)
	}
	d.reads(text)
}

// isRefused waits until the kubelet has tried to unstage the volume and was refused, or has unstaged it. The refusal
// appears only in the kubelet's log.
func (v *volume) isRefused(node string) {
	v.t.Helper()
	log := filepath.Join(sys.Dir, "logs", system.Kubelet(node)+".log")
	dev := filepath.Join(v.devices(node), "dev")
	v.eventually("the kubelet's attempt to unstage", func() (bool, error) {
		data, err := os.ReadFile(log)
		for line := range bytes.Lines(data) {
			if bytes.Contains(line, []byte("still referenced from other Pods")) && bytes.Contains(line, []byte(dev)) {
				return true, nil
			}
		}
		return v.unstaged(), err
	})
}

// eventually polls a condition without a signal.
func (v *volume) eventually(what string, ok func() (bool, error)) {
	v.t.Helper()
	err := wait.PollUntilContextTimeout(v.t.Context(), 100*time.Millisecond, longBackoff+waitTimeout, true,
		func(context.Context) (bool, error) { return ok() })
	if err != nil {
		dump(v.t)
		v.t.Fatalf("waiting for %s: %v", what, err)
	}
}

// longBackoff is the longest backoff of a kubelet.
const longBackoff = 2*time.Minute + 2*time.Second

func (v *volume) unstaged() bool {
	v.t.Helper()
	entries, err := ledger.Read(sys.BackingDir())
	if err != nil {
		v.t.Fatal(err)
	}
	for _, e := range entries {
		if e.Volume == v.handle && e.Method == "NodeUnstageVolume" {
			return true
		}
	}
	return false
}

func (v *volume) notUnstaged() {
	v.t.Helper()
	if v.unstaged() {
		v.t.Errorf("volume %s was unstaged while it is in use, want no call for that", v.handle)
	}
}

// devices is the kubelet's directory of the block volume.
func (v *volume) devices(node string) string {
	v.t.Helper()
	claim := &corev1.PersistentVolumeClaim{}
	if err := sys.Client.Get(limited(v.t), client.ObjectKey{Namespace: namespace, Name: v.claim}, claim); err != nil {
		v.t.Fatal(err)
	}
	return filepath.Join(sys.KubeletDir(node), "plugins", "kubernetes.io", "csi", "volumeDevices", claim.Spec.VolumeName)
}

// cleanedUp waits until the kubelet has unstaged the volume and removed its directories.
func (v *volume) cleanedUp(node string) {
	v.t.Helper()
	dir := v.devices(node)
	parent, name := filepath.Split(dir)
	dirs := []string{dir, filepath.Join(parent, "staging", name), filepath.Join(parent, "publish", name)}
	v.eventually("the end of "+strings.Join(dirs, ", "), func() (bool, error) {
		for _, dir := range dirs {
			if _, err := os.Lstat(dir); !errors.Is(err, fs.ErrNotExist) {
				return false, err
			}
		}
		return v.unstaged(), nil
	})
}
