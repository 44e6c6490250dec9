/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package mount

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hawser-io/hawser/test/holder"
)

// shown is a directory with a volume at the place db.
type shown struct {
	*Mounter
	t                   *testing.T
	dir, volume, target string
}

func newShown(t *testing.T) shown {
	t.Helper()
	needsRoot(t)
	return newShownOf(t, workspace(t), "tmpfs", "tmpfs")
}

// newShownOf has the filesystem of the device as its volume.
func newShownOf(t *testing.T, work, device, fsType string) shown {
	t.Helper()
	s := shown{Mounter: New(Options{}), t: t, dir: mkdir(t, work, "dir"), volume: mkdir(t, work, "volume")}
	s.target = filepath.Join(s.dir, "db")
	mountAt(t, device, s.volume, fsType)
	mkdir(t, s.volume, "part")
	write(t, filepath.Join(s.volume, "file"), "content")
	s.must(s.MakeDirectory(t.Context(), s.dir, ""))
	s.show()
	return s
}

func (s shown) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

func (s shown) show() {
	s.t.Helper()
	s.must(s.MakePlace(s.t.Context(), s.dir, "db"))
	source, err := s.OpenMount(s.t.Context(), s.volume)
	s.must(err)
	s.must(s.BindAlone(s.t.Context(), source, s.target, false))
	s.must(source.Close())
}

// place is the place db with what its record has: the volume, whatever is mounted there now.
func (s shown) place() Place {
	s.t.Helper()
	table, err := s.Table()
	s.must(err)
	volume, mounted := table.At(s.volume)
	if !mounted {
		s.t.Fatalf("no mount at %s, want the volume", s.volume)
	}
	return Place{Directory: s.dir, Name: "db", Major: volume.Major, Minor: volume.Minor}
}

func (s shown) clear() error { return s.ClearPlace(s.t.Context(), s.place()) }

// heldBy checks that the volume stays because of the process.
func (s shown) heldBy(p holder.Process, use string) {
	s.t.Helper()
	h := held(s.clear())
	if h == nil || len(h.Holders) != 1 || h.Holders[0].PID != p.PID || !strings.Contains(h.Error(), use) {
		s.t.Errorf("holders of %s: %v, want process %d alone, which %s", s.target, h, p.PID, use)
	}
	if got := read(s.t, filepath.Join(s.target, "file")); got != "content" {
		s.t.Errorf("file at %s after a refused removal: %q, want that of the volume", s.target, got)
	}
}

// cleared takes the volume away, and waits for the kernel, which removes the mounts of an ended process asynchronously.
func (s shown) cleared() {
	s.t.Helper()
	err := s.clear()
	for s.t.Context().Err() == nil && held(err) != nil {
		err = s.clear()
	}
	s.must(err)
	if _, err := os.Lstat(s.target); !errors.Is(err, unix.ENOENT) {
		s.t.Errorf("place %s: error %v, want that it is gone", s.target, err)
	}
}

func inside(p holder.Process, path string) string { return fmt.Sprintf("/proc/%d/root%s", p.PID, path) }

func TestADirectoryHasNothingButItsPlaces(t *testing.T) {
	s := newShown(t)
	s.must(s.MakeDirectory(t.Context(), s.dir, ""))
	s.show()
	table, err := s.Table()
	s.must(err)
	e, mounted := table.At(s.dir)
	if !mounted || !e.IsDirectory() || !e.ReadOnly() || e.PeerGroup == 0 || len(table.All(s.dir)) != 1 {
		t.Errorf("mount at %s: %+v, want one directory that is read-only and shared", s.dir, e)
	}
	if err := os.WriteFile(filepath.Join(s.dir, "file"), nil, 0o600); !errors.Is(err, unix.EROFS) {
		t.Errorf("writing a file into %s: error %v, want %v", s.dir, err, unix.EROFS)
	}
	if err := os.Symlink("/etc", filepath.Join(s.dir, "link")); !errors.Is(err, unix.EROFS) {
		t.Errorf("laying a link in %s: error %v, want %v", s.dir, err, unix.EROFS)
	}
	for _, name := range []string{"", ".", "..", "a/b"} {
		if err := s.MakePlace(t.Context(), s.dir, name); !errors.Is(err, ErrSubPath) {
			t.Errorf("making place %q: error %v, want %v", name, err, ErrSubPath)
		}
	}
	s.cleared()
	s.cleared()
	s.must(s.Unmount(t.Context(), s.dir))
	if err := s.MakePlace(t.Context(), s.dir, "db"); !errors.Is(err, ErrNotMounted) {
		t.Errorf("making a place where the directory is gone: error %v, want %v", err, ErrNotMounted)
	}
	s.must(s.clear())
}

func TestALinkAtAPlaceLeadsNowhere(t *testing.T) {
	s := newShown(t)
	s.cleared()
	s.must(changeWritable(s.dir, func(fd int) error { return unix.Symlinkat("/etc", fd, "db") }))
	if err := s.MakePlace(t.Context(), s.dir, "db"); !errors.Is(err, ErrOccupied) {
		t.Errorf("making a place where a link is: error %v, want %v", err, ErrOccupied)
	}
	if err := s.Bind(t.Context(), s.volume, s.target, false, nil); err == nil {
		t.Error("binding at a link: no error, want that it is refused")
	}
	if err := s.clear(); !errors.Is(err, ErrOccupied) {
		t.Errorf("removing a place where a link is: error %v, want %v", err, ErrOccupied)
	}
}

func TestAContainerThatReceivesMountsSeesAVolumeComeAndGo(t *testing.T) {
	s := newShown(t)
	p := holder.Receiver(t, "true")
	if got := read(t, inside(p, s.target+"/file")); got != "content" {
		t.Errorf("file in the container: %q, want that of the volume", got)
	}
	s.cleared()
	if _, err := os.Lstat(inside(p, s.target)); !errors.Is(err, unix.ENOENT) {
		t.Errorf("place in the container: error %v, want that it is gone", err)
	}
	s.show()
	if got := read(t, inside(p, s.target+"/file")); got != "content" {
		t.Errorf("file in the container after it has come again: %q, want that of the volume", got)
	}
}

// alone unmounts the volume's own mount, as a container has none of the node's.
func (s shown) alone(script string) string { return "umount " + s.volume + "; " + script }

func TestAVolumeThatAContainerUsesIsNotTakenOutOfItsDirectory(t *testing.T) {
	for name, c := range map[string]struct{ script, use string }{
		"an open file":                      {"exec 7<%s/file", "open"},
		"a file open for writing":           {"exec 7>>%s/file", "open"},
		"a directory that it works in":      {"cd %s", "as its directory"},
		"a file open below a mount over it": {"exec 7<%[1]s/file; mount -t tmpfs none %[1]s", "open"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newShown(t)
			p := holder.Receiver(t, s.alone(fmt.Sprintf(c.script, s.target)))
			s.heldBy(p, c.use)
			s.heldBy(p, c.use)
			p.End()
			s.cleared()
		})
	}
}

func TestEveryThreadAndEveryFilesystemIsAskedForTheUserOfAVolume(t *testing.T) {
	needsRoot(t)
	for fsType, devices := range map[string]int{"ext4": 1, "xfs": 1, "btrfs": 2} {
		t.Run(fsType, func(t *testing.T) {
			s, _ := newShownOn(t, fsType, devices)
			for name, how := range map[string]struct{ script, use string }{
				"an open file":                         {"exec 7<%s/file", "open"},
				"a directory":                          {"cd %s", "as its directory"},
				"a mapped file":                        {"export " + deviceToMap + "=%s/file; exec " + os.Args[0], "mapped"},
				"a file of a thread's own descriptors": {"export " + deviceOfThread + "=%s/file; exec " + os.Args[0], "open"},
				"a file of a process without its first thread": {"exec 7<%s/file" + withoutFirstThread(), "open"},
			} {
				t.Run(name, func(t *testing.T) {
					p := holder.Receiver(t, s.alone(fmt.Sprintf(how.script, s.target)))
					s.heldBy(p, how.use)
					p.End()
				})
			}
			s.cleared()
		})
	}
}

// newShownOn has a filesystem of that many devices as its volume. It also returns the device that the kernel is asked
// about.
func newShownOn(t *testing.T, fsType string, devices int) (s shown, device Device) {
	t.Helper()
	needsProgram(t, "mkfs."+fsType)
	parts := []string{}
	t.Cleanup(func() { forgetBtrfs(t, parts) })
	work := workspace(t)
	path := filesystem(t, work, fsType)
	for range devices - 1 {
		parts = append(parts, path, loopDevice(t, mkdir(t, work, "other"), 300<<20))
		command(t, "mkfs.btrfs", append([]string{"--force"}, parts...)...)
	}
	s = newShownOf(t, work, path, fsType)
	table, err := s.Table()
	s.must(err)
	e, _ := table.At(s.volume)
	device, err = s.DeviceUnder(e)
	s.must(err)
	return s, device
}

// forgetBtrfs of unmounted devices. The kernel remembers the parts of a filesystem on several, and takes a copy of
// another filesystem on one of these numbers for a part of it: its mount fails.
func forgetBtrfs(t *testing.T, parts []string) {
	t.Helper()
	for _, part := range parts {
		if out, err := exec.Command("btrfs", "device", "scan", "--forget", part).CombinedOutput(); err != nil {
			t.Errorf("forgetting %s: error %v, want success: %s", part, err, out)
		}
	}
}

// A pod can hide a copy from the unmount in a user namespace, where it may mount without any right on the node. So can
// one that may mount, for which nobody asks. The volume leaves the directory then, but not the node: its device is busy
// until nothing of the filesystem is left.
func TestWhatAPodHidesKeepsTheDeviceOfItsVolumeInUse(t *testing.T) {
	needsRoot(t)
	const elsewhere = "elsewhere=%[1]s/../../elsewhere; mkdir $elsewhere; "
	const use = "exec 7>>%[1]s/file"
	for name, script := range map[string]string{
		"a private copy":                "mount --make-rprivate /; " + use,
		"a copy with a mount on it":     "mount -t tmpfs none %[1]s/part; " + use,
		"a mount of it elsewhere":       elsewhere + "mount --bind %[1]s $elsewhere; exec 7>>$elsewhere/file",
		"a private mount of it":         elsewhere + "mount --bind %[1]s $elsewhere; mount --make-private $elsewhere",
		"an overlay of its directories": elsewhere + overlayOf,
	} {
		t.Run(name, func(t *testing.T) {
			s, device := newShownOn(t, "ext4", 1)
			s.hides(device, holder.Receiver(t, s.alone(fmt.Sprintf(script, s.target))))
		})
	}
	for name, script := range map[string]string{
		"a private copy in a user namespace":            "mount --make-rprivate /; " + use,
		"a copy with a mount on it in a user namespace": "mount -t tmpfs none %[1]s/part; " + use,
	} {
		for fsType, devices := range map[string]int{"ext4": 1, "btrfs": 2} {
			t.Run(name+" on "+fsType, func(t *testing.T) {
				s, device := newShownOn(t, fsType, devices)
				s.hides(device, holder.Tenant(t, s.volume, fmt.Sprintf(script, s.target)))
			})
		}
	}
}

const overlayOf = "mkdir %[1]s/up %[1]s/work; mount -t overlay none " +
	"-o lowerdir=%[1]s/part,upperdir=%[1]s/up,workdir=%[1]s/work $elsewhere"

// hides checks that the device is in use until the process has ended, although the volume left the directory, also a
// second time, and is mounted nowhere on the node. So no next life of the volume begins before.
func (s shown) hides(device Device, p holder.Process) {
	s.t.Helper()
	s.must(s.clear())
	s.show()
	s.must(s.clear())
	s.must(s.Unmount(s.t.Context(), s.volume))
	if h := held(s.CheckFree(s.t.Context(), device, false)); h == nil || !h.Claimed {
		s.t.Errorf("device %s, of which process %d hides a mount: %v, want that it is in use", device.Path, p.PID, h)
	}
	p.End()
	awaitFree(s.t, s.Mounter, device, false)
}

func TestAMountAtABarePlaceStays(t *testing.T) {
	s := newShown(t)
	place := s.place()
	place.Bare = true
	if err := s.ClearPlace(t.Context(), place); !errors.Is(err, ErrStillMounted) {
		t.Errorf("clearing a place at which nothing is to be mounted: error %v, want %v", err, ErrStillMounted)
	}
	if got := read(t, filepath.Join(s.target, "file")); got != "content" {
		t.Errorf("file at %s: %q, want that of the volume", s.target, got)
	}
	s.must(s.Unmount(t.Context(), s.target))
	s.must(s.ClearPlace(t.Context(), place))
	if _, err := os.Lstat(s.target); !errors.Is(err, unix.ENOENT) {
		t.Errorf("place %s: error %v, want that it is gone", s.target, err)
	}
}

func TestAnotherFilesystemAtAPlaceIsNotTakenForTheVolume(t *testing.T) {
	s := newShown(t)
	place := s.place()
	s.must(unix.Unmount(s.target, unix.MNT_DETACH))
	mountAt(t, "tmpfs", s.target, "tmpfs")
	if err := s.ClearPlace(t.Context(), place); !errors.Is(err, ErrOccupied) {
		t.Errorf("clearing a place with another filesystem: error %v, want %v", err, ErrOccupied)
	}
	if table, err := s.Table(); err != nil || len(table.All(s.target)) != 1 {
		t.Errorf("mounts at %s after a refused removal: %v, error %v; want the other one", s.target, table.All(s.target), err)
	}
}

func TestAPlaceOfAnotherIntentStays(t *testing.T) {
	s := newShown(t)
	s.must(s.MakePlace(t.Context(), s.dir, "other"))
	source, err := s.OpenMount(t.Context(), s.volume)
	s.must(err)
	s.must(s.BindAlone(t.Context(), source, filepath.Join(s.dir, "other"), false))
	s.must(source.Close())
	p := holder.Receiver(t, "exec 7<"+s.dir+"/other/file")
	s.cleared()
	if got := read(t, inside(p, s.dir+"/other/file")); got != "content" {
		t.Errorf("file of the other intent in the container: %q, want that of the volume", got)
	}
	p.End()
}

func TestWhatIsMountedInAVolumeLaterIsNotInItsPlaces(t *testing.T) {
	s := newShown(t)
	s.cleared()
	s.must(unix.Mount("", s.volume, "", unix.MS_SHARED, ""))
	s.show()
	own := mkdir(t, s.volume, "own")
	mountAt(t, "tmpfs", own, "tmpfs")
	table, err := s.Table()
	s.must(err)
	if found := table.Below(s.target); len(found) != 0 {
		t.Errorf("mounts below %s: %v, want none", s.target, paths(found))
	}
	s.cleared()
	if table, err = s.Table(); err != nil || len(table.All(own)) != 1 {
		t.Errorf("mounts at %s after the volume was taken out of the directory: %v, error %v; want the one of before", own,
			table.All(own), err)
	}
}

func TestNoPlaceIsMadeInAMountOverADirectory(t *testing.T) {
	s := newShown(t)
	mountAt(t, "tmpfs", s.dir, "tmpfs")
	if err := s.MakePlace(t.Context(), s.dir, "other"); !errors.Is(err, ErrOccupied) {
		t.Errorf("making a place where another mount covers the directory: error %v, want %v", err, ErrOccupied)
	}
}

// What covers a place is a stranger's. An error that names a process would have an administrator unmount the wrong one.
func TestAMountOverAPlaceIsRefusedAndBothStay(t *testing.T) {
	for name, cover := range map[string]func(s shown) error{
		"of another filesystem": func(s shown) error { return unix.Mount("tmpfs", s.target, "tmpfs", 0, "") },
		"of the volume itself":  func(s shown) error { return unix.Mount(s.volume, s.target, "", unix.MS_BIND, "") },
	} {
		t.Run(name, func(t *testing.T) {
			s := newShown(t)
			s.must(cover(s))
			if err := s.clear(); !errors.Is(err, ErrOccupied) {
				t.Errorf("clearing a place that another mount covers: error %v, want %v", err, ErrOccupied)
			}
			if table, err := s.Table(); err != nil || len(table.All(s.target)) != 2 {
				t.Errorf("mounts at %s after a refused removal: %v, error %v; want both", s.target, table.All(s.target), err)
			}
		})
	}
}
