/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package panels

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/hawser-io/hawser/internal/metrics/reference"
)

const root = "../../.."

func read(t *testing.T, name string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func TestTheDashboardIsMadeOfItsPanels(t *testing.T) {
	want, err := Dashboard()
	if err != nil {
		t.Fatal(err)
	}
	if string(read(t, File)) != string(want) {
		t.Errorf("%s differs from the panels; make it again with go run ./hack/dashboard", File)
	}
}

// known are the metrics of the programs, of controller-runtime and client-go, and those of kube-state-metrics by our
// file.
func known(t *testing.T) []string {
	t.Helper()
	all := []string{"rest_client_requests_total", "workqueue_depth"}
	for _, list := range reference.Programs {
		metrics, err := list()
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range metrics {
			all = append(all, m.Name, m.Name+"_bucket", m.Name+"_count", m.Name+"_sum")
		}
	}
	var file struct {
		Spec struct {
			Resources []struct {
				Prefix  string `json:"metricNamePrefix"`
				Metrics []struct {
					Name string `json:"name"`
				} `json:"metrics"`
			} `json:"resources"`
		} `json:"spec"`
	}
	if err := yaml.Unmarshal(read(t, "config/kube-state-metrics/custom-resource-state.yaml"), &file); err != nil {
		t.Fatal(err)
	}
	for _, r := range file.Spec.Resources {
		for _, m := range r.Metrics {
			all = append(all, r.Prefix+"_"+m.Name)
		}
	}
	return all
}

var metric = regexp.MustCompile(`\b(hawser|attachdetach|storage|csi|rest|workqueue|leader)_[a-z_]+`)

func TestPanelsShowMetricsThatExist(t *testing.T) {
	rows, err := Rows()
	if err != nil {
		t.Fatal(err)
	}
	exist := known(t)
	for _, row := range rows {
		for _, p := range row.Panels {
			names := metric.FindAllString(p.Query, -1)
			if len(names) == 0 {
				t.Errorf("panel %s of row %s shows no metric, want one", p.Title, row.Title)
			}
			for _, name := range names {
				if !slices.Contains(exist, name) {
					t.Errorf("panel %s of row %s shows %s, which no program has", p.Title, row.Title, name)
				}
			}
		}
	}
}

func TestEveryVariableHasAQueryAndIsUsedInItsRow(t *testing.T) {
	rows, err := Rows()
	if err != nil {
		t.Fatal(err)
	}
	variable := regexp.MustCompile(`\$([a-z]+)\b`)
	for _, row := range rows {
		used := map[string]bool{}
		for _, p := range row.Panels {
			for _, v := range variable.FindAllStringSubmatch(p.Query, -1) {
				used[v[1]] = true
				if !slices.Contains(row.Variables, v[1]) {
					t.Errorf("panel %s of row %s uses variable %s, which the row does not have", p.Title, row.Title, v[1])
				}
			}
		}
		for _, name := range row.Variables {
			if !used[name] || Variables[name] == "" {
				t.Errorf("variable %s of row %s: used is %t, query %q; want a use and a query", name, row.Title, used[name],
					Variables[name])
			}
		}
	}
}

func TestAFilledQueryHasNoVariable(t *testing.T) {
	rows, err := Rows()
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range rows {
		for _, p := range row.Panels {
			if filled := Filled(p.Query, ".*", "10s"); strings.Contains(filled, "$") {
				t.Errorf("query of panel %s: %s, want it without a variable", p.Title, filled)
			}
		}
	}
}
