/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

// Command local starts a cluster with all of Hawser on this machine; `localcluster discard` takes it down.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/hawser-io/hawser/test/system"
)

func main() { os.Exit(status()) }

// status is the exit status: deferred calls have run when the program exits.
func status() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func run(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("local", flag.ContinueOnError)
	dir := flags.String("dir", "/tmp/hawser-local", "directory of the cluster")
	if err := flags.Parse(args); err != nil {
		return fmt.Errorf("reading the flags: %w", err)
	}
	sys, err := system.Up(ctx, system.Options{
		Dir: *dir, Nodes: []string{"node-a", "node-b"}, Out: os.Stdout, AttachDetach: true,
	})
	if err != nil {
		return err
	}
	fmt.Printf("export KUBECONFIG=%s\n", sys.Kubeconfig())
	return nil
}
