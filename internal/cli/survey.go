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
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/cli-runtime/pkg/printers"

	"github.com/hawser-io/hawser/internal/explain"
	"github.com/hawser-io/hawser/internal/explain/facts"
	"github.com/hawser-io/hawser/internal/survey"
)

// apiVersion of what the commands print as JSON and YAML.
const apiVersion = "cli.volumes.hawser.io/v1alpha1"

// listing is a result in JSON and YAML.
type listing struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Items      any    `json:"items"`
}

// show writes a result: as JSON or YAML, or as text by a function.
func (o *options) show(kind string, items any, text func(io.Writer)) error {
	if o.output != "" {
		return o.encode(listing{apiVersion, kind, items})
	}
	w := printers.GetNewTabWriter(o.Out)
	text(w)
	return w.Flush()
}

// command wraps what all commands do: the options, the time limit and the connection.
func (o *options) command(run func(context.Context, *facts.Gatherer, []string) error,
) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		ctx, cancel, err := o.prepare(cmd.Context())
		if err != nil {
			return err
		}
		defer cancel()
		g, err := o.gatherer()
		if err != nil {
			return err
		}
		err = run(ctx, g, args)
		o.progressDone()
		var findings findingsError
		if errors.As(err, &findings) {
			return err
		}
		return o.expired(ctx, err)
	}
}

func newTree(o *options) *cobra.Command {
	w := &why{options: o}
	return &cobra.Command{
		Use: "tree (pv|node) NAME", Short: "Show a volume with its nodes, or a node with its volumes", Args: treeArgs,
		ValidArgsFunction: w.complete,
		RunE: o.command(func(ctx context.Context, g *facts.Gatherer, args []string) error {
			kind, name, err := kindAndName(args)
			if err != nil {
				return err
			}
			f, err := g.Gather(ctx, facts.Ref{Kind: kind, Name: name})
			if err != nil {
				return err
			}
			root := survey.Tree(f)
			return o.show("Tree", []survey.Branch{root}, func(w io.Writer) { writeBranch(w, &root, "", "") })
		}),
	}
}

func treeArgs(_ *cobra.Command, args []string) error {
	kind, _, err := kindAndName(args)
	if err == nil && kind != facts.KindVolume && kind != facts.KindNode {
		return fmt.Errorf("the kind is %s, want pv or node", kind)
	}
	return err
}

func writeBranch(w io.Writer, b *survey.Branch, first, rest string) {
	text := b.Object
	if b.Text != "" {
		text += ": " + b.Text
	}
	_, _ = fmt.Fprintln(w, first+text)
	for i := range b.Children {
		if i == len(b.Children)-1 {
			writeBranch(w, &b.Children[i], rest+"└─ ", rest+"   ")
		} else {
			writeBranch(w, &b.Children[i], rest+"├─ ", rest+"│  ")
		}
	}
}

func newTop(o *options) *cobra.Command {
	return &cobra.Command{
		Use: "top [NODE]", Short: "Show how full the volumes in use are, the fullest first", Args: cobra.MaximumNArgs(1),
		RunE: o.command(func(ctx context.Context, g *facts.Gatherer, args []string) error {
			states, err := g.States(ctx, strings.Join(args, ""))
			if err != nil {
				return err
			}
			uses := survey.Top(states)
			return o.show("VolumeUses", uses, func(w io.Writer) {
				_, _ = fmt.Fprintln(w, "NODE\tVOLUME\tUSED\tAVAILABLE\tUSE%\tINODES%")
				for _, u := range uses {
					_, _ = fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", u.Node, shortName(u.PersistentVolume, u.Volume),
						size(u.Used), size(u.Available), number(u.Percent), number(u.InodesPercent))
				}
			})
		}),
	}
}

// shortName prefers the name of the PersistentVolume.
func shortName(pv, volume string) string {
	if pv != "" {
		return pv
	}
	return volume
}

func size(bytes int64) string {
	if bytes < 0 {
		return "-"
	}
	return resource.NewQuantity(bytes, resource.BinarySI).String()
}

func number(n int64) string {
	if n < 0 {
		return "-"
	}
	return fmt.Sprint(n)
}

func newOrphans(o *options) *cobra.Command {
	return &cobra.Command{
		Use: "orphans [NODE]", Short: "Show what stays on nodes without an owner", Args: cobra.MaximumNArgs(1),
		RunE: o.command(func(ctx context.Context, g *facts.Gatherer, args []string) error {
			states, err := g.States(ctx, strings.Join(args, ""))
			if err != nil {
				return err
			}
			orphans := survey.Orphans(states)
			err = o.show("Orphans", orphans, func(w io.Writer) {
				if len(orphans) == 0 {
					_, _ = fmt.Fprintln(w, "There are no orphans.")
				}
				for _, orphan := range orphans {
					_, _ = fmt.Fprintf(w, "node %s: %s\n  %s\n", orphan.Node, orphan.Volume, orphan.Why)
					for _, line := range append([]string{orphan.Intent, orphan.Path}, orphan.Run...) {
						if line != "" {
							_, _ = fmt.Fprintln(w, "  "+line)
						}
					}
				}
			})
			return found(err, len(orphans))
		}),
	}
}

// found ends a command with the exit code of findings, if there are some.
func found(err error, n int) error {
	if err == nil && n > 0 {
		return findingsError{}
	}
	return err
}

func newHistory(o *options) *cobra.Command {
	return &cobra.Command{
		Use: "history VOLUME", Short: "Show what happened to a PersistentVolume, with the evidence of detaches",
		Args: cobra.ExactArgs(1), ValidArgsFunction: func(cmd *cobra.Command, args []string, _ string) (
			[]string, cobra.ShellCompDirective) {
			if len(args) > 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return o.names(cmd.Context(), facts.KindVolume), cobra.ShellCompDirectiveNoFileComp
		},
		RunE: o.command(func(ctx context.Context, g *facts.Gatherer, args []string) error {
			f, err := g.Gather(ctx, facts.Ref{Kind: facts.KindVolume, Name: args[0]})
			if err != nil {
				return err
			}
			moments := survey.History(f, g.EventsOf(ctx, f))
			if ctx.Err() != nil {
				return ctx.Err()
			}
			return o.show("Moments", moments, func(w io.Writer) {
				for _, m := range moments {
					_, _ = fmt.Fprintf(w, "%s\t%s\t%s\n", m.Time.Format(time.RFC3339), m.Object, m.What)
				}
			})
		}),
	}
}

func newPlan(o *options) *cobra.Command {
	plan := &cobra.Command{Use: "plan", Short: "Show what a change would meet; it only reads"}
	plan.AddCommand(&cobra.Command{
		Use: "drain NODE", Short: "Show which volumes would leave a node, and which would hang", Args: cobra.ExactArgs(1),
		RunE: o.command(o.planDrain),
	})
	return plan
}

func (o *options) planDrain(ctx context.Context, g *facts.Gatherer, args []string) error {
	f, err := g.Gather(ctx, facts.Ref{Kind: facts.KindNode, Name: args[0]})
	if err != nil {
		return err
	}
	n, _ := f.NodeOf(args[0])
	if !n.State.Found {
		return &facts.ErrSubject{Ref: n.State.Ref, Err: n.State.Err}
	}
	ground := survey.Ground{State: n.State.Value, Intents: f.NodeIntents.Items, Blocked: explain.CannotRelease(f, n.Name)}
	if ground.Nodes, ground.Volumes, err = g.Others(ctx, n.State.Value); err != nil {
		return err
	}
	d := survey.PlanDrain(ground)
	err = o.show("DrainPlan", []survey.Drain{d}, func(w io.Writer) {
		_, _ = fmt.Fprintf(w, "%d volumes on node %s, %d would hang.\n", len(d.Volumes), d.Node, d.Hanging())
		for _, v := range d.Volumes {
			_, _ = fmt.Fprintf(w, "%s\t%s\t%s\n", v.Fate, shortName(v.PersistentVolume, v.Volume), v.Why)
			for _, command := range v.Run {
				_, _ = fmt.Fprintf(w, "\t\t%s\n", command)
			}
		}
	})
	return found(err, d.Hanging())
}
