/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package csiloop_test

import (
	"fmt"
	"sync"
	"testing"

	"google.golang.org/grpc/codes"

	"github.com/hawser-io/hawser/test/csiloop/harness"
	"github.com/hawser-io/hawser/test/csiloop/ledger"
)

func TestTheLedgerRecordsEveryCallInOrder(t *testing.T) {
	w := newWorld(t, harness.Options{}, "node-a")
	node := w.nodes[0]
	v := w.create("v", mib, block(writer))
	v.up(node)
	w.want(codes.FailedPrecondition, v.unstage(node))
	v.down(node)
	entries, err := ledger.Read(w.backing)
	w.must(err)
	var got []string
	for _, call := range ledger.Calls(entries) {
		got = append(got, fmt.Sprintf("%s %s %s %s", call.Method, call.Volume, call.Node, call.Answer))
	}
	want := []string{
		"CreateVolume v  OK", "ControllerPublishVolume v node-a OK", "NodeStageVolume v node-a OK",
		"NodePublishVolume v node-a OK", "NodeUnstageVolume v node-a FailedPrecondition",
		"NodeUnpublishVolume v node-a OK", "NodeUnstageVolume v node-a OK", "ControllerUnpublishVolume v node-a OK",
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("calls in the ledger:\ngot  %q\nwant %q", got, want)
	}
}

func TestManyConcurrentCallsOnManyNodesSucceedAndKeepTheLedgerIntact(t *testing.T) {
	w := newWorld(t, harness.Options{}, "node-a", "node-b")
	const each = 6
	var group sync.WaitGroup
	for _, node := range w.nodes {
		for i := range each {
			v := w.create(fmt.Sprintf("%s-%d", node.id, i), 16*mib, filesystem("ext4"))
			steps := []func() error{
				func() error { return v.attach(node) }, func() error { return v.stage(node) },
				func() error { return v.publish(node, "a", false) }, func() error { return v.unpublish(node, "a") },
				func() error { return v.unstage(node) }, func() error { return v.detach(node) },
			}
			v.staging(node)
			group.Go(func() {
				for _, step := range steps {
					if err := step(); err != nil {
						t.Errorf("call for volume %s on node %s: error %v, want none", v.id, node.id, err)
					}
				}
			})
		}
	}
	group.Wait()
	entries, err := ledger.Read(w.backing)
	w.must(err)
	if want := 3 * (2 * each) * 7; len(entries) != want {
		t.Errorf("entries of the ledger: %d, want %d", len(entries), want)
	}
	for i, entry := range entries {
		if entry.Seq != int64(i+1) {
			t.Fatalf("entry %d of the ledger has number %d, want %d", i+1, entry.Seq, i+1)
		}
	}
	for _, found := range [][]ledger.Violation{
		ledger.PublishedTwice(entries), ledger.UnpublishedWhileStaged(entries), ledger.UsedUnattached(entries),
	} {
		if len(found) > 0 {
			t.Errorf("violations in the ledger: %v, want none", found)
		}
	}
}
