/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package node

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/outage"
)

// absences measures for how long Nodes were watched being gone: without a Node, and without a renewal of their
// agent's Lease.
type absences struct{ watch outage.Watch }

// look records a read that found no Node and this last renewal, and returns for how long that was so. checkpoint is
// what an earlier process left; it counts with the first read of this one only.
func (a *absences) look(
	node, word string, checkpoint *volumesv1alpha1.GoneObservation, plan time.Duration, now time.Time,
) volumesv1alpha1.GoneObservation {
	var carried time.Duration
	if checkpoint != nil && checkpoint.LastRenewal == word && !a.watch.Known(node) {
		carried = checkpoint.Observed.Duration
	}
	total := a.watch.Observe(node, outage.Spell{Absent: true, Heard: word}, carried, plan, now)
	return volumesv1alpha1.GoneObservation{
		LastRenewal: word, Observed: metav1.Duration{Duration: total.Truncate(time.Second)},
	}
}

// due is how long after now the next read is due; zero if it is due now.
func (a *absences) due(node string, period time.Duration, now time.Time) time.Duration {
	return a.watch.Due(node, period, now)
}

// missed records a read that failed.
func (a *absences) missed(node string) { a.watch.Missed(node) }

// registered records that there is, or was for a moment, a Node of that name. Nothing that any process watched before
// counts.
func (a *absences) registered(node string) { a.watch.Reset(node) }

// forget drops a Node that exists and has no checkpoint.
func (a *absences) forget(node string) { a.watch.Forget(node) }
