/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package machine_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hawser-io/hawser/test/apiserver"
)

// undetectedVariable asks for an agent from which the detections are removed. hack/undetected-faults.sh checks that
// each test of a fault fails then.
const undetectedVariable = "HAWSER_TEST_MACHINES_UNDETECTED"

func undetected() bool { return os.Getenv(undetectedVariable) != "" }

// undetectedTimeout is longer than the detection of any fault took.
const undetectedTimeout = 100 * time.Second

// withoutDetection removes what the agent detects: volumes that do not work, the figures of filesystems, records that
// are unreadable, and attachments that were taken away.
func withoutDetection() []change {
	return []change{
		{"internal/agent/operation/sick.go",
			"func diagnose(h mount.Health, err error, earlier *int64) (*record.Sickness, bool) {\n", "\treturn nil, true\n"},
		{"internal/agent/stats.go", "func (a *Agent) readFigures(ctx context.Context, d driver.StatsReader, " +
			"v *operation.Volume, req driver.StatsRequest) {\n", "\treturn\n"},
		{"internal/agent/recovery.go", "\trecords, broken, err := a.store.Load()\n", "\tbroken = nil\n"},
		{"internal/agent/operation/shutdown.go",
			"func (env *Environment) shutdown(ctx context.Context, v *Volume, f plan.Facts) error {\n",
			"\treturn errors.New(\"undetected\")\n"},
	}
}

// detection is what a test waits for. Unless found is called, the test has failed there, and the log has a line for
// hack/undetected-faults.sh.
type detection struct {
	t        *testing.T
	detected bool
}

func (d *detection) found() { d.detected = true }

func (d *detection) end() {
	if !d.detected {
		d.t.Logf("not detected: %s", d.t.Name())
	}
}

// change of a source file: what is added after a line that the file has once.
type change struct{ file, line, added string }

// overlay returns the flag with which go build uses the changed files, and the files that replace others.
func overlay(dir string, files map[string]string, changes ...change) (flag string, err error) {
	top, replaced := apiserver.Root(), map[string]string{}
	for to, from := range files {
		replaced[filepath.Join(top, to)] = filepath.Join(top, from)
	}
	for i, c := range changes {
		source, err := os.ReadFile(filepath.Join(top, c.file))
		if err != nil {
			return "", fmt.Errorf("reading what is to be changed: %w", err)
		}
		if n := strings.Count(string(source), c.line); n != 1 {
			return "", fmt.Errorf("%s has the line %q %d times, want it once", c.file, c.line, n)
		}
		changed := filepath.Join(dir, fmt.Sprintf("%d-%s", i, filepath.Base(c.file)))
		if err := os.WriteFile(changed, []byte(strings.Replace(string(source), c.line, c.line+c.added, 1)),
			0o600); err != nil {
			return "", fmt.Errorf("writing what was changed: %w", err)
		}
		replaced[filepath.Join(top, c.file)] = changed
	}
	data, err := json.Marshal(map[string]any{"Replace": replaced})
	if err != nil {
		return "", fmt.Errorf("encoding the overlay: %w", err)
	}
	path := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		return "", fmt.Errorf("writing the overlay: %w", err)
	}
	return "-overlay=" + path, nil
}
