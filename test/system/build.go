/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package system

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/hawser-io/hawser/test/apiserver"
)

// BuildRace builds every program with the race detector and returns their directory. Processes may call it
// concurrently: the second one finds everything built, and does not replace the programs that the first one
// runs.
func BuildRace(ctx context.Context) (string, error) {
	bin := filepath.Join(apiserver.Root(), ".cache", "race")
	lock, err := lockFolder(bin)
	if err != nil {
		return "", fmt.Errorf("locking the directory of the programs: %w", err)
	}
	return bin, errors.Join(
		goBuild(ctx, apiserver.Root(), bin, "./cmd/manager", "./cmd/agent", "./test/csiloop/cmd/csi-loop"),
		goBuild(ctx, filepath.Join(apiserver.Root(), "hack", "localcluster"), bin, "."),
		lock.Close(),
	)
}

// Build builds every program without the race detector, the operator too, and returns their directory.
func Build(ctx context.Context) (string, error) {
	bin := filepath.Join(apiserver.Root(), ".cache", "plain")
	lock, err := lockFolder(bin)
	if err != nil {
		return "", fmt.Errorf("locking the directory of the programs: %w", err)
	}
	run := func(dir string, packages ...string) error {
		cmd := exec.CommandContext(ctx, "go", append([]string{"build", "-ldflags=-s -w", "-o", bin + "/"}, packages...)...)
		cmd.Dir = dir
		return runBuild(cmd)
	}
	return bin, errors.Join(
		run(apiserver.Root(), "./cmd/manager", "./cmd/agent", "./cmd/operator", "./test/csiloop/cmd/csi-loop"),
		run(filepath.Join(apiserver.Root(), "hack", "localcluster"), "."),
		lock.Close(),
	)
}

// lockFolder creates a directory and waits until no other process has locked it. Closing the file unlocks it.
func lockFolder(path string) (*os.File, error) {
	if err := os.MkdirAll(path, 0o755); err != nil {
		return nil, err
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	return file, unix.Flock(int(file.Fd()), unix.LOCK_EX)
}

// BuildStatic builds a program without libraries, for a container without other files, and returns its path.
func BuildStatic(ctx context.Context, pkg string) (string, error) {
	program := filepath.Join(apiserver.Root(), ".cache", "static", filepath.Base(pkg))
	cmd := exec.CommandContext(ctx, "go", "build", "-o", program, pkg)
	cmd.Dir, cmd.Env = apiserver.Root(), append(os.Environ(), "CGO_ENABLED=0")
	return program, runBuild(cmd)
}

func goBuild(ctx context.Context, dir, bin string, packages ...string) error {
	cmd := exec.CommandContext(ctx, "go", append([]string{"build", "-race", "-o", bin + "/"}, packages...)...)
	cmd.Dir = dir
	return runBuild(cmd)
}

func runBuild(cmd *exec.Cmd) error {
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("running %v: %w: %s", cmd.Args, err, out)
	}
	return nil
}
