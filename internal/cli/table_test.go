/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package cli

import (
	"bytes"
	"strings"
	"testing"

	"k8s.io/cli-runtime/pkg/genericiooptions"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/evidence"
	"github.com/hawser-io/hawser/internal/explain/facts"
	"github.com/hawser-io/hawser/internal/explain/tree"
	"github.com/hawser-io/hawser/internal/relocate"
	"github.com/hawser-io/hawser/internal/survey"
)

func TestAnErrorOfSeveralLinesStaysInItsPlace(t *testing.T) {
	const driverError = "exit status 32:\n\tmount: /a: wrong fs type\r\n  dmesg(1) has more"
	const want = "exit status 32: mount: /a: wrong fs type dmesg(1) has more"
	o := &options{}
	for name, write := range map[string]func(*bytes.Buffer){
		"plan drain": func(b *bytes.Buffer) {
			hangs := survey.Leaver{Fate: survey.Hangs, Volume: "handle-1", Why: driverError}
			o.writeDrainPlan(b, &survey.Drain{Node: "node-b", Volumes: []survey.Leaver{hangs}})
		},
		"plan fence": func(b *bytes.Buffer) {
			o.writeFenced(b, &survey.Fenced{Volume: "handle-1", Outlook: evidence.Outlook{Fate: evidence.Stays,
				Why: driverError}})
		},
		"plan move": func(b *bytes.Buffer) {
			o.writeChecks(b, "", []relocate.Check{{About: "volume", Text: driverError}})
		},
		"declare-released": func(b *bytes.Buffer) {
			state := &volumesv1alpha1.NodeVolumeState{}
			state.Status.Volumes = []volumesv1alpha1.NodeVolume{{AttachmentUID: "va-1",
				Error: &volumesv1alpha1.OperationError{Operation: "stage", Message: driverError}}}
			b.WriteString(strings.Join(findAttachment(&facts.Facts{}, state, "va-1"), "\n"))
		},
		"the progress of a move": func(b *bytes.Buffer) {
			m := &mover{options: &options{IOStreams: genericiooptions.IOStreams{ErrOut: b}}}
			m.progressOf(&movement{}, relocate.AwaitReady, driverError)
		},
		"tree": func(b *bytes.Buffer) {
			writeBranch(b, &tree.Branch{Object: "Node node-b", Children: []tree.Branch{
				{Object: "line", Text: driverError}}}, "", "")
		},
	} {
		var b bytes.Buffer
		write(&b)
		if lines := strings.Count(b.String(), "\n"); !strings.Contains(b.String(), want) || lines > 2 {
			t.Errorf("%s: %q in %d lines, want %q in one", name, b.String(), lines, want)
		}
	}
}

func TestAPlanOfSomethingElseFails(t *testing.T) {
	var out, errOut bytes.Buffer
	exit := Run(t.Context(), []string{"plan", "foo"}, genericiooptions.IOStreams{Out: &out, ErrOut: &errOut})
	if exit != Failed || !strings.Contains(errOut.String(), `"foo"`) || !strings.Contains(errOut.String(), "drain") {
		t.Errorf("plan foo: exit code %d, stderr %q, want %d, foo and the plans that there are", exit, errOut.String(),
			Failed)
	}
}

func TestALongMessageKeepsItsEnd(t *testing.T) {
	for name, tt := range map[string]struct{ message, want string }{
		"short":       {"pool is full", "pool is full"},
		"long":        {"resize volume pv-1 by resizer disk.example.com failed: the pool is full", "res...pool is full"},
		"of letters":  {"ééééééééééééééééééééé", "é...éééééé"},
		"by one byte": {"0123456789012345678", "012...789012345678"},
	} {
		if got := withoutMiddle(tt.message, 18); got != tt.want {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
}
