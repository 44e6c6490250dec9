/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/hawser-io/hawser/internal/agent/operation"
	"github.com/hawser-io/hawser/internal/mount"
)

// boundedMounts gives every call that may hang a deadline. Setting the owner of many files takes its time: it ends when
// it makes no progress for as long as another call may take.
type boundedMounts struct {
	operation.Mounts
	timeout time.Duration
}

func (b boundedMounts) Bind(ctx context.Context, source, target string, readOnly bool, options []string) error {
	ctx, cancel := context.WithTimeout(ctx, b.timeout)
	defer cancel()
	return b.Mounts.Bind(ctx, source, target, readOnly, options)
}

func (b boundedMounts) BindFile(ctx context.Context, source *os.File, target string, readOnly bool,
	options []string) error {
	ctx, cancel := context.WithTimeout(ctx, b.timeout)
	defer cancel()
	return b.Mounts.BindFile(ctx, source, target, readOnly, options)
}

func (b boundedMounts) BindAlone(ctx context.Context, source *os.File, target string, readOnly bool) error {
	ctx, cancel := context.WithTimeout(ctx, b.timeout)
	defer cancel()
	return b.Mounts.BindAlone(ctx, source, target, readOnly)
}

func (b boundedMounts) OpenMount(ctx context.Context, path string) (*os.File, error) {
	ctx, cancel := context.WithTimeout(ctx, b.timeout)
	defer cancel()
	return b.Mounts.OpenMount(ctx, path)
}

func (b boundedMounts) OpenBeneath(ctx context.Context, root, subPath string) (*os.File, error) {
	ctx, cancel := context.WithTimeout(ctx, b.timeout)
	defer cancel()
	return b.Mounts.OpenBeneath(ctx, root, subPath)
}

func (b boundedMounts) Shows(ctx context.Context, path, root, subPath string) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, examinationTimeout)
	defer cancel()
	return b.Mounts.Shows(ctx, path, root, subPath)
}

func (b boundedMounts) Unmount(ctx context.Context, path string) error {
	ctx, cancel := context.WithTimeout(ctx, b.timeout)
	defer cancel()
	return b.Mounts.Unmount(ctx, path)
}

func (b boundedMounts) MakeDirectory(ctx context.Context, path, label string) error {
	ctx, cancel := context.WithTimeout(ctx, b.timeout)
	defer cancel()
	return b.Mounts.MakeDirectory(ctx, path, label)
}

func (b boundedMounts) MakePlace(ctx context.Context, dir, place string) error {
	ctx, cancel := context.WithTimeout(ctx, b.timeout)
	defer cancel()
	return b.Mounts.MakePlace(ctx, dir, place)
}

func (b boundedMounts) ClearPlace(ctx context.Context, place mount.Place) error {
	ctx, cancel := context.WithTimeout(ctx, b.timeout)
	defer cancel()
	return b.Mounts.ClearPlace(ctx, place)
}

func (b boundedMounts) SetDeviceNodes(ctx context.Context, dir string, names []string) error {
	ctx, cancel := context.WithTimeout(ctx, b.timeout)
	defer cancel()
	return b.Mounts.SetDeviceNodes(ctx, dir, names)
}

func (b boundedMounts) DeviceOf(ctx context.Context, path string) (mount.Device, error) {
	ctx, cancel := context.WithTimeout(ctx, b.timeout)
	defer cancel()
	return b.Mounts.DeviceOf(ctx, path)
}

func (b boundedMounts) DeviceNode(ctx context.Context, path string) (mount.Device, error) {
	ctx, cancel := context.WithTimeout(ctx, b.timeout)
	defer cancel()
	return b.Mounts.DeviceNode(ctx, path)
}

func (b boundedMounts) CheckFree(ctx context.Context, d mount.Device, raw bool) error {
	ctx, cancel := context.WithTimeout(ctx, b.timeout)
	defer cancel()
	return b.Mounts.CheckFree(ctx, d, raw)
}

func (b boundedMounts) CheckReadable(ctx context.Context, d mount.Device) error {
	ctx, cancel := context.WithTimeout(ctx, examinationTimeout)
	defer cancel()
	return b.Mounts.CheckReadable(ctx, d)
}

// examinationTimeout is after how long a volume that does not answer is sick.
const examinationTimeout = 10 * time.Second

func (b boundedMounts) Examine(ctx context.Context, path string) (mount.Health, error) {
	ctx, cancel := context.WithTimeout(ctx, examinationTimeout)
	defer cancel()
	return b.Mounts.Examine(ctx, path)
}

func (b boundedMounts) Users(ctx context.Context, path string) ([]mount.Holder, error) {
	ctx, cancel := context.WithTimeout(ctx, b.timeout)
	defer cancel()
	return b.Mounts.Users(ctx, path)
}

func (b boundedMounts) ReadOnly(ctx context.Context, d mount.Device) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, b.timeout)
	defer cancel()
	return b.Mounts.ReadOnly(ctx, d)
}

func (b boundedMounts) SetReadOnly(ctx context.Context, d mount.Device, readOnly bool) error {
	ctx, cancel := context.WithTimeout(ctx, b.timeout)
	defer cancel()
	return b.Mounts.SetReadOnly(ctx, d, readOnly)
}

func (b boundedMounts) ShutdownFilesystem(ctx context.Context, path string, still func() error,
	within ...string) error {
	ctx, cancel := context.WithTimeout(ctx, b.timeout)
	defer cancel()
	return b.Mounts.ShutdownFilesystem(ctx, path, still, within...)
}

func (b boundedMounts) SetOwnership(ctx context.Context, root string, fsGroup int64,
	policy corev1.PodFSGroupChangePolicy, progress func(files int)) error {
	stalled := fmt.Errorf("no progress for %s", b.timeout)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	timer := time.AfterFunc(b.timeout, func() { cancel(stalled) })
	defer timer.Stop()
	err := b.Mounts.SetOwnership(ctx, root, fsGroup, policy, func(files int) {
		timer.Reset(b.timeout)
		progress(files)
	})
	if err != nil && errors.Is(context.Cause(ctx), stalled) {
		return fmt.Errorf("%w: %w", stalled, err)
	}
	return err
}
