/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package machine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/hawser-io/hawser/test/machine/qmp"
)

// Snapshot is a directory with a machine's memory and disk of one moment. Machines that begin with it save the boot.
type Snapshot string

func (s Snapshot) disk() string   { return filepath.Join(string(s), "root.qcow2") }
func (s Snapshot) memory() string { return filepath.Join(string(s), "memory") }

// Snapshot writes the machine's present state to dir. The machine goes on. It may have neither share nor disks.
func (m *Machine) Snapshot(ctx context.Context, dir string) (Snapshot, error) {
	s := Snapshot(dir)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("making the directory of the snapshot: %w", err)
	}
	if _, err := m.Run(ctx, "sync"); err != nil {
		return "", err
	}
	if err := m.qmp.Execute(ctx, "stop", nil, nil); err != nil { // flushes the disk too
		return "", err
	}
	if err := m.migrate(ctx, "migrate", "exec:cat >"+s.memory()); err != nil {
		return "", err
	}
	if err := copyFile(m.root(), s.disk()); err != nil {
		return "", err
	}
	if err := m.awaitMigrated(ctx); err != nil {
		return "", err
	}
	return s, m.qmp.Execute(ctx, "cont", nil, nil)
}

// awaitMigrated waits until QEMU allows the machine to go on. No event signals that.
func (m *Machine) awaitMigrated(ctx context.Context) error {
	return wait.PollUntilContextCancel(ctx, 10*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		var now struct{ Status string }
		err := m.qmp.Execute(ctx, "query-status", nil, &now)
		return now.Status != "finish-migrate", err
	})
}

// load fills the memory of a machine that waits for it.
func (m *Machine) load(ctx context.Context, from Snapshot) error {
	return m.migrate(ctx, "migrate-incoming", "exec:cat "+from.memory())
}

// migrate moves a machine's memory, and waits for the end of that.
func (m *Machine) migrate(ctx context.Context, command, uri string) error {
	capability := map[string]any{"capabilities": []map[string]any{{"capability": "events", "state": true}}}
	if err := m.qmp.Execute(ctx, "migrate-set-capabilities", capability, nil); err != nil {
		return err
	}
	mark := m.qmp.Mark()
	if err := m.qmp.Execute(ctx, command, map[string]string{"uri": uri}, nil); err != nil {
		return err
	}
	var status string
	err := m.qmp.Await(ctx, mark, func(e qmp.Event) bool {
		var now struct{ Status string }
		if e.Name != "MIGRATION" || json.Unmarshal(e.Data, &now) != nil {
			return false
		}
		status = now.Status
		return status == "completed" || status == "failed"
	})
	if err == nil && status == "failed" {
		err = errors.New("it failed")
	}
	if err != nil {
		return fmt.Errorf("moving the memory of machine %s: %w", m.Name, err)
	}
	return nil
}

func copyFile(from, to string) error {
	source, err := os.Open(from)
	if err != nil {
		return fmt.Errorf("copying a disk: %w", err)
	}
	defer func() { _ = source.Close() }() // only read
	target, err := os.Create(to)
	if err != nil {
		return fmt.Errorf("copying a disk: %w", err)
	}
	_, err = io.Copy(target, source)
	return errors.Join(err, target.Close())
}
