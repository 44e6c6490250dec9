/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package mount

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// Watcher signals when the kernel changed the mount table.
type Watcher struct {
	path    string
	changes chan struct{}
}

// NewWatcher returns a Watcher of the mount table in that mountinfo file.
func NewWatcher(path string) *Watcher {
	return &Watcher{path: path, changes: make(chan struct{}, 1)}
}

// Changes is signalled after one or more changes. Several changes may give one signal. It is never closed.
func (w *Watcher) Changes() <-chan struct{} { return w.changes }

// Start watches until ctx ends, which is not an error. It signals once when the watch has begun, so that a caller that
// then reads the table misses nothing.
func (w *Watcher) Start(ctx context.Context) error {
	// Not os.Open, which also adds the file to the Go runtime's poller: the kernel reports each change once for each
	// open file, and the runtime would consume some reports.
	table, err := unix.Open(w.path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("opening mount table %s: %w", w.path, err)
	}
	wake, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return errors.Join(fmt.Errorf("creating eventfd: %w", err), unix.Close(table))
	}
	woken := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(woken)
		// One write cannot overflow the counter of a new eventfd.
		_, _ = unix.Write(wake, []byte{1, 0, 0, 0, 0, 0, 0, 0})
	})
	err = w.loop(ctx, table, wake)
	if !stop() {
		<-woken // the write must not hit another file that got the descriptor's number
	}
	return errors.Join(err, unix.Close(wake), unix.Close(table))
}

// loop blocks in poll: the Go runtime's poller does not wait for POLLPRI, which signals mount changes.
func (w *Watcher) loop(ctx context.Context, table, wake int) error {
	fds := []unix.PollFd{{Fd: int32(table), Events: unix.POLLPRI | unix.POLLERR}, {Fd: int32(wake), Events: unix.POLLIN}}
	for w.signal(); ctx.Err() == nil; {
		_, err := unix.Poll(fds, -1)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return fmt.Errorf("waiting for mount changes: %w", err)
		}
		if fds[0].Revents&unix.POLLNVAL != 0 {
			return fmt.Errorf("waiting for mount changes: %w", unix.EBADF)
		}
		if fds[0].Revents != 0 {
			w.signal()
		}
	}
	return nil
}

func (w *Watcher) signal() {
	select {
	case w.changes <- struct{}{}:
	default: // a signal that covers this change is already pending
	}
}
