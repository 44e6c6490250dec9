/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package driver

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/hawser-io/hawser/internal/mount"
	"github.com/hawser-io/hawser/test/csiloop/loopdev"
)

// resolve returns the path as in the mount table. Its last element need not exist.
func resolve(path string) (string, error) {
	if !filepath.IsAbs(path) {
		return "", fmt.Errorf("path %q is not absolute", path)
	}
	dir, err := filepath.EvalSymlinks(filepath.Dir(path))
	if err != nil {
		return "", fmt.Errorf("resolving path: %w", err)
	}
	return filepath.Join(dir, filepath.Base(path)), nil
}

// mountAt returns the top-most mount at the path, or nil if there is none.
func mountAt(path string) (*mountinfo.Info, error) {
	real, err := resolve(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	// The kernel answers at once where nothing is mounted. On a node with many mounts its table takes 20 ms and more.
	mounted, sure, err := mountinfo.MountedFast(real)
	if errors.Is(err, os.ErrNotExist) || sure && err == nil && !mounted {
		return nil, nil
	}
	mounts, err := mountinfo.GetMounts(func(info *mountinfo.Info) (skip, stop bool) {
		return info.Mountpoint != real, false
	})
	if err != nil {
		return nil, fmt.Errorf("reading mount table: %w", err)
	}
	if len(mounts) == 0 {
		return nil, nil
	}
	return mounts[len(mounts)-1], nil
}

// shows reports whether the mount shows the device: its filesystem, or the device node itself.
func shows(info *mountinfo.Info, device loopdev.Device) bool {
	deviceNode := (info.FSType == "devtmpfs" || info.FSType == "tmpfs") && info.Root == "/"+device.Name()
	return info.Source == device.Path || deviceNode
}

// shown returns the device that the mount shows.
func shown(info *mountinfo.Info, devices []loopdev.Device) (loopdev.Device, bool) {
	for _, device := range devices {
		if info != nil && shows(info, device) {
			return device, true
		}
	}
	return loopdev.Device{}, false
}

// mountsOf returns the paths at which any of the devices is mounted, except one. The twins of that one, which the
// kernel makes where its directory is at two paths, end with it.
func mountsOf(devices []loopdev.Device, except string) ([]string, error) {
	if real, err := resolve(except); err == nil {
		except = real
	}
	table, err := mount.ReadTable(mount.SelfMountInfo)
	if err != nil {
		return nil, err
	}
	mounts := table.Entries()
	if e, ok := table.At(except); ok {
		mounts = table.Others(e, slices.Clone(mounts))
	}
	var paths []string
	for _, e := range mounts {
		info := &mountinfo.Info{FSType: e.FSType, Root: e.Root, Source: e.Source}
		if _, ok := shown(info, devices); ok && e.Path != except {
			paths = append(paths, e.Path)
		}
	}
	return paths, nil
}

// ofMount are the mount options that belong to a mount and not to its filesystem.
var ofMount = map[string]unix.MountAttr{
	"ro":          {Attr_set: unix.MOUNT_ATTR_RDONLY},
	"nosuid":      {Attr_set: unix.MOUNT_ATTR_NOSUID},
	"nodev":       {Attr_set: unix.MOUNT_ATTR_NODEV},
	"noexec":      {Attr_set: unix.MOUNT_ATTR_NOEXEC},
	"nodiratime":  {Attr_set: unix.MOUNT_ATTR_NODIRATIME},
	"noatime":     {Attr_set: unix.MOUNT_ATTR_NOATIME, Attr_clr: unix.MOUNT_ATTR__ATIME},
	"strictatime": {Attr_set: unix.MOUNT_ATTR_STRICTATIME, Attr_clr: unix.MOUNT_ATTR__ATIME},
	"relatime":    {Attr_set: unix.MOUNT_ATTR_RELATIME, Attr_clr: unix.MOUNT_ATTR__ATIME},
}

// bind mounts source at target. The mount becomes visible with its options. Options of a filesystem are ignored, as by
// mount(8) for bind mounts: the stage has set them.
func bind(source, target string, options []string) error {
	tree, err := unix.OpenTree(unix.AT_FDCWD, source, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if err != nil {
		return fmt.Errorf("cloning the mount of %s: %w", source, err)
	}
	defer func() { _ = unix.Close(tree) }() // the mount stays where it was moved
	for _, option := range options {
		attributes, ok := ofMount[option]
		if !ok {
			continue
		}
		if err := unix.MountSetattr(tree, "", unix.AT_EMPTY_PATH, &attributes); err != nil {
			return fmt.Errorf("setting mount option %s: %w", option, err)
		}
	}
	if err := unix.MoveMount(tree, "", unix.AT_FDCWD, target, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return fmt.Errorf("mounting at %s: %w", target, err)
	}
	return nil
}

// unmountAll removes every mount at the path.
func unmountAll(path string) error {
	for {
		info, err := mountAt(path)
		if info == nil || err != nil {
			return err
		}
		if err := unix.Unmount(info.Mountpoint, unix.UMOUNT_NOFOLLOW); err != nil {
			return fmt.Errorf("unmounting %s: %w", path, err)
		}
	}
}

// makeTarget creates the mount point at the path: a directory or, for a device node, a file.
func makeTarget(path string, block bool) (made bool, err error) {
	if block {
		file, openErr := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDONLY, 0o600)
		err = openErr
		if err == nil {
			return true, file.Close()
		}
	} else {
		err = os.Mkdir(path, 0o750)
	}
	switch {
	case err == nil:
		return true, nil
	case errors.Is(err, os.ErrNotExist):
		return false, status.Errorf(codes.FailedPrecondition, "the directory of target %q does not exist", path)
	case !errors.Is(err, os.ErrExist):
		return false, fmt.Errorf("creating target: %w", err)
	}
	info, err := os.Lstat(path)
	if err != nil {
		return false, fmt.Errorf("reading target: %w", err)
	}
	if info.IsDir() == block || (block && !empty(info)) {
		return false, status.Errorf(codes.FailedPrecondition, "target %q is occupied by a %s", path, info.Mode())
	}
	return false, nil
}

func empty(info os.FileInfo) bool { return info.Mode().IsRegular() && info.Size() == 0 }

// removeTarget removes the mount point of makeTarget, and never a file or directory with contents.
func removeTarget(path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading target: %w", err)
	}
	if !info.IsDir() && !empty(info) {
		return status.Errorf(codes.FailedPrecondition, "target %q is a file with contents, not a publication", path)
	}
	if err := os.Remove(path); err != nil {
		return status.Errorf(codes.FailedPrecondition, "removing target %q, which has no mount: %v", path, err)
	}
	return nil
}

// hasOption finds a whole option in a mount table's list.
func hasOption(list, option string) bool {
	return slices.Contains(strings.Split(list, ","), option)
}
