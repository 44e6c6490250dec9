/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package mount

import (
	"errors"
	"fmt"
	"os"
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
	work := workspace(t)
	s := shown{Mounter: New(Options{}), t: t, dir: mkdir(t, work, "dir"), volume: mkdir(t, work, "volume")}
	s.target = filepath.Join(s.dir, "db")
	mountAt(t, "tmpfs", s.volume, "tmpfs")
	write(t, filepath.Join(s.volume, "file"), "content")
	s.must(s.MakeDirectory(t.Context(), s.dir))
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
	s.showPart(".")
}

func (s shown) showPart(part string) {
	s.t.Helper()
	s.must(s.MakePlace(s.t.Context(), s.dir, "db"))
	source, err := s.OpenBeneath(s.t.Context(), s.volume, part)
	s.must(err)
	s.must(s.BindAlone(s.t.Context(), source, s.target, false))
	s.must(source.Close())
}

// ofPod is the UID of the pod that has the directory.
const ofPod = "0123abcd-4567-89ab-cdef-0123456789ab"

// place is the place db with what its record has: the volume, whatever is mounted there now.
func (s shown) place() Place {
	s.t.Helper()
	table, err := s.Table()
	s.must(err)
	volume, mounted := table.At(s.volume)
	if !mounted {
		s.t.Fatalf("no mount at %s, want the volume", s.volume)
	}
	return Place{Directory: s.dir, Name: "db", PodUID: ofPod, Major: volume.Major, Minor: volume.Minor, Root: volume.Root}
}

func (s shown) clear() error { return s.ClearPlace(s.t.Context(), s.place()) }

// groupOfPod makes a control group of the pod, and returns what a shell runs to enter it.
func (s shown) groupOfPod() string {
	s.t.Helper()
	root := "/sys/fs/cgroup/pids" // in version 1
	if _, err := os.Stat(root); err != nil {
		root = "/sys/fs/cgroup"
	}
	group := filepath.Join(root, filepath.Base(filepath.Dir(s.dir)), "pod"+ofPod)
	s.must(os.MkdirAll(group, 0o755))
	s.t.Cleanup(func() { s.must(errors.Join(os.Remove(group), os.Remove(filepath.Dir(group)))) })
	return "echo $$ >" + group + "/cgroup.procs; umount " + s.volume + "; " // a container has nothing else of the node
}

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
	s.must(s.MakeDirectory(t.Context(), s.dir))
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

const (
	// enter has the script run in the control group of the pod.
	enter = "ENTER"
	// elsewhere makes a directory outside of the volume.
	elsewhere = "elsewhere=%[1]s/../../elsewhere; mkdir $elsewhere; "
	// withoutProcess makes a mount namespace with a private mount of the volume elsewhere, which only a descriptor keeps.
	withoutProcess = elsewhere + "cd $elsewhere; mkfifo made end; unshare --mount --propagation private sh -ec " +
		"'mount --bind %[1]s /mnt; echo >made; read end <end' & read made <made; exec 7</proc/$!/ns/mnt; echo >end; wait"
)

func TestAVolumeThatAContainerUsesIsNotTakenOutOfItsDirectory(t *testing.T) {
	for name, c := range map[string]struct{ script, use string }{
		"an open file":                 {"exec 7<%s/file", "open"},
		"a file open for writing":      {"exec 7>>%s/file", "open"},
		"a directory that it works in": {"cd %s", "as its directory"},
		"a mount of its own on it":     {"mkdir %[1]s/own; mount -t tmpfs none %[1]s/own", "has a copy of it mounted"},
		"a copy that follows no change": {"mkdir %[1]s/../../copy; mount --rbind --make-rprivate %[1]s/.. " +
			"%[1]s/../../copy", "copy"},
		"a mount of it elsewhere":           {elsewhere + "mount --bind %[1]s $elsewhere", "/elsewhere"},
		"a mount of a part of it elsewhere": {elsewhere + "mount --bind %[1]s/part $elsewhere", "/elsewhere"},
		"a mount of it in a shared mount": {elsewhere + "mount --make-rshared /; mount --bind %[1]s $elsewhere",
			"/elsewhere"},
		"a mount of it that receives from a copy": {elsewhere + "mount --make-shared %[1]s; mount --bind %[1]s " +
			"$elsewhere; mount --make-slave $elsewhere", "/elsewhere"},
		"a private mount of it elsewhere": {enter + elsewhere + "mount --bind %[1]s $elsewhere; mount --make-private " +
			"$elsewhere", "/elsewhere"},
		"a file of a mount that was detached": {enter + "exec 7<%[1]s/file; umount -l %[1]s", "/file of a mount"},
		"an overlay of its directories": {enter + elsewhere + "mkdir %[1]s/up %[1]s/work; mount -t overlay none " +
			"-o lowerdir=%[1]s/part,upperdir=%[1]s/up,workdir=%[1]s/work $elsewhere", "has an overlay of it"},
		"a mount namespace that no process is in":  {enter + withoutProcess, "a mount namespace without a process open"},
		"a directory of a mount that was detached": {enter + "cd %[1]s/part; umount -l %[1]s", "/part of a mount"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newShown(t)
			mkdir(t, s.volume, "part")
			script := c.script
			if own, ok := strings.CutPrefix(script, enter); ok {
				script = s.groupOfPod() + own
			}
			p := holder.Receiver(t, fmt.Sprintf(script, s.target))
			s.heldBy(p, c.use)
			s.heldBy(p, c.use)
			p.End()
			s.cleared()
		})
	}
}

// The kernel keeps a mount namespace that is mounted somewhere.
func TestAMountNamespaceThatIsMountedAndHasNoProcessIsAUse(t *testing.T) {
	v := view{podOnly: true, namespace: "mnt:[1]", table: NewTable([]Entry{
		{ID: 1, FSType: "nsfs", Root: "mnt:[7]", Path: "/kept"}, {ID: 2, FSType: "nsfs", Root: "net:[9]", Path: "/net"}})}
	found := placeScan{}.indirect(v, map[string]bool{"mnt:[1]": true})
	if len(found) != 1 || !strings.Contains(found[0].Use, "/kept") {
		t.Errorf("holders with mount namespace mnt:[7], which no process is in: %v, want one with /kept", found)
	}
	if found := (placeScan{}).indirect(v, map[string]bool{"mnt:[1]": true, "mnt:[7]": true}); len(found) != 0 {
		t.Errorf("holders with mount namespace mnt:[7], which a process is in: %v, want none", found)
	}
}

func TestAVolumeIsInUseAlsoWhereItsDirectoryIsGone(t *testing.T) {
	s := newShown(t)
	p := holder.Receiver(t, s.groupOfPod()+"exec 7<"+s.target+"/file; umount -l "+s.target)
	s.must(unix.Unmount(s.dir, unix.MNT_DETACH))
	if h := held(s.clear()); h == nil || len(h.Holders) != 1 || h.Holders[0].PID != p.PID {
		t.Errorf("holders of %s: %v, want process %d alone", s.target, h, p.PID)
	}
	p.End()
	s.must(s.clear())
}

// A pod decides how many mounts of a volume it has. The agent's memory is limited.
func TestMoreMountsOfAVolumeThanCanBeExaminedCountAsAUse(t *testing.T) {
	s := newShown(t)
	const doubled = 15
	holder.Receiver(t, fmt.Sprintf(elsewhere+"mount -t tmpfs --make-private none $elsewhere; cd $elsewhere; "+
		"mkdir volume; mount --bind --make-private %[1]s volume; "+
		"for i in $(seq %[2]d); do mkdir $i; mount --rbind . $i; done", s.target, doubled))
	if err := s.clear(); !errors.Is(err, errTooMany) {
		t.Errorf("clearing %s, whose volume has %d mounts in a container: error %v, want %v", s.target, 1<<doubled, err,
			errTooMany)
	}
}

func TestACopyOfWhichTheFirstProcessSeesNothingIsFound(t *testing.T) {
	s := newShown(t)
	root := mkdir(t, s.dir, "..", "root")
	p := holder.Receiver(t, fmt.Sprintf("exec 8<&0; mount --make-rprivate /; mount --bind / %[2]s; "+
		"(exec 7<%[1]s/file; read end <&8) & exec chroot %[2]s sh -ec 'echo ready; read end'", s.target, root))
	h := held(s.clear())
	if h == nil || !strings.Contains(h.Error(), "has a copy of it mounted at "+s.target) {
		t.Errorf("holders of %s: %v, want one with a copy of it", s.target, h)
	}
	if got := read(t, filepath.Join(s.target, "file")); got != "content" {
		t.Errorf("file at %s after a refused removal: %q, want that of the volume", s.target, got)
	}
	p.End()
	s.cleared()
}

func TestAVolumeStaysWhereMountsOfThePodAreOutsideOfTheRootOfAllItsProcesses(t *testing.T) {
	s := newShown(t)
	root := mkdir(t, s.dir, "..", "root")
	p := holder.Receiver(t, fmt.Sprintf(s.groupOfPod()+elsewhere+"mount --bind / %[2]s; mount --bind %[1]s $elsewhere; "+
		"mount --make-rprivate /; umount %[1]s; exec chroot %[2]s sh -ec 'echo ready; read end'", s.target, root))
	s.heldBy(p, "outside of the root of all its processes")
	p.End()
	s.cleared()
}

func TestACopyThatIsFoundAfterTheUnmountPutsTheVolumeBack(t *testing.T) {
	s := newShown(t)
	p := holder.Receiver(t, fmt.Sprintf(elsewhere+"mount --bind %[1]s $elsewhere", s.target))
	table, err := s.Table()
	s.must(err)
	directory, _ := table.At(s.dir)
	h := held(newPlaceScan(s.place(), directory, table).unmount(s.Table))
	if h == nil || len(h.Holders) != 1 || h.Holders[0].PID != p.PID || !strings.Contains(h.Error(), "/elsewhere") {
		t.Errorf("holders of %s: %v, want process %d alone, which has a mount elsewhere", s.target, h, p.PID)
	}
	s.heldBy(p, "/elsewhere")
	if got := read(t, inside(p, s.target+"/file")); got != "content" {
		t.Errorf("file in the container after a refused removal: %q, want that of the volume", got)
	}
	p.End()
	s.cleared()
}

func TestAPrivateCopyIsFoundWhereverInTheVolumeItsDirectoryWasMoved(t *testing.T) {
	s := newShown(t)
	s.cleared()
	mkdir(t, s.volume, "part", "inner")
	write(t, filepath.Join(s.volume, "part", "file"), "content")
	s.showPart("part")
	p := holder.Receiver(t, fmt.Sprintf(s.groupOfPod()+elsewhere+"mount --bind %[1]s/inner $elsewhere; "+
		"mount --make-private $elsewhere", s.target))
	s.must(os.Rename(filepath.Join(s.volume, "part", "inner"), filepath.Join(s.volume, "moved")))
	s.heldBy(p, "/elsewhere")
	p.End()
	s.cleared()
}

// After a crash between the unmount and the removal of the record nothing is at the place.
func TestAnotherDirectoryOfTheDiskWithTheVolumeIsNoCopy(t *testing.T) {
	s := newShown(t)
	s.must(s.Unmount(t.Context(), s.target))
	place := s.place()
	place.Root = "/volumes/db"
	other := mkdir(t, s.volume, "pods", "hosts")
	p := holder.Receiver(t, fmt.Sprintf(elsewhere, s.target)+"mount --bind "+other+" $elsewhere; "+
		"mount --make-private $elsewhere; "+s.groupOfPod()+":")
	if err := s.ClearPlace(t.Context(), place); err != nil {
		t.Errorf("clearing the place of a volume that is a directory of a disk, of which process %d has another one: "+
			"error %v, want none", p.PID, err)
	}
}

func TestAnotherFilesystemAtAPlaceIsNotTakenForTheVolume(t *testing.T) {
	s := newShown(t)
	place := s.place()
	p := holder.Receiver(t, s.groupOfPod()+"exec 7<"+s.target+"/file; umount -l "+s.target)
	s.must(unix.Unmount(s.target, unix.MNT_DETACH))
	mountAt(t, "tmpfs", s.target, "tmpfs")
	if err := s.ClearPlace(t.Context(), place); !errors.Is(err, ErrOccupied) {
		t.Errorf("clearing a place with another filesystem while process %d uses the volume: error %v, want %v", p.PID, err,
			ErrOccupied)
	}
	s.must(unix.Unmount(s.target, 0))
	if h := held(s.ClearPlace(t.Context(), place)); h == nil || len(h.Holders) != 1 || h.Holders[0].PID != p.PID {
		t.Errorf("holders of %s: %v, want process %d alone", s.target, h, p.PID)
	}
}

func TestAPlaceOfAnotherIntentIsNoCopy(t *testing.T) {
	s := newShown(t)
	s.must(s.MakePlace(t.Context(), s.dir, "other"))
	source, err := s.OpenMount(t.Context(), s.volume)
	s.must(err)
	s.must(s.BindAlone(t.Context(), source, filepath.Join(s.dir, "other"), false))
	s.must(source.Close())
	p := holder.Receiver(t, s.groupOfPod()+"exec 7<"+s.dir+"/other/file")
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
	s := newShown(t)
	mountAt(t, "tmpfs", s.target, "tmpfs")
	if err := s.clear(); !errors.Is(err, ErrOccupied) {
		t.Errorf("clearing a place that another mount covers: error %v, want %v", err, ErrOccupied)
	}
	if table, err := s.Table(); err != nil || len(table.All(s.target)) != 2 {
		t.Errorf("mounts at %s after a refused removal: %v, error %v; want both", s.target, table.All(s.target), err)
	}
}
