/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

// Package machine creates a machine from namespaces, for a node with a real kubelet. It has its own mounts,
// process IDs, network and boot ID. When its first process ends, the kernel ends every process inside. It also
// removes the mounts and the network, as in a power failure.
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
	// Directory of the cluster. Its files must be visible inside and outside.
	Directory string
	// Address of the machine besides 127.0.0.1.
	Address string
	// ControlGroup is the parent control group of the machine's pods.
	ControlGroup string
	// APIServer is the API server's address outside. The machine reaches it at the same address inside.
	APIServer string
}

// Run is the machine's first process. Package process starts it in its own namespaces. The caller must have bound its
// goroutine to the program's main thread, whose namespaces are the machine's.
func Run(ctx context.Context, o Options) error {
	if os.Getpid() != 1 {
		return errors.New("a machine's first process is started by the launcher, with process IDs of its own")
	}
	// The first process becomes the parent of orphans. Because it ignores their end, the kernel removes them.
	signal.Ignore(unix.SIGCHLD)
	if err := mounts(o.Directory); err != nil {
		return err
	}
	// Control groups of an earlier life have no processes, but a kubelet would search them for containers.
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

// LockMainThread binds the calling goroutine to the program's main thread. It must be called from an init function or
// from main.
func LockMainThread() { runtime.LockOSThread() }

// network gives the main thread its own network, with an address and a connection to the API server. The other threads
// and their connections stay in the outside network.
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

// addresses starts the loopback interface and adds an address to it: a kubelet accepts no node address in 127.0.0.0/8.
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
