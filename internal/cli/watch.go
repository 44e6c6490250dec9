/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/hawser-io/hawser/internal/explain/facts"
	"github.com/hawser-io/hawser/internal/explain/live"
	"github.com/hawser-io/hawser/internal/explain/server"
)

// coalesced is how long changes are collected before the report is made again.
const coalesced = 300 * time.Millisecond

// aged is how long a report is kept without a change. Time alone changes some verdicts: a Lease that is not renewed
// any more has ended after a while.
const aged = 15 * time.Second

// watchable gives a command the flag --watch.
func (o *options) watchable(cmd *cobra.Command) {
	cmd.Flags().BoolVarP(&o.watch, "watch", "w", false, "after the report, make it again whenever something changes")
}

// screen clears a terminal from its beginning.
const screen = "\033[H\033[2J"

// following is a command with --watch.
type following struct {
	*options
	run  reporting
	args []string
	g    *facts.Gatherer
	live *live.Reader

	printed string
	last    *result
}

// follow reports again and again until the user, or --timeout if it was given, ends it. The exit code is that of the
// last report.
func (o *options) follow(cmd *cobra.Command, run reporting, args []string) error {
	_, cancel, err := o.prepare(cmd.Context())
	if err != nil {
		return err
	}
	cancel()
	ctx, cancel := context.WithCancel(cmd.Context())
	if cmd.Flags().Changed("timeout") {
		ctx, cancel = o.limited(cmd.Context())
	}
	defer cancel()
	f := &following{options: o, run: run, args: args}
	if f.g, err = o.gatherer(); err != nil {
		return err
	}
	f.g.Progress = nil
	base := f.g.Reader.(*server.Reader)
	f.live = live.New(ctx, base, base, func(what string, err error) {
		_, _ = fmt.Fprintf(o.ErrOut, "kubectl hawser: changes of %s do not show: %s\n", cell(what), visible(err.Error()))
	})
	f.g.Reader = f.live
	if err := f.report(ctx); err != nil {
		return o.expired(ctx, err)
	}
	if f.live.Watching() == 0 {
		return errors.New("nothing of this may be watched; leave out --watch")
	}
	return f.loop(ctx)
}

// loop reports after changes, and after some time without any.
func (f *following) loop(ctx context.Context) error {
	for {
		if f.live.Wait(ctx, aged, coalesced) != nil {
			return f.end(ctx)
		}
		if err := f.report(ctx); err != nil && ctx.Err() == nil {
			// The subject may come back, and what could not be read in time is read at its next change.
			_, _ = fmt.Fprintln(f.ErrOut, "kubectl hawser:", visible(sentence(err)))
			f.printed = ""
		}
	}
}

func (f *following) end(ctx context.Context) error {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return watchedError{f.timeout}
	}
	return f.last.exit()
}

// report makes the report, and prints it if it differs from the one before.
func (f *following) report(ctx context.Context) error {
	limited, cancel := f.limited(ctx)
	defer cancel()
	f.live.Begin()
	r, err := f.run(limited, f.g, f.args)
	if err != nil {
		return f.expired(limited, err)
	}
	f.live.End()
	identity, err := r.identity()
	if err != nil || identity == f.printed {
		return err
	}
	first := f.last == nil
	f.printed, f.last = identity, r
	switch {
	case f.asText() && isTerminal(f.Out):
		_, _ = fmt.Fprint(f.Out, screen)
	case f.output != "json" && !first:
		_, _ = fmt.Fprintln(f.Out, "---")
	}
	return f.show(r)
}
