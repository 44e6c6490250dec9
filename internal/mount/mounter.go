/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package mount

import (
	"context"
	"fmt"
	"path/filepath"
	"sync"
	"time"

	"k8s.io/utils/clock"
	"k8s.io/utils/exec"
)

// SelfMountInfo is the mount table of the process's own mount namespace.
const SelfMountInfo = "/proc/self/mountinfo"

// HostMountInfo is the host's mount table, for a process that shares the host's process IDs. In another mount
// namespace, SelfMountInfo shows only the mounts that propagate into it.
const HostMountInfo = "/proc/1/mountinfo"

// Options of a Mounter.
type Options struct {
	// MountInfo is the file of the mount table. The default is SelfMountInfo.
	MountInfo string
	// Links of the directories below which the program mounts.
	Links Links
	// Clock measures since when a call runs. The default is the real clock.
	Clock clock.PassiveClock
	// Exec runs programs (blkid). The default is the real one.
	Exec exec.Interface
}

// Mounter changes and examines the node's mounts. It is safe for concurrent use.
type Mounter struct {
	mountInfo string
	tables    *tables
	clock     clock.PassiveClock
	exec      exec.Interface
	// ownershipHelpers has room for those that help at present.
	ownershipHelpers chan struct{}

	mu      sync.Mutex
	running map[callKey]*running
}

// New returns a Mounter.
func New(o Options) *Mounter {
	if o.MountInfo == "" {
		o.MountInfo = SelfMountInfo
	}
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	if o.Exec == nil {
		o.Exec = exec.New()
	}
	return &Mounter{
		mountInfo: o.MountInfo, tables: newTables(o.MountInfo, o.Links),
		clock: o.Clock, exec: o.Exec, running: map[callKey]*running{},
		ownershipHelpers: make(chan struct{}, ownershipHelpers),
	}
}

// Table returns the mount table as it was after the call. Calls at the same time share it. The kernel answers from
// memory, so a dead server cannot block it.
func (m *Mounter) Table() (*Table, error) { return m.tables.get(0) }

// TableWithin returns a table with exactly those mounts that there are now. What it has of a mount (path, options) may
// be as old as age: a mount that was moved, or that is read-only since, may be as before. It costs little beside many
// mounts, with Linux 6.13 and later. It is for what is only read, or is done and verified. Nothing may be undone or
// released by it.
func (m *Mounter) TableWithin(age time.Duration) (*Table, error) { return m.tables.within(age) }

// Recent is how old what a table has of a mount may be for work that is verified afterwards.
const Recent = time.Second

// recent is the table for such work.
func (m *Mounter) recent() (*Table, error) { return m.TableWithin(Recent) }

// At returns the mount that is reachable at path as it is now, and a table that has it there. What that table has of
// other mounts may be as old as Recent: whether one has been moved to a directory above since, and hides it.
func (m *Mounter) At(path string) (*Table, Entry, bool, error) {
	return m.tables.at(filepath.Clean(path))
}

// NewWatcher returns a Watcher of this Mounter's mount table.
func (m *Mounter) NewWatcher() *Watcher { return NewWatcher(m.mountInfo) }

// kind separates calls that may run concurrently on one path. A read that hangs must not block an unmount, because the
// unmount may end the hang.
type kind int

const (
	reads kind = iota
	changes
	// examinations find out whether a path answers, so one that hangs keeps no other read away.
	examinations
)

type callKey struct {
	kind kind
	path string
}

// running is a call that has not ended.
type running struct {
	Call
	done      chan struct{}
	abandoned chan struct{}
}

// run runs f in its own goroutine and waits for it until ctx ends. There is one call of each kind for a path. A second
// call waits for the first, but is refused at once if the first one's caller gave up. f must not write to memory that
// its caller reads after a *PendingError.
func (m *Mounter) run(ctx context.Context, k kind, operation, path string, f func() error) error {
	key := callKey{k, path}
	call, err := m.begin(ctx, key, operation)
	if err != nil {
		return err // nothing was started
	}
	result := make(chan error, 1)
	go func() {
		err := f()
		m.end(key, call)
		result <- err
	}()
	select {
	case err := <-result:
		return err
	case <-ctx.Done():
		close(call.abandoned)
		return &PendingError{Call: call.Call, Err: ctx.Err(), Ended: call.done}
	}
}

func (m *Mounter) begin(ctx context.Context, key callKey, operation string) (*running, error) {
	for {
		if err := ctx.Err(); err != nil {
			return nil, fmt.Errorf("%s of %s: %w", operation, key.path, err)
		}
		call, begun := m.enter(key, operation)
		if begun {
			return call, nil
		}
		select {
		case <-call.done:
		case <-call.abandoned:
			return nil, &PendingError{Call: call.Call, Ended: call.done}
		case <-ctx.Done():
		}
	}
}

// enter registers a new call, or returns the call that blocks it.
func (m *Mounter) enter(key callKey, operation string) (call *running, begun bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if earlier, ok := m.running[key]; ok {
		return earlier, false
	}
	call = &running{
		Call:      Call{Operation: operation, Path: key.path, Since: m.clock.Now()},
		done:      make(chan struct{}),
		abandoned: make(chan struct{}),
	}
	m.running[key] = call
	return call, true
}

func (m *Mounter) end(key callKey, call *running) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.running, key)
	close(call.done)
}

// Busy returns the call that is changing the path, if there is one.
func (m *Mounter) Busy(path string) (Call, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	call, ok := m.running[callKey{changes, filepath.Clean(path)}]
	if !ok {
		return Call{}, false
	}
	return call.Call, true
}

// Running returns every call that has not ended, in no order.
func (m *Mounter) Running() []Call {
	m.mu.Lock()
	defer m.mu.Unlock()
	calls := make([]Call, 0, len(m.running))
	for _, call := range m.running {
		calls = append(calls, call.Call)
	}
	return calls
}
