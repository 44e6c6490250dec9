/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package gitops

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// A move waits for ever if the tool waits for the new intent before it deletes the old one.
func TestTheSamplesDeleteWhatLeftGitBeforeTheyWait(t *testing.T) {
	application, flux := sample(t, "argocd", "application.yaml"), sample(t, "flux", "kustomization.yaml")
	prune, _, err := unstructured.NestedBool(application, "spec", "syncPolicy", "automated", "prune")
	if !prune || err != nil {
		t.Errorf("the Application has automated.prune %t (error %v), want true", prune, err)
	}
	options, _, err := unstructured.NestedStringSlice(application, "spec", "syncPolicy", "syncOptions")
	if err != nil || slices.Contains(options, "PruneLast=true") || !slices.Contains(options, "ServerSideApply=true") {
		t.Errorf("the Application has options %v (error %v), want ServerSideApply=true and no PruneLast=true", options, err)
	}
	for _, field := range []string{"prune", "wait"} {
		if is, _, err := unstructured.NestedBool(flux, "spec", field); !is || err != nil {
			t.Errorf("the Kustomization has %s %t (error %v), want true", field, is, err)
		}
	}
}

func sample(t *testing.T, path ...string) map[string]any {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(append([]string{"..", "..", "config", "gitops"}, path...)...))
	if err != nil {
		t.Fatal(err)
	}
	var object map[string]any
	if err := yaml.Unmarshal(text, &object); err != nil {
		t.Fatal(err)
	}
	return object
}
