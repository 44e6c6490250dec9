/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package node

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/hawser-io/hawser/test/system"
)

// besideMounts measures one volume at a time and many at once again, beside as many bind mounts as nodes with many pods
// have.
func (b *bench) besideMounts(ctx context.Context) (err error) {
	if b.beside == 0 {
		return nil
	}
	dir, err := os.MkdirTemp("", "hawser-beside")
	if err != nil {
		return fmt.Errorf("making a directory for the mounts: %w", err)
	}
	if err := unix.Mount("none", dir, "tmpfs", 0, ""); err != nil {
		return errors.Join(fmt.Errorf("mounting a tmpfs: %w", err), os.Remove(dir))
	}
	// What is mounted in the tmpfs goes with it.
	defer func() { err = errors.Join(err, unix.Unmount(dir, unix.MNT_DETACH), os.Remove(dir)) }()
	for i := range b.beside {
		target := filepath.Join(dir, strconv.Itoa(i))
		if err := os.Mkdir(target, 0o700); err != nil {
			return fmt.Errorf("making a mount point: %w", err)
		}
		if err := unix.Mount(dir, target, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("mounting %s: %w", target, err)
		}
	}
	pid, err := b.PID(system.Agent(node))
	if err != nil {
		return err
	}
	table, err := os.ReadFile(fmt.Sprintf("/proc/%d/mountinfo", pid))
	if err != nil {
		return fmt.Errorf("reading the mount table of the agent: %w", err)
	}
	b.say("\nbeside more mounts: %d lines in the mount table of the agent", bytes.Count(table, []byte("\n")))
	for _, part := range []func(context.Context) error{b.alone, b.together, b.release} {
		if err := part(ctx); err != nil {
			return err
		}
	}
	return nil
}
