/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

// dashboard makes the Grafana dashboard of panels/panels.yaml, which is its only source.
//
//	go run ./hack/dashboard
package main

import (
	"fmt"
	"os"

	"github.com/hawser-io/hawser/hack/dashboard/panels"
)

func main() {
	text, err := panels.Dashboard()
	if err == nil {
		err = os.WriteFile(panels.File, text, 0o644) //nolint:gosec // a manifest
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "dashboard:", err)
		os.Exit(1)
	}
}
