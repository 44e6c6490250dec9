/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package explain

import (
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// Written is when the API server recorded the last write of a field; of any field if it is empty.
func Written(writes []metav1.ManagedFieldsEntry, field string) time.Time {
	last := time.Time{}
	for _, f := range writes {
		if f.Time != nil && f.FieldsV1 != nil && strings.Contains(f.FieldsV1.GetRawString(), field) && f.Time.After(last) {
			last = f.Time.Time
		}
	}
	return last
}

// Renewal is when an agent or a manager renewed its Lease last: by the clock of the API server, which records the
// writes of each field, for that of the node may be off.
func Renewal(lease *coordinationv1.Lease) time.Time {
	switch last := Written(lease.ManagedFields, `"f:renewTime"`); {
	case !last.IsZero():
		return last
	case lease.Spec.RenewTime == nil:
		return lease.CreationTimestamp.Time
	}
	return lease.Spec.RenewTime.Time
}

// Overdue is how long ago a Lease has ended; negative is the time that is left. Agents and managers renew so early that
// the clocks of API servers need no allowance.
func Overdue(lease *coordinationv1.Lease, now time.Time) time.Duration {
	const usual = 40
	seconds := ptr.Deref(lease.Spec.LeaseDurationSeconds, usual)
	return now.Sub(Renewal(lease)) - time.Duration(seconds)*time.Second
}
