/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package system

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"

	"github.com/hawser-io/hawser/test/apiserver"
)

// BuildRace builds every program with the race detector and returns their folder.
func BuildRace(ctx context.Context) (string, error) {
	bin := filepath.Join(apiserver.Root(), ".cache", "race")
	return bin, errors.Join(
		goBuild(ctx, apiserver.Root(), bin, "./cmd/manager", "./cmd/agent", "./test/csiloop/cmd/csi-loop"),
		goBuild(ctx, filepath.Join(apiserver.Root(), "hack", "localcluster"), bin, "."),
	)
}

func goBuild(ctx context.Context, dir, bin string, packages ...string) error {
	cmd := exec.CommandContext(ctx, "go", append([]string{"build", "-race", "-o", bin + "/"}, packages...)...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("building %v: %w: %s", packages, err, out)
	}
	return nil
}
