/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

// Command manager is Hawser's cluster side.
package main

import (
	"flag"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"

	uberzap "go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	"sigs.k8s.io/controller-runtime/pkg/manager/signals"

	"github.com/hawser-io/hawser/internal/version"
)

// ballast in bytes counts for the garbage collector, but is never touched, so it uses no memory. Without it the heap is
// small, and each burst of volumes would cause many collections.
const ballast = 48 << 20

// garbage is by how many percent the heap grows before a collection, unless the variable GOGC says so. Go's default
// doubles what many volumes take, and collects less than half as often.
const garbage = 40

func main() {
	kept := make([]byte, ballast)
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(garbage)
	}
	var o options
	// --kubeconfig is controller-runtime's own flag.
	o.addFlags(flag.CommandLine)
	logging := zap.Options{}
	logging.BindFlags(flag.CommandLine)
	flag.Parse()
	ctrl.SetLogger(zap.New(zap.UseFlagOptions(&logging), zap.RawZapOpts(uberzap.WrapCore(lazily))))
	ctrl.Log.Info("starting", "version", version.Version, "attachMode", o.attachMode)
	for _, name := range o.withdrawn {
		ctrl.Log.Info("this flag is deprecated and has no effect; remove it, as a later release refuses it", "flag", name)
	}
	err := run(signals.SetupSignalHandler(), o)
	runtime.KeepAlive(kept)
	if err != nil {
		fmt.Fprintln(os.Stderr, "manager:", err)
		os.Exit(1)
	}
}

// lazily encodes a logger's fields only when it writes a line. Each pass creates a logger, and few write anything.
func lazily(core zapcore.Core) zapcore.Core { return lazyCore{core} }

type lazyCore struct{ zapcore.Core }

// With returns a core that adds the fields.
func (c lazyCore) With(fields []zapcore.Field) zapcore.Core {
	return lazyCore{zapcore.NewLazyWith(c.Core, fields)}
}
