/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

// Command operator installs Hawser as the VolumeManager asks for, and keeps it so.
package main

import (
	"flag"
	"fmt"
	"os"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	"sigs.k8s.io/controller-runtime/pkg/manager/signals"

	"github.com/hawser-io/hawser/internal/version"
)

func main() {
	var o options
	// --kubeconfig is controller-runtime's own flag.
	o.addFlags(flag.CommandLine)
	logging := zap.Options{}
	logging.BindFlags(flag.CommandLine)
	flag.Parse()
	ctrl.SetLogger(zap.New(zap.UseFlagOptions(&logging)))
	ctrl.Log.Info("starting", "version", version.Version)
	if err := run(signals.SetupSignalHandler(), o); err != nil {
		fmt.Fprintln(os.Stderr, "operator:", err)
		os.Exit(1)
	}
}
