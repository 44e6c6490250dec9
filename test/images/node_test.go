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
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"k8s.io/mount-utils"
)

// agentRoot is the agents' directory on each node.
const agentRoot = "/var/lib/hawser"

// onNode is the path by which this process finds a file of a node, with the node's mounts.
func (s suite) onNode(t *testing.T, node, path string) string {
	t.Helper()
	return filepath.Join("/proc", s.machine(t, node), "root", path)
}

// mountTable has the mounts of a node, without those of its containers.
func (s suite) mountTable(t *testing.T, node string) []mount.MountInfo {
	t.Helper()
	infos, err := mount.ParseMountInfo("/proc/" + s.machine(t, node) + "/mountinfo")
	check(t, err)
	return infos
}

// mountLine identifies a mount. The first number may be given to another mount later, the second is unique.
func (s suite) mountLine(t *testing.T, node string, info mount.MountInfo) string {
	t.Helper()
	var stat unix.Statx_t
	path := s.onNode(t, node, info.MountPoint)
	if err := unix.Statx(unix.AT_FDCWD, path, unix.AT_STATX_DONT_SYNC, unix.STATX_MNT_ID_UNIQUE, &stat); err != nil {
		t.Fatalf("node %s: reading the mount ID of %s: %v", node, info.MountPoint, err)
	}
	return fmt.Sprintf("mount %d (%d) of device %d:%d, root %s, at %s", info.ID, stat.Mnt_id, info.Major, info.Minor,
		info.Root, info.MountPoint)
}

// volumeMounts are the stages, the publications and the mounts in these pods: every mount of the node that Hawser or
// the kubelet made for a volume.
func (s suite) volumeMounts(t *testing.T, node string, pods []string) []string {
	t.Helper()
	kubelet := s.KubeletDir(node)
	var lines []string
	for _, info := range s.mountTable(t, node) {
		if below(info.MountPoint, agentRoot) || below(info.MountPoint, filepath.Join(kubelet, "plugins")) ||
			slices.ContainsFunc(pods, func(uid string) bool {
				return below(info.MountPoint, filepath.Join(kubelet, "pods", uid))
			}) {
			lines = append(lines, s.mountLine(t, node, info))
		}
	}
	slices.Sort(lines)
	return lines
}

func below(path, dir string) bool { return strings.HasPrefix(path, dir+"/") }

// isMounted reports whether something is mounted on a node at path.
func (s suite) isMounted(t *testing.T, node, path string) bool {
	t.Helper()
	return slices.ContainsFunc(s.mountTable(t, node), func(info mount.MountInfo) bool { return info.MountPoint == path })
}

// differ compares two lists of lines without order, and reports what is gone and what came.
func differ(t *testing.T, what string, before, after []string) {
	t.Helper()
	if len(before) != len(after) {
		t.Errorf("%s: %d now, want the %d of before", what, len(after), len(before))
	}
	lack(t, what+": gone or changed", before, after)
	lack(t, what+": not there before", after, before)
}

// lack reports the first few lines that others lack.
func lack(t *testing.T, problem string, lines, others []string) {
	t.Helper()
	const shown = 20
	missing := slices.DeleteFunc(slices.Clone(lines), func(line string) bool { return slices.Contains(others, line) })
	for _, line := range missing[:min(len(missing), shown)] {
		t.Errorf("%s: %s", problem, line)
	}
	if len(missing) > shown {
		t.Errorf("%s: and %d more", problem, len(missing)-shown)
	}
}

// useFile writes a file of a volume on a node and reads it.
func (s suite) useFile(t *testing.T, node, path, text string) {
	t.Helper()
	file := s.onNode(t, node, path)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Errorf("node %s: the volume cannot be written: %v", node, err)
		return
	}
	got, err := os.ReadFile(file)
	if err != nil || string(got) != text {
		t.Errorf("node %s: %s contains %q (%v), want %q", node, path, got, err, text)
	}
}
