/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package cli

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hawser-io/hawser/internal/doctor"
	"github.com/hawser-io/hawser/internal/explain"
	"github.com/hawser-io/hawser/internal/explain/facts"
	"github.com/hawser-io/hawser/test/apiserver"
)

// hostile is what the API server takes as the claim of a pod: any text that is not empty.
const hostile = "x;reboot\x1b]0;title\x07\x1b[2J\r\n\u009b31m"

// obeyed reports whether a text has what a terminal obeys.
func obeyed(text string) bool {
	return strings.ContainsFunc(text, func(r rune) bool {
		return r != '\n' && r != '\t' && (r < ' ' || r == 0x7f || r >= 0x80 && r <= 0x9f)
	})
}

// claimant adds a pod whose claim has the hostile name.
func claimant(t *testing.T, c client.Client, namespace string) {
	t.Helper()
	source := corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: hostile}}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "web"}, Spec: corev1.PodSpec{
		Containers: []corev1.Container{{Name: "web", Image: "web"}},
		Volumes:    []corev1.Volume{{Name: "data", VolumeSource: source}}}}
	if err := c.Create(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
}

func TestATerminalDoesNotObeyTheNameOfAClaim(t *testing.T) {
	config, c := apiserver.Borrow(t)
	claimant(t, c, "default")
	for _, command := range []string{"why pod web -n default", "why pod web -n default -o wide",
		"tree pod web -n default", "history pod web -n default"} {
		stdout, stderr, _ := run(t, config, strings.Fields(command)...)
		if obeyed(stdout) || obeyed(stderr) || stdout == "" {
			t.Errorf("%s: stdout %q, stderr %q; want texts without control characters", command, stdout, stderr)
		}
	}
	stdout, stderr, exit := run(t, config, "why", "pod", "web", "-n", "default", "-o", "json")
	var report struct{ Reports []explain.Report }
	if err := json.Unmarshal([]byte(stdout), &report); err != nil || exit != Findings || len(report.Reports) != 1 {
		t.Fatalf("exit code %d, error %v, stderr %q; want %d and one report", exit, err, stderr, Findings)
	}
	claim := facts.Ref{Kind: facts.KindClaim, Namespace: "default", Name: hostile}
	findings := report.Reports[0].Findings
	if !slices.ContainsFunc(findings, func(f explain.Finding) bool { return f.Object == claim }) {
		t.Errorf("findings %+v, want one about the claim under its own name", findings)
	}
	for _, found := range findings {
		if strings.Contains(strings.Join(found.Run, " "), ";") {
			t.Errorf("%s advises %q, which a shell takes for two commands", found.Code, found.Run)
		}
	}
}

func TestATerminalDoesNotObeyWhatDoctorFound(t *testing.T) {
	claim := facts.Ref{Kind: facts.KindClaim, Namespace: "shop", Name: hostile}
	report := &doctor.Report{Findings: []doctor.Finding{{Severity: doctor.Outage, Count: 1, Claim: &claim,
		Others: []doctor.Other{{Ref: claim}},
		Finding: explain.Finding{Code: "HWS101", Says: "It is " + hostile, Detail: "rpc error: " + hostile, Way: "none",
			Object: facts.Ref{Kind: facts.KindPod, Namespace: "shop", Name: "web"}}}}}
	for _, wide := range []bool{false, true} {
		if got := doctorText(report, report.Findings, false, wide); obeyed(got) ||
			!strings.Contains(got, `x;reboot\x1b]0;title\a\x1b[2J`) {
			t.Errorf("wide %t: %q, want the name of the claim without control characters", wide, got)
		}
	}
	if got := doctorText(report, report.Findings, true, false); strings.Count(got, "\x1b") != 2 {
		t.Errorf("with colours: %q, want those of the severity alone", got)
	}
}

func TestTheProgressIsOneLine(t *testing.T) {
	claim := facts.Ref{Kind: facts.KindClaim, Namespace: "shop", Name: hostile}
	if got := progressLine(claim.String()); obeyed(strings.TrimPrefix(got, "\r\033[K")) || strings.Contains(got, "\n") {
		t.Errorf("%q, want one line without control characters of the name", got)
	}
}

func TestATextIsVisible(t *testing.T) {
	for text, want := range map[string]string{
		"├─ Pod é 日本\t\n":   "├─ Pod é 日本\t\n",
		"a\x1b[31mb\r\n":    `a\x1b[31mb\r` + "\n",
		"\u009b31m\u202eab": `\u009b31m\u202eab`,
		"\x9b31m\v\f\x00":   "\ufffd31m" + `\v\f\x00`,
		"it's \x07":         `it's \a`,
	} {
		if got := visible(text); got != want {
			t.Errorf("%q is visible as %q, want %q", text, got, want)
		}
	}
}
