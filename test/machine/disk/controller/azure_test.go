/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package controller

import (
	"testing"

	"github.com/hawser-io/hawser/test/machine"
)

func TestADiskGetsTheLowestNumberThatIsFreeOnItsNode(t *testing.T) {
	at := func(node string, lun int) place { return place{node, machine.Disk{Azure: true, LUN: lun}} }
	c := &Controller{Azure: true, plugged: map[string]place{"a": at("one", 0), "b": at("one", 2), "c": at("other", 1)}}
	for node, want := range map[string]int{"one": 1, "other": 0, "third": 0} {
		if got := c.freeLUN(node); got != want {
			t.Errorf("free number on node %s: %d, want %d", node, got, want)
		}
	}
}

func TestTheCloudSellsWholeGibibytes(t *testing.T) {
	for bytes, want := range map[int64]int64{1: gib, gib: gib, gib + 1: 2 * gib} {
		if got := azureSize(bytes); got != want {
			t.Errorf("size for %d bytes: %d, want %d", bytes, got, want)
		}
	}
}
