/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

// Command csi-register registers a node plugin that is a program of its own, in place of node-driver-registrar.
package main

import (
	"flag"
	"log/slog"
	"os"

	"github.com/hawser-io/hawser/test/machine/plugin"
)

func main() {
	driver := flag.String("driver", "", "name of the driver")
	kubelet := flag.String("kubelet-dir", "/var/lib/kubelet", "the kubelet's directory, for the sockets")
	flag.Parse()
	if err := plugin.Register(*driver, *kubelet); err != nil {
		slog.Error("registering failed", "error", err)
		os.Exit(1)
	}
}
