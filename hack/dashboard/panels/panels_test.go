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
	all := []string{"leader_election_master_status"}
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
			for _, q := range p.Queries {
				names := metric.FindAllString(q.Expr, -1)
				if len(names) == 0 {
					t.Errorf("query %s of panel %s shows no metric, want one", q.Expr, p.Title)
				}
				for _, name := range names {
					if !slices.Contains(exist, name) {
						t.Errorf("panel %s shows %s, which no program has", p.Title, name)
					}
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
			for _, q := range p.Queries {
				for _, v := range variable.FindAllStringSubmatch(q.Expr, -1) {
					used[v[1]] = true
					if !slices.Contains(row.Variables, v[1]) {
						t.Errorf("panel %s of row %s uses variable %s, which the row does not have", p.Title, row.Title, v[1])
					}
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
			for _, q := range p.Queries {
				if filled := Filled(q.Expr, ".*", "1m", "15s"); strings.Contains(filled, "$") {
					t.Errorf("query of panel %s: %s, want it without a variable", p.Title, filled)
				}
			}
		}
	}
}

func TestEveryPanelStatesItsUnitAndWhatItsColoursMean(t *testing.T) {
	rows, err := Rows()
	if err != nil {
		t.Fatal(err)
	}
	kinds, units := []Kind{Stat, Table, StateTimeline, Lines, Bars}, []string{Count, Seconds, Share, InState}
	for _, row := range rows {
		for _, p := range row.Panels {
			if !slices.Contains(kinds, p.Kind) || !slices.Contains(units, p.Unit) || !strings.HasSuffix(p.About, ".") {
				t.Errorf("panel %s: kind %q, unit %q, about %q; want one of %v, one of %v, and a sentence", p.Title, p.Kind,
					p.Unit, p.About, kinds, units)
			}
			if p.Kind == Stat && len(p.Thresholds) == 0 {
				t.Errorf("stat %s has no threshold, want one", p.Title)
			}
			for i, threshold := range p.Thresholds {
				if threshold.Means == "" || i > 0 && threshold.From <= p.Thresholds[i-1].From {
					t.Errorf("threshold of panel %s: %+v, want a meaning, and a higher value than that before it", p.Title,
						threshold)
				}
			}
		}
	}
}

// rawCount is an estimate of a count, which is no integer.
var rawCount = regexp.MustCompile(`\bincrease\(`)

func TestCountsAreIntegers(t *testing.T) {
	rows, err := Rows()
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range rows {
		for _, p := range row.Panels {
			for _, q := range p.Queries {
				if rawCount.MatchString(q.Expr) && !strings.HasPrefix(q.Expr, "round(") {
					t.Errorf("query of panel %s: %s, want it rounded", p.Title, q.Expr)
				}
			}
			if decimals := p.defaults()["decimals"]; p.Unit == Count && decimals != 0 {
				t.Errorf("panel %s shows counts with %v decimals, want 0", p.Title, decimals)
			}
		}
	}
}

func TestADescriptionHasTheMeaningOfEachColour(t *testing.T) {
	p := Panel{About: "How long.", Unit: Seconds,
		Thresholds: []Threshold{{From: 900, Colour: "orange", Means: "an alert"}}}
	if got, want := p.Description(), "How long. Orange from 15 min: an alert."; got != want {
		t.Errorf("description: %q, want %q", got, want)
	}
	for value, want := range map[float64]string{0: "green", 899: "green", 900: "orange"} {
		if got := p.Colour(value); got != want {
			t.Errorf("colour of %v: %s, want %s", value, got, want)
		}
	}
}

func TestPanelsDoNotOverlap(t *testing.T) {
	rows, err := Rows()
	if err != nil {
		t.Fatal(err)
	}
	placed, height := Layout(rows)
	taken := map[[2]int]string{}
	take := func(title string, at Place) {
		for x := at.X; x < at.X+at.W; x++ {
			for y := at.Y; y < at.Y+at.H; y++ {
				if other := taken[[2]int{x, y}]; other != "" || x >= Columns || y >= height {
					t.Fatalf("panel %s is at %+v, where %q is; want free room of %dx%d", title, at, other, Columns, height)
				}
				taken[[2]int{x, y}] = title
			}
		}
	}
	for _, row := range placed {
		take(row.Title, row.Place)
		for _, p := range row.Panels {
			take(p.Title, p.Place)
		}
	}
}
