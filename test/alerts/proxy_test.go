/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package alerts

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"time"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/hawser-io/hawser/test/system"
)

// proxy takes connections to the API server until it is cut. After that nothing listens, until it is opened again.
type proxy struct {
	target, address string

	mu       sync.Mutex
	listener net.Listener
	conns    map[net.Conn]bool
}

// open listens, each time at the same address.
func (p *proxy) open(ctx context.Context) error {
	address := p.address
	if address == "" {
		address = "127.0.0.1:0"
	}
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return fmt.Errorf("listening for an agent: %w", err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.listener, p.address, p.conns = l, l.Addr().String(), map[net.Conn]bool{}
	go p.accept(l)
	return nil
}

// cut ends every connection and takes no more.
func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	_ = p.listener.Close()
	p.listener = nil
	for c := range p.conns {
		_ = c.Close()
	}
}

func (p *proxy) accept(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return // it was cut
		}
		go p.forward(c)
	}
}

// forward copies both ways until one side ends.
func (p *proxy) forward(near net.Conn) {
	far, err := new(net.Dialer).DialContext(context.Background(), "tcp", p.target)
	if err != nil {
		_ = near.Close()
		return
	}
	if !p.keep(near, far) {
		return
	}
	for _, pair := range [][2]net.Conn{{near, far}, {far, near}} {
		go func() {
			_, _ = io.Copy(pair[0], pair[1])
			_ = errors.Join(near.Close(), far.Close())
		}()
	}
}

// keep remembers connections for cut. It closes them if that was before.
func (p *proxy) keep(all ...net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range all {
		if p.listener == nil {
			_ = c.Close()
		}
		p.conns[c] = true
	}
	return p.listener != nil
}

// useProxy restarts an agent with a kubeconfig that leads through the proxy.
func (s *suite) useProxy(ctx context.Context, node string, p *proxy) error {
	name := filepath.Join(s.Dir, "nodes", node, "agent.kubeconfig")
	config, err := clientcmd.LoadFromFile(name)
	if err != nil {
		return fmt.Errorf("reading the kubeconfig of an agent: %w", err)
	}
	for _, cluster := range config.Clusters {
		server, err := url.Parse(cluster.Server)
		if err != nil {
			return fmt.Errorf("reading the address of the API server: %w", err)
		}
		p.target = server.Host
		if err := p.open(ctx); err != nil {
			return err
		}
		server.Host = p.address
		cluster.Server = server.String()
	}
	if err := s.AwaitAgent(ctx, node, time.Time{}); err != nil {
		return err
	}
	since, err := s.AgentSince(ctx, node)
	if err != nil {
		return err
	}
	if err := errors.Join(os.Remove(name), clientcmd.WriteToFile(*config, name)); err != nil {
		return fmt.Errorf("writing the kubeconfig of an agent: %w", err)
	}
	if err := s.StopProcess(ctx, system.Agent(node)); err != nil {
		return err
	}
	if err := s.StartAgain(ctx, system.Agent(node)); err != nil {
		return err
	}
	return s.AwaitAgent(ctx, node, since)
}
