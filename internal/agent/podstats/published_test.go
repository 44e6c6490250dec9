/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package podstats

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/prometheus/common/expfmt"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	"github.com/hawser-io/hawser/internal/agent/report"
)

func TestOfEachDriverTheFullestFilesystemCounts(t *testing.T) {
	bytes := func(q string) *resource.Quantity { return ptr.To(resource.MustParse(q)) }
	c := NewPublishedCollector(func() []Published {
		return []Published{
			{"disk", report.Figures{Capacity: bytes("1000"), Used: bytes("100"), Available: bytes("900"),
				Inodes: ptr.To[int64](100), InodesUsed: ptr.To[int64](99)}},
			{"disk", report.Figures{Capacity: bytes("1000"), Used: bytes("990"), Available: bytes("10"),
				Inodes: ptr.To[int64](0), InodesUsed: ptr.To[int64](0)}},
			{"share", report.Figures{Used: bytes("5")}},
		}
	})
	const want = `
hawser_published_volumes_capacity_bytes{driver="disk"} 2000
hawser_published_volumes_capacity_bytes{driver="share"} 0
hawser_published_volumes_lowest_free_inodes_ratio{driver="disk"} 0.01
hawser_published_volumes_lowest_free_ratio{driver="disk"} 0.01
hawser_published_volumes_used_bytes{driver="disk"} 1090
hawser_published_volumes_used_bytes{driver="share"} 5
`
	text, err := testutil.CollectAndFormat(c, expfmt.TypeTextPlain, "hawser_published_volumes_capacity_bytes",
		"hawser_published_volumes_lowest_free_inodes_ratio", "hawser_published_volumes_lowest_free_ratio",
		"hawser_published_volumes_used_bytes")
	if err != nil {
		t.Fatal(err)
	}
	var got strings.Builder
	got.WriteString("\n")
	for line := range strings.Lines(string(text)) {
		if !strings.HasPrefix(line, "#") {
			got.WriteString(line)
		}
	}
	if got.String() != want {
		t.Errorf("series of the published volumes:%s\nwant:%s", got.String(), want)
	}
}
