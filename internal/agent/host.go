/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/fsnotify/fsnotify"
	"github.com/go-logr/logr"
	"golang.org/x/sys/unix"

	"github.com/hawser-io/hawser/internal/agent/kubelet"
	"github.com/hawser-io/hawser/internal/agent/record"
)

// Host is what the agent needs of its machine beside mounts.
type Host interface {
	// Lock waits until no other process holds the lock on the file. It keeps the lock until it is closed, or the
	// process ends.
	Lock(ctx context.Context, path string) (io.Closer, error)
	// ReplaceFile returns once the whole file is on the disk. After a crash it holds what it held before or data, never
	// a part.
	ReplaceFile(path string, data []byte) error
	// Watch makes a watcher of directories.
	Watch() (kubelet.Watcher, error)
}

// thisHost is the machine that the agent runs on.
type thisHost struct{ log logr.Logger }

func (h thisHost) Lock(ctx context.Context, path string) (io.Closer, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening lock file: %w", err)
	}
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		h.log.Info("another agent holds the lock, waiting for its end", "lock", path)
		locked := make(chan error, 1)
		go func() { locked <- unix.Flock(int(f.Fd()), unix.LOCK_EX) }()
		select {
		case err = <-locked:
		case <-ctx.Done():
			return nil, ctx.Err() // the goroutine waits on; the process is about to end
		}
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("locking %s: %w", path, err), f.Close())
	}
	return f, nil
}

func (thisHost) ReplaceFile(path string, data []byte) error { return record.ReplaceFile(path, data) }

func (thisHost) Watch() (kubelet.Watcher, error) {
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, err
	}
	return fileWatcher{w}, nil
}

type fileWatcher struct{ *fsnotify.Watcher }

func (w fileWatcher) Changes() <-chan fsnotify.Event { return w.Events }

func (w fileWatcher) Failures() <-chan error { return w.Errors }
