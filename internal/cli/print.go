/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package cli

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/hawser-io/hawser/internal/explain"
	"github.com/hawser-io/hawser/internal/explain/catalog"
)

// document is the report in JSON and YAML.
type document struct {
	APIVersion string            `json:"apiVersion"`
	Kind       string            `json:"kind"`
	Reports    []*explain.Report `json:"reports"`
}

// whyResult is the result of why.
func (o *options) whyResult(reports []*explain.Report) *result {
	r := &result{document: document{apiVersion, "WhyReports", reports}, plain: true, text: func(w io.Writer) {
		for i, report := range reports {
			if i > 0 {
				_, _ = fmt.Fprint(w, "\n---\n\n")
			}
			_, _ = io.WriteString(w, text(report, o.colored(), o.wide()))
		}
	}}
	var same []explain.Report
	for _, report := range reports {
		for _, f := range report.Findings {
			r.names = append(r.names, f.Object)
		}
		if !report.Fine {
			r.findings++
		}
		untimed := *report
		untimed.Time = time.Time{}
		same = append(same, untimed)
	}
	r.same = same
	return r
}

// writer builds the text of a report.
type writer struct {
	strings.Builder
	colored bool
	now     time.Time
}

// text is the report as a person reads it: the cause first, then the chain, then what else was found. Wide has
// all about each finding.
func text(r *explain.Report, colored, wide bool) string {
	w := &writer{colored: colored, now: r.Time}
	w.printf("%s: %s\n", r.Subject, cell(r.Verdict))
	for i, f := range r.Findings {
		switch i {
		case 0:
			w.title("Cause")
		case 1:
			w.title("Also found")
		}
		w.finding(f, wide || i == 0)
	}
	w.title("Chain")
	for _, l := range r.Chain {
		w.link(l)
	}
	w.timeline(r.Timeline)
	if len(r.Notes) > 0 {
		w.title("Notes")
	}
	for _, n := range r.Notes {
		w.printf("  %s %s: %s\n", n.Code, n.Object, n.Says)
		w.line("", n.Detail)
	}
	return w.String()
}

// timeline writes when each state was reached, and how long after the first one. Whole seconds are all that pods have.
func (w *writer) timeline(moments []explain.Moment) {
	if len(moments) > 0 {
		w.title("Timeline")
	}
	for _, m := range moments {
		after := m.Time.Sub(moments[0].Time).Seconds()
		format := "  %s  %+6.0f s     %s: %s\n"
		if m.Time.Nanosecond() > 0 {
			format = "  %s  %+10.3f s %s: %s\n"
		}
		w.printf(format, m.Time.Format(time.TimeOnly), after, m.Object, m.What)
	}
}

// printf writes texts so that they are visible, and the name of an object in one line. It cannot fail: a Builder takes
// everything.
func (w *writer) printf(format string, args ...any) {
	for i, arg := range args {
		switch arg := arg.(type) {
		case string:
			args[i] = visible(arg)
		case fmt.Stringer:
			args[i] = cell(arg.String())
		}
	}
	_, _ = fmt.Fprintf(&w.Builder, format, args...)
}

func (w *writer) title(t string) { w.printf("\n%s\n", t) }

// marks are in front of links, with their colours.
var marks = map[explain.State]struct{ mark, color string }{
	explain.Good: {"ok     ", "32"}, explain.Waits: {"waits  ", "33"}, explain.Bad: {"fails  ", "31"},
	explain.Unknown: {"unknown", "35"},
}

func (w *writer) link(l explain.Link) {
	m := marks[l.State]
	since := ""
	if l.Since != nil && l.State != explain.Good {
		since = ", for " + w.age(*l.Since)
	}
	w.printf("  %s  %s%s: %s%s\n", w.paint(m.mark, m.color), strings.Repeat("  ", l.Depth), l.Object, cell(l.Text), since)
}

// finding writes one finding: the cause with all that helps, others in short.
func (w *writer) finding(f explain.Finding, whole bool) {
	color := "31"
	if f.Level == catalog.Waiting {
		color = "33"
	}
	w.printf("  %s %s\n", w.paint(f.Code+" "+f.Reason, color), f.Object)
	w.line("", f.Says)
	w.line("message", f.Detail)
	if f.Since != nil {
		w.line("since", fmt.Sprintf("%s (%s)", f.Since.Format(time.RFC3339), w.age(*f.Since)))
	}
	if whole {
		w.wayOut(f)
	}
}

// wayOut writes who acts, and how.
func (w *writer) wayOut(f explain.Finding) {
	w.line("acts", string(f.Acts))
	w.line("way out", f.Way)
	for i, command := range f.Run {
		name := "run"
		if i > 0 {
			name = ""
		}
		if remark := f.Remarks[command]; remark != "" {
			command = remark + ":\n" + command
		}
		w.line(name, command)
	}
	w.line("more", f.URL)
}

// line writes a value beside its name; nothing if it is empty.
func (w *writer) line(name, value string) {
	if value == "" {
		return
	}
	w.printf("    %-9s%s\n", name, strings.ReplaceAll(strings.TrimSpace(value), "\n", "\n             "))
}

func (w *writer) age(since time.Time) string { return duration.HumanDuration(w.now.Sub(since)) }

// painted is a text with the codes of its colour, which printf writes as it is.
type painted string

func (w *writer) paint(s, color string) painted {
	s = visible(s)
	if !w.colored {
		return painted(s)
	}
	return painted("\033[" + color + "m" + s + "\033[0m")
}

// visible is a text with every control character as its escape sequence in Go, but for the ends of lines and tabs.
// The names in pods and the messages of drivers may have such characters, and a terminal would obey them.
func visible(text string) string {
	controls := func(r rune) bool { return r != '\n' && r != '\t' && !strconv.IsGraphic(r) }
	text = strings.ToValidUTF8(text, string(utf8.RuneError))
	if strings.IndexFunc(text, controls) < 0 {
		return text
	}
	var b strings.Builder
	for _, r := range text {
		if controls(r) {
			b.WriteString(strings.Trim(strconv.QuoteRuneToASCII(r), "'"))
			continue
		}
		b.WriteRune(r)
	}
	return b.String()
}

// visibly writes every text so that it is visible. Each Write has whole texts.
type visibly struct{ io.Writer }

func (v visibly) Write(text []byte) (int, error) {
	if _, err := io.WriteString(v.Writer, visible(string(text))); err != nil {
		return 0, err
	}
	return len(text), nil
}
