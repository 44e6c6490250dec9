/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package advice

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/test/csiloop/faults"
	"github.com/hawser-io/hawser/test/system"
)

// broken is a situation in which the driver answers a call with an error until it is repaired.
func broken(code, way, method string, answer codes.Code, message string) situation {
	return situation{code: code, way: way, act: repaired, ends: (*story).ready,
		comes: func(s *story) question {
			pv := s.volume()
			s.fails(faults.Fault{Method: method, Volume: pv.Spec.CSI.VolumeHandle, Code: answer, Message: message})
			return s.wants(nodeA)
		}}
}

// kept is a situation in which the release of a volume fails until it is repaired.
func kept(code, way, method string) situation {
	return situation{code: code, way: way, act: repaired, ends: (*story).isGone,
		comes: func(s *story) question {
			pv := s.volume()
			q := s.wants(nodeA)
			s.ready()
			s.fails(faults.Fault{Method: method, Volume: pv.Spec.CSI.VolumeHandle, Code: codes.Internal, Message: "it broke"})
			s.dropped(s.intent)
			return q
		}}
}

// opens has this process use a file or a device until it is closed.
func (s *story) opens(path string) {
	s.t.Helper()
	file, err := os.Open(path)
	s.must(err)
	s.end = func() { _ = file.Close() } // it was only opened
	s.t.Cleanup(s.end)
}

// deviceAt is the device that a volume is published as.
func (s *story) deviceAt(path string) string {
	s.t.Helper()
	var stat unix.Stat_t
	s.must(unix.Stat(path, &stat))
	link, err := os.Readlink(fmt.Sprintf("/sys/dev/block/%d:%d", unix.Major(stat.Rdev), unix.Minor(stat.Rdev)))
	s.must(err)
	return filepath.Join("/dev", filepath.Base(link))
}

func withGroup(group int64) func(*intent) {
	return func(i *intent) { i.Spec.Mount = &volumesv1alpha1.MountSpec{FSGroup: ptr.To(group)} }
}

func withSubPath(i *intent) { i.Spec.Mount = &volumesv1alpha1.MountSpec{SubPath: "a/b"} }

func (s *story) published(name string) string { return s.sys.PublishedPath(nodeA, namespace, name) }

func TestVolumesOnTheNode(t *testing.T) {
	play(t, map[string]situation{
		"an attach that fails": broken("HWS202", "error names the cause", "ControllerPublishVolume", codes.Internal,
			"it broke"),
		"a stage that fails": broken("HWS306", "error names the cause", "NodeStageVolume", codes.Internal, "it broke"),
		"a publish that fails": broken("HWS307", "error names the cause", "NodePublishVolume", codes.Internal,
			"it broke"),
		"an unpublish that fails": kept("HWS309", "error names the cause", "NodeUnpublishVolume"),
		"an unstage that fails":   kept("HWS310", "error names the cause", "NodeUnstageVolume"),
		"an answer that is none": broken("HWS313", "read the log of the driver's node plugin", "NodeStageVolume",
			codes.Aborted, "an operation is pending"),
		"a filesystem that the node does not know": broken("HWS315", "Install the filesystem's module", "NodeStageVolume",
			codes.Internal, "mount failed: exit status 32: unknown filesystem type 'btrfs'"),
		"a tool that is missing": broken("HWS316", "Install it where the driver's node plugin runs", "NodeStageVolume",
			codes.Internal, `exec: "mkfs.btrfs": executable file not found in $PATH`),
		"a call that hangs": {code: "HWS715", way: "See whether the storage can be reached", act: repaired,
			ends: (*story).ready,
			comes: func(s *story) question {
				pv := s.volume()
				s.fails(faults.Fault{Method: "NodeStageVolume", Volume: pv.Spec.CSI.VolumeHandle, Action: faults.Hang})
				return s.wants(nodeA)
			}},
		"another filesystem on the device": {code: "HWS317", way: "use an empty volume", ends: (*story).ready,
			comes: func(s *story) question {
				pv := s.handmade(func(*corev1.PersistentVolume) {})
				s.bash("mkfs.btrfs -q -f --mixed " + s.sys.BackingFile(pv.Spec.CSI.VolumeHandle))
				return s.wants(nodeA)
			},
			act: func(s *story) { s.another(nodeA) }},
		"another group on the node": {code: "HWS321", way: "delete the other intent", ends: (*story).ready,
			comes: func(s *story) question {
				s.volume()
				s.wantsAs(s.name+"-first", s.name, nodeA, withGroup(2000))
				s.ready()
				return s.wants(nodeA, withGroup(3000))
			},
			act: func(s *story) { s.dropped(s.name + "-first") }},
		"a file at the published path": {code: "HWS322", way: "Remove it on the node", ends: (*story).ready,
			comes: func(s *story) question {
				s.volume()
				s.must(os.MkdirAll(filepath.Dir(s.published(s.name)), 0o755))
				s.must(os.WriteFile(s.published(s.name), []byte("mine"), 0o600))
				return s.wants(nodeA)
			},
			act: func(s *story) { s.must(os.Remove(s.published(s.name))) }},
		"a sub path that does not exist": {code: "HWS323", way: "Create the directory in the volume", ends: (*story).ready,
			comes: func(s *story) question {
				s.volume()
				s.wantsAs(s.name+"-whole", s.name, nodeA)
				s.other = s.path()
				return s.wants(nodeA, withSubPath)
			},
			act: func(s *story) { s.must(os.MkdirAll(filepath.Join(s.other, "a", "b"), 0o755)) }},
		"a Secret that does not exist": {code: "HWS324", way: "Create the Secret", ends: (*story).ready,
			comes: func(s *story) question {
				s.handmade(func(pv *corev1.PersistentVolume) {
					pv.Spec.CSI.NodeStageSecretRef = &corev1.SecretReference{Namespace: namespace, Name: s.name}
				})
				s.bash("kubectl create rolebinding granter -n " + namespace + " --clusterrole=" +
					system.Name("hawser-secret-granter") + " --serviceaccount=" + system.Account("hawser-manager"))
				return s.wants(nodeA)
			},
			act: func(s *story) {
				s.create(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: s.name}})
			}},
		"a foreign mount at the published path": {code: "HWS322", way: "Remove it on the node", ends: (*story).ready,
			comes: func(s *story) question {
				s.volume()
				q := s.wants(nodeA)
				s.other = s.path()
				s.must(unix.Mount("tmpfs", s.other, "tmpfs", 0, "size=16k"))
				s.t.Cleanup(func() { _ = unix.Unmount(s.other, unix.MNT_DETACH) }) // if the test has not
				return q
			},
			act: func(s *story) { s.must(unix.Unmount(s.other, 0)) }},
		"a device that a process holds": {code: "HWS329", way: "End the process", ends: (*story).isGone,
			comes: func(s *story) question {
				s.volume(asBlock)
				q := s.wants(nodeA)
				s.opens(s.deviceAt(s.path()))
				s.dropped(s.intent)
				return q
			}, act: repaired},
		"a volume that has become read-only": {code: "HWS433", way: "repair the storage",
			comes: func(s *story) question {
				s.volume()
				q := s.wants(nodeA)
				s.other = s.path()
				s.bash("mount -o remount,ro " + s.other)
				return q
			},
			act: func(s *story) { s.bash("mount -o remount,rw " + s.other) }},
		"a release that a process delays": {code: "HWS335", way: "End what uses it", ends: (*story).isGone,
			comes: func(s *story) question {
				s.volume()
				q := s.wants(nodeA)
				path := s.path()
				s.must(os.WriteFile(filepath.Join(path, "log"), nil, 0o600))
				s.opens(filepath.Join(path, "log"))
				s.dropped(s.intent)
				return q
			}, act: repaired},
		"a volume that is full": {code: "HWS425", way: "delete files",
			comes: func(s *story) question {
				s.volume()
				q := s.wants(nodeA)
				s.other = filepath.Join(s.path(), "filler")
				_ = exec.CommandContext(s.t.Context(), "dd", "if=/dev/zero", "of="+s.other, "bs=1M").Run() // no space left
				return q
			},
			act: func(s *story) { s.must(os.Remove(s.other)) }},
	})
}
