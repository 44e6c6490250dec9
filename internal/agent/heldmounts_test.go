/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package agent

import (
	"context"
	"io/fs"
	"os"
	"sync"

	"github.com/hawser-io/hawser/internal/mount"
)

// heldMounts is a kernel whose calls a test can hold, as internal/mount makes them. One call at a time changes a path.
// A caller whose context ends leaves its call behind: the path is busy until the call ends, and the effect comes late.
type heldMounts struct {
	Mounts
	mu      sync.Mutex
	holds   map[string]*hold
	running map[string]*heldCall
}

// hold is on the next call of one operation at one path.
type hold struct {
	// entered is closed once the call has begun, ended once it has had its effect.
	entered, ended chan struct{}
	released       chan struct{}
}

func (h *hold) release() { close(h.released) }

type heldCall struct {
	mount.Call
	done, abandoned chan struct{}
}

var _ Mounts = (*heldMounts)(nil)

func newHeldMounts(m Mounts) *heldMounts {
	return &heldMounts{Mounts: m, holds: map[string]*hold{}, running: map[string]*heldCall{}}
}

func (m *heldMounts) hold(operation, path string) *hold {
	m.mu.Lock()
	defer m.mu.Unlock()
	h := &hold{entered: make(chan struct{}), ended: make(chan struct{}), released: make(chan struct{})}
	m.holds[operation+" "+path] = h
	return h
}

func (m *heldMounts) Busy(path string) (mount.Call, bool) {
	m.mu.Lock()
	call, ok := m.running[path]
	m.mu.Unlock()
	if !ok {
		return m.Mounts.Busy(path)
	}
	return call.Call, true
}

func (m *heldMounts) run(ctx context.Context, operation, path string, f func(context.Context) error) error {
	call, err := m.begin(ctx, operation, path)
	if err != nil {
		return err
	}
	result := make(chan error, 1)
	go func() { result <- m.carryOut(context.WithoutCancel(ctx), call, f) }()
	select {
	case err := <-result:
		return err
	case <-ctx.Done():
		close(call.abandoned)
		return &mount.PendingError{Call: call.Call, Err: ctx.Err()}
	}
}

// begin waits for an earlier call at the path, unless that call's caller has left.
func (m *heldMounts) begin(ctx context.Context, operation, path string) (*heldCall, error) {
	for {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		call, begun := m.enter(operation, path)
		if begun {
			return call, nil
		}
		select {
		case <-call.done:
		case <-call.abandoned:
			return nil, &mount.PendingError{Call: call.Call}
		case <-ctx.Done():
		}
	}
}

func (m *heldMounts) enter(operation, path string) (call *heldCall, begun bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if earlier, ok := m.running[path]; ok {
		return earlier, false
	}
	call = &heldCall{
		Call: mount.Call{Operation: operation, Path: path}, done: make(chan struct{}), abandoned: make(chan struct{}),
	}
	m.running[path] = call
	return call, true
}

func (m *heldMounts) carryOut(ctx context.Context, call *heldCall, f func(context.Context) error) error {
	h := m.holdOf(call)
	if h != nil {
		close(h.entered)
		<-h.released
		defer close(h.ended)
	}
	err := f(ctx)
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.running, call.Path)
	close(call.done)
	return err
}

func (m *heldMounts) holdOf(call *heldCall) *hold {
	m.mu.Lock()
	defer m.mu.Unlock()
	key := call.Operation + " " + call.Path
	h := m.holds[key]
	delete(m.holds, key)
	return h
}

func (m *heldMounts) Bind(ctx context.Context, source, target string, readOnly bool, options []string) error {
	return m.run(ctx, "bind", target, func(ctx context.Context) error {
		return m.Mounts.Bind(ctx, source, target, readOnly, options)
	})
}

// BindFile keeps the source open, as the kernel does, when its caller leaves and closes the source.
func (m *heldMounts) BindFile(
	ctx context.Context,
	source *os.File,
	target string,
	readOnly bool,
	options []string,
) error {
	return m.run(ctx, "bind", target, func(ctx context.Context) error {
		return m.Mounts.BindFile(ctx, source, target, readOnly, options)
	})
}

func (m *heldMounts) MakeDirectory(ctx context.Context, path, label string) error {
	return m.run(ctx, "directory", path, func(ctx context.Context) error {
		return m.Mounts.MakeDirectory(ctx, path, label)
	})
}

func (m *heldMounts) Unmount(ctx context.Context, path string) error {
	return m.run(ctx, "unmount", path, func(ctx context.Context) error { return m.Mounts.Unmount(ctx, path) })
}

func (m *heldMounts) EnsureDir(ctx context.Context, path string, perm fs.FileMode) error {
	return m.run(ctx, "creation", path, func(ctx context.Context) error { return m.Mounts.EnsureDir(ctx, path, perm) })
}

func (m *heldMounts) EnsureFile(ctx context.Context, path string, perm fs.FileMode) error {
	return m.run(ctx, "creation", path, func(ctx context.Context) error { return m.Mounts.EnsureFile(ctx, path, perm) })
}

func (m *heldMounts) RemoveMountPoint(ctx context.Context, path string) error {
	return m.run(ctx, "removal", path, func(ctx context.Context) error { return m.Mounts.RemoveMountPoint(ctx, path) })
}
