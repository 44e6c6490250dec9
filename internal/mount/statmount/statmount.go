/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

// Package statmount asks the kernel for single mounts of a mount namespace, by its calls listmount and statmount. The
// kernel needs 5 µs for a mount, so a table of ten thousand takes 50 ms, but the list of their numbers less than one.
package statmount

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"unsafe"

	"golang.org/x/sys/unix"
)

// ID is the kernel's unique number of a mount, which no later mount gets. Mount tables have a shorter number, which is
// used again.
type ID uint64

// Mount is a mount as a line of the mount table has it.
type Mount struct {
	// ID and ParentID are the numbers of mount tables.
	ID, ParentID               int
	Major, Minor               int
	Root, Path, FSType, Source string
	Options, SuperOptions      []string
	// FilesystemOptions follow SuperOptions in the mount table. They are separated by commas.
	FilesystemOptions string
	PeerGroup, Master int
}

// Namespace is a mount namespace. It is not safe for concurrent use.
type Namespace struct {
	number uint64
	buffer []byte
}

// ErrNotShown: the kernel does not show all that the mount table has of a mount.
var ErrNotShown = errors.New("the kernel does not show all of the mount")

const (
	// needed are fields that every mount has where the kernel knows them: STATMOUNT_SB_BASIC, MNT_BASIC, MNT_ROOT,
	// MNT_POINT, FS_TYPE and SB_SOURCE. The last came with Linux 6.13.
	needed = 0x1 | 0x2 | 0x8 | 0x10 | 0x20 | 0x200
	// STATMOUNT_MNT_OPTS, FS_SUBTYPE and OPT_SEC_ARRAY.
	filesystemOptions, subtype, securityOptions = 0x80, 0x100, 0x800
	// fromRoot has listmount begin at the root of the namespace.
	fromRoot = ^uint64(0)
	// textBegins is where texts begin in the answer of statmount.
	textBegins = 512
)

// request is the kernel's struct mnt_id_req.
type request struct {
	size, _   uint32
	mount     uint64
	parameter uint64
	namespace uint64
}

// Of returns the namespace of a mountinfo file.
func Of(mountInfo string) (*Namespace, error) {
	file, err := os.Open(filepath.Join(filepath.Dir(mountInfo), "ns/mnt"))
	if err != nil {
		return nil, err
	}
	defer file.Close() //nolint:errcheck // only read
	n := &Namespace{buffer: make([]byte, 16<<10)}
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, file.Fd(), unix.NS_GET_MNTNS_ID,
		uintptr(unsafe.Pointer(&n.number))); errno != 0 {
		return nil, fmt.Errorf("reading the number of the mount namespace: %w", errno)
	}
	return n, nil
}

// List returns the IDs of all mounts, in ascending order. It writes them to the slice if they fit.
func (n *Namespace) List(into []ID) ([]ID, error) {
	into = into[:0]
	r := request{mount: fromRoot, namespace: n.number}
	r.size = uint32(unsafe.Sizeof(r))
	for {
		if len(into)+512 > cap(into) {
			into = append(into, make([]ID, max(len(into), 1024))...)[:len(into)]
		}
		room := into[len(into):cap(into)]
		listed, _, errno := unix.Syscall6(unix.SYS_LISTMOUNT, uintptr(unsafe.Pointer(&r)),
			uintptr(unsafe.Pointer(unsafe.SliceData(room))), uintptr(len(room)), 0, 0, 0)
		if errno != 0 {
			return nil, fmt.Errorf("listing mounts: %w", errno)
		}
		into = into[:len(into)+int(listed)]
		if int(listed) < len(room) {
			return into, nil
		}
		r.parameter = uint64(into[len(into)-1])
	}
}

// Covered reports whether a mount is at or below that one.
func (n *Namespace) Covered(id ID) (bool, error) {
	var first ID
	r := request{mount: uint64(id), namespace: n.number}
	r.size = uint32(unsafe.Sizeof(r))
	listed, _, errno := unix.Syscall6(unix.SYS_LISTMOUNT, uintptr(unsafe.Pointer(&r)), uintptr(unsafe.Pointer(&first)), 1,
		0, 0, 0)
	if errno != 0 {
		return false, fmt.Errorf("listing mounts on mount %d: %w", id, errno)
	}
	return listed > 0, nil
}

// Get returns a mount. The error is ENOENT if it has gone, and ErrNotShown where the mount table has more.
func (n *Namespace) Get(id ID) (Mount, error) {
	r := request{mount: uint64(id), parameter: needed | filesystemOptions | subtype | securityOptions, namespace: n.number}
	r.size = uint32(unsafe.Sizeof(r))
	for {
		_, _, errno := unix.Syscall6(unix.SYS_STATMOUNT, uintptr(unsafe.Pointer(&r)),
			uintptr(unsafe.Pointer(unsafe.SliceData(n.buffer))), uintptr(len(n.buffer)), 0, 0, 0)
		switch errno {
		case 0:
			return parse(n.buffer)
		case unix.EOVERFLOW:
			n.buffer = make([]byte, 2*len(n.buffer))
		default:
			return Mount{}, fmt.Errorf("reading mount %d: %w", id, errno)
		}
	}
}

// parse reads the kernel's struct statmount.
func parse(b []byte) (Mount, error) {
	number := func(at int) uint32 { return binary.NativeEndian.Uint32(b[at:]) }
	wide := func(at int) uint64 { return binary.NativeEndian.Uint64(b[at:]) }
	text := func(at int) string {
		from := b[textBegins+number(at):]
		return string(from[:max(bytes.IndexByte(from, 0), 0)])
	}
	shown := wide(8)
	// The mount table has options of security, such as a context of SELinux, among those of the filesystem.
	if shown&needed != needed || shown&securityOptions != 0 && number(136) > 0 {
		return Mount{}, ErrNotShown
	}
	m := Mount{
		ID: int(number(56)), ParentID: int(number(60)), Major: int(number(16)), Minor: int(number(20)),
		Root: text(104), Path: text(108), FSType: text(36), Source: text(124),
		Options: mountOptions(wide(64)), SuperOptions: superOptions(number(32)),
		PeerGroup: int(wide(80)), Master: int(wide(88)),
	}
	if shown&subtype != 0 {
		m.FSType += "." + text(120)
	}
	if shown&filesystemOptions != 0 {
		m.FilesystemOptions = text(4)
	}
	return m, nil
}

// option is the name of a flag in the mount table.
type option struct {
	flag uint64
	name string
}

// mountOptions names MOUNT_ATTR_ flags as the mount table does, and in its order.
func mountOptions(attributes uint64) []string {
	names := []string{"rw"}
	if attributes&unix.MOUNT_ATTR_RDONLY != 0 {
		names[0] = "ro"
	}
	for _, o := range []option{
		{unix.MOUNT_ATTR_NOSUID, "nosuid"}, {unix.MOUNT_ATTR_NODEV, "nodev"}, {unix.MOUNT_ATTR_NOEXEC, "noexec"},
		{unix.MOUNT_ATTR_NOATIME, "noatime"}, {unix.MOUNT_ATTR_NODIRATIME, "nodiratime"},
	} {
		if attributes&o.flag != 0 {
			names = append(names, o.name)
		}
	}
	if attributes&unix.MOUNT_ATTR__ATIME == unix.MOUNT_ATTR_RELATIME {
		names = append(names, "relatime")
	}
	for _, o := range []option{{unix.MOUNT_ATTR_NOSYMFOLLOW, "nosymfollow"}, {unix.MOUNT_ATTR_IDMAP, "idmapped"}} {
		if attributes&o.flag != 0 {
			names = append(names, o.name)
		}
	}
	return names
}

// superOptions names SB_ flags, which have the numbers of MS_ flags.
func superOptions(flags uint32) []string {
	names := []string{"rw"}
	if flags&unix.MS_RDONLY != 0 {
		names[0] = "ro"
	}
	for _, o := range []option{
		{unix.MS_SYNCHRONOUS, "sync"}, {unix.MS_DIRSYNC, "dirsync"}, {unix.MS_LAZYTIME, "lazytime"},
	} {
		if uint64(flags)&o.flag != 0 {
			names = append(names, o.name)
		}
	}
	return names
}
