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
	"math"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hawser-io/hawser/internal/doctor"
	"github.com/hawser-io/hawser/internal/doctor/read"
	"github.com/hawser-io/hawser/internal/explain"
	"github.com/hawser-io/hawser/internal/explain/facts"
	"github.com/hawser-io/hawser/internal/explain/live"
	"github.com/hawser-io/hawser/internal/status"
)

// mostFindings is how many findings are shown without --all.
const mostFindings = 10

// memory is where the garbage collector begins to save. What is read of 10,000 volumes is half of it.
const memory = 170 << 20

type examine struct {
	*options
	everywhere, all bool
}

func newDoctor(o *options) *cobra.Command {
	e := &examine{options: o}
	cmd := &cobra.Command{
		Use: "doctor", Short: "Find what is wrong with the volumes of the cluster, the worst first", Args: cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		Long: "Find what is wrong with the volumes of the cluster, the worst first: attachments, claims, drivers, nodes,\n" +
			"and pods that wait, with each cause once. It works in a cluster without Hawser too. It only reads, once.",
		Example: "  kubectl hawser doctor\n" +
			"  kubectl hawser doctor -n shop\n" +
			"  kubectl hawser doctor --all -o wide\n" +
			"  kubectl hawser doctor -o json | jq -r '.findings[].code'",
		RunE: o.command(e.run),
	}
	o.watchable(cmd)
	cmd.Flags().BoolVarP(&e.everywhere, "all-namespaces", "A", false,
		"examine all namespaces, which it does unless --namespace is given")
	cmd.Flags().BoolVar(&e.all, "all", false, fmt.Sprintf("show all findings, and not only the worst %d", mostFindings))
	return cmd
}

// doctorDocument is the report in JSON and YAML.
type doctorDocument struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	*doctor.Report
}

func (e *examine) run(ctx context.Context, g *facts.Gatherer, _ []string) (*result, error) {
	namespace := *e.flags.Namespace
	if e.everywhere {
		namespace = ""
	}
	if l, ok := g.Reader.(*live.Reader); ok {
		l.Trim = func(o client.Object) { read.Trim(o) }
	}
	if debug.SetMemoryLimit(-1) == math.MaxInt64 { // GOMEMLIMIT is not set
		debug.SetMemoryLimit(memory)
	}
	if g.Progress != nil {
		g.Progress("the cluster")
	}
	if err := g.FindSystem(ctx); err != nil {
		return nil, err
	}
	c, err := read.Cluster(ctx, g.Reader, namespace, g.System)
	if c == nil {
		return nil, err
	}
	if unreadable := c.Unreadable(); unreadable != nil {
		return nil, errors.Join(err, unreadable)
	}
	report := doctor.Examine(c, g.Now())
	return e.result(report), err // what was read before the time was over is a report too
}

func (e *examine) result(report *doctor.Report) *result {
	untimed := *report
	untimed.Time = time.Time{}
	var names []facts.Ref
	for i := range report.Findings {
		names = append(names, report.Findings[i].Object)
	}
	return &result{document: doctorDocument{apiVersion, "DoctorReport", report}, plain: true, same: untimed, names: names,
		findings: len(report.Findings), text: func(w io.Writer) {
			shown := report.Findings
			if !e.all {
				shown = shown[:min(len(shown), mostFindings)]
			}
			_, _ = io.WriteString(w, doctorText(report, shown, e.colored(), e.wide()))
		}}
}

// colors of severities.
var colors = map[doctor.Severity]string{doctor.Danger: "35", doctor.Outage: "31", doctor.Risk: "33",
	doctor.Notice: "36"}

// doctorText has three lines for each finding: what has it, what it is, and who acts with one command. Wide has all
// about each.
func doctorText(r *doctor.Report, shown []doctor.Finding, colored, wide bool) string {
	w := &writer{colored: colored, now: r.Time}
	where := "the cluster"
	if r.Namespace != "" {
		where = "namespace " + r.Namespace
	}
	switch len(r.Findings) {
	case 0:
		w.printf("Nothing was found in %s.\n", where)
	case 1:
		w.printf("One finding in %s.\n\n", where)
	default:
		w.printf("%d findings in %s, the worst first.\n\n", len(r.Findings), where)
	}
	for i := range shown {
		if wide {
			w.wholeFinding(&shown[i])
			continue
		}
		w.shortFinding(&shown[i])
	}
	if more := len(r.Findings) - len(shown); more > 0 {
		w.printf("\n%d more; --all shows them, and -o wide has all about each.\n", more)
	}
	if r.New > 0 {
		w.printf("\nNot examined yet, because they wait for less than two minutes: %d pods and intents. kubectl hawser why "+
			"explains each.\n", r.New)
	}
	w.leftOut(r.LeftOut)
	return w.String()
}

// widest is how long the line about what was found is, at most.
const widest = 180

// shortFinding writes a finding in three lines.
func (w *writer) shortFinding(f *doctor.Finding) {
	age := "-"
	if f.Since != nil {
		age = w.age(*f.Since)
	}
	severity := w.paint(fmt.Sprintf("%-6s", f.Severity), colors[f.Severity])
	w.printf("%s  %-6s %s  %s", severity, age, f.Code, objectOf(f, shortened(f.Object)))
	switch {
	case f.Waiting == 1 && f.Object == f.Waiters[0]:
		w.printf(" waits")
	case f.Waiting == f.Count && f.Object == f.Waiters[0]:
		w.printf(" wait")
	case f.Waiting > 0:
		w.printf("; %s", waiting(f))
	}
	w.printf("\n")
	w.what(&f.Finding, widest)
	act, acts := slices.Concat(f.Run, []string{f.Way})[0], string(f.Acts)
	if remark := f.Remarks[act]; remark != "" {
		acts += ", " + remark
	}
	w.printf("%s%s: %s\n", below, acts, act)
}

// below indents what is below the first line of a finding.
const below = "               "

// rpcError is the part of an error of a driver that is left out where there is little room.
var rpcError = regexp.MustCompile(`rpc error: code = (\w+) desc = `)

// what writes in one line what was found, with at most so many characters.
func (w *writer) what(f *explain.Finding, most int) {
	says, _, _ := strings.Cut(f.Says, ". ")
	says = cell(strings.TrimSuffix(says, "."))
	if f.Detail != "" {
		detail := rpcError.ReplaceAllString(cell(explain.WithoutTries(f.Detail)), "$1: ") // the age is there already
		says += ": " + withoutMiddle(detail, most-len(says)-len(": "))
	}
	w.printf("%s%s\n", below, status.Shorten(says, most))
}

// withoutMiddle leaves out the middle of a message that is longer than so many bytes: what a driver answers is at the
// end of what its callers add to it.
func withoutMiddle(message string, longest int) string {
	const dots = "..."
	keep := longest - len(dots)
	if len(message) <= longest || keep <= 0 {
		return message
	}
	begin := keep / 4
	return strings.ToValidUTF8(message[:begin], "") + dots + strings.ToValidUTF8(message[len(message)-(keep-begin):], "")
}

// shortened is an object without the end of a name that is a hash. The commands have all of it.
func shortened(ref facts.Ref) facts.Ref {
	const hash, shown = 64, 12
	if name, ok := strings.CutPrefix(ref.Name, "csi-"); ok && len(name) == hash {
		ref.Name = "csi-" + name[:shown] + "..."
	}
	return ref
}

// objectOf names the object, the claim of its volume, and how many more have the finding.
func objectOf(f *doctor.Finding, object facts.Ref) string {
	name := withClaim(object, f.Claim)
	if f.Count > 1 {
		name += fmt.Sprintf(" and %d more", f.Count-1)
	}
	return name
}

// withClaim names an object, and the claim of its volume.
func withClaim(object facts.Ref, claim *facts.Ref) string {
	if claim == nil || *claim == object {
		return cell(object.String())
	}
	return cell(fmt.Sprintf("%s (claim %s/%s)", object, claim.Namespace, claim.Name))
}

// waiting counts what waits, and names the first.
func waiting(f *doctor.Finding) string {
	first := f.Waiters[0].String()
	if f.Waiting == 1 {
		return first + " waits"
	}
	return fmt.Sprintf("%s and %d more wait", first, f.Waiting-1)
}

// wholeFinding writes all about a finding.
func (w *writer) wholeFinding(f *doctor.Finding) {
	w.printf("  %s %s\n", w.paint(fmt.Sprintf("%s %s %s", f.Severity, f.Code, f.Reason), colors[f.Severity]),
		objectOf(f, f.Object))
	w.line("", f.Says)
	w.line("message", f.Detail)
	if f.Since != nil {
		w.line("since", fmt.Sprintf("%s (%s)", f.Since.Format(time.RFC3339), w.age(*f.Since)))
	}
	w.line("also", lines(f.Others, func(o doctor.Other) string { return withClaim(o.Ref, o.Claim) }))
	w.line("waiting", lines(f.Waiters, facts.Ref.String))
	w.wayOut(f.Finding)
}

// lines has one line for each element.
func lines[T any](list []T, text func(T) string) string {
	all := make([]string, 0, len(list))
	for _, element := range list {
		all = append(all, text(element))
	}
	return strings.Join(all, "\n")
}

// leftOut names what could not be read.
func (w *writer) leftOut(list []doctor.LeftOut) {
	if len(list) > 0 {
		w.printf("\nNot examined:\n")
	}
	for _, l := range list {
		about := strings.Join(l.Findings, ", ")
		if l.Forbidden {
			w.printf("  You may not list %s: findings are left out about %s.\n", l.Kind, about)
			continue
		}
		w.printf("  %s (%s): findings are left out about %s.\n", l.Kind, cell(l.Error), about)
	}
}
