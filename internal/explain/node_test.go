/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package explain

import (
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hawser-io/hawser/internal/explain/facts"
)

func TestTheClockOfANodeDoesNotDecideWhetherItsAgentIsAlive(t *testing.T) {
	now := time.Date(2026, 11, 25, 12, 0, 0, 0, time.UTC)
	written := func(ago time.Duration, fields string) metav1.ManagedFieldsEntry {
		return metav1.ManagedFieldsEntry{Time: &metav1.Time{Time: now.Add(-ago)},
			FieldsV1: metav1.NewFieldsV1(fields)}
	}
	const renewing, annotating = `{"f:spec":{"f:renewTime":{}}}`, `{"f:metadata":{"f:annotations":{"f:a":{}}}}`
	for name, c := range map[string]struct {
		// renewed: as the node's clock has it.
		renewed time.Duration
		writes  []metav1.ManagedFieldsEntry
		expired bool
	}{
		"the node is 51 seconds behind": {
			51 * time.Second, []metav1.ManagedFieldsEntry{written(3*time.Second, renewing)}, false},
		"the node is an hour ahead, and dead": {
			-time.Hour, []metav1.ManagedFieldsEntry{written(time.Minute, renewing)}, true},
		"somebody else wrote another field since": {time.Minute, []metav1.ManagedFieldsEntry{
			written(time.Minute, renewing), written(time.Second, annotating)}, true},
		"the API server's record is missing":                          {time.Second, nil, false},
		"the API server's record is missing, and the Lease has ended": {time.Minute, nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{ManagedFields: c.writes}}
			lease.Spec.RenewTime = &metav1.MicroTime{Time: now.Add(-c.renewed)}
			w := &nodes{builder: newBuilder(&facts.Facts{Now: now})}
			if got := w.leaseExpired(facts.Object[*coordinationv1.Lease]{Found: true, Value: lease}); got != c.expired {
				t.Errorf("Lease renewed %s ago by the node's clock, written %v: expired %t, want %t",
					c.renewed, c.writes, got, c.expired)
			}
		})
	}
}
