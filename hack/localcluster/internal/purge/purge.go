/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

// Package purge deletes a directory that may contain mount points. It never deletes through a mount.
package purge

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Directory deletes the directory and all files on the same mount. The kernel refuses to open files behind a
// mount point, so such a directory stays and is the error.
func Directory(path string) error {
	parent, err := unix.Open(filepath.Dir(path), unix.O_DIRECTORY|unix.O_PATH|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("opening %s: %w", filepath.Dir(path), err)
	}
	defer func() { _ = unix.Close(parent) }() // nothing was written to it
	return removeDirectory(parent, filepath.Base(path), path)
}

// removeDirectory empties a directory and removes it.
func removeDirectory(parent int, name, path string) error {
	descriptor, err := unix.Openat2(parent, name, &unix.OpenHow{
		Flags:   unix.O_RDONLY | unix.O_DIRECTORY | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_NO_XDEV | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_BENEATH,
	})
	switch {
	case errors.Is(err, unix.ENOENT):
		return nil
	case errors.Is(err, unix.EXDEV):
		return fmt.Errorf("%s is a mount point: unmount it first", path)
	case err != nil:
		return fmt.Errorf("opening %s: %w", path, err)
	}
	directory := os.NewFile(uintptr(descriptor), path)
	err = removeEntries(directory, path)
	if err := errors.Join(err, directory.Close()); err != nil {
		return err
	}
	if err := unix.Unlinkat(parent, name, unix.AT_REMOVEDIR); err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("removing %s: %w", path, err)
	}
	return nil
}

func removeEntries(directory *os.File, path string) error {
	entries, err := directory.ReadDir(-1)
	if err != nil {
		return fmt.Errorf("listing %s: %w", path, err)
	}
	descriptor := int(directory.Fd())
	var problems []error
	for _, entry := range entries {
		below := filepath.Join(path, entry.Name())
		if entry.IsDir() {
			problems = append(problems, removeDirectory(descriptor, entry.Name(), below))
			continue
		}
		if err := unix.Unlinkat(descriptor, entry.Name(), 0); err != nil && !errors.Is(err, unix.ENOENT) {
			problems = append(problems, fmt.Errorf("removing %s: %w", below, err))
		}
	}
	return errors.Join(problems...)
}
