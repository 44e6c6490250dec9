/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package verdict

import (
	"context"
	"encoding/json"
	"errors"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/hawser-io/hawser/internal/doctor"
	"github.com/hawser-io/hawser/internal/explain"
	"github.com/hawser-io/hawser/internal/explain/facts"
	"github.com/hawser-io/hawser/test/apiserver"
	"github.com/hawser-io/hawser/test/environment"
)

// verdict is what a report has to find.
type verdict struct {
	// why is the code of the cause, doctor that of the doctor's finding.
	why, doctor string
	// also are the codes that may be found beside the cause.
	also []string
}

// stuck is a subject that waits, and what is to be found about it.
type stuck struct {
	kind, name string
	admin      verdict
	// reader may read the namespace only. Without it, that user finds the same.
	reader verdict
	// later is the code of the cause when the doctor has listed the subject, if it is another one then.
	later string
}

// kinds are the names of the subjects in reports.
var kinds = map[string]string{"pod": facts.KindPod, "pvc": facts.KindClaim}

func (s stuck) ref() facts.Ref {
	return facts.Ref{Kind: kinds[s.kind], Namespace: namespace, Name: s.name}
}

// explained compares all verdicts, and returns the cause that the administrator reads.
func (s stuck) explained(t *testing.T) explain.Finding {
	t.Helper()
	if s.reader.why == "" {
		s.reader = s.admin
	}
	cause := s.why(t, s.admin)
	forReader := s.why(t, s.reader, "--as="+reader)
	t.Logf("why %s %s: %s %q\n  way: %s\n  run: %v\n  reader: %s %q, acts: %s", s.kind, s.name, cause.Code, cause.Detail,
		cause.Way, cause.Run, forReader.Code, forReader.Detail, forReader.Acts)
	s.examined(t, s.admin, "-A")
	s.examined(t, s.reader, "-n="+namespace, "--as="+reader)
	s.leftOut(t)
	if s.later != "" {
		s.admin.why, s.admin.also = s.later, append(s.admin.also, s.admin.why)
	}
	again := s.why(t, s.admin) // minutes later
	return again
}

// why waits until the cause is the one that is wanted. Nothing that is found beside it may name another culprit.
func (s stuck) why(t *testing.T, want verdict, user ...string) explain.Finding {
	t.Helper()
	var last *explain.Report
	poll(t, func() bool {
		last = s.report(t, user...)
		return len(last.Findings) > 0 && last.Findings[0].Code == want.why
	}, func() any { return last })
	for _, f := range last.Findings[1:] {
		if !slices.Contains(append(want.also, want.why), f.Code) {
			t.Errorf("%s is found beside %s of %s: %s; want only %v", f.Code, want.why, s.name, f.Detail, want.also)
		}
	}
	return last.Findings[0]
}

func (s stuck) report(t *testing.T, user ...string) *explain.Report {
	t.Helper()
	var answer struct{ Reports []*explain.Report }
	plugin(t, &answer, append([]string{"why", s.kind, s.name, "-n=" + namespace}, user...)...)
	return answer.Reports[0]
}

// examined waits until the doctor lists the subject, under the code that is wanted and no other.
func (s stuck) examined(t *testing.T, want verdict, user ...string) {
	t.Helper()
	var about []string
	var last doctor.Report
	poll(t, func() bool {
		last, about = doctor.Report{}, nil
		plugin(t, &last, append([]string{"doctor", "--all"}, user...)...)
		for _, f := range last.Findings {
			if slices.ContainsFunc(f.Others, func(o doctor.Other) bool { return o.Ref == s.ref() }) ||
				slices.Contains(f.Waiters, s.ref()) || f.Object == s.ref() {
				about = append(about, f.Code)
			}
		}
		return len(about) > 0
	}, func() any { return last })
	if !slices.Equal(about, []string{want.doctor}) {
		t.Errorf("the doctor finds %v about %s, want %s alone", about, s.name, want.doctor)
	}
}

// leftOut checks that both commands name what their reader may not read.
func (s stuck) leftOut(t *testing.T) {
	t.Helper()
	notes := s.report(t, "--as="+reader).Notes
	if !slices.ContainsFunc(notes, func(f explain.Finding) bool { return f.Code == "HWS802" }) {
		t.Errorf("the report about %s does not name what a reader of its namespace may not read", s.name)
	}
	var found doctor.Report
	plugin(t, &found, "doctor", "-n="+namespace, "--as="+reader)
	var kinds []string
	for _, l := range found.LeftOut {
		kinds = append(kinds, l.Kind)
	}
	for _, kind := range []string{facts.KindNode, facts.KindVolume, facts.KindAttachment, facts.KindClass} {
		if !slices.Contains(kinds, kind) {
			t.Errorf("the doctor leaves out %v, want also %s", kinds, kind)
		}
	}
}

// fine waits until nothing is found about the subject any more.
func (s stuck) fine(t *testing.T) {
	t.Helper()
	var last *explain.Report
	poll(t, func() bool { last = s.report(t); return last.Fine }, func() any { return last })
}

// poll asks again and again, because time alone changes a verdict.
func poll(t *testing.T, done func() bool, last func() any) {
	t.Helper()
	err := wait.PollUntilContextTimeout(t.Context(), 2*time.Second, waitTimeout, true,
		func(context.Context) (bool, error) { return done(), nil })
	if err != nil {
		text, _ := json.MarshalIndent(last(), "", "  ")
		t.Fatalf("%v; the last report:\n%s", err, text)
	}
}

// plugin runs the plugin and reads its report.
func plugin(t *testing.T, into any, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), filepath.Join(apiserver.Root(), "bin", "kubectl-hawser"),
		append(args, "-o=json")...)
	cmd.Env = environment.With("KUBECONFIG=" + sys.Kubeconfig())
	out, err := cmd.Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() == 1 {
		err = nil // there are findings
	}
	if err == nil {
		err = json.Unmarshal(out, into)
	}
	if err != nil {
		t.Fatalf("kubectl hawser %v: %v: %s", args, err, out)
	}
}

// obey runs the only command of a finding that begins so, exactly as it is printed.
func obey(t *testing.T, finding explain.Finding, prefix string) {
	t.Helper()
	i := slices.IndexFunc(finding.Run, func(line string) bool { return strings.HasPrefix(line, prefix) })
	if i < 0 {
		t.Fatalf("finding %s advises %q, want a command that begins with %q", finding.Code, finding.Run, prefix)
	}
	cmd := exec.CommandContext(t.Context(), "bash", "-c", finding.Run[i])
	root := apiserver.Root()
	cmd.Env = environment.With("KUBECONFIG="+sys.Kubeconfig(),
		"PATH="+filepath.Join(root, ".cache", "bin")+":"+filepath.Join(root, "bin")+":/usr/bin:/bin")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v: %s", finding.Run[i], err, out)
	}
}
