/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package machine

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// hierarchies lists the mount points of control groups: one directory (version 2) or one for each controller
// (version 1).
func hierarchies() ([]string, error) {
	table, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return nil, fmt.Errorf("reading the mount table: %w", err)
	}
	var paths []string
	for line := range strings.Lines(string(table)) {
		fields := strings.Fields(line)
		if len(fields) > 2 && (fields[2] == "cgroup" || fields[2] == "cgroup2") && !slices.Contains(paths, fields[1]) {
			paths = append(paths, fields[1])
		}
	}
	if len(paths) == 0 {
		return nil, errors.New("no control groups are mounted, and containers need them")
	}
	return paths, nil
}

// MakeControlGroup creates the group of that name, an absolute path, in every hierarchy.
func MakeControlGroup(name string) error {
	paths, err := hierarchies()
	if err != nil {
		return err
	}
	for _, top := range paths {
		if err := os.MkdirAll(filepath.Join(top, name), 0o755); err != nil {
			return fmt.Errorf("making control group %s: %w", name, err)
		}
		if err := delegate(top, name); err != nil {
			return err
		}
	}
	return nil
}

// delegate enables every controller for the groups below the named one. Only version 2 needs that.
func delegate(top, name string) error {
	directory := top
	for _, element := range strings.Split(name, "/") {
		directory = filepath.Join(directory, element)
		controllers, err := os.ReadFile(filepath.Join(directory, "cgroup.controllers"))
		if errors.Is(err, os.ErrNotExist) {
			return nil // version 1
		}
		if err != nil {
			return fmt.Errorf("reading the controllers of %s: %w", directory, err)
		}
		for _, controller := range strings.Fields(string(controllers)) {
			err := os.WriteFile(filepath.Join(directory, "cgroup.subtree_control"), []byte("+"+controller), 0)
			if err != nil {
				return fmt.Errorf("delegating %s in %s: %w", controller, directory, err)
			}
		}
	}
	return nil
}

// RemoveControlGroup removes the group of that name and all groups below it. Their processes must have ended.
func RemoveControlGroup(name string) error {
	paths, err := hierarchies()
	if err != nil {
		return err
	}
	for _, top := range paths {
		if err := removeGroups(filepath.Join(top, name)); err != nil {
			return err
		}
	}
	return nil
}

// removeGroups removes only directories: the kernel refuses to remove a group with a process.
func removeGroups(top string) error {
	var groups []string
	err := filepath.WalkDir(top, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() {
			groups = append(groups, path)
		}
		if errors.Is(err, os.ErrNotExist) {
			return nil
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("listing control groups: %w", err)
	}
	for _, group := range slices.Backward(groups) { // the innermost is the last
		if err := os.Remove(group); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("removing control group: %w", err)
		}
	}
	return nil
}
