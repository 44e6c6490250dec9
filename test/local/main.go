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
	"path/filepath"
	"syscall"

	"github.com/hawser-io/hawser/test/apiserver"
	"github.com/hawser-io/hawser/test/system"
)

const nodeA, nodeB = "node-a", "node-b"

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
	operator := flags.Bool("operator", false, "run operator, manager and agents from their images, on real kubelets")
	if err := flags.Parse(args); err != nil {
		return fmt.Errorf("reading the flags: %w", err)
	}
	options := system.Options{Dir: *dir, Nodes: []string{nodeA, nodeB}, Out: os.Stdout, AttachDetach: true}
	up, next := start, ofPrograms
	if *operator {
		up, next = startOperator, ofOperator
	}
	sys, err := up(ctx, options)
	if err != nil {
		return err
	}
	top := apiserver.Root()
	fmt.Printf(next, sys.Kubeconfig(), filepath.Join(top, "bin"), filepath.Join(top, ".cache", "bin"), sys.Dir)
	return nil
}

func start(ctx context.Context, options system.Options) (*system.System, error) {
	return system.Up(ctx, options)
}

// What a person can do with the cluster.
const (
	ofPrograms = `
A cluster with Hawser on the nodes node-a and node-b runs. In the directory of the project:

  export KUBECONFIG=%[1]s PATH=%[2]s:%[3]s:$PATH

  kubectl apply -k config/samples        # claims and intents
  kubectl get vai,nvs -A -w              # they become Ready, and show on the nodes
  kubectl hawser tree node node-a        # what is mounted where

  localcluster status --dir %[4]s                 # the parts and their logs
  localcluster stop   --dir %[4]s agent-node-a    # any of them
  localcluster start  --dir %[4]s agent-node-a    # again, as before
  make local-down DIR=%[4]s
`
	ofOperator = `
A cluster with Hawser runs on the nodes node-a and node-b, with real kubelets. The operator has installed manager and
agents as pods. In the directory of the project:

  export KUBECONFIG=%[1]s PATH=%[2]s:%[3]s:$PATH

  kubectl get hvm,pods -n hawser-system -o wide   # what the operator installed
  kubectl apply -k config/samples                 # claims and intents
  kubectl get vai,nvs -A -w                       # they become Ready, and show on the nodes

  localcluster status --dir %[4]s                                # the parts of the cluster, and their logs
  localcluster stop   --dir %[4]s kubelet-node-b                 # any of them
  localcluster start  --dir %[4]s kubelet-node-b                 # again, as before
  kubectl patch hvm cluster --type=merge -p '{"spec":{"nodeSelector":{"kubernetes.io/hostname":"node-a"}}}'
  ls %[4]s/nodes/node-a/podlogs                                  # kubectl logs reaches no kubelet here
  make local-down DIR=%[4]s
`
)
