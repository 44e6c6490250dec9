/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package mount

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/hawser-io/hawser/test/holder"
)

func symlink(t *testing.T, target, path string) {
	t.Helper()
	if err := os.Symlink(target, path); err != nil {
		t.Fatal(err)
	}
}

func TestADirectoryBehindALinkIsFoundByItsOwnName(t *testing.T) {
	needsRoot(t)
	dir := workspace(t)
	mkdir(t, dir, "data", "kubelet", "plugins", "target")
	source := mkdir(t, dir, "source")
	symlink(t, filepath.Join(dir, "data"), filepath.Join(dir, "lib")) // the link may be any part of the path
	symlink(t, "kubelet", filepath.Join(dir, "data", "linked"))
	kubelet := filepath.Join(dir, "lib", "linked")

	links, err := ResolveLinks(SelfMountInfo, kubelet, filepath.Join(dir, "data", "kubelet", "root"),
		filepath.Join(dir, "missing"))
	if err != nil {
		t.Fatal(err)
	}
	m := New(Options{Links: links})
	target := filepath.Join(kubelet, "plugins", "target")
	for range 2 { // the second time changes nothing
		if err := m.Bind(t.Context(), source, target, false, nil); err != nil {
			t.Fatal(err)
		}
	}
	table, err := m.Table()
	if err != nil {
		t.Fatal(err)
	}
	if e, ok := table.At(target); !ok || e.Path != target {
		t.Errorf("mount at %s: %+v, found %t; want it by this name", target, e, ok)
	}
	if below := paths(table.Below(kubelet)); !slices.Equal(below, []string{target}) {
		t.Errorf("mounts below %s: %q, want %s alone", kubelet, below, target)
	}
	if other := links.named(filepath.Join(dir, "data", "kubelet", "root", "a")); other != filepath.Join(dir, "data",
		"kubelet", "root", "a") {
		t.Errorf("name of a directory that is behind no link: %s, want its own", other)
	}
	if err := m.Unmount(t.Context(), target); err != nil {
		t.Fatal(err)
	}
	if table, err = ReadTable(SelfMountInfo); err != nil || len(table.Below(dir)) != 0 {
		t.Errorf("mounts below %s after the unmount: %q, error %v; want none", dir, paths(table.Below(dir)), err)
	}
}

func TestLinksAreResolvedInTheMountNamespaceOfTheTable(t *testing.T) {
	needsRoot(t)
	dir := workspace(t)
	p := holder.Isolated(t, fmt.Sprintf(`mount -t tmpfs tmpfs %[1]s
mkdir -p %[1]s/data/kubelet/a
ln -s %[1]s/data/kubelet %[1]s/kubelet
mount -t tmpfs tmpfs %[1]s/kubelet/a`, dir))

	mountInfo := fmt.Sprintf("/proc/%d/mountinfo", p.PID)
	kubelet := filepath.Join(dir, "kubelet") // does not exist in this process's mount namespace
	links, err := ResolveLinks(mountInfo, kubelet)
	if err != nil {
		t.Fatal(err)
	}
	table, err := New(Options{MountInfo: mountInfo, Links: links}).Table()
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := table.At(filepath.Join(kubelet, "a")); !ok {
		t.Errorf("no mount is found at %s/a of process %d, want one; links %+v", kubelet, p.PID, links)
	}
}

func TestAMountOverTheLinkItselfHidesNothingBehindIt(t *testing.T) {
	links := Links{{name: "/var/lib/kubelet", resolved: "/data/kubelet"}}
	text := `22 1 254:0 / / rw - ext4 /dev/vda rw
30 22 254:1 / /var rw - ext4 /dev/vdb rw
31 22 7:0 / /data/kubelet/a rw - ext4 /dev/loop0 rw
`
	if _, ok := parseNamed(t, text, links).At("/var/lib/kubelet/a"); !ok {
		t.Error("no mount is found at /var/lib/kubelet/a under a mount over /var, want that of /data/kubelet/a")
	}
	if e, ok := parseNamed(t, text, links).Shown("/var/lib/kubelet/b"); !ok || e.Major != 254 || e.Minor != 0 ||
		e.Root != "/data/kubelet/b" {
		t.Errorf("mount of /var/lib/kubelet/b: %+v, want 254:0 with root /data/kubelet/b", e)
	}
	text += "32 22 254:2 / /data rw - ext4 /dev/vdc rw\n"
	if e, ok := parseNamed(t, text, links).At("/var/lib/kubelet/a"); ok {
		t.Errorf("mount at /var/lib/kubelet/a under a mount over /data: %+v, want none", e)
	}
}
