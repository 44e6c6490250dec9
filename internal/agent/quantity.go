/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package agent

import (
	"k8s.io/apimachinery/pkg/api/resource"
)

// compare quantities that others read too: Cmp may turn the one that it is called on into another form.
func compare(q, other resource.Quantity) int { return q.Cmp(other) }

// text of a quantity that others read too: String keeps what it made inside the quantity.
func text(q *resource.Quantity) string {
	own := q.DeepCopy()
	return own.String()
}
