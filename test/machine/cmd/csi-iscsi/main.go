/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

// Command csi-iscsi is the node plugin of the iSCSI driver.
package main

import (
	"flag"
	"log/slog"
	"os"

	"github.com/hawser-io/hawser/test/machine/iscsi"
)

func main() {
	node := flag.String("node-id", "", "name of the node")
	kubelet := flag.String("kubelet-dir", "/var/lib/kubelet", "the kubelet's directory, for the sockets")
	dir := flag.String("dir", "", "directory of the node's ledger and faults")
	flag.Parse()
	if err := iscsi.ServeNode(*node, *kubelet, *dir); err != nil {
		slog.Error("serving failed", "error", err)
		os.Exit(1)
	}
}
