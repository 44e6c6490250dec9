/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package nfs

import (
	"maps"
	"slices"

	"google.golang.org/grpc/codes"

	"github.com/hawser-io/hawser/test/csiloop/ledger"
)

// publishedOn lists where one node has volumes published, in the order of the paths. A publication whose end is unknown
// counts, and so does one that failed: only an unpublish that took effect, or a reboot, ends it for certain.
func publishedOn(entries []ledger.Entry) map[string][]string {
	targets := map[string]map[string]bool{}
	for _, e := range entries {
		switch {
		case e.Method == ledger.Reboot:
			clear(targets)
		case e.Method == "NodePublishVolume" && e.Phase == ledger.Start:
			if targets[e.Volume] == nil {
				targets[e.Volume] = map[string]bool{}
			}
			targets[e.Volume][e.TargetPath] = true
		case e.Method == "NodeUnpublishVolume" && e.Phase == ledger.Effect && e.Code == codes.OK.String():
			delete(targets[e.Volume], e.TargetPath)
		}
	}
	published := map[string][]string{}
	for volume, paths := range targets {
		if len(paths) > 0 {
			published[volume] = slices.Sorted(maps.Keys(paths))
		}
	}
	return published
}

// outOfOrder are the codes with which the driver refuses what no caller may ask for.
var outOfOrder = []string{codes.InvalidArgument.String(), codes.FailedPrecondition.String(),
	codes.AlreadyExists.String()}

// OutOfOrder returns the calls that the driver refused because they were out of order.
func OutOfOrder(entries []ledger.Entry) []ledger.Call {
	return slices.DeleteFunc(ledger.Calls(entries), func(c ledger.Call) bool {
		return !slices.Contains(outOfOrder, c.Done)
	})
}
