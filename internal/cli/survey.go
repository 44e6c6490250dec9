/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package cli

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/resource"

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

// listed is a result with a list of items.
func listed(kind string, items any, findings int, text func(io.Writer)) *result {
	return &result{document: listing{apiVersion, kind, items}, findings: findings, text: text}
}

func newTree(o *options) *cobra.Command {
	w := &why{options: o}
	cmd := &cobra.Command{
		Use: "tree (pv|node) NAME", Short: "Show a volume with its nodes, or a node with its volumes", Args: treeArgs,
		ValidArgsFunction: w.complete,
		RunE: o.command(func(ctx context.Context, g *facts.Gatherer, args []string) (*result, error) {
			kind, name, err := kindAndName(args)
			if err != nil {
				return nil, err
			}
			f, err := g.Gather(ctx, facts.Ref{Kind: kind, Name: name})
			if err != nil {
				return nil, err
			}
			root := survey.Tree(f)
			return listed("Tree", []survey.Branch{root}, 0, func(w io.Writer) { writeBranch(w, &root, "", "") }), nil
		}),
	}
	o.watchable(cmd)
	return cmd
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
		text += ": " + cell(b.Text)
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
	cmd := &cobra.Command{
		Use: "top [NODE]", Short: "Show how full the volumes in use are, the fullest first", Args: cobra.MaximumNArgs(1),
		ValidArgsFunction: o.completeName(facts.KindNode),
		RunE: o.command(func(ctx context.Context, g *facts.Gatherer, args []string) (*result, error) {
			states, err := g.States(ctx, strings.Join(args, ""))
			if err != nil {
				return nil, err
			}
			uses := survey.Top(states)
			return listed("VolumeUses", uses, 0, func(w io.Writer) { o.writeUses(w, uses) }), nil
		}),
	}
	o.watchable(cmd)
	return cmd
}

func (o *options) writeUses(w io.Writer, uses []survey.Use) {
	more := func(columns ...string) string {
		if !o.wide() {
			return ""
		}
		return "\t" + strings.Join(columns, "\t")
	}
	_, _ = fmt.Fprintln(w, "NODE\tVOLUME\tUSED\tAVAILABLE\tUSE%\tINODES%"+
		more("CAPACITY", "INODES", "INODESUSED", "UNIQUENAME"))
	for i := range uses {
		u := &uses[i]
		_, _ = fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s%s\n", u.Node, shortName(u.PersistentVolume, u.Volume),
			size(u.Used), size(u.Available), number(u.Percent), number(u.InodesPercent),
			more(size(u.Capacity), number(u.Inodes), number(u.InodesUsed), u.Volume))
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
	cmd := &cobra.Command{
		Use: "orphans [NODE]", Short: "Show what stays on nodes without an owner", Args: cobra.MaximumNArgs(1),
		ValidArgsFunction: o.completeName(facts.KindNode),
		RunE: o.command(func(ctx context.Context, g *facts.Gatherer, args []string) (*result, error) {
			states, err := g.States(ctx, strings.Join(args, ""))
			if err != nil {
				return nil, err
			}
			orphans := survey.Orphans(states)
			return listed("Orphans", orphans, len(orphans), func(w io.Writer) { writeOrphans(w, orphans) }), nil
		}),
	}
	o.watchable(cmd)
	return cmd
}

func writeOrphans(w io.Writer, orphans []survey.Orphan) {
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
}

func newHistory(o *options) *cobra.Command {
	cmd := &cobra.Command{
		Use: "history VOLUME", Short: "Show what happened to a PersistentVolume, with the evidence of detaches",
		Args: cobra.ExactArgs(1), ValidArgsFunction: o.completeName(facts.KindVolume),
		RunE: o.command(func(ctx context.Context, g *facts.Gatherer, args []string) (*result, error) {
			f, err := g.Gather(ctx, facts.Ref{Kind: facts.KindVolume, Name: args[0]})
			if err != nil {
				return nil, err
			}
			moments := survey.History(f, g.EventsOf(ctx, f))
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
			return listed("Moments", moments, 0, func(w io.Writer) {
				for _, m := range moments {
					_, _ = fmt.Fprintf(w, "%s\t%s\t%s\n", m.Time.Format(time.RFC3339), m.Object, cell(m.What))
				}
			}), nil
		}),
	}
	o.watchable(cmd)
	return cmd
}

func newPlan(o *options) *cobra.Command {
	plan := &cobra.Command{Use: "plan", Short: "Show what a change would meet; it only reads",
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return fmt.Errorf("there is no plan %q, want drain or move", args[0])
			}
			return cmd.Help()
		}}
	drain := &cobra.Command{
		Use: "drain NODE", Short: "Show which volumes would leave a node, and which would hang", Args: cobra.ExactArgs(1),
		ValidArgsFunction: o.completeName(facts.KindNode), RunE: o.command(o.planDrain),
	}
	o.watchable(drain)
	plan.AddCommand(drain, newPlanMove(o))
	return plan
}

func (o *options) planDrain(ctx context.Context, g *facts.Gatherer, args []string) (*result, error) {
	f, err := g.Gather(ctx, facts.Ref{Kind: facts.KindNode, Name: args[0]})
	if err != nil {
		return nil, err
	}
	n, _ := f.NodeOf(args[0])
	if !n.State.Found {
		return nil, n.Missing()
	}
	ground := survey.Ground{State: n.State.Value, Intents: f.NodeIntents.Items, Blocked: explain.CannotRelease(f, n.Name)}
	if ground.Nodes, ground.Volumes, err = g.Others(ctx, n.State.Value); err != nil {
		return nil, err
	}
	d := survey.PlanDrain(ground)
	return listed("DrainPlan", []survey.Drain{d}, d.Hanging(), func(w io.Writer) { o.writeDrainPlan(w, &d) }), nil
}

func (o *options) writeDrainPlan(w io.Writer, d *survey.Drain) {
	_, _ = fmt.Fprintf(w, "%d volumes on node %s, %d would hang.\n", len(d.Volumes), d.Node, d.Hanging())
	for _, v := range d.Volumes {
		name := shortName(v.PersistentVolume, v.Volume)
		if o.wide() && name != v.Volume {
			name += " " + v.Volume
		}
		if v.Claim != "" {
			name += " (claim " + v.Claim + ")"
		}
		_, _ = fmt.Fprintf(w, "%s\t%s\t%s\n", v.Fate, name, cell(v.Why))
		for _, command := range v.Run {
			_, _ = fmt.Fprintf(w, "\t\t%s\n", command)
		}
	}
}
