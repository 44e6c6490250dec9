/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package mount

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

func TestTheDeviceOfAFilesystemIsFound(t *testing.T) {
	needsRoot(t)
	for _, fsType := range []string{"ext4", "xfs", "btrfs"} {
		t.Run(fsType, func(t *testing.T) {
			m, dir := New(Options{}), workspace(t)
			device, target := filesystem(t, dir, fsType), mkdir(t, dir, "target")
			mountAt(t, device, target, fsType)
			want := rdev(t, device)
			got, err := m.DeviceOf(t.Context(), target)
			if err != nil || got.Path != device || unix.Mkdev(got.Major, got.Minor) != want {
				t.Errorf("device: %+v, %v", got, err)
			}
			usage, err := m.Usage(t.Context(), target)
			if err != nil || usage.Capacity < 150<<20 || usage.Available <= 0 || usage.Capacity < usage.Used+usage.Available/2 {
				t.Errorf("usage: %+v, %v", usage, err)
			}
			found, pt, err := m.Probe(t.Context(), device)
			if err != nil || found != fsType || pt != "" {
				t.Errorf("probe: %q, %q, %v", found, pt, err)
			}
		})
	}
}

func rdev(t *testing.T, path string) uint64 {
	t.Helper()
	var stat unix.Stat_t
	if err := unix.Stat(path, &stat); err != nil {
		t.Fatal(err)
	}
	return stat.Rdev
}

func TestTheDeviceOfABoundNodeIsFound(t *testing.T) {
	needsRoot(t)
	m, dir := New(Options{}), workspace(t)
	device, target := loopDevice(t, dir, 3<<20), write(t, filepath.Join(dir, "target"), "")
	if _, err := m.DeviceOf(t.Context(), target); !errors.Is(err, ErrNotMounted) {
		t.Errorf("before: %v", err)
	}
	if err := m.Bind(t.Context(), device, target, false, nil); err != nil {
		t.Fatal(err)
	}
	if got, err := m.DeviceOf(t.Context(), target); err != nil || got.Path != device {
		t.Errorf("device: %+v, %v", got, err)
	}
	if size, err := m.DeviceSize(t.Context(), target); err != nil || size != 3<<20 {
		t.Errorf("size: %d, %v", size, err)
	}
	if _, err := m.DeviceSize(t.Context(), dir); err == nil {
		t.Error("a directory has a size")
	}
}

func TestAFilesystemWithoutADeviceHasNoPath(t *testing.T) {
	needsRoot(t)
	m, target := New(Options{}), mkdir(t, workspace(t), "target")
	mountAt(t, "tmpfs", target, "tmpfs")
	if got, err := m.DeviceOf(t.Context(), target); err != nil || got.Path != "" || got.Major != 0 || got.Minor == 0 {
		t.Errorf("device: %+v, %v", got, err)
	}
}

func TestProbeFindsWhatADeviceContains(t *testing.T) {
	needsProgram(t, "blkid")
	m, dir := New(Options{}), t.TempDir()
	blank := write(t, filepath.Join(dir, "blank"), string(make([]byte, 1<<20)))
	if fsType, pt, err := m.Probe(t.Context(), blank); err != nil || fsType+pt != "" {
		t.Errorf("blank: %q, %q, %v", fsType, pt, err)
	}
	mbr := make([]byte, 1<<20)
	copy(mbr[446:], []byte{0, 0, 2, 0, 0x83, 0, 0, 0, 8, 0, 0, 0, 8, 0, 0, 0})
	mbr[510], mbr[511] = 0x55, 0xaa
	partitioned := write(t, filepath.Join(dir, "partitioned"), string(mbr))
	if fsType, pt, err := m.Probe(t.Context(), partitioned); err != nil || fsType != "" || pt != "dos" {
		t.Errorf("partitioned: %q, %q, %v", fsType, pt, err)
	}
	if _, _, err := m.Probe(t.Context(), filepath.Join(dir, "none")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("an absent device counts as blank: %v", err)
	}
}

func TestTwoFilesystemsOnOneDeviceAreAmbiguous(t *testing.T) {
	needsProgram(t, "blkid")
	needsProgram(t, "mkfs.ext4")
	device := filepath.Join(t.TempDir(), "device")
	write(t, device, string(make([]byte, 16<<20)))
	command(t, "mkfs.ext4", "-q", device)
	file, err := os.OpenFile(device, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	// A second superblock's magic, of btrfs, as an old filesystem leaves it.
	_, err = file.WriteAt([]byte("_BHRfS_M"), 64<<10+64)
	if err = errors.Join(err, file.Close()); err != nil {
		t.Fatal(err)
	}
	fsType, _, err := New(Options{}).Probe(t.Context(), device)
	if err == nil && fsType == "" {
		t.Error("the device counts as blank")
	}
}

func TestMissingProgramsAreNamed(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	if got := New(Options{}).MissingPrograms("xfs"); len(got) != 1 || got[0] != "mkfs.xfs" {
		t.Errorf("missing: %v", got)
	}
	if KnownFilesystem("nosuchfs") || !KnownFilesystem("ext4") || !KnownFilesystem("") {
		t.Error("known filesystems are wrong")
	}
	if got := New(Options{}).MissingPrograms("nosuchfs"); len(got) != 0 {
		t.Errorf("missing for a filesystem that is not known: %v", got)
	}
}

func TestAFilesystemAfterAShutdownFailsEveryAccess(t *testing.T) {
	needsRoot(t)
	for _, fsType := range []string{"ext4", "xfs"} {
		t.Run(fsType, func(t *testing.T) {
			m, dir := New(Options{}), workspace(t)
			device, stage, published := filesystem(t, dir, fsType), mkdir(t, dir, "stage"), mkdir(t, dir, "root", "published")
			mountAt(t, device, stage, fsType)
			if err := m.Bind(t.Context(), stage, published, false, nil); err != nil {
				t.Fatal(err)
			}
			file, err := os.Create(filepath.Join(published, "file"))
			if err != nil {
				t.Fatal(err)
			}
			if err := m.ShutdownFilesystem(t.Context(), stage, nil); !errors.Is(err, ErrShutdownUnsupported) {
				t.Errorf("while it is mounted elsewhere too: %v", err)
			}
			if _, err := file.WriteString("x"); err != nil {
				t.Errorf("it was shut down nevertheless: %v", err)
			}
			if err := m.ShutdownFilesystem(t.Context(), stage, nil, filepath.Join(dir, "root")); err != nil {
				t.Fatal(err)
			}
			if _, err := file.WriteString("x"); err == nil {
				err = file.Sync()
				if err == nil {
					t.Error("a write succeeded")
				}
			}
			if err := file.Close(); err != nil {
				t.Log(err) // a close of a file may fail after the shutdown
			}
			if err := m.ShutdownFilesystem(t.Context(), stage, nil, filepath.Join(dir, "root")); err != nil {
				t.Errorf("once more: %v", err)
			}
			for _, path := range []string{published, stage} {
				if err := m.Unmount(t.Context(), path); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

func TestOnlyAVolumesOwnFilesystemIsShutDown(t *testing.T) {
	needsRoot(t)
	m, dir := New(Options{}), workspace(t)
	source, bound, memory := mkdir(t, dir, "source"), mkdir(t, dir, "bound"), mkdir(t, dir, "memory")
	mountAt(t, "tmpfs", memory, "tmpfs")
	if err := m.Bind(t.Context(), source, bound, false, nil); err != nil {
		t.Fatal(err)
	}
	if err := m.ShutdownFilesystem(t.Context(), source, nil, "/"); !errors.Is(err, ErrNotMounted) {
		t.Errorf("a plain directory: %v", err)
	}
	if err := m.ShutdownFilesystem(t.Context(), bound, nil, "/"); !errors.Is(err, ErrShutdownUnsupported) {
		t.Errorf("a directory of the host: %v", err)
	}
	if err := m.ShutdownFilesystem(t.Context(), memory, nil); !errors.Is(err, ErrShutdownUnsupported) {
		t.Errorf("a tmpfs: %v", err)
	}
	stage, part := mkdir(t, dir, "stage"), mkdir(t, dir, "part")
	mountAt(t, filesystem(t, dir, "ext4"), stage, "ext4")
	if err := m.Bind(t.Context(), mkdir(t, stage, "directory"), part, false, nil); err != nil {
		t.Fatal(err)
	}
	if err := m.ShutdownFilesystem(t.Context(), part, nil, dir); !errors.Is(err, ErrShutdownUnsupported) {
		t.Errorf("a part of a filesystem: %v", err)
	}
	write(t, filepath.Join(stage, "file"), "the volume still accepts writes")
	write(t, filepath.Join(source, "file"), "the host still writes")
}
