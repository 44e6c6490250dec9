/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

// Command csi-disk is the node plugin of the disk driver.
package main

import (
	"flag"
	"log/slog"
	"os"

	"github.com/hawser-io/hawser/test/machine/disk"
)

func main() {
	node := flag.String("node-id", "", "name of the node")
	kubelet := flag.String("kubelet-dir", "/var/lib/kubelet", "the kubelet's directory, for the sockets")
	faults := flag.String("faults-dir", "", "directory of the faults")
	flag.Parse()
	if err := disk.ServeNode(*node, *kubelet, *faults); err != nil {
		slog.Error("serving failed", "error", err)
		os.Exit(1)
	}
}
