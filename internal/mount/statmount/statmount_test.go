/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package statmount

import (
	"encoding/binary"
	"errors"
	"reflect"
	"testing"

	"golang.org/x/sys/unix"
)

// answer is the kernel's, with these fields, numbers by their offsets, and texts.
func answer(fields uint64, numbers map[int]uint32, texts map[int]string) []byte {
	b := make([]byte, textBegins+1)
	binary.NativeEndian.PutUint64(b[8:], fields)
	for at, n := range numbers {
		binary.NativeEndian.PutUint32(b[at:], n)
	}
	for at, text := range texts {
		binary.NativeEndian.PutUint32(b[at:], uint32(len(b)-textBegins))
		b = append(append(b, text...), 0)
	}
	return b
}

func TestAMountHasWhatTheMountTableShows(t *testing.T) {
	b := answer(needed|filesystemOptions|subtype,
		map[int]uint32{16: 0, 20: 45, 32: unix.MS_RDONLY | unix.MS_SYNCHRONOUS, 56: 40, 60: 30, 80: 5, 88: 6,
			64: unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NOATIME},
		map[int]string{104: "/part", 108: "/mnt/a b", 36: "fuse", 120: "sshfs", 124: "user@host:/",
			4: "user_id=0,group_id=0"})
	want := Mount{ID: 40, ParentID: 30, Minor: 45, Root: "/part", Path: "/mnt/a b", FSType: "fuse.sshfs",
		Source: "user@host:/", Options: []string{"ro", "nosuid", "noatime"}, SuperOptions: []string{"ro", "sync"},
		FilesystemOptions: "user_id=0,group_id=0", PeerGroup: 5, Master: 6}
	if got, err := parse(b); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("mount: %+v, error %v; want %+v", got, err, want)
	}
}

func TestWhatTheKernelDoesNotShowAllOfIsAnError(t *testing.T) {
	for name, b := range map[string][]byte{
		"no source, as before Linux 6.13": answer(needed&^0x200, nil, nil),
		"an option of a security module":  answer(needed|securityOptions, map[int]uint32{136: 1}, nil),
	} {
		if m, err := parse(b); !errors.Is(err, ErrNotShown) {
			t.Errorf("mount with %s: %+v, error %v; want %v", name, m, err, ErrNotShown)
		}
	}
}
