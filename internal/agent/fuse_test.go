/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package agent

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/api/meta"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/driver"
	"github.com/hawser-io/hawser/test/csiloop/harness/harnesstest"
)

// daemon serves an empty directory through FUSE.
type daemon struct {
	fd, wake int
	// silent: requests get no answer.
	silent atomic.Bool
	done   chan error
	end    func() error
}

// startDaemon mounts a filesystem at the path and serves it until end is called. Then the kernel knows that it is gone.
func startDaemon(path string) (*daemon, error) {
	fd, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	wake, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
	if err != nil {
		return nil, errors.Join(err, unix.Close(fd))
	}
	d := &daemon{fd: fd, wake: wake, done: make(chan error, 1)}
	options := fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0", fd)
	if err := unix.Mount("daemon", path, "fuse.test", 0, options); err != nil {
		return nil, errors.Join(err, unix.Close(fd), unix.Close(wake))
	}
	d.end = sync.OnceValue(func() error {
		_, err := unix.Write(wake, []byte{1, 0, 0, 0, 0, 0, 0, 0})
		return errors.Join(err, <-d.done, unix.Close(fd), unix.Close(wake))
	})
	go func() { d.done <- d.serve() }()
	return d, nil
}

func (d *daemon) serve() error {
	request := make([]byte, 1<<20)
	for {
		fds := []unix.PollFd{{Fd: int32(d.fd), Events: unix.POLLIN}, {Fd: int32(d.wake), Events: unix.POLLIN}}
		_, err := unix.Poll(fds, -1)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil || fds[1].Revents != 0:
			return err
		}
		n, err := unix.Read(d.fd, request)
		switch {
		case errors.Is(err, unix.ENODEV): // unmounted
			return nil
		case errors.Is(err, unix.EINTR) || errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.ENOENT):
			continue
		case err != nil:
			return err
		}
		if answer := fuseAnswer(request[:n]); answer != nil && !d.silent.Load() {
			if _, err := unix.Write(d.fd, answer); err != nil && !errors.Is(err, unix.ENOENT) {
				return err
			}
		}
	}
}

// fuseAnswer is the answer to a request, nil for one that has none. The numbers are those of linux/fuse.h.
func fuseAnswer(request []byte) []byte {
	const getAttributes, statFilesystem, initialize = 3, 17, 26
	body, failed := []byte(nil), unix.ENOSYS
	order := binary.LittleEndian
	switch order.Uint32(request[4:]) {
	case 2, 36, 42: // to forget, to interrupt, and to forget many
		return nil
	case initialize:
		body, failed = make([]byte, 64), 0
		order.PutUint32(body, 7)
		order.PutUint32(body[4:], 31)
		order.PutUint32(body[20:], 1<<16)
	case getAttributes:
		body, failed = make([]byte, 104), 0
		order.PutUint64(body[16:], 1)
		order.PutUint32(body[16+60:], unix.S_IFDIR|0o755)
		order.PutUint32(body[16+64:], 2)
	case statFilesystem:
		body, failed = make([]byte, 80), 0
	}
	answer := make([]byte, 16, 16+len(body))
	order.PutUint32(answer, uint32(16+len(body)))
	order.PutUint32(answer[4:], uint32(-int32(failed)))
	copy(answer[8:], request[8:16])
	return append(answer, body...)
}

// daemons is a driver that has a daemon for each stage.
type daemons struct {
	sharingDriver
	mu      *sync.Mutex
	running map[string]*daemon
}

func (d daemons) Stage(_ context.Context, req driver.StageRequest) error {
	if mounted(req.StagingPath) {
		return nil
	}
	started, err := startDaemon(req.StagingPath)
	if err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.running[req.Handle] = started
	return nil
}

func (d daemons) Unstage(ctx context.Context, req driver.UnstageRequest) error {
	return errors.Join(d.sharingDriver.Unstage(ctx, req), d.of(req.Handle).end())
}

func (d daemons) of(handle string) *daemon {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.running[handle]
}

// Get makes it the registry of itself.
func (d daemons) Get(name string) (driver.Driver, bool) {
	base, ok := d.Registry.Get(name)
	d.Driver = base
	return d, ok
}

func TestRealVolumesOfDaemonsFallSick(t *testing.T) {
	harnesstest.NeedRoot(t)
	if _, err := os.Stat("/dev/fuse"); err != nil {
		t.Skip("the kernel has no FUSE")
	}
	c := newCluster(t)
	for name, test := range map[string]struct {
		fail, repair func(d *daemon) error
		cause        string
	}{
		"a daemon that has ended, and is started again by the stage": {
			func(d *daemon) error { return d.end() }, func(*daemon) error { return nil }, "not connected",
		},
		"a daemon that does not answer for a while": {
			func(d *daemon) error { d.silent.Store(true); return nil },
			func(d *daemon) error { return d.end() },
			"does not answer",
		},
	} {
		t.Run(name, func(t *testing.T) {
			n := c.realNode(t)
			n.examineSoon()
			served := daemons{mu: &sync.Mutex{}, running: map[string]*daemon{}}
			earlier := n.drive
			n.drive = func(o *Options) {
				earlier(o)
				served.sharing = sharing{Registry: o.Registry}
				o.Registry = served
			}
			v := n.shared("one")
			n.start()
			i := n.want(v, "data")
			n.ready(i)
			d := served.of("one")
			n.must(test.fail(d))
			n.intent(i, "the sickness", func(i *volumesv1alpha1.VolumeAttachmentIntent) bool {
				ready := meta.FindStatusCondition(i.Status.Conditions, volumesv1alpha1.ConditionReady)
				return ready != nil && ready.Reason == volumesv1alpha1.ReasonVolumeSick &&
					strings.Contains(ready.Message, test.cause)
			})
			other := n.want(v, "other")
			n.must(test.repair(d))
			n.ready(i)
			n.ready(other)
			if served.of("one") == d {
				t.Error("the volume is served by the daemon that has ended, want that it is staged again")
			}
			n.end(v, i, other)
		})
	}
}
