/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

// Command golangci-lint is golangci-lint with kube-api-linter in it. A plugin of golangci-lint has to be linked in.
package main

import (
	"fmt"
	"os"
	"runtime"

	"github.com/golangci/golangci-lint/v2/pkg/commands"
	"github.com/golangci/golangci-lint/v2/pkg/exitcodes"
	_ "sigs.k8s.io/kube-api-linter"
)

func main() {
	// The version that hack/tools/go.mod requires. golangci-lint compares it with that of a configuration.
	info := commands.BuildInfo{Version: "2", GoVersion: runtime.Version()}
	if err := commands.Execute(info); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(exitcodes.Failure)
	}
}
