/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package agent

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hawser-io/hawser/test/csiloop/harness/harnesstest"
)

// boundDirectory is bound from a disk whose mount shares changes, or does not.
func boundDirectory(t *testing.T, propagation uintptr) directory {
	return func(path string) error {
		disk := t.TempDir()
		source := filepath.Join(disk, filepath.Base(path))
		err := errors.Join(unix.Mount("disk", disk, "tmpfs", 0, ""), unix.Mount("", disk, "", propagation, ""),
			os.MkdirAll(source, 0o755), os.MkdirAll(path, 0o755), unix.Mount(source, path, "", unix.MS_BIND, ""),
			unix.Mount("", path, "", propagation, ""))
		t.Cleanup(func() {
			if err := errors.Join(unix.Unmount(path, 0), unix.Unmount(disk, 0)); err != nil {
				t.Errorf("unmounting the layout: error %v, want none", err)
			}
		})
		return err
	}
}

// linkToBound is a symbolic link to a directory that is bound.
func linkToBound(t *testing.T) directory {
	bound := boundDirectory(t, unix.MS_SHARED)
	return func(path string) error {
		target := filepath.Join(filepath.Dir(path), "bound", filepath.Base(path))
		return errors.Join(bound(target), os.Symlink(target, path))
	}
}

func TestRealMountsInEveryLayoutOfTheDirectories(t *testing.T) {
	harnesstest.NeedRoot(t)
	harnesstest.NeedProgram(t, "mkfs.ext4")
	c := newCluster(t)
	for layout, mkdir := range map[string]func(*testing.T) directory{
		"bound from a disk that shares changes": func(t *testing.T) directory { return boundDirectory(t, unix.MS_SHARED) },
		"bound from a disk that shares no changes": func(t *testing.T) directory {
			return boundDirectory(t, unix.MS_PRIVATE)
		},
		"symbolic links to bound directories": linkToBound,
	} {
		for name, test := range map[string]func(*testing.T, *realNode){
			"pods use a filesystem, which is released":           testRealPods,
			"a block device is written to and goes":              testRealBlock,
			"a filesystem that was forced away is shut down":     testRealForcedAway,
			"the kubelet's own mounts count until they are gone": testRealKubelet,
		} {
			t.Run(name+", "+layout, func(t *testing.T) { test(t, c.realNodeWith(t, mkdir(t))) })
		}
	}
}
