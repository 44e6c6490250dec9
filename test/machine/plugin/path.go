/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package plugin

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/mount-utils"
)

// Require returns InvalidArgument for the first named field that is empty. fields are name, value, name, ...
func Require(fields ...string) error {
	for i := 0; i+1 < len(fields); i += 2 {
		if fields[i+1] == "" {
			return status.Errorf(codes.InvalidArgument, "%s is required", fields[i])
		}
	}
	return nil
}

// Last returns the top-most mount at the path, nil if there is none.
func Last(mounts []mount.MountPoint, path string) *mount.MountPoint {
	for i := len(mounts) - 1; i >= 0; i-- {
		if mounts[i].Path == path {
			return &mounts[i]
		}
	}
	return nil
}

// MakeDir makes the directory of a mount, and nothing above it.
func MakeDir(target string) (made bool, err error) { return isMade(target, os.Mkdir(target, 0o750)) }

// MakeFile is MakeDir for the mount of a device.
func MakeFile(target string) (made bool, err error) {
	file, err := os.OpenFile(target, os.O_CREATE|os.O_EXCL, 0o640)
	if err == nil {
		err = file.Close()
	}
	return isMade(target, err)
}

func isMade(target string, err error) (made bool, _ error) {
	switch {
	case errors.Is(err, os.ErrNotExist):
		return false, status.Errorf(codes.FailedPrecondition, "the directory of target %q does not exist", target)
	case errors.Is(err, os.ErrExist):
		return false, nil
	}
	return err == nil, err
}

// Figures of the filesystem at the path.
func Figures(at string) (*csi.NodeGetVolumeStatsResponse, error) {
	var s unix.Statfs_t
	if err := unix.Statfs(at, &s); err != nil {
		return nil, fmt.Errorf("reading the figures of %s: %w", at, err)
	}
	return &csi.NodeGetVolumeStatsResponse{Usage: []*csi.VolumeUsage{
		{Unit: csi.VolumeUsage_BYTES, Total: int64(s.Blocks) * s.Bsize, Available: int64(s.Bavail) * s.Bsize,
			Used: int64(s.Blocks-s.Bfree) * s.Bsize},
		{Unit: csi.VolumeUsage_INODES, Total: int64(s.Files), Available: int64(s.Ffree), Used: int64(s.Files - s.Ffree)},
	}}, nil
}

// DeviceFigures are the size of a block device.
func DeviceFigures(device string) (*csi.NodeGetVolumeStatsResponse, error) {
	text, err := os.ReadFile(filepath.Join("/sys/class/block", filepath.Base(device), "size"))
	if err != nil {
		return nil, fmt.Errorf("reading the size of %s: %w", device, err)
	}
	sectors, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	return &csi.NodeGetVolumeStatsResponse{Usage: []*csi.VolumeUsage{
		{Unit: csi.VolumeUsage_BYTES, Total: sectors * 512}}}, err
}
