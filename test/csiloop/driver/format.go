/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package driver

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/mount-utils"

	"github.com/hawser-io/hawser/test/csiloop/loopdev"
)

const defaultFilesystem = "ext4"

// content is what a device contains.
type content struct {
	format string // as blkid calls it; "" if it knows none
	zero   bool   // only zeroes
}

// chooseFilesystem selects the filesystem to mount the device with, and whether to format it first.
func chooseFilesystem(wanted string, on content) (fsType string, format bool, err error) {
	switch {
	case on.format == "" && on.zero && wanted == "":
		return defaultFilesystem, true, nil
	case on.format == "" && on.zero:
		return wanted, true, nil
	case on.format == "":
		return "", false, status.Error(codes.FailedPrecondition,
			"the volume contains data that is no known filesystem; it is not formatted")
	case !slices.Contains(supportedFilesystems, on.format):
		return "", false, status.Errorf(codes.FailedPrecondition,
			"the volume already contains %q, filesystem %q was requested; it is not formatted", on.format, wanted)
	case wanted != "" && wanted != on.format:
		return "", false, status.Errorf(codes.FailedPrecondition,
			"the volume already contains filesystem %q, %q was requested", on.format, wanted)
	}
	return on.format, false, nil
}

func (n *node) formatAndMount(ctx context.Context, request *csi.NodeStageVolumeRequest, device loopdev.Device) error {
	volume, wanted := request.GetVolumeId(), request.GetVolumeCapability().GetMount()
	mounter := safeMounter(ctx)
	if err := n.wipeHalfFormatted(volume, device); err != nil {
		return err
	}
	on, err := inspect(mounter, device)
	if err != nil {
		return err
	}
	fsType, format, err := chooseFilesystem(wanted.GetFsType(), on)
	if err != nil {
		return err
	}
	options := mountOptions(wanted.GetMountFlags(), fsType, device.ReadOnly)
	if format {
		if err := n.prepareFormat(volume, fsType, options); err != nil {
			return err
		}
	}
	if err := mounter.FormatAndMount(device.Path, request.GetStagingTargetPath(), fsType, options); err != nil {
		return n.mountFailed(mounter, volume, device, err)
	}
	return nil
}

// mountOptions adds the options that the device and the filesystem need. All pseudo nodes share a kernel. xfs refuses a
// second mount of a filesystem with the same UUID, which another node, cut off or reading, may still have.
func mountOptions(requested []string, fsType string, readOnly bool) []string {
	options := slices.Clone(requested)
	if readOnly {
		options = append(options, "ro")
	}
	if fsType == "xfs" {
		options = append(options, "nouuid")
	}
	return options
}

// prepareFormat fails where mkfs could not work. It marks the volume, so that an interrupted mkfs is detected later.
func (n *node) prepareFormat(volume, fsType string, options []string) error {
	if slices.Contains(options, "ro") {
		return status.Errorf(codes.FailedPrecondition,
			"volume %q is empty and used read-only, so it cannot be formatted", volume)
	}
	if _, err := exec.LookPath("mkfs." + fsType); err != nil {
		return status.Errorf(codes.FailedPrecondition,
			"the volume cannot be formatted: mkfs.%s is not installed on node %q", fsType, n.id)
	}
	return n.store.MarkFormatting(volume)
}

// mountFailed keeps the mark only if the filesystem is incomplete. If mkfs succeeded before the failed mount, the
// filesystem is complete.
func (n *node) mountFailed(mounter *mount.SafeFormatAndMount, volume string, device loopdev.Device, err error) error {
	var failed mount.MountError
	if errors.As(err, &failed) && failed.Type != mount.FormatFailed && mounter.Exec.(runner).ctx.Err() == nil {
		err = errors.Join(err, n.store.FormattingDone(volume))
	}
	return fmt.Errorf("mounting %s: %w", device.Path, err)
}

// wipeHalfFormatted erases a volume whose mkfs was interrupted. It was empty before.
func (n *node) wipeHalfFormatted(volume string, device loopdev.Device) error {
	half, err := n.store.Formatting(volume)
	if err != nil || !half {
		return err
	}
	size, err := device.Size()
	if err != nil {
		return err
	}
	node, err := os.OpenFile(device.Path, os.O_WRONLY|unix.O_EXCL, 0)
	if err != nil {
		return fmt.Errorf("opening the half formatted device: %w", err)
	}
	err = unix.Fallocate(int(node.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 0, size)
	if err := errors.Join(err, node.Close()); err != nil {
		return fmt.Errorf("wiping the half formatted device: %w", err)
	}
	return n.store.FormattingDone(volume)
}

// inspect finds out what the device contains. Data that blkid does not know may be valuable. A device is
// therefore empty only if it is zero throughout.
func inspect(mounter *mount.SafeFormatAndMount, device loopdev.Device) (content, error) {
	format, err := mounter.GetDiskFormat(device.Path)
	if err != nil {
		return content{}, fmt.Errorf("probing %s for a filesystem: %w", device.Path, err)
	}
	if format != "" {
		return content{format: format}, nil
	}
	zero, err := allZero(device.Backing)
	return content{zero: zero}, err
}

// allZero reads the file's data and skips its holes.
func allZero(path string) (bool, error) {
	file, err := os.Open(path)
	if err != nil {
		return false, fmt.Errorf("opening data: %w", err)
	}
	defer func() { _ = file.Close() }() // only read
	var at int64
	for {
		start, err := file.Seek(at, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) {
			return true, nil
		}
		if err != nil {
			return false, fmt.Errorf("seeking data: %w", err)
		}
		if at, err = file.Seek(start, unix.SEEK_HOLE); err != nil {
			return false, fmt.Errorf("seeking data: %w", err)
		}
		zero, err := zeroes(io.NewSectionReader(file, start, at-start))
		if !zero || err != nil {
			return false, err
		}
	}
}

func zeroes(reader io.Reader) (bool, error) {
	buffer, zero := make([]byte, 1<<20), make([]byte, 1<<20)
	for {
		count, err := reader.Read(buffer)
		if !bytes.Equal(buffer[:count], zero[:count]) {
			return false, nil
		}
		if errors.Is(err, io.EOF) {
			return true, nil
		}
		if err != nil {
			return false, fmt.Errorf("reading data: %w", err)
		}
	}
}
