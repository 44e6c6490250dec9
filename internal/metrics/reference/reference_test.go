/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package reference

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	dto "github.com/prometheus/client_model/go"
	"google.golang.org/protobuf/proto"
)

func TestThePageListsWhatTheCodeDeclares(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "reference", "metrics.md"))
	if err != nil {
		t.Fatal(err)
	}
	want, err := Page(string(text))
	if err != nil {
		t.Fatal(err)
	}
	if string(text) != want {
		t.Errorf("docs/reference/metrics.md differs from the code; make it again with go run ./hack/metrics. Want:\n%s",
			want)
	}
}

func TestOwnMetricsAreNamedAsPrometheusAdvises(t *testing.T) {
	var families []*dto.MetricFamily
	types := map[string]dto.MetricType{"counter": dto.MetricType_COUNTER, "gauge": dto.MetricType_GAUGE,
		"histogram": dto.MetricType_HISTOGRAM}
	for name, list := range Programs {
		all, err := list()
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range all {
			if m.Help == "" || !strings.HasSuffix(m.Help, ".") {
				t.Errorf("metric %s of the %s has the help %q, want sentences", m.Name, name, m.Help)
			}
			if !strings.HasPrefix(m.Name, "hawser_") {
				continue // upstream's names stay as they are
			}
			metric := &dto.Metric{}
			for _, l := range m.Labels {
				metric.Label = append(metric.Label, &dto.LabelPair{Name: proto.String(l), Value: proto.String("any")})
			}
			families = append(families, &dto.MetricFamily{Name: proto.String(m.Name), Help: proto.String(m.Help),
				Type: types[m.Type].Enum(), Metric: []*dto.Metric{metric}})
		}
	}
	problems, err := promlint.NewWithMetricFamilies(families).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("metric %s: %s; want no complaint", p.Metric, p.Text)
	}
}

func TestAPageWithoutItsTableIsRefused(t *testing.T) {
	if _, err := Page("# Metrics\n"); err == nil || !strings.Contains(err.Error(), "the page has no table") {
		t.Errorf("making the tables of a page that has none: error %v, want one about the missing table", err)
	}
}
