/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

// Command csi-loop is the loop CSI driver: a controller, the node plugin of one pseudo node, or both.
package main

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/hawser-io/hawser/test/csiloop/driver"
)

func main() {
	var options driver.Options
	mode := flag.String("mode", string(driver.ModeAll), "controller, node or all")
	flag.StringVar(&options.BackingDir, "backing-dir", "",
		"directory of volumes, ledger and faults, shared by all processes")
	flag.StringVar(&options.KubeletDir, "kubelet-dir", "", "the node's kubelet directory, for the sockets")
	flag.StringVar(&options.NodeID, "node-id", "", "name of the pseudo node")
	flag.StringVar(&options.Endpoint, "endpoint", "", "CSI socket, if not at the default path of the mode")
	flag.Int64Var(&options.MaxVolumes, "max-volumes", 0, "maximum number of volumes on the node, 0 for no limit")
	flag.Int64Var(&options.Capacity, "capacity", 0, "total bytes of all volumes, 0 for the size of the disk")
	flag.Parse()
	options.Mode = driver.Mode(*mode)

	if err := serve(options); err != nil {
		slog.Error("serving failed", "error", err)
		os.Exit(1)
	}
}

func serve(options driver.Options) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	// The program that started the driver waits for this line.
	ready := func() { fmt.Println("ready") }
	return driver.Run(ctx, options, ready)
}
