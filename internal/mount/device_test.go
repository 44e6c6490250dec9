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
				t.Errorf("device of mount %s: %+v, error %v; want %s with number %#x", target, got, err, device, want)
			}
			usage, err := m.Usage(t.Context(), target)
			if err != nil || usage.Capacity < 150<<20 || usage.Available <= 0 || usage.Capacity < usage.Used+usage.Available/2 {
				t.Errorf("usage of mount %s: %+v, error %v; want above 150 MiB in all, which covers what is used", target, usage,
					err)
			}
			found, pt, err := m.Probe(t.Context(), device)
			if err != nil || found != fsType || pt != "" {
				t.Errorf("probe of device %s: filesystem %q, partition table %q, error %v; want %s alone", device, found, pt, err,
					fsType)
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
		t.Errorf("device of %s before the bind mount: error %v, want %v", target, err, ErrNotMounted)
	}
	if err := m.Bind(t.Context(), device, target, false, nil); err != nil {
		t.Fatal(err)
	}
	if got, err := m.DeviceOf(t.Context(), target); err != nil || got.Path != device {
		t.Errorf("device of bind mount %s: %+v, error %v; want %s", target, got, err, device)
	}
}

func TestABoundNodeShowsThatItsNumberHasGoneToAnotherDisk(t *testing.T) {
	needsRoot(t)
	needsProgram(t, "losetup")
	m, dir := New(Options{}), workspace(t)
	file, target := write(t, filepath.Join(dir, "disk"), string(make([]byte, 1<<20))), filepath.Join(dir, "target")
	write(t, target, "")
	device := command(t, "losetup", "--find", "--show", file)
	before := deviceAt(t, device)
	if err := m.Bind(t.Context(), device, target, false, nil); err != nil {
		t.Error(err)
	}
	h, err := m.Examine(t.Context(), target)
	if err != nil || h.Node != before || before.Seq == 0 {
		t.Errorf("health of %s: %+v, error %v; want node %+v", target, h, err, before)
	}
	command(t, "losetup", "--detach", device) // from here on another process may get the number
	h, err = m.Examine(t.Context(), target)
	if err != nil || h.DeviceGone || h.Node.Major != before.Major || h.Node.Minor != before.Minor ||
		h.Node.Seq == 0 || h.Node.Seq == before.Seq {
		t.Errorf("health of %s without its disk: %+v, error %v; want another disk than %+v", target, h, err, before)
	}
}

func TestAFilesystemWithoutADeviceHasNoPath(t *testing.T) {
	needsRoot(t)
	m, target := New(Options{}), mkdir(t, workspace(t), "target")
	mountAt(t, "tmpfs", target, "tmpfs")
	if got, err := m.DeviceOf(t.Context(), target); err != nil || got.Path != "" || got.Major != 0 || got.Minor == 0 {
		t.Errorf("device of tmpfs %s: %+v, error %v; want no path and an anonymous number", target, got, err)
	}
}

func TestProbeFindsWhatADeviceContains(t *testing.T) {
	needsProgram(t, "blkid")
	m, dir := New(Options{}), t.TempDir()
	blank := write(t, filepath.Join(dir, "blank"), string(make([]byte, 1<<20)))
	if fsType, pt, err := m.Probe(t.Context(), blank); err != nil || fsType+pt != "" {
		t.Errorf("probe of a blank device: filesystem %q, partition table %q, error %v; want neither", fsType, pt, err)
	}
	mbr := make([]byte, 1<<20)
	copy(mbr[446:], []byte{0, 0, 2, 0, 0x83, 0, 0, 0, 8, 0, 0, 0, 8, 0, 0, 0})
	mbr[510], mbr[511] = 0x55, 0xaa
	partitioned := write(t, filepath.Join(dir, "partitioned"), string(mbr))
	if fsType, pt, err := m.Probe(t.Context(), partitioned); err != nil || fsType != "" || pt != "dos" {
		t.Errorf("probe of a partitioned device: filesystem %q, partition table %q, error %v; want dos alone", fsType, pt,
			err)
	}
	if _, _, err := m.Probe(t.Context(), filepath.Join(dir, "none")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("probe of an absent device: error %v, want %v", err, os.ErrNotExist)
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
		t.Errorf("probe of device %s with two filesystems: filesystem %q, error %v; want not blank", device, fsType, err)
	}
}

func TestMissingProgramsAreNamed(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	if got := New(Options{}).MissingPrograms("xfs"); len(got) != 1 || got[0] != "mkfs.xfs" {
		t.Errorf("missing programs for xfs: %v, want mkfs.xfs", got)
	}
	if KnownFilesystem("nosuchfs") || !KnownFilesystem("ext4") || !KnownFilesystem("") {
		t.Errorf("KnownFilesystem: nosuchfs %t, ext4 %t, the default %t; want false, true, true", KnownFilesystem("nosuchfs"),
			KnownFilesystem("ext4"), KnownFilesystem(""))
	}
	if got := New(Options{}).MissingPrograms("nosuchfs"); len(got) != 0 {
		t.Errorf("missing programs for filesystem nosuchfs, which is not known: %v, want none", got)
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
				t.Errorf("shutting down %s, which is mounted at %s too: error %v, want %v", stage, published, err,
					ErrShutdownUnsupported)
			}
			if _, err := file.WriteString("x"); err != nil {
				t.Errorf("writing to %s after a refused shutdown: error %v, want none", published, err)
			}
			if err := m.ShutdownFilesystem(t.Context(), stage, nil, filepath.Join(dir, "root")); err != nil {
				t.Fatal(err)
			}
			if _, err := file.WriteString("x"); err == nil {
				err = file.Sync()
				if err == nil {
					t.Errorf("writing to %s after the shutdown: error %v, want one", published, err)
				}
			}
			if err := file.Close(); err != nil {
				t.Log(err) // a close of a file may fail after the shutdown
			}
			if err := m.ShutdownFilesystem(t.Context(), stage, nil, filepath.Join(dir, "root")); err != nil {
				t.Errorf("shutting down %s once more: error %v, want none", stage, err)
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
		t.Errorf("shutting down plain directory %s: error %v, want %v", source, err, ErrNotMounted)
	}
	if err := m.ShutdownFilesystem(t.Context(), bound, nil, "/"); !errors.Is(err, ErrShutdownUnsupported) {
		t.Errorf("shutting down %s, a directory of the host: error %v, want %v", bound, err, ErrShutdownUnsupported)
	}
	if err := m.ShutdownFilesystem(t.Context(), memory, nil); !errors.Is(err, ErrShutdownUnsupported) {
		t.Errorf("shutting down tmpfs %s: error %v, want %v", memory, err, ErrShutdownUnsupported)
	}
	stage, part := mkdir(t, dir, "stage"), mkdir(t, dir, "part")
	mountAt(t, filesystem(t, dir, "ext4"), stage, "ext4")
	if err := m.Bind(t.Context(), mkdir(t, stage, "directory"), part, false, nil); err != nil {
		t.Fatal(err)
	}
	if err := m.ShutdownFilesystem(t.Context(), part, nil, dir); !errors.Is(err, ErrShutdownUnsupported) {
		t.Errorf("shutting down %s, a part of a filesystem: error %v, want %v", part, err, ErrShutdownUnsupported)
	}
	write(t, filepath.Join(stage, "file"), "the volume still accepts writes")
	write(t, filepath.Join(source, "file"), "the host still writes")
}

// TestADeviceThatTheKernelNoLongerHasIsGone hides the kernel's devices from one thread. After a disk is
// unplugged it is the same: the mount stays in the table, and the root answers from memory.
func TestADeviceThatTheKernelNoLongerHasIsGone(t *testing.T) {
	needsRoot(t)
	m, dir := New(Options{}), workspace(t)
	path, target := filesystem(t, dir, "ext4"), mkdir(t, dir, "target")
	mountAt(t, path, target, "ext4")
	if h, err := m.Examine(t.Context(), target); err != nil || h.DeviceGone {
		t.Errorf("health of %s: %+v, error %v; want that its device is there", target, h, err)
	}
	var h Health
	var failed error
	ended := make(chan error)
	go func() { // its thread keeps the namespace, which lets go of what others unmount meanwhile
		ended <- ownNamespace(unix.MS_SLAVE, func() {
			if failed = unix.Mount("none", "/sys/dev/block", "tmpfs", 0, ""); failed == nil {
				h, failed = m.Examine(t.Context(), target)
			}
		})
	}()
	if err := <-ended; err != nil || failed != nil || !h.DeviceGone {
		t.Errorf("health of %s without its device: %+v, errors %v, %v; want that the device is gone", target, h, err, failed)
	}
}
