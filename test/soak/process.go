/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// kill ends a process of the system with SIGKILL. It does nothing if the process has ended, even if another process has
// its number now.
func kill(dir, name string) error {
	return killThose(dir, name, func(pid int) ([]int, error) { return []int{pid}, nil })
}

// killChildren ends the child processes of a process of the system.
func killChildren(dir, name string) error {
	return killThose(dir, name, func(pid int) ([]int, error) {
		data, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
		if err != nil {
			return nil, fmt.Errorf("reading the children of %s: %w", name, err)
		}
		var children []int
		for _, field := range strings.Fields(string(data)) {
			child, err := strconv.Atoi(field)
			if err != nil {
				return nil, fmt.Errorf("reading the children of %s: %w", name, err)
			}
			children = append(children, child)
		}
		return children, nil
	})
}

func killThose(dir, name string, which func(pid int) ([]int, error)) error {
	data, err := os.ReadFile(filepath.Join(dir, "run", name+".json"))
	if err != nil {
		return fmt.Errorf("reading the record of %s: %w", name, err)
	}
	var record struct {
		PID   int    `json:"pid"`
		Birth string `json:"birth"`
	}
	if err := json.Unmarshal(data, &record); err != nil {
		return fmt.Errorf("parsing the record of %s: %w", name, err)
	}
	descriptor, err := unix.PidfdOpen(record.PID, 0)
	if err != nil {
		return nil // it has ended
	}
	defer func() { _ = unix.Close(descriptor) }() // nothing was written to it
	if !strings.HasSuffix(record.Birth, "/"+birthTick(record.PID)) {
		return nil
	}
	pids, err := which(record.PID)
	if err != nil {
		return err
	}
	for _, pid := range pids {
		if err := unix.Kill(pid, unix.SIGKILL); err != nil && !errors.Is(err, unix.ESRCH) {
			return fmt.Errorf("killing %s: %w", name, err)
		}
	}
	return nil
}

// birthTick is the tick of this boot at which a process started.
func birthTick(pid int) string {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return "gone"
	}
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	if len(fields) < 20 {
		return "gone"
	}
	return fields[19]
}
