/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package docs

import (
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/test/apiserver"
)

// clusterPages are those about distributions, by their names.
func clusterPages(t *testing.T) map[string]string {
	t.Helper()
	all := pages(t, apiserver.Root())
	maps.DeleteFunc(all, func(page, _ string) bool { return filepath.Dir(page) != "docs/clusters" })
	if len(all) < 9 {
		t.Fatalf("%d pages in docs/clusters, want the index and one for each of eight clusters", len(all))
	}
	return all
}

// valuesBlock is a file of values for the chart, in a page.
var valuesBlock = regexp.MustCompile("(?ms)^```yaml\n(# values.yaml\n.*?)^```$")

func TestValuesOfTheClusterPagesAreAccepted(t *testing.T) {
	_, api := apiserver.Start(t)
	ofChart := chartValues(t)
	for page, text := range clusterPages(t) {
		blocks := valuesBlock.FindAllStringSubmatch(text, -1)
		if len(blocks) == 0 && page != "docs/clusters/README.md" {
			t.Errorf("%s has no values.yaml", page)
		}
		for _, block := range blocks {
			values := map[string]any{}
			if err := yaml.UnmarshalStrict([]byte(block[1]), &values); err != nil {
				t.Fatalf("%s: %v", page, err)
			}
			for _, unknown := range unknownKeys(values, ofChart, "") {
				t.Errorf("%s sets %s, which the chart does not have", page, unknown)
			}
			tryInitialSpec(t, api, page, values["initialSpec"])
		}
	}
}

// tryInitialSpec makes the VolumeManager that the operator would make.
func tryInitialSpec(t *testing.T, api client.Client, page string, spec any) {
	t.Helper()
	text, err := yaml.Marshal(spec)
	if err != nil {
		t.Fatal(err)
	}
	manager := &volumesv1alpha1.VolumeManager{ObjectMeta: metav1.ObjectMeta{Name: volumesv1alpha1.VolumeManagerName}}
	if err := yaml.UnmarshalStrict(text, &manager.Spec); err != nil {
		t.Errorf("initialSpec of %s: %v", page, err)
	}
	if err := api.Create(t.Context(), manager, client.DryRunAll); err != nil {
		t.Errorf("the VolumeManager of %s: %v, want it accepted", page, err)
	}
}

func chartValues(t *testing.T) map[string]any {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(apiserver.Root(), "charts", "hawser", "values.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]any{}
	if err := yaml.Unmarshal(text, &values); err != nil {
		t.Fatal(err)
	}
	return values
}

// unknownKeys of values, as paths. What is an empty map in the chart may have any keys.
func unknownKeys(values, known map[string]any, path string) []string {
	var unknown []string
	for key, value := range values {
		of, has := known[key]
		if !has {
			unknown = append(unknown, path+key)
			continue
		}
		inner, isMap := value.(map[string]any)
		if ofMap, also := of.(map[string]any); isMap && also && len(ofMap) > 0 {
			unknown = append(unknown, unknownKeys(inner, ofMap, path+key+".")...)
		}
	}
	return unknown
}

// named in a sentence: a field of the VolumeManager or a value of the chart.
var nameInText = regexp.MustCompile("`([a-zA-Z]+(?:\\.[a-zA-Z]+)+)(?:: [^`]*)?`")

func TestFieldsThatTheClusterPagesNameExist(t *testing.T) {
	values := chartValues(t)
	seen := 0
	for page, text := range clusterPages(t) {
		for _, match := range nameInText.FindAllStringSubmatch(text, -1) {
			path := strings.Split(match[1], ".")
			switch {
			case path[0] == "spec":
				seen++
				if !hasField(reflect.TypeFor[volumesv1alpha1.VolumeManagerSpec](), path[1:]) {
					t.Errorf("%s names `%s`, which is no field of a VolumeManager", page, match[1])
				}
			case slices.Contains(slices.Collect(maps.Keys(values)), path[0]):
				seen++
				if within, is := values[path[0]].(map[string]any); !is || within[path[1]] == nil {
					t.Errorf("%s names `%s`, which is no value of the chart", page, match[1])
				}
			}
		}
	}
	if seen < 5 {
		t.Errorf("found %d names of fields and values, want those of the pages", seen)
	}
}

// hasField reports whether a type has a field by the names of its JSON.
func hasField(of reflect.Type, path []string) bool {
	for of.Kind() == reflect.Pointer {
		of = of.Elem()
	}
	if len(path) == 0 {
		return true
	}
	if of.Kind() != reflect.Struct {
		return false
	}
	for field := range of.Fields() {
		if name, _, _ := strings.Cut(field.Tag.Get("json"), ","); name == path[0] {
			return hasField(field.Type, path[1:])
		}
	}
	return false
}
