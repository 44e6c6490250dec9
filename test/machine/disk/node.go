/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package disk

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/mount-utils"
	utilexec "k8s.io/utils/exec"

	_ "github.com/hawser-io/hawser/test/environment" // cleans that of the programs
	"github.com/hawser-io/hawser/test/machine/plugin"
)

type nodeServer struct {
	csi.UnimplementedNodeServer
	name    string
	mounter *mount.SafeFormatAndMount
}

func newNodeServer(name string) *nodeServer {
	return &nodeServer{name: name, mounter: mount.NewSafeFormatAndMount(mount.New(""), utilexec.New())}
}

func (n *nodeServer) NodeGetInfo(context.Context, *csi.NodeGetInfoRequest) (*csi.NodeGetInfoResponse, error) {
	return &csi.NodeGetInfoResponse{NodeId: n.name}, nil
}

func (n *nodeServer) NodeGetCapabilities(context.Context,
	*csi.NodeGetCapabilitiesRequest) (*csi.NodeGetCapabilitiesResponse, error) {
	return plugin.Nodes(csi.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME,
		csi.NodeServiceCapability_RPC_EXPAND_VOLUME, csi.NodeServiceCapability_RPC_GET_VOLUME_STATS), nil
}

// NodeStageVolume waits for the disk and, unless the volume is a device, formats it if it is empty, and mounts it.
func (n *nodeServer) NodeStageVolume(ctx context.Context,
	request *csi.NodeStageVolumeRequest) (*csi.NodeStageVolumeResponse, error) {
	staging := request.GetStagingTargetPath()
	if err := plugin.Require("volume id", request.GetVolumeId(), "staging target path", staging); err != nil {
		return nil, err
	}
	if err := plugin.CheckCapability(request.GetVolumeCapability()); err != nil {
		return nil, err
	}
	if serial := request.GetPublishContext()[SerialKey]; serial != request.GetVolumeId() {
		return nil, status.Errorf(codes.NotFound, "volume %q has no disk %q", request.GetVolumeId(), serial)
	}
	disk, err := awaitDisk(ctx, request.GetVolumeId())
	if err != nil {
		return nil, err
	}
	device := disk
	if request.GetVolumeContext()[ParameterMapper] == "true" {
		if device, err = createMapped(ctx, disk, request.GetVolumeId()); err != nil {
			return nil, err
		}
	}
	wanted := request.GetVolumeCapability().GetMount()
	if wanted == nil {
		return &csi.NodeStageVolumeResponse{}, nil
	}
	if mounted, err := n.mounter.IsMountPoint(staging); err != nil || mounted {
		return &csi.NodeStageVolumeResponse{}, err
	}
	if request.GetVolumeContext()[ParameterFUSE] == "true" {
		return &csi.NodeStageVolumeResponse{}, n.mountByDaemon(device, staging)
	}
	if err := n.mounter.FormatAndMount(device, staging, wanted.GetFsType(), wanted.GetMountFlags()); err != nil {
		return nil, fmt.Errorf("staging %s: %w", device, err)
	}
	return &csi.NodeStageVolumeResponse{}, nil
}

// mountByDaemon formats the disk if it is empty. The daemon ends with the mount.
func (n *nodeServer) mountByDaemon(device, staging string) error {
	format, err := n.mounter.GetDiskFormat(device)
	if err != nil {
		return err
	}
	// The daemon inherits the output: CombinedOutput would wait for its end.
	script := "modprobe fuse && fuse2fs -o fakeroot,allow_other " + device + " " + staging +
		" >>/var/log/fuse2fs.log 2>&1 && mountpoint -q " + staging
	if format == "" {
		script = "mkfs.ext4 -q " + device + " && " + script
	}
	if out, err := exec.Command("sh", "-c", script).CombinedOutput(); err != nil {
		return fmt.Errorf("staging %s: %w: %s", device, err, out)
	}
	return nil
}

// NodeUnstageVolume unmounts the volume.
func (n *nodeServer) NodeUnstageVolume(ctx context.Context,
	request *csi.NodeUnstageVolumeRequest) (*csi.NodeUnstageVolumeResponse, error) {
	staging := request.GetStagingTargetPath()
	if err := plugin.Require("volume id", request.GetVolumeId(), "staging target path", staging); err != nil {
		return nil, err
	}
	if err := n.unmount(staging); err != nil {
		return nil, err
	}
	return &csi.NodeUnstageVolumeResponse{}, removeMapped(ctx, request.GetVolumeId())
}

// unmount leaves the directory, which the caller of NodeStageVolume has made.
func (n *nodeServer) unmount(path string) error {
	err := unix.Unmount(path, 0)
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOENT) {
		return nil
	}
	return err
}

// NodePublishVolume binds the staged mount, or the device, to the target.
func (n *nodeServer) NodePublishVolume(_ context.Context,
	request *csi.NodePublishVolumeRequest) (*csi.NodePublishVolumeResponse, error) {
	target, source := request.GetTargetPath(), request.GetStagingTargetPath()
	if err := plugin.Require("volume id", request.GetVolumeId(), "target path", target, "staging target path",
		source); err != nil {
		return nil, err
	}
	if err := plugin.CheckCapability(request.GetVolumeCapability()); err != nil {
		return nil, err
	}
	device, err := deviceOf(request.GetVolumeId())
	if err != nil {
		return nil, err
	}
	if request.GetVolumeCapability().GetBlock() != nil {
		source, err = device, touch(target)
	} else {
		err = os.MkdirAll(target, 0o755)
	}
	if err != nil {
		return nil, err
	}
	if mounted, err := n.mounter.IsMountPoint(target); err != nil || mounted {
		return &csi.NodePublishVolumeResponse{}, err
	}
	options := []string{"bind"}
	if request.GetReadonly() {
		options = append(options, "ro")
	}
	return &csi.NodePublishVolumeResponse{}, n.mounter.Mount(source, target, "", options)
}

func touch(path string) error {
	file, err := os.OpenFile(path, os.O_CREATE, 0o644)
	if err != nil {
		return err
	}
	return file.Close()
}

// NodeUnpublishVolume removes the target.
func (n *nodeServer) NodeUnpublishVolume(_ context.Context,
	request *csi.NodeUnpublishVolumeRequest) (*csi.NodeUnpublishVolumeResponse, error) {
	target := request.GetTargetPath()
	if err := plugin.Require("volume id", request.GetVolumeId(), "target path", target); err != nil {
		return nil, err
	}
	if err := n.unmount(target); err != nil {
		return nil, err
	}
	if err := os.Remove(target); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	return &csi.NodeUnpublishVolumeResponse{}, nil
}

// NodeExpandVolume grows the filesystem to the size of its disk.
func (n *nodeServer) NodeExpandVolume(_ context.Context,
	request *csi.NodeExpandVolumeRequest) (*csi.NodeExpandVolumeResponse, error) {
	if err := plugin.Require("volume id", request.GetVolumeId(), "volume path", request.GetVolumePath()); err != nil {
		return nil, err
	}
	device, err := deviceOf(request.GetVolumeId())
	if err != nil {
		return nil, err
	}
	if _, err := mount.NewResizeFs(utilexec.New()).Resize(device, request.GetVolumePath()); err != nil {
		return nil, fmt.Errorf("growing the filesystem on %s: %w", device, err)
	}
	return &csi.NodeExpandVolumeResponse{}, nil
}

// NodeGetVolumeStats asks the filesystem, or the disk for its size.
func (n *nodeServer) NodeGetVolumeStats(_ context.Context,
	request *csi.NodeGetVolumeStatsRequest) (*csi.NodeGetVolumeStatsResponse, error) {
	volume, at := request.GetVolumeId(), request.GetVolumePath()
	if err := plugin.Require("volume id", volume, "volume path", at); err != nil {
		return nil, err
	}
	device, err := deviceOf(volume)
	if err != nil {
		return nil, err
	}
	mounts, err := n.mounter.List()
	if err != nil {
		return nil, err
	}
	there := plugin.Last(mounts, filepath.Clean(at))
	switch {
	case there == nil:
		return nil, status.Errorf(codes.NotFound, "volume %q is not published at %q", volume, at)
	case there.Type != "devtmpfs":
		return plugin.Figures(at)
	}
	node, err := filepath.EvalSymlinks(device) // that of the device mapper is a link
	if err != nil {
		return nil, err
	}
	return plugin.DeviceFigures(node)
}

// findDisk returns the node of the disk with that serial number, or "".
func findDisk(serial string) (string, error) {
	pages, err := filepath.Glob("/sys/block/sd*/device/vpd_pg80")
	if err != nil {
		return "", err
	}
	for _, page := range pages {
		data, err := os.ReadFile(page)
		if err == nil && len(data) > 4 && string(data[4:]) == serial {
			return "/dev/" + strings.Split(page, "/")[3], nil
		}
	}
	return "", nil
}

func awaitDisk(ctx context.Context, serial string) (string, error) {
	var disk string
	err := wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, 10*time.Second, true,
		func(context.Context) (done bool, err error) {
			if disk, err = findDisk(serial); disk == "" || err != nil {
				return false, err
			}
			_, err = os.Stat(disk)
			return err == nil, nil
		})
	if err != nil {
		return "", status.Errorf(codes.Internal, "no disk has the serial number %q: %v", serial, err)
	}
	return disk, nil
}

// mapped is the node of a volume's device of the device mapper.
func mapped(volume string) string { return "/dev/mapper/" + volume }

// deviceOf returns the device of a volume that is staged.
func deviceOf(volume string) (string, error) {
	if _, err := os.Stat(mapped(volume)); err == nil {
		return mapped(volume), nil
	}
	disk, err := findDisk(volume)
	if err == nil && disk == "" {
		err = status.Errorf(codes.NotFound, "no disk has the serial number %q", volume)
	}
	return disk, err
}

func createMapped(ctx context.Context, disk, volume string) (string, error) {
	if _, err := os.Stat(mapped(volume)); err == nil {
		return mapped(volume), nil
	}
	script := fmt.Sprintf(`dmsetup create %s --table "0 $(blockdev --getsz %s) linear %[2]s 0" && dmsetup mknodes`,
		volume, disk)
	if out, err := exec.CommandContext(ctx, "sh", "-c", script).CombinedOutput(); err != nil {
		return "", fmt.Errorf("mapping %s: %w: %s", disk, err, out)
	}
	return mapped(volume), nil
}

func removeMapped(ctx context.Context, volume string) error {
	if _, err := os.Stat(mapped(volume)); err != nil {
		return nil
	}
	// Without udev the node stays until "mknodes".
	if out, err := exec.CommandContext(ctx, "sh", "-c", "dmsetup remove "+volume+" && dmsetup mknodes").
		CombinedOutput(); err != nil {
		return fmt.Errorf("removing %s: %w: %s", mapped(volume), err, out)
	}
	return nil
}
