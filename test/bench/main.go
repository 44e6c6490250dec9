/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

// Command bench measures Hawser on an idle local cluster with the real external-attacher and the
// loop driver: how long an intent takes to become Ready and to be undone, how many API requests
// each volume costs and whose they are, what is asked while nothing changes, and memory.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/hawser-io/hawser/test/system"
)

func main() { os.Exit(status()) }

// status is the exit status: deferred calls have run when the program exits.
func status() int {
	var b bench
	dir := flag.String("dir", "/tmp/hawser-bench", "folder of the cluster; must not exist")
	flag.IntVar(&b.rounds, "rounds", 40, "volumes measured one at a time")
	flag.IntVar(&b.mass, "mass", 100, "volumes that come at once, and that are published while idle requests are counted")
	flag.DurationVar(&b.idle, "idle", time.Minute, "how long idle requests are counted")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	b.out = os.Stdout
	if err := b.run(ctx, *dir); err != nil {
		fmt.Fprintln(os.Stderr, "bench failed:", err)
		return 1
	}
	return 0
}

type bench struct {
	*system.System
	out          io.Writer
	rounds, mass int
	idle         time.Duration
}

func (b *bench) run(ctx context.Context, dir string) (err error) {
	b.System, err = system.Up(ctx, system.Options{Dir: dir, Nodes: []string{node}, Out: b.out, AttachDetach: true})
	if err != nil {
		return fmt.Errorf("starting: %w", err)
	}
	// The end of a run must not be cut short by the signal that ended it.
	defer func() { err = errors.Join(err, b.Down(context.WithoutCancel(ctx))) }()
	for _, part := range []func(context.Context) error{b.prepare, b.alone, b.together, b.quiet, b.memory, b.release} {
		if err := part(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (b *bench) say(format string, args ...any) { _, _ = fmt.Fprintf(b.out, format+"\n", args...) }
