/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package machine

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
)

func TestAControlGroupIsCreatedInEveryHierarchyAndRemovedOnceItIsEmpty(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("LEFT OUT (needs root, for control groups)")
	}
	name := fmt.Sprintf("/localcluster-test-%d", os.Getpid())
	paths, err := hierarchies()
	if err != nil {
		t.Fatal(err)
	}
	if err := MakeControlGroup(name + "/node/pod"); err != nil {
		t.Fatal(err)
	}
	for _, top := range paths {
		if _, err := os.Stat(filepath.Join(top, name, "node", "pod")); err != nil {
			t.Error(err)
		}
	}
	holder := exec.Command("sleep", "600")
	if err := holder.Start(); err != nil {
		t.Fatal(err)
	}
	held := filepath.Join(paths[0], name, "node", "pod")
	if err := os.WriteFile(filepath.Join(held, "cgroup.procs"), []byte(strconv.Itoa(holder.Process.Pid)), 0); err != nil {
		t.Error(err)
	}
	if err := RemoveControlGroup(name); err == nil {
		t.Error("removed from under a process")
	}
	if _, err := os.Stat(held); err != nil {
		t.Error(err)
	}
	_ = holder.Process.Kill()
	_ = holder.Wait() // it was killed

	for range 2 { // the second call does nothing
		if err := RemoveControlGroup(name); err != nil {
			t.Error(err)
		}
	}
	for _, top := range paths {
		if _, err := os.Stat(filepath.Join(top, name)); !os.IsNotExist(err) {
			t.Errorf("%s is still there: %v", top, err)
		}
	}
}
