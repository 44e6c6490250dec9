/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package driver

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// giveToGroup allows the group to read and write everything on the volume. It changes the root last. A root that
// belongs to the group proves, also for a later stage, that everything does.
func giveToGroup(root, group string) error {
	if group == "" {
		return nil
	}
	gid, err := strconv.Atoi(group)
	if err != nil || gid < 0 {
		return status.Errorf(codes.InvalidArgument, "volume mount group %q is not a group id", group)
	}
	done, err := isGroups(root, gid)
	if err != nil || done {
		return err
	}
	err = filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
		if err != nil || path == root {
			return err
		}
		return giveEntry(path, gid)
	})
	if err == nil {
		err = giveEntry(root, gid)
	}
	if err != nil {
		return fmt.Errorf("giving the volume to group %d: %w", gid, err)
	}
	return nil
}

func isGroups(root string, gid int) (bool, error) {
	var stat unix.Stat_t
	if err := unix.Stat(root, &stat); err != nil {
		return false, fmt.Errorf("reading the volume's root: %w", err)
	}
	return int(stat.Gid) == gid && stat.Mode&unix.S_ISGID != 0 && stat.Mode&0o070 == 0o070, nil
}

func giveEntry(path string, gid int) error {
	if err := os.Lchown(path, -1, gid); err != nil {
		return err
	}
	info, err := os.Lstat(path) // after the chown, which clears setuid and setgid
	if err != nil {
		return err
	}
	mode := info.Mode()
	switch {
	case mode.IsDir():
		return os.Chmod(path, mode|fs.ModeSetgid|0o070)
	case mode.IsRegular():
		return os.Chmod(path, mode|0o060)
	}
	return nil
}
