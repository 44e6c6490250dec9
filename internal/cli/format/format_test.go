/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package format

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	_ "github.com/hawser-io/hawser/test/environment" // cleans that of the tests
)

// document is as the commands print it.
type document struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Items      []item `json:"items"`
}

type item struct {
	Volume string   `json:"volume"`
	Used   int64    `json:"used"`
	Why    string   `json:"why,omitempty"`
	Nodes  []string `json:"nodes,omitempty"`
}

var example = document{"cli.volumes.hawser.io/v1alpha1", "Examples", []item{
	{Volume: "pv-1", Used: 1 << 40, Why: "line one\n\tline two", Nodes: []string{"a", "b"}}, {Volume: "pv-22", Used: 2}}}

func printed(t *testing.T, output string) string {
	t.Helper()
	show, err := New().Printer(output)
	if err != nil {
		t.Fatalf("-o %s: %v", output, err)
	}
	pv := metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: "pv-1"}}
	pv.SetGroupVersionKind(metav1.SchemeGroupVersion.WithKind("PersistentVolume"))
	pv.APIVersion = "v1"
	va := metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: "va-1"}}
	va.APIVersion, va.Kind = "storage.k8s.io/v1", "VolumeAttachment"
	var b bytes.Buffer
	if err := show(&b, example, []metav1.PartialObjectMetadata{pv, va}); err != nil {
		t.Fatalf("-o %s: %v", output, err)
	}
	return b.String()
}

func TestDocumentsArePrintedAsKubectlDoes(t *testing.T) {
	file := filepath.Join(t.TempDir(), "columns")
	if err := os.WriteFile(file, []byte("VOLUME USED\n.volume .used\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for output, want := range map[string]string{
		"jsonpath={.items[*].volume}":                     "pv-1 pv-22",
		`jsonpath={range .items[*]}{.used}{"\n"}{end}`:    "1099511627776\n2\n",
		"go-template={{range .items}}{{.volume}};{{end}}": "pv-1;pv-22;",
		"name": "persistentvolume/pv-1\nvolumeattachment.storage.k8s.io/va-1\n",
		"custom-columns=VOLUME:.volume,USED:used":        "VOLUME   USED\npv-1     1099511627776\npv-22    2\n",
		"custom-columns=VOLUME:.volume,NODE:{.nodes[*]}": "VOLUME   NODE\npv-1     a,b\npv-22    <none>\n",
		"custom-columns=VOLUME:.volume,WHY:.why":         "VOLUME   WHY\npv-1     line one line two\npv-22    <none>\n",
		"custom-columns-file=" + file:                    "VOLUME   USED\npv-1     1099511627776\npv-22    2\n",
		"yaml": "apiVersion: cli.volumes.hawser.io/v1alpha1\nitems:\n- nodes:\n  - a\n  - b\n  used: 1099511627776\n" +
			"  volume: pv-1\n  why: \"line one\\n\\tline two\"\n- used: 2\n  volume: pv-22\nkind: Examples\n",
	} {
		if got := printed(t, output); got != want {
			t.Errorf("-o %s prints %q, want %q", output, got, want)
		}
	}
	if got := printed(t, "json"); !strings.HasPrefix(got, "{\n  \"apiVersion\": \"cli.volumes") {
		t.Errorf("-o json prints %s, want the fields in the order of the document", got)
	}
}

func TestAFormatThatDoesNotExistIsNamedBeforeAnythingIsRead(t *testing.T) {
	for output, want := range map[string]string{
		"xml":                      "want json, yaml, wide, name, jsonpath=",
		"jsonpath":                 "no template given",
		"jsonpath={.items":         "unclosed action",
		"custom-columns":           "has no columns",
		"custom-columns=VOLUME":    "want TITLE:PATH",
		"custom-columns=A:{.b":     "unclosed action",
		"custom-columns-file=none": "no such file",
	} {
		if _, err := New().Printer(output); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("-o %s: error %v, want %q", output, err, want)
		}
	}
	for _, output := range []string{"", "wide"} {
		if show, err := New().Printer(output); show != nil || err != nil {
			t.Errorf("-o %q: error %v, or not a text for a person", output, err)
		}
	}
}
