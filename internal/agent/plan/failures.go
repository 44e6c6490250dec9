/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package plan

import (
	"k8s.io/apimachinery/pkg/types"

	"github.com/hawser-io/hawser/internal/agent/failure"
)

// Failures are what is known of the steps of one volume that failed.
type Failures map[Step]*failure.Failure

// Ordered lists the failures of what is planned, in the plan's order.
func (fs Failures) Ordered(f Facts) []*failure.Failure {
	var ordered []*failure.Failure
	for _, a := range Of(f) {
		if failed := fs[a]; failed != nil {
			ordered = append(ordered, failed)
		}
	}
	return ordered
}

// OfIntent is the failure of the operation for this intent alone; nil where there is none. Several steps may be one
// operation to users.
func (fs Failures) OfIntent(intent types.UID, operation string) *failure.Failure {
	var found *failure.Failure
	var first Kind
	for a, f := range fs {
		if a.Intent == intent && f.Operation == operation && (found == nil || a.Kind < first) {
			found, first = f, a.Kind
		}
	}
	return found
}
