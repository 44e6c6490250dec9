/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package gitops

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/cli-utils/pkg/kstatus/status"
)

// recorded are the versions of an object that real programs wrote, the oldest first. Tests with HAWSER_TEST_RECORD=1
// write the records; see test/record.
func recorded(t *testing.T, path string) []*unstructured.Unstructured {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var versions []*unstructured.Unstructured
	for document := range strings.SplitSeq(strings.TrimPrefix(string(text), "---\n"), "\n---\n") {
		object, err := yaml.ToJSON([]byte(document))
		version := &unstructured.Unstructured{}
		if err == nil {
			err = json.Unmarshal(object, &version.Object) // integers stay integers
		}
		if err != nil {
			t.Fatalf("reading %s: %v", path, err)
		}
		version.Object["apiVersion"], version.Object["kind"] = "volumes.hawser.io/v1alpha1", "Kind"
		versions = append(versions, version)
	}
	return versions
}

// expected is what the object itself says: the verdicts of kstatus and of Argo CD.
func expected(version *unstructured.Unstructured) (flux status.Status, argo string) {
	observed, has, _ := unstructured.NestedInt64(version.Object, "status", "observedGeneration")
	conditions, _, _ := unstructured.NestedSlice(version.Object, "status", "conditions")
	is := func(name, value string) bool {
		for _, c := range conditions {
			if c, ok := c.(map[string]any); ok && c["type"] == name && c["status"] == value {
				return true
			}
		}
		return false
	}
	switch {
	case version.GetDeletionTimestamp() != nil:
		return status.TerminatingStatus, "Progressing"
	case has && observed != version.GetGeneration():
		return status.InProgressStatus, "Progressing"
	case is("Stalled", "True"):
		return status.FailedStatus, "Degraded"
	case is("Ready", "True"):
		return status.CurrentStatus, "Healthy"
	}
	return status.InProgressStatus, "Progressing"
}

// lives are the verdicts of kstatus in their order that each record must have at least.
var lives = map[string][]status.Status{
	"intent.yaml":         {status.InProgressStatus, status.CurrentStatus, status.TerminatingStatus},
	"intent-stalled.yaml": {status.InProgressStatus, status.FailedStatus, status.TerminatingStatus},
	"nodestate.yaml":      {status.InProgressStatus, status.CurrentStatus},
	"set.yaml":            {status.InProgressStatus, status.CurrentStatus, status.TerminatingStatus},
	"volumemanager.yaml": {status.InProgressStatus, status.CurrentStatus, status.FailedStatus, status.CurrentStatus,
		status.TerminatingStatus},
}

func TestToolsJudgeWhatRealProgramsWroteAsItIs(t *testing.T) {
	script, err := os.ReadFile(filepath.Join("..", "..", "config", "gitops", "argocd", "health.lua"))
	if err != nil {
		t.Fatal(err)
	}
	for name, life := range lives {
		var seen []string
		for i, version := range recorded(t, filepath.Join("testdata", name)) {
			what := fmt.Sprintf("version %d of %s", i, name)
			flux, argo := expected(version)
			got, err := status.Compute(version)
			if err != nil {
				t.Fatalf("%s: kstatus fails with %v", what, err)
			}
			if got.Status != flux {
				t.Errorf("%s is %s (%s) for kstatus, want %s", what, got.Status, got.Message, flux)
			}
			if verdict, message := health(t, string(script), version.Object); verdict != argo || message == "" {
				t.Errorf("%s is %s (%s) for Argo CD, want %s and a message", what, verdict, message, argo)
			}
			seen = append(seen, string(got.Status))
		}
		rest := seen
		for _, want := range life {
			for len(rest) > 0 && rest[0] != string(want) {
				rest = rest[1:]
			}
			if len(rest) == 0 {
				t.Errorf("%s goes through %s, want %v in this order", name, strings.Join(seen, ", "), life)
				break
			}
		}
	}
}
