/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package agent

import (
	"context"
	"io/fs"
	"os"

	corev1 "k8s.io/api/core/v1"

	"github.com/hawser-io/hawser/internal/mount"
)

// Mounts is what the agent needs of the node's mounts.
type Mounts interface {
	Table() (*mount.Table, error)
	Busy(path string) (mount.Call, bool)
	Bind(ctx context.Context, source, target string, readOnly bool, options []string) error
	BindFile(ctx context.Context, source *os.File, target string, readOnly bool, options []string) error
	OpenBeneath(ctx context.Context, root, subPath string) (*os.File, error)
	Unmount(ctx context.Context, path string) error
	EnsureDir(ctx context.Context, path string, perm fs.FileMode) error
	EnsureFile(ctx context.Context, path string, perm fs.FileMode) error
	RemoveMountPoint(ctx context.Context, path string) error
	DeviceNodes(dir string) ([]string, error)
	SetDeviceNodes(ctx context.Context, dir string, names []string) error
	DeviceOf(ctx context.Context, path string) (mount.Device, error)
	DeviceNode(ctx context.Context, path string) (mount.Device, error)
	DeviceUnder(e mount.Entry) (mount.Device, error)
	CheckFree(ctx context.Context, d mount.Device, raw bool) error
	ReadOnly(ctx context.Context, d mount.Device) (bool, error)
	SetReadOnly(ctx context.Context, d mount.Device, readOnly bool) error
	ShutdownFilesystem(ctx context.Context, path string, still func() error, within ...string) error
	SetOwnership(ctx context.Context, root string, fsGroup int64, policy corev1.PodFSGroupChangePolicy, progress func(files int)) error
}

var _ Mounts = (*mount.Mounter)(nil)

// FilesystemKnower says whether the kernel or a program of the node knows a filesystem.
type FilesystemKnower interface {
	Known(fsType string) bool
}
