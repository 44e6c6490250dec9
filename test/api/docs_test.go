/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package api

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/test/apiserver"
)

// schema is the part of a CRD's schema that contains its field names.
type schema struct {
	Properties map[string]schema `json:"properties"`
	Items      *schema           `json:"items"`
}

// ofOthers are fields whose nested fields Kubernetes documents.
var ofOthers = map[string]bool{"conditions": true, "nodeStageSecretRef": true, "nodePublishSecretRef": true,
	"nodeExpandSecretRef": true, "tolerations": true, "resources": true, "nodeSelector": true, "nodeAffinity": true,
	"claimTemplate": true}

func TestEveryFieldIsInItsContractPage(t *testing.T) {
	for _, kind := range []string{
		"volumeattachmentintent", "volumeattachmentintentset", "nodevolumestate", "volumemanager",
	} {
		var crd struct {
			Spec struct {
				Versions []struct {
					Schema struct {
						OpenAPIV3Schema schema `json:"openAPIV3Schema"`
					} `json:"schema"`
				} `json:"versions"`
			} `json:"spec"`
		}
		if err := yaml.Unmarshal(read(t, "config", "crd", "bases", "volumes.hawser.io_"+kind+"s.yaml"), &crd); err != nil {
			t.Fatal(err)
		}
		page := string(read(t, "docs", "reference", kind+".md"))
		root := crd.Spec.Versions[0].Schema.OpenAPIV3Schema
		for _, part := range []string{"spec", "status"} {
			for _, path := range fields(part, root.Properties[part]) {
				name := path[strings.LastIndex(path, ".")+1:]
				if !regexp.MustCompile("`[^` ]*\\b" + name + "\\b").MatchString(page) {
					t.Errorf("docs/reference/%s.md has no field %s", kind, path)
				}
			}
		}
	}
}

// fields lists the paths of all fields below s.
func fields(path string, s schema) []string {
	if s.Items != nil {
		return fields(path+"[]", *s.Items)
	}
	var paths []string
	for name, property := range s.Properties {
		paths = append(paths, path+"."+name)
		if !ofOthers[name] {
			paths = append(paths, fields(path+"."+name, property)...)
		}
	}
	return paths
}

// Condition types are in the contract pages. Reasons are in one page, in a table with the person or component that has
// to act.
func TestEveryConditionAndReasonIsInItsPage(t *testing.T) {
	contracts := string(read(t, "docs", "reference", "volumeattachmentintent.md")) +
		string(read(t, "docs", "reference", "nodevolumestate.md"))
	reasons := rows(string(read(t, "docs", "troubleshoot.md")))
	expectInPages(t, "conditions.go", contracts, reasons)
	manager := string(read(t, "docs", "reference", "volumemanager.md"))
	expectInPages(t, "volumemanager_conditions.go", manager, manager)
	set := string(read(t, "docs", "reference", "volumeattachmentintentset.md"))
	expectInPages(t, "volumeattachmentintentset_conditions.go", set, rows(set))
	waiting := string(read(t, "docs", "pods-waiting.md"))
	expectInPages(t, "placement.go", waiting, rows(waiting))
	for _, reason := range volumesv1alpha1.PlacementReasons() {
		if !strings.Contains(rows(waiting), "`"+reason+"`") {
			t.Errorf("docs/pods-waiting.md has no reason %s", reason)
		}
	}
}

// expectInPages fails for each condition type and each reason of a file that is not in its page.
func expectInPages(t *testing.T, name, contracts, reasons string) {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(),
		filepath.Join(apiserver.Root(), "api", "v1alpha1", name), nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	ast.Inspect(file, func(node ast.Node) bool {
		spec, ok := node.(*ast.ValueSpec)
		if !ok || !strings.HasPrefix(spec.Names[0].Name, "Reason") && !strings.HasPrefix(spec.Names[0].Name, "Condition") {
			return true
		}
		literal, ok := spec.Values[0].(*ast.BasicLit)
		if !ok {
			return true
		}
		value, err := strconv.Unquote(literal.Value)
		if err != nil {
			t.Fatal(err)
		}
		seen++
		page := contracts
		if strings.HasPrefix(spec.Names[0].Name, "Reason") {
			page = reasons
		}
		if !strings.Contains(page, "`"+value+"`") {
			t.Errorf("%s is not in its page", value)
		}
		return true
	})
	if seen == 0 {
		t.Errorf("no condition type and no reason was found in %s", name)
	}
}

// rows returns the first cells of all rows of the page's tables of reasons.
func rows(page string) string {
	_, tables, _ := strings.Cut(page, "\n## Reasons\n")
	var first strings.Builder
	for line := range strings.Lines(tables) {
		if cells := strings.Split(line, "|"); len(cells) > 2 {
			first.WriteString(cells[1])
		}
	}
	return first.String()
}

func read(t *testing.T, path ...string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(append([]string{apiserver.Root()}, path...)...))
	if err != nil {
		t.Fatal(err)
	}
	return text
}
