/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package agent

import (
	"os"
	"slices"
	"strings"

	"github.com/hawser-io/hawser/internal/mount"
)

// NodeFilesystems knows the filesystems of the node's kernel and of its programs.
type NodeFilesystems struct {
	// File is /proc/filesystems.
	File string
	// MissingPrograms is mount.Mounter's.
	MissingPrograms func(fsType string) []string
}

// Known reports whether the kernel serves the filesystem now, or the programs that make it are there. What cannot be
// found out counts as known.
func (n NodeFilesystems) Known(fsType string) bool {
	if mount.KnownFilesystem(fsType) && len(n.MissingPrograms(fsType)) == 0 {
		return true
	}
	data, err := os.ReadFile(n.File)
	if err != nil {
		return true
	}
	return slices.ContainsFunc(strings.Split(string(data), "\n"), func(line string) bool {
		fields := strings.Fields(line)
		return len(fields) > 0 && fields[len(fields)-1] == fsType
	})
}
