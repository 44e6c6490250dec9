/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package machine

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/hawser-io/hawser/test/machine/command"
)

// scriptTimeout is how long a script may run by default.
const scriptTimeout = time.Minute

// Try runs a script in the machine. A script that fails or does not end is no error.
func (m *Machine) Try(ctx context.Context, timeout time.Duration, script string, args ...any) (command.Answer, error) {
	answer, err := m.command.Run(ctx, command.Command{Script: fmt.Sprintf(script, args...), Timeout: timeout})
	if err != nil {
		return answer, fmt.Errorf("machine %s: %w", m.Name, err)
	}
	return answer, nil
}

// Run runs a script that has to succeed, and returns its output without the last end of line.
func (m *Machine) Run(ctx context.Context, script string, args ...any) (string, error) {
	return m.RunFor(ctx, scriptTimeout, script, args...)
}

// RunFor is Run for a script that takes longer.
func (m *Machine) RunFor(ctx context.Context, timeout time.Duration, script string, args ...any) (string, error) {
	answer, err := m.Try(ctx, timeout, script, args...)
	if err != nil {
		return "", err
	}
	if answer.TimedOut || answer.Exit != 0 {
		return answer.Output, fmt.Errorf("machine %s: script %q: exit code %d, timed out %t: %s", m.Name,
			fmt.Sprintf(script, args...), answer.Exit, answer.TimedOut, answer.Output)
	}
	return strings.TrimSuffix(answer.Output, "\n"), nil
}

// Launch starts a program that outlives the script; it prints to a file of that name in /var/log.
func (m *Machine) Launch(ctx context.Context, name, program string) error {
	_, err := m.Run(ctx, "setsid %s >>/var/log/%s.log 2>&1 </dev/null & echo $! >/run/%[2]s.pid", program, name)
	return err
}

// Log of a program that was launched.
func (m *Machine) Log(ctx context.Context, name string) (string, error) {
	return m.Run(ctx, "tail -n 60 /var/log/%s.log", name)
}

// Kill ends a program that was launched.
func (m *Machine) Kill(ctx context.Context, name string) error {
	_, err := m.Run(ctx, "pid=$(cat /run/%s.pid); kill -9 $pid; while [ -e /proc/$pid ]; do sleep 0.05; done", name)
	return err
}

// MountShare mounts the shared directory of the host, at the path that it has there. While it is mounted, no snapshot
// can be taken.
func (m *Machine) MountShare(ctx context.Context) error {
	_, err := m.Run(ctx, "mkdir -p %s && { mountpoint -q %[1]s || "+
		"mount -t 9p -o trans=virtio,version=9p2000.L,msize=262144 share %[1]s; }", m.Share)
	return err
}

func (m *Machine) setClock(ctx context.Context) error {
	now := time.Now()
	_, err := m.Run(ctx, "date -u -s @%d.%09d", now.Unix(), now.Nanosecond())
	return err
}

func machineID(uuid string) string { return strings.ReplaceAll(uuid, "-", "") }
