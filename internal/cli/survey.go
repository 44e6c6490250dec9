/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/resource"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/explain"
	"github.com/hawser-io/hawser/internal/explain/facts"
	"github.com/hawser-io/hawser/internal/explain/history"
	"github.com/hawser-io/hawser/internal/explain/tree"
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
	cmd := &cobra.Command{
		Use: "tree KIND NAME", Short: "Show a volume with its nodes, a node with its volumes, or what else hangs together",
		Args: kindArgs, ValidArgsFunction: o.completeKind,
		Example: "  kubectl hawser tree pvc data -n shop\n  kubectl hawser tree node node-a\n" +
			"  kubectl hawser tree set cache -n shop",
		RunE: o.command(func(ctx context.Context, g *facts.Gatherer, args []string) (*result, error) {
			f, err := o.gather(ctx, g, args)
			if err != nil {
				return nil, err
			}
			if n, ok := f.NodeOf(f.Subject.Name); ok && f.Subject.Kind == facts.KindNode && !n.State.Found {
				g.OnNode(ctx, n.Name, &f.Filling)
			}
			root := tree.Of(f)
			r := listed("Tree", []tree.Branch{root}, 0, func(w io.Writer) { writeBranch(w, &root, "", "") })
			r.names = branchRefs(nil, root)
			return r, nil
		}),
	}
	o.watchable(cmd)
	return cmd
}

// kindArgs checks KIND NAME.
func kindArgs(_ *cobra.Command, args []string) error {
	_, _, err := kindAndName(args)
	return err
}

func branchRefs(refs []facts.Ref, b tree.Branch) []facts.Ref {
	refs = append(refs, refOf(b.Object))
	for _, child := range b.Children {
		refs = branchRefs(refs, child)
	}
	return refs
}

func writeBranch(w io.Writer, b *tree.Branch, first, rest string) {
	text := cell(b.Object)
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
			volumes, _ := g.PersistentOf(ctx, states) // without it only the names of claims are missing
			uses := survey.Top(states, volumes)
			r := listed("VolumeUses", uses, 0, func(w io.Writer) { o.writeUses(w, uses) })
			for i := range uses {
				r.volume(uses[i].PersistentVolume)
			}
			return r, nil
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
	_, _ = fmt.Fprintln(w, "NODE\tVOLUME\tCLAIM\tUSED\tAVAILABLE\tUSE%\tINODES%"+
		more("CAPACITY", "INODES", "INODESUSED", "UNIQUENAME"))
	for i := range uses {
		u := &uses[i]
		_, _ = fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s%s\n", u.Node, shortName(u.PersistentVolume, u.Volume),
			cmp.Or(u.Claim, "-"), size(u.Used), size(u.Available), number(u.Percent), number(u.InodesPercent),
			more(size(u.Capacity), number(u.Inodes), number(u.InodesUsed), u.Volume))
	}
}

// ofClaim names the claim behind the name of its volume.
func ofClaim(claim string) string {
	if claim == "" {
		return ""
	}
	return " (claim " + claim + ")"
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
			volumes, _ := g.PersistentOf(ctx, states) // without it only the names of claims are missing
			orphans := survey.Orphans(states, volumes)
			r := listed("Orphans", orphans, len(orphans), func(w io.Writer) { writeOrphans(w, orphans) })
			for _, orphan := range orphans {
				r.names = append(r.names, facts.Ref{Kind: facts.KindNode, Name: orphan.Node})
			}
			return r, nil
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
		_, _ = fmt.Fprintf(w, "node %s: %s%s\n  %s\n", orphan.Node, orphan.Volume, ofClaim(orphan.Claim), orphan.Why)
		for _, line := range append([]string{orphan.Intent, orphan.Path}, orphan.Run...) {
			if line != "" {
				_, _ = fmt.Fprintln(w, "  "+line)
			}
		}
	}
}

func newHistory(o *options) *cobra.Command {
	cmd := &cobra.Command{
		Use: "history [KIND] NAME", Short: "Show what happened to an object and its volumes, with the evidence of detaches",
		Long: "Show what happened to an object and its volumes, the oldest first, with the evidence of detaches.\n" +
			"The kind is pv unless it is given.",
		Example:           "  kubectl hawser history pv-1\n  kubectl hawser history pvc data -n shop",
		Args:              func(cmd *cobra.Command, args []string) error { return kindArgs(cmd, volumeByDefault(args)) },
		ValidArgsFunction: o.completeKind,
		RunE: o.command(func(ctx context.Context, g *facts.Gatherer, args []string) (*result, error) {
			f, err := o.gather(ctx, g, volumeByDefault(args))
			if err != nil {
				return nil, err
			}
			moments := history.Of(f, g.EventsOf(ctx, f))
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
			r := listed("Moments", moments, 0, func(w io.Writer) {
				for _, m := range moments {
					_, _ = fmt.Fprintf(w, "%s\t%s\t%s\n", m.Time.Format(time.RFC3339), m.Object, cell(m.What))
				}
			})
			for _, m := range moments {
				r.names = append(r.names, refOf(m.Object))
			}
			return r, nil
		}),
	}
	o.watchable(cmd)
	return cmd
}

// volumeByDefault completes a name alone to one of a PersistentVolume.
func volumeByDefault(args []string) []string {
	if len(args) == 1 && !strings.Contains(args[0], "/") {
		return []string{"pv", args[0]}
	}
	return args
}

func newPlan(o *options) *cobra.Command {
	plan := &cobra.Command{Use: "plan", Short: "Show what a change would meet; it only reads",
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return fmt.Errorf("there is no plan %q, want drain, fence or move", args[0])
			}
			return cmd.Help()
		}}
	drain := &cobra.Command{
		Use: "drain NODE", Short: "Show which volumes would leave a node, hang, or lose their data", Args: cobra.ExactArgs(1),
		ValidArgsFunction: o.completeName(facts.KindNode), RunE: o.command(o.planDrain),
	}
	o.watchable(drain)
	plan.AddCommand(drain, newPlanFence(o), newPlanMove(o))
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
	ground := survey.Ground{State: n.State.Value, Intents: f.NodeIntents.Items, Blocked: explain.CannotRelease(f, n.Name),
		Unread: cmp.Or(n.Node.Unread(), n.Lease.Unread())}
	if f.NodeIntents.Err != nil {
		ground.Unread = "the intents on the node cannot be read: " + f.NodeIntents.Err.Error()
	}
	if ground.Nodes, err = g.Others(ctx); err != nil {
		return nil, err
	}
	ground.Volumes, ground.VolumesUnread = g.PersistentOf(ctx, []volumesv1alpha1.NodeVolumeState{*n.State.Value})
	ground.Endings = g.Endings(ctx, ground.Volumes)
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	d := survey.PlanDrain(ground)
	r := listed("DrainPlan", []survey.Drain{d}, d.Findings(), func(w io.Writer) { o.writeDrainPlan(w, &d) })
	for _, v := range d.Volumes {
		r.volume(v.PersistentVolume)
	}
	return r, nil
}

func (o *options) writeDrainPlan(w io.Writer, d *survey.Drain) {
	more := ""
	if n := d.Count(survey.LosesData); n > 0 {
		more = fmt.Sprintf(", %d would lose all data", n)
	}
	if n := d.Count(survey.Unknown); n > 0 {
		more += fmt.Sprintf(", of %d it is not known", n)
	}
	_, _ = fmt.Fprintf(w, "%d volumes on node %s, %d would hang%s.\n", len(d.Volumes), d.Node, d.Count(survey.Hangs), more)
	for _, v := range d.Volumes {
		name := shortName(v.PersistentVolume, v.Volume)
		if o.wide() && name != v.Volume {
			name += " " + v.Volume
		}
		_, _ = fmt.Fprintf(w, "%s\t%s%s\t%s\n", v.Fate, name, ofClaim(v.Claim), cell(v.Why))
		for _, command := range v.Run {
			_, _ = fmt.Fprintf(w, "\t\t%s\n", command)
		}
	}
}
