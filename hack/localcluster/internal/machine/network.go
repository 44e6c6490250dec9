/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package machine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"

	"golang.org/x/sys/unix"
)

// setAddress sets an interface's address and starts the interface.
func setAddress(socket int, name, address string) error {
	parsed, err := netip.ParseAddr(address)
	if err != nil || !parsed.Is4() {
		return fmt.Errorf("%q is no IPv4 address", address)
	}
	request, err := unix.NewIfreq(name)
	if err != nil {
		return fmt.Errorf("naming interface %s: %w", name, err)
	}
	octets := parsed.As4()
	if err := request.SetInet4Addr(octets[:]); err != nil {
		return fmt.Errorf("setting the address of %s: %w", name, err)
	}
	if err := unix.IoctlIfreq(socket, unix.SIOCSIFADDR, request); err != nil {
		return fmt.Errorf("setting the address of %s: %w", name, err)
	}
	request.SetUint16(unix.IFF_UP)
	if err := unix.IoctlIfreq(socket, unix.SIOCSIFFLAGS, request); err != nil {
		return fmt.Errorf("bringing %s up: %w", name, err)
	}
	return nil
}

// proxy forwards connections from an address inside to the same address outside.
type proxy struct {
	listener net.Listener
	group    sync.WaitGroup
}

// serveProxy listens in the network of the calling thread.
func serveProxy(ctx context.Context, address string) (*proxy, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("listening for the API server's clients: %w", err)
	}
	p := &proxy{listener: listener}
	p.group.Go(func() { p.serve(ctx) })
	return p, nil
}

func (p *proxy) serve(ctx context.Context) {
	for {
		inside, err := p.listener.Accept()
		if err != nil {
			return // closed
		}
		go pass(ctx, inside, p.listener.Addr().String())
	}
}

func (p *proxy) close() {
	_ = p.listener.Close() // the machine and its network end too
	p.group.Wait()
}

// pass copies both ways until one end closes.
func pass(ctx context.Context, inside net.Conn, address string) {
	outside, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
	if err != nil {
		_ = inside.Close() // for the client, the server is down
		return
	}
	closeBoth := sync.OnceFunc(func() { _ = errors.Join(inside.Close(), outside.Close()) })
	for _, ends := range [][2]net.Conn{{inside, outside}, {outside, inside}} {
		go func() {
			_, _ = io.Copy(ends[0], ends[1]) // either end may close at any time
			closeBoth()
		}()
	}
}
