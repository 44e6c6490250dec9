/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

// Package filelock lets the driver's processes share files: locks and atomic writes.
package filelock

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// ErrHeld means that another process holds the lock.
var ErrHeld = errors.New("lock is held by another process")

// With runs do while it holds the lock file exclusively, across processes and goroutines. The kernel releases the lock
// of a process that dies.
func With(path string, do func() error) (err error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return fmt.Errorf("opening lock: %w", err)
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	if err := flock(file, unix.LOCK_EX); err != nil {
		return fmt.Errorf("locking %s: %w", path, err)
	}
	return do()
}

// Hold takes the lock for as long as the returned file stays open, or fails at once with ErrHeld.
func Hold(path string) (*os.File, error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening lock: %w", err)
	}
	err = flock(file, unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		err = ErrHeld
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("locking %s: %w", path, err), file.Close())
	}
	return file, nil
}

func flock(file *os.File, how int) error {
	for {
		err := unix.Flock(int(file.Fd()), how)
		if !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// WriteAtomic replaces the file's content. Readers, and a process that starts after this one was killed, see either the
// old or the new content. It does not sync: the data must outlive the process, not the machine.
func WriteAtomic(path string, data []byte) error {
	temp, err := os.CreateTemp(filepath.Dir(path), ".new-*")
	if err != nil {
		return fmt.Errorf("creating temporary file: %w", err)
	}
	_, err = temp.Write(data)
	err = errors.Join(err, temp.Close())
	if err == nil {
		err = os.Rename(temp.Name(), path)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("writing %s: %w", path, err), os.Remove(temp.Name()))
	}
	return nil
}
