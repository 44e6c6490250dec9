/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package fleet

import (
	"fmt"
	"runtime"
	"time"
)

// row of the report. Wanted is empty where there is no goal.
type row struct{ what, wanted, measured string }

// add a row without a goal.
func (b *bench) add(what, format string, args ...any) { b.goal(what, "", fmt.Sprintf(format, args...)) }

// goal adds a row with one.
func (b *bench) goal(what, wanted, measured string) {
	b.rows = append(b.rows, row{what, wanted, measured})
	b.say("%s: %s", what, measured)
}

// report prints the rows in the format of docs/internals/benchmarks.md.
func (b *bench) report() {
	_, _ = fmt.Fprintf(b.Out, "\n%d volumes on %d nodes, %d CPUs, fsync %t\n\n", b.volumes, b.nodes, runtime.NumCPU(),
		b.fsync)
	_, _ = fmt.Fprint(b.Out, "| | goal | measured |\n|---|---|---|\n")
	for _, r := range b.rows {
		_, _ = fmt.Fprintf(b.Out, "| %s | %s | %s |\n", r.what, r.wanted, r.measured)
	}
}

func show(d time.Duration) string {
	switch {
	case d >= 10*time.Second:
		return fmt.Sprintf("%.1f s", d.Seconds())
	case d >= 100*time.Millisecond:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	}
	return fmt.Sprintf("%.1f ms", float64(d)/float64(time.Millisecond))
}

func mebibytes(n int64) string { return fmt.Sprintf("%.0f MiB", float64(n)/(1<<20)) }

func ratio(a, b time.Duration) float64 { return float64(a) / float64(max(b, 1)) }
