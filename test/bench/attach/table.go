/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package attach

import (
	"fmt"
	"io"
	"strings"
)

// print the report in the format of docs/internals/benchmarks.md.
func (r *Report) print(out io.Writer) {
	p := printer{out}
	p.line("\n%d volumes on %d nodes, %d CPUs, Linux %s; finalizer of the stub attacher: %t", r.Volumes, r.Nodes, r.CPUs,
		r.Kernel, r.AttacherFinalizer)
	p.row("the API server alone, 32 writers", "creates/s", "status patches/s", "deletes/s")
	p.rule(4)
	for _, kind := range []struct {
		name string
		raw  [3]float64
	}{
		{"VolumeAttachment",
			[3]float64{r.Raw.VolumeAttachments.Creates, r.Raw.VolumeAttachments.StatusPatches, r.Raw.VolumeAttachments.Deletes}},
		{"NodeVolumeState",
			[3]float64{r.Raw.NodeVolumeStates.Creates, r.Raw.NodeVolumeStates.StatusPatches, r.Raw.NodeVolumeStates.Deletes}},
	} {
		p.row(kind.name, whole(kind.raw[0]), whole(kind.raw[1]), whole(kind.raw[2]))
	}
	for _, way := range []struct {
		name  string
		of    func(Turn) Phase
		rates func(Turn) []float64
	}{
		{"attach", attachOf, func(t Turn) []float64 { return t.AttachRates }},
		{"detach", detachOf, func(t Turn) []float64 { return t.DetachRates }},
	} {
		p.line("")
		p.row(way.name, "volumes/s", "of", "p50", "p90", "p99", "writes each", "reads each", "Events each", "left behind")
		p.rule(10)
		for _, turn := range r.Turns {
			f := way.of(turn)
			p.row(turn.Name, whole(f.PerSecond), wholes(way.rates(turn)), show(f.Latency.P50), show(f.Latency.P90),
				show(f.Latency.P99),
				fmt.Sprintf("%.2f", f.WritesPerVolume), fmt.Sprintf("%.2f", f.ReadsPerVolume),
				fmt.Sprintf("%.2f", f.EventsPerVolume), fmt.Sprint(f.LeftBehind))
		}
	}
	r.printAlone(p)
	r.printProcesses(p)
	r.printGoals(p)
	r.printRequests(p)
}

func (r *Report) printAlone(p printer) {
	p.line("")
	p.row("one at a time", "next to", "attach p50", "p90", "detach p50", "p90", "contender's CPU", "API server's CPU")
	p.rule(8)
	for _, turn := range r.Turns {
		for _, point := range turn.OneByOne {
			p.row(turn.Name, fmt.Sprint(point.Existing), show(point.Attach.P50), show(point.Attach.P90), show(point.Detach.P50),
				show(point.Detach.P90),
				fmt.Sprintf("%.1f ms", milliseconds(point.CPU.Contender)),
				fmt.Sprintf("%.1f ms", milliseconds(point.CPU.APIServer)))
		}
	}
}

func (r *Report) printProcesses(p printer) {
	p.line("")
	p.row("process", "peak memory", "idle requests a minute", "CPU of attach", "CPU of detach")
	p.rule(5)
	for _, turn := range r.Turns {
		memory := "-"
		if turn.Memory.Peak > 0 {
			memory = fmt.Sprintf("%.0f MiB", float64(turn.Memory.Peak)/(1<<20))
		}
		var idle []string
		for _, c := range turn.Idle {
			idle = append(idle, fmt.Sprintf("%.0f %s %s", c.Count, c.Verb, c.Resource))
		}
		p.row(turn.Name, memory, strings.Join(append(idle, "")[:max(1, len(idle))], ", "),
			fmt.Sprintf("%.1f s", turn.Attach.CPU.Contender.Seconds()),
			fmt.Sprintf("%.1f s", turn.Detach.CPU.Contender.Seconds()))
	}
}

// printRequests lists the requests of each contender for each volume.
func (r *Report) printRequests(p printer) {
	for _, turn := range r.Turns {
		for _, way := range []struct {
			name  string
			phase Phase
		}{{"attach", turn.Attach}, {"detach", turn.Detach}} {
			p.line("\nrequests for each volume: %s, %s", turn.Name, way.name)
			for _, c := range way.phase.Requests {
				failed := ""
				if c.Failed {
					failed = "  (refused)"
				}
				p.line("  %6.2f  %-7s %s%s", c.Count, c.Verb, c.Resource, failed)
			}
		}
	}
}

// printer of lines. It ignores errors, because the file contains the report too.
type printer struct{ out io.Writer }

func (p printer) line(format string, args ...any) { _, _ = fmt.Fprintf(p.out, format+"\n", args...) }

func (p printer) row(cells ...string) { p.line("| %s |", strings.Join(cells, " | ")) }

func (p printer) rule(columns int) { p.line("|%s", strings.Repeat("---|", columns)) }

func whole(f float64) string { return fmt.Sprintf("%.0f", f) }

// wholes are numbers in the order of measurement.
func wholes(numbers []float64) string {
	var all []string
	for _, n := range numbers {
		all = append(all, whole(n))
	}
	return strings.Join(all, ", ")
}
