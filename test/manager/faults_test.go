/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package manager

import (
	"fmt"
	"testing"

	"github.com/hawser-io/hawser/internal/controller"
)

// TestFaults runs faults between the manager, the API server and the attacher, in both modes on one control plane.
func TestFaults(t *testing.T) {
	w := newWorld(t)
	for _, mode := range []controller.AttachMode{controller.Coexist, controller.Replace} {
		for _, s := range []struct {
			name     string
			scenario func(*testing.T, *world, controller.AttachMode)
		}{
			{"nothing is detached before every cache is full", nothingIsDetachedBeforeEveryCacheIsFull},
			{"changes during a loss of all watches are handled", changesDuringALossOfAllWatchesAreHandled},
			{"the manager waits for an unreachable API server", theManagerWaitsForAnUnreachableAPIServer},
			{"the manager retries after a conflict at every write", theManagerRetriesAfterConflicts},
			{"an attacher that is down is reported and waited for without busy retries", theManagerWaitsForAnAttacherThatIsDown},
			{"a failed detach is reported where it is waited for", aFailedDetachIsReportedWhereItIsWaitedFor},
		} {
			t.Run(fmt.Sprintf("%s: %s", mode, s.name), func(t *testing.T) { s.scenario(t, w, mode) })
		}
	}
}

// resources that the manager watches.
var resources = []string{
	"volumeattachmentintents", "nodevolumestates", "volumeattachments", "leases", "configmaps", "pods", "nodes",
	"csinodes", "csidrivers",
	"persistentvolumes", "persistentvolumeclaims", "storageclasses",
}
