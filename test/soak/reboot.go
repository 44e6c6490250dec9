/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/hawser-io/hawser/test/csiloop/ledger"
	"github.com/hawser-io/hawser/test/csiloop/loopdev"
	"github.com/hawser-io/hawser/test/system"
)

// rebootNode removes every mount and every device of the node, as a reboot does. Its agent and kubelet do not run.
func (l *loss) rebootNode(ctx context.Context) error {
	l.say("%s reboots", l.node)
	if err := kill(l.sys.Dir, system.NodeDriver(l.node)); err != nil {
		return err
	}
	if err := clearAway(filepath.Join(l.sys.Dir, "nodes", l.node),
		filepath.Join(l.sys.BackingDir(), "nodes", l.node)); err != nil {
		return err
	}
	if err := ledger.NoteReboot(l.sys.BackingDir(), l.node); err != nil {
		return err
	}
	return l.sys.StartAgain(ctx, system.NodeDriver(l.node))
}

// takeDown ends what an earlier soak left in its directory, and removes the directory.
func takeDown(ctx context.Context, sys *system.System) error {
	if _, err := os.Stat(sys.Dir); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err := errors.Join(stopAll(sys), clearAway(sys.Dir, sys.Dir)); err != nil {
		return err
	}
	return sys.Down(ctx)
}

// clearAway unmounts everything below one directory, and detaches the devices of the files below the other.
func clearAway(mountedBelow, storedBelow string) error {
	mounts, err := system.MountsBelow(mountedBelow)
	if err != nil {
		return err
	}
	for _, path := range mounts {
		if err := unix.Unmount(path, unix.MNT_DETACH); err != nil && !errors.Is(err, unix.EINVAL) {
			return fmt.Errorf("unmounting %s: %w", path, err)
		}
	}
	devices, err := loopdev.List()
	if err != nil {
		return err
	}
	for _, d := range devices {
		if strings.HasPrefix(d.Backing, storedBelow+"/") {
			if err := d.Detach(); err != nil {
				return fmt.Errorf("detaching %s: %w", d.Path, err)
			}
		}
	}
	return nil
}
