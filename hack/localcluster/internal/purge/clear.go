/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package purge

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
)

// Unmount unmounts everything below the directory, the latest mount first, and prints each mount point. The path has no
// symbolic link in it. A mount that a process still uses leaves the directory and ends with its last user.
func Unmount(path string, out io.Writer) error {
	mounts, err := mountinfo.GetMounts(func(m *mountinfo.Info) (skip, stop bool) {
		return !strings.HasPrefix(m.Mountpoint, path+"/"), false
	})
	if err != nil {
		return fmt.Errorf("reading the mount table: %w", err)
	}
	var problems []error
	for _, m := range slices.Backward(mounts) {
		how, err := unmount(m.Mountpoint)
		if err != nil {
			problems = append(problems, fmt.Errorf("unmounting %s: %w", m.Mountpoint, err))
			continue
		}
		_, _ = fmt.Fprintf(out, "%s %s, %s of %s\n", how, m.Mountpoint, m.FSType, m.Source) // progress only
	}
	return errors.Join(problems...)
}

// unmount returns what it did.
func unmount(path string) (string, error) {
	err := unix.Unmount(path, unix.UMOUNT_NOFOLLOW)
	if errors.Is(err, unix.EBUSY) {
		return "unmounted, though in use:", unix.Unmount(path, unix.UMOUNT_NOFOLLOW|unix.MNT_DETACH)
	}
	return "unmounted", err
}
