/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package mount

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"k8s.io/utils/exec"
)

// Exit codes of blkid's low-level probing.
const (
	blkidNothingFound = 2
	blkidAmbivalent   = 8
)

// Probe returns what blkid finds on the device: a filesystem, a partition table, or nothing that blkid knows. Nothing
// is not proof of an empty device. The result is for messages only: nothing is ever formatted because of it.
func (m *Mounter) Probe(ctx context.Context, device string) (fsType, ptType string, err error) {
	found := make(chan map[string]string, 1)
	err = m.run(ctx, reads, "probe", device, func() error {
		// blkid has the same exit code for a device that it cannot open and for an empty one.
		file, err := os.Open(device)
		if err == nil {
			err = file.Close()
		}
		if err != nil {
			return fmt.Errorf("probing: %w", err)
		}
		out, err := m.exec.CommandContext(ctx, "blkid", "-p", "-s", "TYPE", "-s", "PTTYPE", "-o", "export",
			device).CombinedOutput()
		values, err := probed(string(out), err)
		if err != nil {
			return fmt.Errorf("probing %s: %w", device, err)
		}
		found <- values
		return nil
	})
	if err != nil {
		return "", "", err
	}
	values := <-found
	return values["TYPE"], values["PTTYPE"], nil
}

func probed(out string, err error) (map[string]string, error) {
	values := map[string]string{}
	var exit exec.ExitError
	switch {
	case errors.As(err, &exit) && exit.ExitStatus() == blkidNothingFound:
		return values, nil
	case errors.As(err, &exit) && exit.ExitStatus() == blkidAmbivalent:
		return nil, ErrAmbiguous
	case err != nil:
		return nil, fmt.Errorf("running blkid: %w: %s", err, strings.TrimSpace(out))
	}
	for line := range strings.Lines(out) {
		if key, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok {
			values[key] = value
		}
	}
	return values, nil
}

// programs that a driver on this node needs to create and check a filesystem.
var programs = map[string][]string{
	"ext2":  {"mkfs.ext2", "fsck.ext2"},
	"ext3":  {"mkfs.ext3", "fsck.ext3"},
	"ext4":  {"mkfs.ext4", "fsck.ext4"},
	"xfs":   {"mkfs.xfs"},
	"btrfs": {"mkfs.btrfs"},
}

// KnownFilesystem reports whether Hawser knows fsType. The empty string is the driver's choice.
func KnownFilesystem(fsType string) bool {
	_, ok := programs[fsType]
	return ok || fsType == ""
}

// MissingPrograms returns the programs that a filesystem needs and that are not found. The agent searches its own
// surroundings; a driver in a container of its own brings its own programs.
func (m *Mounter) MissingPrograms(fsType string) []string {
	var missing []string
	for _, program := range programs[fsType] {
		if _, err := m.exec.LookPath(program); err != nil {
			missing = append(missing, program)
		}
	}
	return missing
}
