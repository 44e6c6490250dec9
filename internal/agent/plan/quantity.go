/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package plan

import (
	"k8s.io/apimachinery/pkg/api/resource"
)

// CompareQuantities quantities that others read too: Cmp may turn the one that it is called on into another form.
func CompareQuantities(q, other resource.Quantity) int { return q.Cmp(other) }

// QuantityText of a quantity that others read too: String keeps what it made inside the quantity.
func QuantityText(q *resource.Quantity) string {
	own := q.DeepCopy()
	return own.String()
}
