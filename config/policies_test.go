/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package config_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// A policy that is ignored when its expression fails, or that only warns, protects nothing.
func TestEveryAdmissionPolicyRefusesWhatItCannotJudge(t *testing.T) {
	checked := map[string]int{}
	err := filepath.WalkDir(".", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".yaml" {
			return err
		}
		content, err := os.ReadFile(path)
		if err != nil || !strings.Contains(string(content), "AdmissionPolicy") {
			return err
		}
		for _, object := range parsed(t, string(content)) {
			if object.GetAPIVersion() != "admissionregistration.k8s.io/v1" {
				continue
			}
			checked[object.GetKind()]++
			checkPolicy(t, path, object)
		}
		return nil
	})
	expectAllowed(t, err)
	for _, kind := range []string{"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding",
		"MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding"} {
		if checked[kind] == 0 {
			t.Errorf("no %s was checked, want all", kind)
		}
	}
}

func checkPolicy(t *testing.T, path string, object *unstructured.Unstructured) {
	t.Helper()
	switch object.GetKind() {
	case "ValidatingAdmissionPolicy", "MutatingAdmissionPolicy":
		if policy, _, err := unstructured.NestedString(object.Object, "spec", "failurePolicy"); policy != "Fail" {
			t.Errorf("%s: failurePolicy of %s is %q, error %v; want Fail", path, object.GetName(), policy, err)
		}
	case "ValidatingAdmissionPolicyBinding":
		actions, _, err := unstructured.NestedStringSlice(object.Object, "spec", "validationActions")
		if !slices.Equal(actions, []string{"Deny"}) {
			t.Errorf("%s: validationActions of %s are %q, error %v; want Deny", path, object.GetName(), actions, err)
		}
	}
}
