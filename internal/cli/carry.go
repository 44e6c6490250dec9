/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package cli

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hawser-io/hawser/internal/explain/facts"
	"github.com/hawser-io/hawser/internal/explain/server"
	"github.com/hawser-io/hawser/internal/relocate"
)

// carryOptions are those of the commands that move intents.
type carryOptions struct{ yes, despiteUnknown bool }

func (c *carryOptions) flags(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&c.yes, "yes", false, "do it; --timeout then limits the wait, which has no limit otherwise")
	cmd.Flags().BoolVar(&c.despiteUnknown, "accept-unknown", false,
		"do it also where a check cannot be made, such as without the right to read nodes")
}

// planning makes the plan, and names the intents to follow.
type planning func(context.Context, *facts.Gatherer, []string) (*relocate.Plan, []scope, error)

// outcome of one intent.
type outcome struct {
	Intent      string        `json:"intent"`
	Replacement string        `json:"replacement,omitempty"`
	State       relocate.Step `json:"state"`
	Why         string        `json:"why,omitempty"`
}

// stays is the state of an intent that is not moved.
const stays relocate.Step = "Stays"

// carrying runs a command that moves intents: the plan, or with --yes the move.
func (o *options) carrying(c *carryOptions, name string, plan planning) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		var made *relocate.Plan
		var scopes []scope
		var writer client.WithWatch
		var gatherer *facts.Gatherer
		err := o.once(cmd.Context(), func(ctx context.Context, g *facts.Gatherer) (err error) {
			made, scopes, err = plan(ctx, g, args)
			o.progressDone()
			if err != nil {
				return err
			}
			writer, gatherer = g.Reader.(*server.Reader), g
			return tryCreate(ctx, writer, made)
		})
		if err != nil {
			return err
		}
		if !c.yes {
			return o.dryRun(name, made)
		}
		ctx, cancel := context.WithCancel(cmd.Context())
		if cmd.Flags().Changed("timeout") {
			ctx, cancel = o.limited(cmd.Context())
		}
		defer cancel()
		m := &mover{options: o, client: writer, gatherer: gatherer, plan: made, accept: c.despiteUnknown}
		return m.run(ctx, name, scopes)
	}
}

// tryCreate has the API server check the replacements, without creating them: quotas, policies, names and rights.
func tryCreate(ctx context.Context, c client.Client, plan *relocate.Plan) error {
	for i := range plan.Intents {
		l := &plan.Intents[i]
		if l.Want == nil || l.Progress.Replacement != nil {
			continue
		}
		err := c.Create(ctx, l.Want.DeepCopy(), client.DryRunAll)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		check := relocate.Check{Verdict: relocate.OK, About: "create", Text: "the API server accepts the replacement"}
		if err != nil {
			check.Verdict, check.Text = relocate.Refused, "the API server refuses the replacement: "+err.Error()
		}
		l.Checks = append(l.Checks, check)
	}
	return nil
}

// dryRun reports the plan.
func (o *options) dryRun(name string, plan *relocate.Plan) error {
	r := o.planned(name+"Plan", plan)
	write := r.text
	r.text = func(w io.Writer) {
		write(w)
		_, _ = fmt.Fprint(w, "\nNothing was changed. --yes does it.\n")
	}
	return o.finish(r, nil)
}

// finish prints a report and returns the error, or that of its findings.
func (o *options) finish(r *result, err error) error {
	if failed := o.show(r); failed != nil {
		return fmt.Errorf("printing the report: %w", failed)
	}
	if err != nil {
		return err
	}
	return r.exit()
}

// waitedError ends a move after --timeout.
type waitedError struct{ error }

var errInterrupted = errors.New("it is not finished: the same command goes on where this one stopped")

// unfinished is why a move ends before its end.
func unfinished(ctx context.Context) error {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return waitedError{fmt.Errorf("--timeout is over: %w", errInterrupted)}
	}
	return fmt.Errorf("interrupted: %w", errInterrupted)
}
