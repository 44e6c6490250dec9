/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

// Package qmp is a client of the QEMU Machine Protocol: JSON commands and events over a socket.
package qmp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"sync"
)

// Client of one QEMU.
type Client struct {
	connection net.Conn
	// executing allows one command at a time.
	executing sync.Mutex
	// answers has place for one, so that the answer to a command that was given up stops nothing.
	answers chan message

	mu     sync.Mutex
	events []Event
	// news is closed, and replaced, with each event; err is set before its last time.
	news chan struct{}
	err  error
}

// Event is something that happened in QEMU.
type Event struct {
	Name string          `json:"event"`
	Data json.RawMessage `json:"data"`
}

type message struct {
	Event
	Return json.RawMessage `json:"return"`
	Error  *struct {
		Class       string `json:"class"`
		Description string `json:"desc"`
	} `json:"error"`
}

// New begins to talk over the connection, which Close closes.
func New(ctx context.Context, connection net.Conn) (*Client, error) {
	c := &Client{connection: connection, answers: make(chan message, 1), news: make(chan struct{})}
	decoder := json.NewDecoder(connection)
	var greeting struct{ QMP json.RawMessage }
	if err := decoder.Decode(&greeting); err != nil || greeting.QMP == nil {
		return nil, errors.Join(fmt.Errorf("reading QEMU's greeting: %w", err), connection.Close())
	}
	go c.read(decoder)
	return c, c.Execute(ctx, "qmp_capabilities", nil, nil)
}

// Close closes the connection.
func (c *Client) Close() error { return c.connection.Close() }

func (c *Client) read(decoder *json.Decoder) {
	for {
		var m message
		err := decoder.Decode(&m)
		if err == nil && m.Name == "" {
			c.answers <- m
			continue
		}
		c.mu.Lock()
		if c.err = err; err == nil {
			c.events = append(c.events, m.Event)
		}
		close(c.news)
		c.news = make(chan struct{})
		c.mu.Unlock()
		if err != nil {
			close(c.answers)
			return
		}
	}
}

// Execute executes a command, and decodes what it returns into result unless that is nil.
func (c *Client) Execute(ctx context.Context, command string, arguments, result any) error {
	c.executing.Lock()
	defer c.executing.Unlock()
	request := map[string]any{"execute": command}
	if arguments != nil {
		request["arguments"] = arguments
	}
	if err := json.NewEncoder(c.connection).Encode(request); err != nil {
		return fmt.Errorf("executing %s: %w", command, err)
	}
	select {
	case <-ctx.Done():
		// The answer may still come, and would be taken for that of the next command.
		return errors.Join(fmt.Errorf("executing %s: %w", command, ctx.Err()), c.connection.Close())
	case m, open := <-c.answers:
		switch {
		case !open:
			return fmt.Errorf("executing %s: QEMU has ended", command)
		case m.Error != nil:
			return fmt.Errorf("executing %s: %s: %s", command, m.Error.Class, m.Error.Description)
		case result != nil:
			return json.Unmarshal(m.Return, result)
		}
		return nil
	}
}

// Mark is the present end of the events.
func (c *Client) Mark() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.events)
}

// Await waits for an event since mark that is accepted.
func (c *Client) Await(ctx context.Context, mark int, accept func(Event) bool) error {
	for {
		c.mu.Lock()
		events, news, err := c.events[mark:], c.news, c.err
		c.mu.Unlock()
		for _, event := range events {
			if mark++; accept(event) {
				return nil
			}
		}
		if err != nil {
			return fmt.Errorf("waiting for an event: %w", err)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for an event: %w", ctx.Err())
		case <-news:
		}
	}
}
