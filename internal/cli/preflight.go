/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/printers"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/doctor"
	"github.com/hawser-io/hawser/internal/explain/facts"
	"github.com/hawser-io/hawser/internal/explain/server"
	"github.com/hawser-io/hawser/internal/preflight"
	"github.com/hawser-io/hawser/internal/preflight/read"
)

func newPreflight(o *options) *cobra.Command {
	return &cobra.Command{
		Use: "preflight", Short: "Find what is in the way of an installation of Hawser", Args: cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		Long: "Find what is in the way of an installation of Hawser in this cluster, and what Hawser gives for\n" +
			"each of its drivers. It reads once, and asks the API server for dry runs, which change nothing.\n" +
			"Exit code 1: something is BLOCKED.",
		Example: "  kubectl hawser preflight\n" +
			"  kubectl hawser preflight -o wide\n" +
			"  kubectl hawser preflight --hawser-namespace=storage-system\n" +
			"  kubectl hawser preflight -o json | jq -r '.checks[] | [.status, .name, .code] | @tsv'",
		RunE: o.command(o.preflight),
	}
}

// preflightDocument is the report in JSON and YAML.
type preflightDocument struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	*preflight.Report
}

func (o *options) preflight(ctx context.Context, g *facts.Gatherer, _ []string) (*result, error) {
	r, ok := g.Reader.(*server.Reader)
	if !ok {
		return nil, errors.New("preflight reads from an API server only")
	}
	if g.Progress != nil {
		g.Progress("the cluster")
	}
	// It is where Hawser is to be installed, so there is nothing to find.
	f, err := read.Cluster(ctx, r, r.Clientset, cmp.Or(g.System, volumesv1alpha1.InstallNamespace))
	if f == nil {
		return nil, err
	}
	report := preflight.Examine(f, g.Now())
	return &result{document: preflightDocument{apiVersion, "PreflightReport", report}, plain: true,
		findings: report.Count(preflight.Blocked), text: func(w io.Writer) {
			_, _ = io.WriteString(w, preflightText(report, o.colored(), o.wide()))
		}}, err
}

// statusColors of checks.
var statusColors = map[preflight.Status]string{preflight.Blocked: "31", preflight.Warn: "33", preflight.OK: "32"}

// preflightText has the checks, the worst first, the drivers, and the command to go on with.
func preflightText(r *preflight.Report, colored, wide bool) string {
	w := &writer{colored: colored, now: r.Time}
	w.preflightTitle(r)
	for i := range r.Checks {
		w.check(&r.Checks[i], wide)
	}
	w.printf("\nAttach mode: %s. %s.\n", r.AttachMode.Mode, r.AttachMode.Text)
	w.driverTable(r)
	w.notRead(r.LeftOut)
	if len(r.InitialSpec) > 0 {
		// It cannot fail: the values are strings.
		spec, _ := json.Marshal(r.InitialSpec)
		w.printf("\nFor these warnings set INITIAL_SPEC in the overlay (docs/install.md, \"The first VolumeManager\"): %s\n",
			spec)
	}
	w.printf("\nNext: %s\n", r.Next)
	if r.NextRemark != "" {
		w.printf("      %s\n", r.NextRemark)
	}
	return w.String()
}

func (w *writer) preflightTitle(r *preflight.Report) {
	cluster := "Kubernetes " + r.Kubernetes
	if r.Distribution != "" {
		cluster += " (" + r.Distribution + ")"
	}
	if r.Nodes >= 0 {
		cluster += ", " + plural(r.Nodes, "node")
	}
	w.printf("%s. Hawser %s, namespace %s: %d blocked, %s, %d OK", cluster, r.Version, r.Namespace,
		r.Count(preflight.Blocked), plural(r.Count(preflight.Warn), "warning"), r.Count(preflight.OK))
	if len(r.LeftOut) > 0 {
		w.printf(", %d not read", len(r.LeftOut))
	}
	w.printf(".\n")
	if r.Installed {
		of := "its kinds are served; no version is reported"
		if r.InstalledVersion != "" {
			of = r.InstalledVersion
		}
		w.printf("Hawser is installed already (%s).\n", of)
	}
	w.printf("\n")
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// longest is how long a message is, at most. It may be that of a policy, which names the way out at its end.
const longest = 400

// check writes a check: one line if it is OK, otherwise what was found and how to go on.
func (w *writer) check(c *preflight.Check, wide bool) {
	status := w.paint(fmt.Sprintf("%-7s", c.Status), statusColors[c.Status])
	if c.Finding == nil {
		w.printf("%s        %s: %s.\n", status, c.Name, c.Text)
		return
	}
	w.printf("%s %s %s: %s\n", status, c.Code, c.Name, c.Object)
	if !wide {
		w.what(c.Finding, longest)
		w.printf("%s%s: %s\n", below, c.Acts, c.Way)
		if len(c.Run) > 0 {
			w.printf("%srun: %s\n", below, c.Run[0])
		}
		return
	}
	w.line("", c.Says)
	w.line("message", c.Detail)
	w.wayOut(*c.Finding)
}

// notRead names what could not be read, and the checks that are left out for it.
func (w *writer) notRead(list []doctor.LeftOut) {
	if len(list) > 0 {
		w.printf("\nNot read:\n")
	}
	for _, l := range list {
		why := cell(l.Error)
		if l.Forbidden {
			why = "you have no right to it"
		}
		w.printf("  %s (%s): left out: %s.\n", l.Kind, why, strings.Join(l.Findings, ", "))
	}
}

func (w *writer) driverTable(r *preflight.Report) {
	if len(r.Drivers)+len(r.Others) == 0 {
		return
	}
	w.printf("\n")
	table := printers.GetNewTabWriter(&w.Builder)
	t := visibly{table}
	_, _ = fmt.Fprintln(t, "DRIVER\tNODES\tVOLUMES\tATTACHED\tATTACHER\tHAWSER GIVES")
	for i := range r.Drivers {
		d := &r.Drivers[i]
		attacher, _, _ := strings.Cut(d.Attacher, " ") // the kind of what shows it
		switch {
		case !d.AttachRequired:
			attacher = "not needed"
		case attacher == "":
			attacher = "not seen"
		}
		_, _ = fmt.Fprintf(t, "%s\t%s/%s\t%s\t%s\t%s\t%s\n", d.Name, known(d.Nodes), known(r.Nodes),
			known(d.Volumes), known(d.Attached), attacher, d.Gives)
	}
	for _, s := range r.Others {
		gives := "nothing: no CSI driver; pods use them as before"
		if s.NeedsUpstream() {
			gives += ", but not in mode Replace"
		}
		_, _ = fmt.Fprintf(t, "(%s)\t\t%d\t\t\t%s\n", s.Name, s.Volumes, gives)
	}
	_ = table.Flush()
}

// known is a number; a dash where it was not read.
func known(n int) string {
	if n < 0 {
		return "-"
	}
	return fmt.Sprint(n)
}
