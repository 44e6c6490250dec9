/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package advice

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/hawser-io/hawser/internal/cli"
	"github.com/hawser-io/hawser/internal/doctor"
	"github.com/hawser-io/hawser/internal/explain"
	"github.com/hawser-io/hawser/internal/explain/catalog"
	"github.com/hawser-io/hawser/internal/explain/facts"
	"github.com/hawser-io/hawser/internal/install"
	"github.com/hawser-io/hawser/internal/preflight"
	"github.com/hawser-io/hawser/test/apiserver"
	"github.com/hawser-io/hawser/test/environment"
	"github.com/hawser-io/hawser/test/system"
)

// situation is what the plugin is asked about, and what it then advises.
type situation struct {
	// code of the cause.
	code string
	// comes brings the situation about, and returns whom to ask about what.
	comes func(s *story) question
	// way is part of the advice, and act does what it means. Both are left out where the printed command is run.
	way string
	act func(s *story)
	// ends waits for what was waited for. Without it, the plugin finds the code no more.
	ends func(s *story)
}

// question is a command of the plugin. Of the doctor, object is the name of what it has to find something about. A
// command that is asked once cannot follow what changes, so it is run again.
type question struct {
	command           []string
	namespace, object string
	once              bool
}

func why(kind, name string) question {
	return question{command: []string{"why", kind, name}, namespace: namespace}
}

func examine(object string) question {
	return question{command: []string{"doctor", "--all"}, object: object}
}

// story is one situation that is carried out.
type story struct {
	t   *testing.T
	sys *system.System
	// name and namespace of the objects that the story creates.
	name, namespace string
	// intent and other that the story keeps for later, end ends a fault or a program.
	intent, other string
	end           func()
}

func play(t *testing.T, situations map[string]situation) {
	t.Helper()
	t.Parallel()
	for name, s := range situations {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s.play(newStory(t))
		})
	}
}

// newStory names the objects of a test after it.
func newStory(t *testing.T) *story {
	name := strings.ToLower(strings.NewReplacer("_", "-", "/", "-", "#", "", ",", "", "'", "", ".", "").Replace(
		t.Name()[strings.LastIndex(t.Name(), "/")+1:]))
	return &story{t: t, sys: sys, name: strings.Trim(name[:min(len(name), 40)], "-"), namespace: namespace, end: func() {}}
}

// play waits until the plugin names the cause first, does what it advises, and waits until that has helped.
func (s situation) play(story *story) {
	t := story.t
	t.Helper()
	begin := time.Now()
	log := func(what string) { t.Logf("%s %s after %.0f s", s.code, what, time.Since(begin).Seconds()) }
	t.Cleanup(func() { t.Logf("%s ended after %.0f s, failed: %t", s.code, time.Since(begin).Seconds(), t.Failed()) })
	q := s.comes(story)
	log("came")
	first := story.ask(q, "the cause "+s.code, func(r answer) bool { return r.cause(q, s.code) != nil })
	found := first.cause(q, s.code)
	log("was found")
	t.Logf("%v: %s %q\n  way: %s\n  run: %q", q.command, found.Code, found.Detail, found.Way, found.Run)
	switch {
	case s.act == nil:
		story.obey(found)
	case s.way == "" || !strings.Contains(found.Says+" "+found.Way, s.way):
		t.Errorf("the advice is %q %q, want %q in it, which the test does", found.Says, found.Way, s.way)
		fallthrough
	default:
		s.act(story)
	}
	if s.ends != nil {
		s.ends(story)
		return
	}
	check := first.checkWith(s.code)
	story.ask(q, "no "+s.code, func(r answer) bool { return !r.has(q, s.code) && r.passes(check) })
}

// arguments of the plugin.
func (s *story) arguments(q question) []string {
	own := []string{"--output=json", "--kubeconfig=" + s.sys.Kubeconfig(), "--namespace=" + q.namespace,
		"--timeout=" + waitTimeout.String()}
	if !q.once {
		own = append(own, "--watch")
	}
	if !slices.Contains(q.command, "preflight") {
		own = append(own, "--hawser-namespace="+install.Namespace())
	}
	return slices.Concat(q.command, own)
}

// answer is a report of why, of the doctor, or of preflight.
type answer struct {
	Reports     []explain.Report
	Findings    []doctor.Finding
	Checks      []preflight.Check
	InitialSpec map[string]any
}

// cause is what is found first, if it has the code, or a note that has it where nothing is a problem.
func (a answer) cause(q question, code string) *explain.Finding {
	for _, c := range a.Checks {
		if c.Finding != nil && c.Code == code {
			return c.Finding
		}
	}
	if q.object != "" {
		i := slices.IndexFunc(a.Findings, func(f doctor.Finding) bool { return f.Code == code && about(f, q.object) })
		if i < 0 {
			return nil
		}
		return &a.Findings[i].Finding
	}
	for _, r := range a.Reports {
		found := r.Findings
		switch {
		case r.Subject.Kind == facts.KindNode: // other stories break it, too
			found = withCode(found, code)
		case len(found) == 0:
			found = withCode(r.Notes, code)
		}
		if len(found) == 0 && levelOf(code) == catalog.Note {
			found = withCode(r.Notes, code)
		}
		if len(found) > 0 && found[0].Code == code {
			return &found[0]
		}
	}
	return nil
}

func withCode(found []explain.Finding, code string) []explain.Finding {
	return slices.DeleteFunc(slices.Clone(found), func(f explain.Finding) bool { return f.Code != code })
}

func levelOf(code string) catalog.Level {
	all := catalog.All()
	return all[slices.IndexFunc(all, func(e catalog.Entry) bool { return e.Code == code })].Level
}

func about(f doctor.Finding, object string) bool {
	for _, other := range f.Others {
		if other.Name == object {
			return true
		}
	}
	for _, waiter := range f.Waiters {
		if waiter.Name == object {
			return true
		}
	}
	return f.Object.Name == object
}

// has reports whether the code is found at all.
func (a answer) has(q question, code string) bool {
	if q.object != "" || len(a.Checks) > 0 {
		return a.cause(q, code) != nil
	}
	return slices.ContainsFunc(a.Reports, func(r explain.Report) bool {
		return slices.ContainsFunc(slices.Concat(r.Findings, r.Notes), func(f explain.Finding) bool { return f.Code == code })
	})
}

// checkWith is the name of the check of preflight that has the code; empty if none has it.
func (a answer) checkWith(code string) string {
	for _, c := range a.Checks {
		if c.Finding != nil && c.Code == code {
			return c.Name
		}
	}
	return ""
}

// passes reports whether a check of preflight is OK: one that is left out is not. It is true without a check.
func (a answer) passes(check string) bool {
	of := slices.DeleteFunc(slices.Clone(a.Checks), func(c preflight.Check) bool { return c.Name != check })
	return check == "" || len(of) == 1 && of[0].Status == preflight.OK
}

// repeated is how often a command that cannot follow what changes is run.
const repeated = time.Second

// ask reads the report until it is as wanted. No event signals when an API server has applied a policy.
func (s *story) ask(q question, want string, done func(answer) bool) answer {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), waitTimeout)
	defer cancel()
	var a answer
	var last json.RawMessage
	var ended error
	err := wait.PollUntilContextCancel(ctx, repeated, true, func(ctx context.Context) (bool, error) {
		var report json.RawMessage
		if a, report, ended = s.follow(ctx, q, done); report != nil {
			last = report
		}
		return ended == nil || !q.once, nil
	})
	if err := cmp.Or(ended, err); err != nil {
		s.t.Fatalf("kubectl hawser %v ended, want %s first: %v\nthe last report:\n%s", q.command, want, err, summary(last))
	}
	return a
}

// follow reads the reports of one command until one is as wanted, or the command ends.
func (s *story) follow(ctx context.Context, q question, done func(answer) bool) (a answer, last json.RawMessage,
	err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	in, out := io.Pipe()
	var problems bytes.Buffer
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		cli.Run(ctx, s.arguments(q), genericiooptions.IOStreams{In: strings.NewReader(""), Out: out, ErrOut: &problems})
		_ = out.Close() // never fails
	}()
	defer func() { cancel(); _ = in.Close(); <-ended }()
	decoder := json.NewDecoder(in)
	for {
		var raw json.RawMessage
		if err := decoder.Decode(&raw); err != nil {
			cancel()
			<-ended
			return a, last, fmt.Errorf("%w %s", err, problems.String())
		}
		last, a = raw, answer{}
		if err := json.Unmarshal(raw, &a); err != nil {
			return a, last, fmt.Errorf("reading the report: %w", err)
		}
		if done(a) {
			return a, last, nil
		}
	}
}

// summary has the findings of a report in short.
func summary(raw json.RawMessage) string {
	var a answer
	if json.Unmarshal(raw, &a) != nil {
		return string(raw)
	}
	var lines []string
	line := func(kind string, f explain.Finding) {
		lines = append(lines, kind+" "+f.Code+" "+f.Reason+" "+f.Object.String()+": "+f.Detail)
	}
	for _, r := range a.Reports {
		for _, f := range r.Findings {
			line("finding", f)
		}
		for _, f := range r.Notes {
			line("note", f)
		}
	}
	for _, c := range a.Checks {
		if c.Finding != nil {
			line("check", *c.Finding)
		}
	}
	for i := range a.Findings {
		line("finding", a.Findings[i].Finding)
	}
	return strings.Join(lines, "\n")
}

// changing are the verbs of commands that change something.
var changing = []string{"delete", "patch", "taint", "label", "uncordon", "annotate"}

// obey runs the printed command that changes something, exactly as it is printed, after one that keeps the data.
func (s *story) obey(found *explain.Finding) {
	s.t.Helper()
	for _, line := range found.Run {
		if !slices.Contains(changing, strings.Fields(line)[1]) {
			continue
		}
		s.bash(line)
		if !strings.Contains(line, "persistentVolumeReclaimPolicy") {
			return
		}
	}
	s.t.Fatalf("finding %s advises %q, want a command that changes something", found.Code, found.Run)
}

// bash runs a command as an administrator would.
func (s *story) bash(command string) {
	s.t.Helper()
	cmd := exec.CommandContext(s.limited(), "bash", "-c", command)
	root := apiserver.Root()
	cmd.Env = environment.With("KUBECONFIG="+s.sys.Kubeconfig(),
		"PATH="+filepath.Join(root, ".cache", "bin")+":"+filepath.Join(root, "bin")+":/usr/sbin:/usr/bin:/sbin:/bin")
	if out, err := cmd.CombinedOutput(); err != nil {
		s.t.Fatalf("%s: %v: %s", command, err, out)
	}
}

// limited is a context for one wait. It outlives the test, whose clean-up waits too.
func (s *story) limited() context.Context {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.t.Context()), waitTimeout)
	s.t.Cleanup(cancel)
	return ctx
}
