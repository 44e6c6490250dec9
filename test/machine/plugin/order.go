/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package plugin

import (
	"path/filepath"
	"slices"

	"google.golang.org/grpc/codes"

	"github.com/hawser-io/hawser/test/csiloop/ledger"
)

// outOfOrder are the codes with which the driver refuses what no caller may ask for.
var outOfOrder = []string{codes.InvalidArgument.String(), codes.FailedPrecondition.String(),
	codes.AlreadyExists.String()}

// PublishedOn lists where one node has volumes published, in the order of the paths. A publication whose end is unknown
// counts, and so does one that failed: only an unpublish that took effect, or a reboot, ends it for certain. What was
// refused has changed nothing.
func PublishedOn(entries []ledger.Entry) map[string][]string {
	targets, begun := map[[2]string]bool{}, map[int64]bool{}
	for _, e := range entries {
		at := [2]string{e.Volume, e.TargetPath}
		effect := e.Phase == ledger.Effect
		switch {
		case e.Method == ledger.Reboot:
			clear(targets)
		case e.Method == "NodePublishVolume" && e.Phase == ledger.Start:
			begun[e.Call], targets[at] = !targets[at], true
		case e.Method == "NodePublishVolume" && effect && begun[e.Call] && refused(e.Code),
			e.Method == "NodeUnpublishVolume" && effect && e.Code == codes.OK.String():
			delete(targets, at)
		}
	}
	published := map[string][]string{}
	for at := range targets {
		published[at[0]] = append(published[at[0]], at[1])
	}
	for _, paths := range published {
		slices.Sort(paths)
	}
	return published
}

func refused(code string) bool {
	return slices.Contains(outOfOrder, code) || code == codes.NotFound.String()
}

// OutOfOrder returns the calls that the driver refused because they were out of order.
func OutOfOrder(entries []ledger.Entry) []ledger.Call {
	return slices.DeleteFunc(ledger.Calls(entries), func(c ledger.Call) bool {
		return !slices.Contains(outOfOrder, c.Done)
	})
}

// NodeDir is the directory of a node's ledger and faults.
func NodeDir(dir, node string) string { return filepath.Join(dir, "nodes", node) }

// Published lists where each volume is published, or may be, as the ledgers of the nodes below the directory have it.
func Published(dir string) (map[string][]string, error) {
	nodes, err := filepath.Glob(NodeDir(dir, "*"))
	if err != nil {
		return nil, err
	}
	published := map[string][]string{}
	for _, node := range nodes {
		entries, err := ledger.Read(node)
		if err != nil {
			return nil, err
		}
		for volume, targets := range PublishedOn(entries) {
			published[volume] = append(published[volume], targets...)
		}
	}
	return published, nil
}
