/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

// Package machine makes a machine out of namespaces, for a node with a real kubelet: mounts, process
// IDs, a network and a boot ID of its own. Its first process holds it. When that ends, the kernel ends
// every process inside and takes down the mounts and the network, as if the power had failed.
package machine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime"

	"golang.org/x/sys/unix"

	"github.com/hawser-io/hawser/hack/localcluster/internal/process"
)

// Options of a machine.
type Options struct {
	// Directory of the cluster: what lies below has to be seen inside and outside.
	Directory string
	// Address that the machine has beside 127.0.0.1.
	Address string
	// ControlGroup is the parent of the groups of the machine's pods.
	ControlGroup string
	// APIServer is where the API server listens outside; the machine finds it at the same address inside.
	APIServer string
}

// Run is the machine's first process, started by package process with namespaces of its own. The caller
// has bound its goroutine to the program's main thread, whose namespaces are the machine's.
func Run(ctx context.Context, o Options) error {
	if os.Getpid() != 1 {
		return errors.New("a machine's first process is started by the launcher, with process IDs of its own")
	}
	// Orphans fall to the first process; ignoring their end lets the kernel clear them away.
	signal.Ignore(unix.SIGCHLD)
	if err := mounts(o.Directory); err != nil {
		return err
	}
	// What an earlier life of the machine left holds nobody any more, and a kubelet would search it for containers.
	if err := errors.Join(RemoveControlGroup(o.ControlGroup), MakeControlGroup(o.ControlGroup)); err != nil {
		return err
	}
	proxy, err := network(ctx, o)
	if err != nil {
		return err
	}
	defer proxy.close()
	if err := process.NotifyReady(); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}

// LockMainThread binds the calling goroutine, which has to be that of an init function or of main, to
// the program's main thread.
func LockMainThread() { runtime.LockOSThread() }

// network gives the main thread a network of its own, with an address and a way to the API server. The
// other threads keep the network outside, and so do the connections that they make.
func network(ctx context.Context, o Options) (*proxy, error) {
	if unix.Gettid() != os.Getpid() {
		return nil, errors.New("the machine is not made on the program's main thread")
	}
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		return nil, fmt.Errorf("making a network: %w", err)
	}
	if err := addresses(o.Address); err != nil {
		return nil, err
	}
	return serveProxy(ctx, o.APIServer)
}

// addresses brings the loopback interface up and adds an address to it: a kubelet takes none of
// 127.0.0.0/8 for its node's.
func addresses(address string) error {
	socket, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("opening a socket: %w", err)
	}
	defer func() { _ = unix.Close(socket) }() // nothing was written to it
	if err := setAddress(socket, "lo", "127.0.0.1"); err != nil {
		return err
	}
	return setAddress(socket, "lo:1", address)
}
