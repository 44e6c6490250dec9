/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package agent

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/handshake"
	"github.com/hawser-io/hawser/test/csiloop/harness/harnesstest"
	"github.com/hawser-io/hawser/test/holder"
)

func TestARealVolumeThatAProcessStillUsesIsNotReleased(t *testing.T) {
	harnesstest.NeedRoot(t)
	for _, program := range []string{"mkfs.ext4", "mkfs.xfs"} {
		harnesstest.NeedProgram(t, program)
	}
	c := newCluster(t)
	for name, test := range map[string]func(*testing.T, *realNode){
		"a container with a private copy of an ext4 mount": func(t *testing.T,
			n *realNode) {
			testHeldFilesystem(t, n, "ext4", 64)
		},
		"a container with a private copy of an xfs mount": func(t *testing.T,
			n *realNode) {
			testHeldFilesystem(t, n, "xfs", 320)
		},
		"a process with a raw device open":                 testHeldDevice,
		"a container with a private copy of the kubelet's": testHeldFromKubelet,
		"over a restart of the agent":                      testHeldOverARestart,
	} {
		t.Run(name, func(t *testing.T) { test(t, c.realNode(t)) })
	}
}

// heldBy waits until the intent and the node's state name the process.
func (n *realNode) heldBy(v testVolume, i *volumesv1alpha1.VolumeAttachmentIntent, p holder.Process) {
	n.t.Helper()
	process := fmt.Sprintf("process %d (sh)", p.PID)
	n.line(v, "in use by "+process, func(l *volumesv1alpha1.NodeVolume) bool {
		return l != nil && l.InUse && l.Error != nil && l.Error.Code == volumesv1alpha1.ReasonDeviceHeld &&
			strings.Contains(l.Error.Message, process)
	})
	if i == nil {
		return
	}
	got := n.condition(i, volumesv1alpha1.ConditionPublished, volumesv1alpha1.ReasonDeviceHeld)
	if !strings.Contains(got.Status.LastError.Message, process) {
		n.t.Errorf("intent %s: lastError %+v, want it to name %s", got.Name, got.Status.LastError, process)
	}
}

func testHeldFilesystem(t *testing.T, n *realNode, fsType string, mib int64) {
	v := n.volume(corev1.PersistentVolumeFilesystem, fsType, mib)
	n.start()
	n.attach(v, "uid-1")
	i := n.want(v, "data")
	path := n.ready(i).Status.Path
	p, inside := holder.Container(t, path)
	n.release(i)
	n.heldBy(v, i, p)
	if err := os.WriteFile(filepath.Join(inside, "late"), []byte("x"), 0o600); err != nil {
		t.Errorf("writing through the copy of the mount: error %v, want none: otherwise it would show nothing", err)
	}
	p.End()
	n.end(v)
}

func testHeldDevice(t *testing.T, n *realNode) {
	v := n.volume(corev1.PersistentVolumeBlock, "", 64)
	n.start()
	n.attach(v, "uid-1")
	i := n.want(v, "data")
	p := holder.Start(t, "exec 7<>"+n.ready(i).Status.DevicePath, nil)
	n.release(i)
	n.heldBy(v, i, p)
	p.End()
	n.end(v)
}

func testHeldFromKubelet(t *testing.T, n *realNode) {
	v := n.volume(corev1.PersistentVolumeFilesystem, "ext4", 64)
	k := n.kubeletOf()
	a := n.start()
	n.attach(v, "uid-1")
	k.stage(v)
	target := k.publish(v, "pod-1")
	n.line(v, "the kubelet's line", usedByKubelet("uid-1"))
	p, _ := holder.Container(t, target)
	k.unpublish(v, "pod-1")
	k.unstage(v)
	n.heldBy(v, nil, p)
	a.kill()
	n.start()
	n.looked()
	n.heldBy(v, nil, p)
	// An intent may use it meanwhile, and ends before the process does.
	i := n.want(v, "data")
	n.ready(i)
	n.release(i)
	n.heldBy(v, i, p)
	p.End()
	n.end(v)
}

func testHeldOverARestart(t *testing.T, n *realNode) {
	v := n.volume(corev1.PersistentVolumeFilesystem, "ext4", 64)
	a := n.start()
	n.attach(v, "uid-1")
	i := n.want(v, "data")
	p, _ := holder.Container(t, n.ready(i).Status.Path)
	n.release(i)
	n.heldBy(v, i, p)
	a.kill()
	n.start()
	n.looked()
	n.heldBy(v, i, p)
	p.End()
	n.end(v)
}

// The kernel cannot be asked about a volume without a device: what proves its release is reported instead.
func TestTheReportTellsWhatTheReleaseOfAVolumeWithoutADeviceRestsOn(t *testing.T) {
	c := newCluster(t)
	n := c.node(t)
	n.kernel.noDevices = true
	n.start()
	v := testVolume{handle: "export"}
	n.attach(v, "uid-1")
	i := n.want(v, "data")
	n.ready(i)
	n.line(v, "the line", func(l *volumesv1alpha1.NodeVolume) bool { return l != nil && l.MountTableOnly })
	n.release(i)
	rests := func(s *volumesv1alpha1.NodeVolumeState) bool {
		r := s.Status.MountTableReleases
		return len(r) == 1 && r[0].VolumeName == v.name() && r[0].AttachmentUID == "uid-1"
	}
	n.state("what the release rests on", func(s *volumesv1alpha1.NodeVolumeState) bool {
		return handshake.VolumeOf(s, v.name()) == nil && rests(s)
	})
	n.changeState(func(s *volumesv1alpha1.NodeVolumeState) { s.Spec.Attachments = nil })
	other := testVolume{handle: "other"}
	n.attach(other, "uid-2")
	n.ready(n.want(other, "other"))
	n.state("nothing of a volume that is detached", func(s *volumesv1alpha1.NodeVolumeState) bool {
		return len(s.Status.MountTableReleases) == 0
	})
}
