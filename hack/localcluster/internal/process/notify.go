/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package process

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
)

const (
	notifyVariable = "NOTIFY_SOCKET"
	readyMessage   = "READY=1"
)

// StartAndAwait starts a program that notifies, and returns once it is ready or has ended.
func (d Directory) StartAndAwait(ctx context.Context, spec Spec) error {
	path := filepath.Join(string(d), spec.Name+".notify")
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("removing an old socket: %w", err)
	}
	socket, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		return fmt.Errorf("listening to %s: %w", spec.Name, err)
	}
	defer func() { _ = errors.Join(socket.Close(), os.Remove(path)) }() // the program notifies only once

	ended, err := d.Start(spec, notifyVariable+"="+path)
	if err != nil || ended == nil {
		return err
	}
	ready := make(chan error, 1)
	go func() { ready <- awaitReady(socket) }()
	select {
	case err := <-ready:
		return err
	case err := <-ended:
		return fmt.Errorf("%s ended before it was ready (see %s): %w", spec.Name, spec.Log, errors.Join(err, errEnded))
	case <-ctx.Done():
		return fmt.Errorf("waiting for %s (see %s): %w", spec.Name, spec.Log, ctx.Err())
	}
}

var errEnded = errors.New("it ended")

// awaitReady reads messages until one means that the program is ready.
func awaitReady(socket *net.UnixConn) error {
	buffer := make([]byte, 4096)
	for {
		n, err := socket.Read(buffer)
		if err != nil {
			return fmt.Errorf("reading from the program: %w", err)
		}
		for line := range strings.Lines(string(buffer[:n])) {
			if strings.TrimSpace(line) == readyMessage {
				return nil
			}
		}
	}
}

// NotifyReady notifies the parent program that this program is ready. It does nothing if the parent did not ask for it.
func NotifyReady() error {
	path := os.Getenv(notifyVariable)
	if path == "" {
		return nil
	}
	socket, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		return fmt.Errorf("telling that this is ready: %w", err)
	}
	_, err = socket.Write([]byte(readyMessage))
	if err := errors.Join(err, socket.Close()); err != nil {
		return fmt.Errorf("telling that this is ready: %w", err)
	}
	return nil
}
