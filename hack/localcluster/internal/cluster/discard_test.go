/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package cluster

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hawser-io/hawser/hack/localcluster/internal/process"
)

// loopOn sets up a loop device on a new file and mounts nothing.
func loopOn(t *testing.T, path string) string {
	t.Helper()
	if err := os.WriteFile(path, make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	output, err := exec.CommandContext(t.Context(), "losetup", "--find", "--show", path).CombinedOutput()
	if err != nil {
		t.Fatalf("setting up a loop device: %v: %s", err, output)
	}
	return strings.TrimSpace(string(output))
}

func TestDiscardTakesProcessesMountsDevicesAndTheDirectory(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("LEFT OUT (needs root): mounting")
	}
	parent := t.TempDir()
	if err := os.Mkdir(filepath.Join(parent, "real"), 0o755); err != nil {
		t.Fatal(err)
	}
	// The mount table knows the directory by the path behind the link.
	if err := os.Symlink("real", filepath.Join(parent, "link")); err != nil {
		t.Fatal(err)
	}
	l := Layout{Root: filepath.Join(parent, "link", "c")}
	if err := l.prepare([]string{"node-a"}); err != nil {
		t.Fatal(err)
	}
	if _, err := l.ports(); err != nil {
		t.Fatal(err)
	}
	spec := process.Spec{Name: "guest", Program: "/bin/tail", Args: []string{"-f", l.portsFile()}}
	if err := startDetached(l, spec); err != nil {
		t.Fatal(err)
	}
	guest, err := l.Processes().Load("guest")
	if err != nil {
		t.Fatal(err)
	}
	published := filepath.Join(l.AgentRoot("node-a"), "published")
	if err := os.Mkdir(published, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", published, "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	device := loopOn(t, filepath.Join(l.Root, "volume.img"))

	var out bytes.Buffer
	if err := Discard(l, &out); err != nil {
		t.Fatal(err)
	}
	root := filepath.Join(parent, "real", "c")
	for _, line := range []string{
		"stopped guest\n", "unmounted " + root + "/nodes/node-a/root/published, tmpfs of tmpfs\n",
		fmt.Sprintf("detached %s from %s/volume.img\n", device, root), "deleted " + root + "\n",
	} {
		if !strings.Contains(out.String(), line) {
			t.Errorf("%q is missing in:\n%s", line, out.String())
		}
	}
	if guest.Running() {
		t.Error("the guest still runs")
	}
	if _, err := loopInfo(device); !errors.Is(err, unix.ENXIO) {
		t.Errorf("the loop device is still set up: %v", err)
	}
	if _, err := os.Stat(root); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the directory is still there: %v", err)
	}
	if err := Discard(l, &out); err != nil {
		t.Errorf("discarding what is gone: %v", err)
	}
}

func TestDiscardLeavesADirectoryThatIsNoClusters(t *testing.T) {
	l := Layout{Root: t.TempDir()}
	file := filepath.Join(l.Root, "precious")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Discard(l, &bytes.Buffer{}); err == nil {
		t.Error("no error")
	}
	if _, err := os.Stat(file); err != nil {
		t.Error(err)
	}
}
