/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

// metrics writes the tables of docs/reference/metrics.md from what the code declares.
//
//	go run ./hack/metrics
package main

import (
	"fmt"
	"os"

	"github.com/hawser-io/hawser/internal/metrics/reference"
)

const page = "docs/reference/metrics.md"

func main() {
	if err := write(); err != nil {
		fmt.Fprintln(os.Stderr, "metrics:", err)
		os.Exit(1)
	}
}

func write() error {
	text, err := os.ReadFile(page)
	if err != nil {
		return err
	}
	made, err := reference.Page(string(text))
	if err != nil {
		return fmt.Errorf("making the tables of %s: %w", page, err)
	}
	return os.WriteFile(page, []byte(made), 0o644) //nolint:gosec // a page that everybody may read
}
