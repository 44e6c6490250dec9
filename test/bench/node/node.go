/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

// Package node measures an idle local cluster with the real external-attacher and the loop driver. It measures
// how long an intent takes to become Ready and to be undone. It counts the API requests of each program for
// each volume. It also measures the requests while nothing changes, and memory.
package node

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"time"

	"github.com/hawser-io/hawser/test/system"
)

// Options of a run.
type Options struct {
	// Dir of the cluster; must not exist.
	Dir string
	// Out receives the report.
	Out io.Writer

	rounds, mass, beside int
	idle                 time.Duration
}

// AddFlags adds the flags of this part alone.
func (o *Options) AddFlags(flags *flag.FlagSet) {
	flags.IntVar(&o.rounds, "rounds", 40, "node: volumes measured one at a time")
	flags.IntVar(&o.mass, "mass", 100,
		"node: number of volumes that are published at once, and while idle requests are counted")
	flags.IntVar(&o.beside, "beside", 0,
		"node: number of bind mounts beside which volumes are measured again, one at a time and at once")
	flags.DurationVar(&o.idle, "node-idle", time.Minute, "node: how long idle requests are counted")
}

// Run measures and reports. It needs root, for mounts, and Linux.
func Run(ctx context.Context, o Options) (err error) {
	b := bench{Options: o}
	b.System, err = system.Up(ctx, system.Options{Dir: o.Dir, Nodes: []string{node}, Out: o.Out, AttachDetach: true})
	if err != nil {
		return fmt.Errorf("starting: %w", err)
	}
	// The signal that ended the run must not interrupt its end.
	defer func() { err = errors.Join(err, b.Down(context.WithoutCancel(ctx))) }()
	for _, part := range []func(context.Context) error{
		b.prepare, b.unused, b.alone, b.together, b.quiet, b.memory, b.release, b.besideMounts,
	} {
		if err := part(ctx); err != nil {
			return err
		}
	}
	return nil
}

type bench struct {
	Options
	*system.System
}

func (b *bench) say(format string, args ...any) {
	_, _ = fmt.Fprintf(b.Options.Out, format+"\n", args...)
}
