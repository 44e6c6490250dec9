/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

// Command bench measures Hawser. Part attach measures attach and detach of many volumes on many nodes. It
// compares Hawser with upstream's controller and the API server's limits. Part node measures one node with real
// mounts. Part pods measures how long pods wait for their volumes, on real kubelets. Part doctor measures `kubectl
// hawser doctor`. Part fleet measures the manager beside thousands of nodes. Part writes measures what
// one write of a custom resource costs the API server.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/hawser-io/hawser/test/bench/attach"
	"github.com/hawser-io/hawser/test/bench/attach/bare"
	"github.com/hawser-io/hawser/test/bench/doctor"
	"github.com/hawser-io/hawser/test/bench/fleet"
	"github.com/hawser-io/hawser/test/bench/node"
	"github.com/hawser-io/hawser/test/bench/pods"
	"github.com/hawser-io/hawser/test/bench/writes"
)

func main() { os.Exit(status()) }

// status is the exit status: deferred calls have run when the program exits.
func status() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "bench failed:", err)
		return 1
	}
	return 0
}

const parts = "attach, node, pods, doctor, fleet or writes"

func run(ctx context.Context) error {
	mass, single, ofPods := attach.Options{Out: os.Stdout}, node.Options{Out: os.Stdout}, pods.Options{Out: os.Stdout}
	large, whole := doctor.Options{Out: os.Stdout}, fleet.Options{Out: os.Stdout}
	one := writes.Options{Out: os.Stdout}
	part := flag.String("part", "attach", "part to measure: "+parts+"; bare-intents and bare-pods are "+
		"used by part attach, for its bare clients")
	stage := flag.String("stage", "", "bare-intents, bare-pods: file that lists the volumes")
	dir := flag.String("dir", "/tmp/hawser-bench", "directory of the cluster; must not exist")
	mass.AddFlags(flag.CommandLine)
	single.AddFlags(flag.CommandLine)
	ofPods.AddFlags(flag.CommandLine)
	large.AddFlags(flag.CommandLine)
	whole.AddFlags(flag.CommandLine)
	one.AddFlags(flag.CommandLine)
	flag.Parse()
	ctrl.SetLogger(klog.Background())
	mass.Dir, single.Dir, ofPods.Dir, large.Dir, whole.Dir, one.Dir = *dir, *dir, *dir, *dir, *dir, *dir
	switch *part {
	case "attach":
		return attach.Run(ctx, mass)
	case "node":
		return node.Run(ctx, single)
	case "pods":
		return pods.Run(ctx, ofPods)
	case "doctor":
		return doctor.Run(ctx, large)
	case "fleet":
		return fleet.Run(ctx, whole)
	case "writes":
		return writes.Run(ctx, one)
	case "bare-intents":
		return serve(ctx, *stage, (*bare.Client).Intents)
	case "bare-pods":
		return serve(ctx, *stage, (*bare.Client).Pods)
	}
	return fmt.Errorf("unknown part %q; the parts are %s", *part, parts)
}

func serve(ctx context.Context, stage string, how bare.Serve) error {
	config, err := ctrl.GetConfig()
	if err != nil {
		return fmt.Errorf("reading the kubeconfig: %w", err)
	}
	return bare.Run(ctx, config, stage, how)
}
