/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package kubelet

import (
	"github.com/fsnotify/fsnotify"
)

// Watcher reports changes in directories.
type Watcher interface {
	Add(dir string) error
	Remove(dir string) error
	WatchList() []string
	Changes() <-chan fsnotify.Event
	Failures() <-chan error
	Close() error
}
