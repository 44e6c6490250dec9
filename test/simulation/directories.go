/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package simulation

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"slices"

	"github.com/fsnotify/fsnotify"

	"github.com/hawser-io/hawser/internal/agent"
)

func (h host) Watch() (agent.Watcher, error) {
	d := &directories{h: h, changes: make(chan fsnotify.Event, 1)}
	h.m.world.mu.Lock()
	defer h.m.world.mu.Unlock()
	h.m.watchers = append(h.m.watchers, d)
	return d, nil
}

// directories is a watcher of directories. The world's lock guards it.
type directories struct {
	h       host
	list    []string
	changes chan fsnotify.Event
}

var _ agent.Watcher = (*directories)(nil)

// Add takes a time that the seed chooses, so that records change while an agent reads them.
func (d *directories) Add(dir string) error {
	if err := d.h.p.pass(context.Background(), "watching a directory"); err != nil {
		return err
	}
	d.h.m.world.mu.Lock()
	defer d.h.m.world.mu.Unlock()
	if _, err := os.Stat(dir); err != nil {
		return err
	}
	if !slices.Contains(d.list, dir) {
		d.list = append(d.list, dir)
	}
	return nil
}

func (d *directories) Remove(dir string) error {
	d.h.m.world.mu.Lock()
	defer d.h.m.world.mu.Unlock()
	if !slices.Contains(d.list, dir) {
		return fsnotify.ErrNonExistentWatch
	}
	d.drop(dir)
	return nil
}

func (d *directories) drop(dir string) {
	d.list = slices.DeleteFunc(d.list, func(o string) bool { return o == dir })
}

func (d *directories) WatchList() []string {
	d.h.m.world.mu.Lock()
	defer d.h.m.world.mu.Unlock()
	return slices.Clone(d.list)
}

func (d *directories) Changes() <-chan fsnotify.Event { return d.changes }

func (d *directories) Failures() <-chan error { return nil }

func (d *directories) Close() error {
	d.h.m.world.mu.Lock()
	defer d.h.m.world.mu.Unlock()
	d.h.m.watchers = slices.DeleteFunc(d.h.m.watchers, func(o *directories) bool { return o == d })
	return nil
}

// touched signals that something in the directory has changed. A directory that is gone is watched no more.
func (m *machine) touched(dir string) {
	for _, d := range m.watchers {
		if !slices.Contains(d.list, dir) {
			continue
		}
		select {
		case d.changes <- fsnotify.Event{Name: dir, Op: fsnotify.Write}:
		default: // one that covers this waits already
		}
		if _, err := os.Stat(dir); os.IsNotExist(err) {
			d.drop(dir)
		}
	}
}

// removeDir removes an empty directory, if it is there.
func (m *machine) removeDir(dir string) error {
	err := os.Remove(dir)
	m.touched(dir)
	var failed *fs.PathError
	if errors.As(err, &failed) && !errors.Is(err, fs.ErrNotExist) {
		return failed.Err
	}
	return nil
}
