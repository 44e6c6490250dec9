/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package cli

import (
	"context"
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	k8sruntime "k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hawser-io/hawser/internal/explain/facts"
)

// mostRequests is how many requests one report may cost, whatever the size of the cluster.
const mostRequests = 30

// counting counts requests, and what lists return.
type counting struct {
	facts.Reader
	requests, unlimited int
	listed              map[string]int
}

func (c *counting) Installed(ctx context.Context) (bool, error) {
	c.requests++
	return c.Reader.Installed(ctx)
}

func (c *counting) AttachmentsOf(ctx context.Context, pv string) ([]string, error) {
	c.requests++
	return c.Reader.AttachmentsOf(ctx, pv)
}

func (c *counting) Get(ctx context.Context, key client.ObjectKey, into client.Object, options ...client.GetOption,
) error {
	c.requests++
	return c.Reader.Get(ctx, key, into, options...)
}

func (c *counting) List(ctx context.Context, into client.ObjectList, options ...client.ListOption) error {
	c.requests++
	given := (&client.ListOptions{}).ApplyOptions(options)
	if given.Limit == 0 {
		c.unlimited++
	}
	if given.FieldSelector != nil || given.LabelSelector != nil {
		defer func() { c.listed[fmt.Sprintf("%T", into)] += listLen(into) }()
	}
	return c.Reader.List(ctx, into, options...)
}

// crowd repeats the objects of a fixture, so that the cluster has thousands that are not asked about.
func crowd(t *testing.T, f fixture, times int) fixture {
	t.Helper()
	others := readFixture(t, "testdata/crowd.yaml", noon)
	documents := f.documents
	for i := range times {
		for _, document := range others.documents {
			documents = append(documents, fmt.Sprintf(document, i))
		}
	}
	f.documents = documents
	return f
}

func TestAReportCostsAsManyRequestsInALargeCluster(t *testing.T) {
	for _, name := range []string{"pod-multi-attach", "intent-held-elsewhere", "node-orphan-and-stuck-detach",
		"volume-in-use", "claim-without-class"} {
		t.Run(name, func(t *testing.T) {
			small := one(t, name, noon)
			few := &counting{Reader: newFakeReader(t, small), listed: map[string]int{}}
			explainFixture(t, small, few, noon)
			many := &counting{Reader: newFakeReader(t, crowd(t, small, 2500)), listed: map[string]int{}}
			start := time.Now()
			explainFixture(t, small, many, noon)
			t.Logf("%d requests, %s with 10,000 other objects in memory", many.requests, time.Since(start))
			if many.requests != few.requests || many.requests > mostRequests {
				t.Errorf("%d requests in a small cluster and %d in one of 10,000 objects, want the same number of at most %d",
					few.requests, many.requests, mostRequests)
			}
			if many.unlimited > 0 {
				t.Errorf("%d lists have no limit, want one for each", many.unlimited)
			}
			for list, n := range many.listed {
				if n != few.listed[list] {
					t.Errorf("selectors let %d objects of %s through, want %d as in a small cluster", n, list, few.listed[list])
				}
			}
		})
	}
}

func listLen(list client.ObjectList) int {
	n := 0
	_ = meta.EachListItem(list, func(k8sruntime.Object) error { n++; return nil }) // it only fails for no list
	return n
}
