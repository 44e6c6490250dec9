/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package cli

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/evidence"
	"github.com/hawser-io/hawser/internal/explain/facts"
	"github.com/hawser-io/hawser/internal/survey"
)

func newPlanFence(o *options) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "fence NODE",
		Short: "Show what would become of a node's volumes if its machine were powered off",
		Long: "Show for each volume of a node whether it would be detached if the machine were powered off, and on which\n" +
			"evidence: the taint " + corev1.TaintNodeOutOfService + " or a fence. Also whether time alone has it\n" +
			"detached, which pods use it, what is lost, and who waits for it on other nodes. It only reads.\n" +
			"Exit code 1: a volume would stay attached whatever proves that the machine is off, all of its data would\n" +
			"be deleted with its claim, or something could not be read.",
		Example: "  kubectl hawser plan fence node-a\n  kubectl hawser plan fence node-a -o json",
		Args:    cobra.ExactArgs(1), ValidArgsFunction: o.completeName(facts.KindNode), RunE: o.command(o.planFence),
	}
	o.watchable(cmd)
	return cmd
}

func (o *options) planFence(ctx context.Context, g *facts.Gatherer, args []string) (*result, error) {
	found, err := g.Fence(ctx, args[0])
	if err != nil {
		return nil, err
	}
	f := survey.PlanFence(found)
	r := listed("FencePlan", []survey.Fence{f}, f.Staying()+f.Losing()+len(f.Unread),
		func(w io.Writer) { o.writeFencePlan(w, &f) })
	for i := range f.Volumes {
		r.volume(f.Volumes[i].PersistentVolume)
	}
	return r, nil
}

func (o *options) writeFencePlan(w io.Writer, f *survey.Fence) {
	_, _ = fmt.Fprintf(w, "%s on node %s.%s\n", plural(len(f.Volumes), "volume"), f.Node, fates(f))
	for _, line := range []string{agentOf(f), recognized(f), sourcesOf(f)} {
		_, _ = fmt.Fprintln(w, line)
	}
	if n := f.Forced(); n > 0 {
		_, _ = fmt.Fprintf(w, "Once the intents are deleted, detachPolicy.forceAfter detaches %s by time alone, also from "+
			"a machine that runs.\n", plural(n, "volume"))
	}
	for _, a := range f.Assertions {
		_, _ = fmt.Fprintf(w, "Now: %s%s%s.\n", a.Text, sinceOf(a.Since), voidOf(a.Void))
	}
	for _, u := range f.Unread {
		_, _ = fmt.Fprintf(w, "Not read: %s.\n", cell(u))
	}
	if len(f.Volumes) > 0 {
		_, _ = fmt.Fprintln(w)
	}
	for i := range f.Volumes {
		o.writeFenced(w, &f.Volumes[i])
	}
}

// fates counts the volumes by what becomes of them.
func fates(f *survey.Fence) string {
	var parts []string
	for _, p := range []struct {
		n    int
		what string
	}{
		{f.Count(evidence.Detaches, false), "detached"},
		{f.Count(evidence.Detaches, true), "detached after their pods are deleted"},
		{f.Count(evidence.DetachesByKubernetes, true), "detached by Kubernetes on the taint"},
		{f.Count(evidence.NeedsDelete, false), "after an intent is deleted"},
		{f.Count(evidence.Detaching, false), "detached already, or being detached"},
		{f.Staying(), "would stay"},
		{f.Losing(), "would lose all data"},
	} {
		if p.n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", p.n, p.what))
		}
	}
	if len(parts) == 0 {
		return ""
	}
	return " With evidence that the machine is off: " + strings.Join(parts, ", ") + "."
}

func agentOf(f *survey.Fence) string {
	renewed := "has no Lease"
	if f.LeaseUnread {
		return "Whether the agent is silent is not known, because its Lease cannot be read. " + whileItRuns
	}
	if f.LastRenewal != nil {
		renewed = "renewed its Lease last at " + f.LastRenewal.UTC().Format(time.RFC3339)
	}
	if f.Silent {
		return "The agent is silent: it " + renewed + "."
	}
	return "The agent is not known to be silent: it " + renewed + ". " + whileItRuns
}

const whileItRuns = "While it renews it, nothing is detached, and a taint or fence is void once the agent has " +
	"contradicted it. So power the machine off first."

func recognized(f *survey.Fence) string {
	if f.Unrecognized != "" {
		return "No fence counts: " + f.Unrecognized + "."
	}
	return "The machine is recognized, so fences of it count."
}

func sourcesOf(f *survey.Fence) string {
	if f.SourcesUnread {
		return "Fence sources are not known, because the VolumeManager cannot be read."
	}
	if slices.ContainsFunc(f.Assertions, func(a evidence.Assertion) bool {
		return a.Type == volumesv1alpha1.EvidenceNodeGone
	}) {
		return "A fence or a taint would be no evidence: the Node does not exist."
	}
	if len(f.Sources) == 0 {
		return "No fence source is configured: only the taint would be evidence (docs/fencing.md)."
	}
	text := "Fence sources: " + strings.Join(f.Sources, ", ")
	switch c := f.SourcesReady; {
	case c == nil:
		return text + ". The operator has not examined them yet."
	case c.Status != metav1.ConditionTrue:
		return text + ". Not all can be used: " + c.Reason + ": " + cell(c.Message)
	}
	return text + ". All can be used."
}

func sinceOf(t *metav1.Time) string {
	if t == nil {
		return ""
	}
	return ", since " + t.UTC().Format(time.RFC3339)
}

func voidOf(why string) string {
	if why == "" {
		return ""
	}
	return ", which is no evidence: " + why
}

func (o *options) writeFenced(w io.Writer, v *survey.Fenced) {
	name := shortName(v.PersistentVolume, v.Volume)
	if o.wide() && name != v.Volume {
		name += " " + v.Volume
	}
	_, _ = fmt.Fprintf(w, "%s\t%s%s\t%s\n", v.Fate, name, ofClaim(v.Claim), cell(v.Why))
	line := func(what, text string) {
		if text != "" {
			_, _ = fmt.Fprintf(w, "\t  %s\t%s\n", what, cell(text))
		}
	}
	on := make([]string, 0, len(v.On))
	for _, e := range v.On {
		on = append(on, string(e))
	}
	if v.Fate == evidence.Detaching {
		on = []string{string(v.Evidence)}
	}
	line("evidence", strings.Join(on, " or "))
	line("used by", strings.Join(v.Pods, ", "))
	line("lost", v.Lost)
	if v.Unprotected {
		line("risk", "nothing is known to cut the access: if the machine runs after all, both nodes write")
	}
	line("next", strings.Join(v.Next, ", "))
	for _, command := range v.Run {
		if remark := v.Remarks[command]; remark != "" {
			line("run", remark+":")
			line("", command)
			continue
		}
		line("run", command)
	}
}
