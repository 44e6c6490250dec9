/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package system

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/mount-utils"
)

// MountsBelow lists the mount points below dir, deepest first.
func MountsBelow(dir string) ([]string, error) {
	infos, err := mount.ParseMountInfo("/proc/self/mountinfo")
	if err != nil {
		return nil, fmt.Errorf("reading the mount table: %w", err)
	}
	var below []string
	for _, info := range infos {
		if strings.HasPrefix(info.MountPoint, strings.TrimSuffix(dir, "/")+"/") {
			below = append([]string{info.MountPoint}, below...)
		}
	}
	return below, nil
}

// MountIDs maps each mount point below dir to the kernel's number of the top-most mount. The same number later
// means that the mount was not unmounted meanwhile. Since Linux 6.8 no other mount gets the number; an older
// kernel may reuse it.
func MountIDs(dir string) (map[string]uint64, error) {
	mounts, err := MountsBelow(dir)
	if err != nil {
		return nil, err
	}
	ids := map[string]uint64{}
	for _, path := range mounts {
		var stat unix.Statx_t
		if err := unix.Statx(unix.AT_FDCWD, path, unix.AT_STATX_DONT_SYNC, unix.STATX_MNT_ID|unix.STATX_MNT_ID_UNIQUE,
			&stat); err != nil {
			return nil, fmt.Errorf("reading the mount ID of %s: %w", path, err)
		}
		ids[path] = stat.Mnt_id
	}
	return ids, nil
}

// AwaitMount waits until the mount at path has another number than old. It polls, so that it cannot miss the kernel's
// signal of a changed mount table.
func (s *System) AwaitMount(ctx context.Context, path string, old uint64) error {
	err := wait.PollUntilContextCancel(ctx, 50*time.Millisecond, true, func(context.Context) (bool, error) {
		ids, err := MountIDs(filepath.Dir(path))
		return ids[path] != 0 && ids[path] != old, err
	})
	if err != nil {
		return fmt.Errorf("waiting for a mount at %s: %w", path, err)
	}
	return nil
}

// LoopDevicesOn lists the loop devices whose backing file is (or was, before it was unlinked) below dir.
func LoopDevicesOn(dir string) ([]string, error) {
	files, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	if err != nil {
		return nil, fmt.Errorf("listing loop devices: %w", err)
	}
	var devices []string
	for _, file := range files {
		backing, err := os.ReadFile(file)
		if err != nil {
			continue // the device was detached meanwhile
		}
		if strings.HasPrefix(string(backing), strings.TrimSuffix(dir, "/")+"/") {
			devices = append(devices, "/dev/"+strings.Split(file, "/")[3])
		}
	}
	return devices, nil
}
