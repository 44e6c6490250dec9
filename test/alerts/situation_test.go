/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package alerts

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"k8s.io/cli-runtime/pkg/genericiooptions"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/cli"
	"github.com/hawser-io/hawser/internal/explain"
	"github.com/hawser-io/hawser/internal/install"
	"github.com/hawser-io/hawser/test/alerts/situations"
	"github.com/hawser-io/hawser/test/system"
)

// checkSituation compares what a user sees while the alerts of a fault fire with the row of docs/troubleshoot.md.
func (s *suite) checkSituation(ctx context.Context, t *testing.T, f fault) {
	i := slices.IndexFunc(s.situations, func(row situations.Situation) bool { return row.Name == f.situation })
	if i < 0 {
		t.Errorf("%s: docs/troubleshoot.md has no situation %q", f.name, f.situation)
		return
	}
	row := s.situations[i]
	if _, err := s.AwaitIntent(ctx, namespace, f.intent,
		system.HasReason(volumesv1alpha1.ConditionReady, row.Reason)); err != nil {
		t.Errorf("situation %s: %v", row.Name, err)
		return
	}
	if ready, reason, err := s.listed(ctx, f.intent); err != nil || ready != row.Ready || reason != row.Reason {
		t.Errorf("situation %s: kubectl get vai %s shows %s %s (error: %v), want %s %s", row.Name, f.intent, ready, reason,
			err, row.Ready, row.Reason)
	}
	s.checkWhy(ctx, t, row, f.intent)
	for _, alert := range row.Alerts {
		if !s.receiver.fires(alert) {
			t.Errorf("situation %s: alert %s does not fire, want it while the others are seen", row.Name, alert)
		}
	}
	s.shown.Store(row.Name, true)
	say("situation %s: %s fires, the intent is %s %s", row.Name, strings.Join(row.Alerts, ", "), row.Ready, row.Reason)
}

// listed is what kubectl get vai shows of an intent: its columns READY and REASON, before AGE.
func (s *suite) listed(ctx context.Context, intent string) (ready, reason string, err error) {
	out, err := s.Kubectl(ctx, "get", "vai", intent, "-n", namespace, "--no-headers")
	if err != nil {
		return "", "", err
	}
	columns := strings.Fields(out)
	if len(columns) < 3 {
		return "", "", fmt.Errorf("reading the columns of %q", out)
	}
	return columns[len(columns)-3], columns[len(columns)-2], nil
}

// checkWhy compares the first finding of kubectl hawser why, which is the cause, and its exit code.
func (s *suite) checkWhy(ctx context.Context, t *testing.T, row situations.Situation, intent string) {
	var stdout, stderr bytes.Buffer
	code := cli.Run(ctx, []string{"why", "intent", intent, "-n", namespace, "-o", "json", "--kubeconfig", s.Kubeconfig(),
		"--hawser-namespace", install.Namespace()},
		genericiooptions.IOStreams{In: strings.NewReader(""), Out: &stdout, ErrOut: &stderr})
	var document struct {
		Reports []explain.Report `json:"reports"`
	}
	if err := json.Unmarshal(stdout.Bytes(), &document); err != nil || len(document.Reports) != 1 {
		t.Errorf("situation %s: why intent %s: %v, exit code %d: %s%s", row.Name, intent, err, code, &stdout, &stderr)
		return
	}
	findings := document.Reports[0].Findings
	if code != cli.Findings || len(findings) == 0 || findings[0].Code != row.Code {
		t.Errorf("situation %s: why intent %s ends with %d and has as its cause %+v, want %d and %s %s", row.Name, intent,
			code, findings, cli.Findings, row.Code, row.Finding)
	}
}
