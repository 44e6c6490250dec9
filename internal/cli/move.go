/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package cli

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/explain/facts"
	"github.com/hawser-io/hawser/internal/relocate"
)

// move moves the intents of a claim to another node.
type move struct {
	*options
	to, from, name string
	carry          carryOptions
}

func (m *move) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&m.to, "to", "", "the node where the volume shall go (required)")
	f.StringVar(&m.from, "from", "", "the node that it leaves; needed if several nodes use the volume")
	f.StringVar(&m.name, "name", "", "name of the new intent; by default the old name with the name of the new node")
	// Both only fail for a flag that does not exist, which a test would show.
	_ = cmd.MarkFlagRequired("to")
	_ = cmd.RegisterFlagCompletionFunc("to", m.completeNodes)
}

// completeNodes offers the names of nodes.
func (o *options) completeNodes(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	return o.names(contextOf(cmd), facts.KindNode), cobra.ShellCompDirectiveNoFileComp
}

func newPlanMove(o *options) *cobra.Command {
	m := &move{options: o}
	cmd := &cobra.Command{
		Use:   "move CLAIM --to NODE",
		Short: "Show what a move of a claim's volume would detach, and what would hang",
		Long: "Show what a move of a claim's volume to another node would do, and what it would meet: who has the volume,\n" +
			"pods that use it, limits and drivers of the node, the node affinity of the volume. It only reads.",
		Example: "  kubectl hawser plan move data --to node-b -n shop",
		Args:    cobra.ExactArgs(1), ValidArgsFunction: o.completeName(facts.KindClaim),
		RunE: o.command(func(ctx context.Context, g *facts.Gatherer, args []string) (*result, error) {
			plan, err := m.plan(ctx, g, args[0])
			if err != nil {
				return nil, err
			}
			return m.planned("MovePlan", plan), nil
		}),
	}
	m.flags(cmd)
	o.watchable(cmd)
	return cmd
}

func newMove(o *options) *cobra.Command {
	m := &move{options: o}
	cmd := &cobra.Command{
		Use:   "move CLAIM --to NODE",
		Short: "Move a claim's volume to another node; without --yes it only shows the plan",
		Long: "Move a claim's volume to another node: create an intent there, wait until the manager has resolved it,\n" +
			"delete the intent that it replaces, and wait until the new one is Ready. The controllers release and attach\n" +
			"the volume; a volume that a pod uses stays. It can be interrupted: the same command then goes on where it\n" +
			"stopped.\n\n" +
			"Without --yes nothing is changed.",
		Example: "  kubectl hawser move data --to node-b -n shop\n  kubectl hawser move data --to node-b -n shop --yes",
		Args:    cobra.ExactArgs(1), ValidArgsFunction: o.completeName(facts.KindClaim),
		RunE: o.carrying(&m.carry, "Move", func(ctx context.Context, g *facts.Gatherer, args []string) (
			*relocate.Plan, []scope, error) {
			plan, err := m.plan(ctx, g, args[0])
			if err != nil {
				return nil, nil, err
			}
			namespace, err := m.namespace()
			return plan, []scope{{client.InNamespace(namespace),
				client.MatchingFields{"spec.volume.persistentVolumeClaim.claimName": args[0]}}}, err
		}),
	}
	m.flags(cmd)
	m.carry.flags(cmd)
	return cmd
}

func (m *move) plan(ctx context.Context, g *facts.Gatherer, claim string) (*relocate.Plan, error) {
	namespace, err := m.namespace()
	if err != nil {
		return nil, err
	}
	r, err := g.Move(ctx, facts.Ref{Kind: facts.KindClaim, Namespace: namespace, Name: claim}, m.to)
	if err != nil {
		return nil, err
	}
	return relocate.Move(r, m.from, m.name)
}

// planned is the report of a plan.
func (o *options) planned(kind string, plan *relocate.Plan) *result {
	r := listed(kind, []*relocate.Plan{plan}, plan.Findings(), func(w io.Writer) { o.writePlan(w, plan) })
	for i := range plan.Intents {
		r.intent(plan.Intents[i].Intent)
	}
	return r
}

func (o *options) writePlan(w io.Writer, p *relocate.Plan) {
	title := p.Subject
	if p.Volume != "" {
		title += " (PersistentVolume " + p.Volume + ", driver " + p.Driver + ")"
	}
	_, _ = fmt.Fprintf(w, "%s: %d intents leave their node%s, %d findings\n", title, len(p.Intents), toNode(p.To),
		p.Findings())
	o.writeChecks(w, "", p.Checks)
	for i := range p.Intents {
		l := &p.Intents[i]
		_, _ = fmt.Fprintf(w, "\nintent %s%s on node %s: %s\n", l.Intent, claimOf(p, l), l.Node, doing(l))
		o.writeChecks(w, "", l.Checks)
	}
	for _, intent := range p.Waiting() {
		state := "is Ready"
		if !relocate.Ready(intent) {
			state = "is not Ready yet"
		}
		_, _ = fmt.Fprintf(w, "\nintent %s is on node %s and %s\n", facts.Key(intent), p.To, state)
	}
}

// claimOf names the claim of an intent, unless it is what the plan is about.
func claimOf(p *relocate.Plan, l *relocate.Leaving) string {
	source := l.Progress.Source
	if source == nil || source.Spec.Volume.PersistentVolumeClaim == nil {
		return ""
	}
	claim := facts.Ref{Kind: facts.KindClaim, Namespace: source.Namespace,
		Name: source.Spec.Volume.PersistentVolumeClaim.ClaimName}
	if p.Subject == claim.String() {
		return ""
	}
	return ofClaim(claim.Namespace + "/" + claim.Name)
}

func toNode(node string) string {
	if node == "" {
		return ""
	}
	return " for node " + node
}

// doing describes what happens to one intent.
func doing(l *relocate.Leaving) string {
	switch {
	case relocate.ManagerOf(l.Progress.Source) != nil:
		return "stays"
	case l.Progress.Source.DeletionTimestamp != nil && (l.Progress.Drop || l.Progress.Replacement != nil):
		return "is deleted already, and waits for the release by its node"
	case l.Replacement == "" && !l.Movable():
		return "stays"
	case l.Replacement == "":
		return "is deleted; its node unpublishes, unstages and releases the volume"
	case l.Progress.Replacement != nil:
		return "is deleted; its replacement " + l.Replacement + " exists already"
	default:
		return "is deleted after its replacement " + l.Replacement + " was created"
	}
}

// writeChecks writes checks. Those of intents that are fine are for wide.
func (o *options) writeChecks(w io.Writer, indent string, checks []relocate.Check) {
	for _, c := range checks {
		_, _ = fmt.Fprintf(w, "%s  %s\t%s\t%s\n", indent, c.Verdict, c.About, cell(c.Text))
		for _, command := range c.Run {
			_, _ = fmt.Fprintf(w, "%s  \t\t  %s\n", indent, command)
		}
	}
}

// drain moves or deletes the intents on a node.
type drain struct {
	*options
	to    string
	drop  bool
	carry carryOptions
}

func newDrain(o *options) *cobra.Command {
	d := &drain{options: o}
	cmd := &cobra.Command{
		Use:   "drain NODE [--to NODE | --delete-intents]",
		Short: "Move or delete the intents on a node; without --yes it only shows the plan",
		Long: "Move the intents on a node to another one, or delete them, and wait until the node has released the\n" +
			"volumes. Intents of pods leave with their pods (kubectl drain). Intents that Git or a set manages stay.\n" +
			"An intent that cannot move stays, and the others move. It can be interrupted: the same command then goes on\n" +
			"where it stopped.\n\nWithout --yes nothing is changed.",
		Example: "  kubectl drain node-a --ignore-daemonsets\n  kubectl hawser drain node-a --to node-b\n" +
			"  kubectl hawser drain node-a --to node-b --yes",
		Args: cobra.ExactArgs(1), ValidArgsFunction: o.completeName(facts.KindNode),
		RunE: o.carrying(&d.carry, "Drain", d.plan),
	}
	f := cmd.Flags()
	f.StringVar(&d.to, "to", "", "the node where the intents go")
	f.BoolVar(&d.drop, "delete-intents", false, "delete the intents; nothing replaces them")
	cmd.MarkFlagsMutuallyExclusive("to", "delete-intents")
	_ = cmd.RegisterFlagCompletionFunc("to", d.completeNodes) // it only fails for a flag that does not exist
	d.carry.flags(cmd)
	return cmd
}

func (d *drain) plan(ctx context.Context, g *facts.Gatherer, args []string) (*relocate.Plan, []scope, error) {
	node := args[0]
	if d.to == node {
		return nil, nil, fmt.Errorf("--to is the node %s itself", node)
	}
	r, err := g.Drain(ctx, node, d.to)
	if err != nil {
		return nil, nil, err
	}
	plan, err := relocate.Drain(r, d.drop)
	scopes := []scope{{client.MatchingFields{"spec.nodeName": node}}}
	if d.to != "" {
		scopes = append(scopes, scope{client.MatchingFields{"spec.nodeName": d.to}})
	}
	return plan, scopes, err
}

// scope selects the intents that a command follows.
type scope []client.ListOption

func newIntents() *volumesv1alpha1.VolumeAttachmentIntentList {
	return &volumesv1alpha1.VolumeAttachmentIntentList{}
}
