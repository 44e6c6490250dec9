/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package harness

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

const module = "github.com/hawser-io/hawser"

// compile builds into the module's cache directory. It renames the binary into place, because other test binaries may
// build or run it concurrently.
func compile(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", module).Output()
	if err != nil {
		return "", fmt.Errorf("finding the module: %w", err)
	}
	root := strings.TrimSpace(string(out))
	dir := filepath.Join(root, ".cache", "csi-loop")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("creating directory: %w", err)
	}
	temp, err := os.MkdirTemp(dir, "build-")
	if err != nil {
		return "", fmt.Errorf("creating directory: %w", err)
	}
	built, name := filepath.Join(temp, "csi-loop"), "csi-loop"
	args := []string{"build", "-o", built}
	if raceEnabled {
		args, name = append(args, "-race"), "csi-loop-race"
	}
	cmd := exec.CommandContext(ctx, "go", append(args, module+"/test/csiloop/cmd/csi-loop")...)
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", errors.Join(fmt.Errorf("%w: %s", err, out), os.Remove(temp))
	}
	binary := filepath.Join(dir, name)
	err = os.Rename(built, binary)
	return binary, errors.Join(err, os.Remove(temp))
}
