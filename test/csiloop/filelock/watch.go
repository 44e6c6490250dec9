/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package filelock

import (
	"context"
	"errors"
	"fmt"

	"github.com/fsnotify/fsnotify"
)

// WaitFor returns once the condition holds. It checks at once, and again whenever something in the directory changes.
func WaitFor(ctx context.Context, dir string, holds func() (bool, error)) (err error) {
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return fmt.Errorf("watching %s: %w", dir, err)
	}
	defer func() { err = errors.Join(err, watcher.Close()) }()
	if err := watcher.Add(dir); err != nil {
		return fmt.Errorf("watching %s: %w", dir, err)
	}
	for {
		if ok, err := holds(); ok || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case err := <-watcher.Errors:
			return fmt.Errorf("watching %s: %w", dir, err)
		case <-watcher.Events:
		}
	}
}
