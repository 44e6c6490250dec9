/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package cached

import (
	"sync"

	corev1 "k8s.io/api/core/v1"
)

// sizes are the lists of resources with nothing but a size of storage, by that size. They are never changed and never
// forgotten: a cluster has few sizes.
var sizes sync.Map

// shared is a list that says the same as list, and that all who say so share. A map with one size takes some 500 bytes,
// and each volume has three of them.
func shared(list corev1.ResourceList) corev1.ResourceList {
	size, sized := list[corev1.ResourceStorage]
	if !sized || len(list) > 1 {
		return list
	}
	same, _ := sizes.LoadOrStore(size.String(), list)
	return same.(corev1.ResourceList)
}
