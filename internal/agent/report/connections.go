/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package report

import (
	"context"
	"net"
	"sync"
	"time"
)

// Connections are those to the API server. All API servers are stopped before they are restored from a backup, so what
// is sent over a connection that was there before reaches the same history.
type Connections struct {
	mu   sync.Mutex
	lost func()
}

// Dial is for rest.Config.
func (c *Connections) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	// as client-go's own
	conn, err := (&net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second}).DialContext(ctx, network,
		address)
	if err != nil {
		return nil, err
	}
	return &Connection{Conn: conn, ended: sync.OnceFunc(c.end)}, nil
}

// OnLost has f called with the end of each connection, before anything can be sent over the next one.
func (c *Connections) OnLost(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lost = f
}

func (c *Connections) end() {
	c.mu.Lock()
	lost := c.lost
	c.mu.Unlock()
	if lost != nil {
		lost()
	}
}

// Connection reports its end once: when a read fails, or when it is closed.
type Connection struct {
	net.Conn
	ended func()
}

func (c *Connection) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if err != nil {
		c.ended()
	}
	return n, err
}

// Close closes the connection and reports its end.
func (c *Connection) Close() error {
	c.ended()
	return c.Conn.Close()
}
