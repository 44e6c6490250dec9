/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package placement

import (
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// hasRoom reports whether the node can take the pod's volumes now: within the limits of their drivers and, for those
// that do not exist yet, within the storage capacity that the driver publishes.
func (f facts) hasRoom(node *corev1.Node) bool {
	needed := map[string]int{}
	for i := range f.volumes {
		v := &f.volumes[i]
		if v.limited() && !v.attachedTo[node.Name] {
			needed[v.driverName()]++
		}
		if v.unplaced() && !f.hasCapacity(v, node) {
			return false
		}
	}
	for driver, count := range needed {
		if room, limited := f.room[driver][node.Name]; limited && room < count {
			return false
		}
	}
	return true
}

// hasCapacity compares as the scheduler does.
func (f facts) hasCapacity(v *volumeFacts, node *corev1.Node) bool {
	size, sized := v.claim.Spec.Resources.Requests[corev1.ResourceStorage]
	if !sized || v.driver == nil || v.driver.Spec.StorageCapacity == nil || !*v.driver.Spec.StorageCapacity {
		return true
	}
	for i := range f.capacities {
		c := &f.capacities[i]
		if c.StorageClassName == v.class.Name && suffices(c, size.Value()) && reaches(c, node) {
			return true
		}
	}
	return false
}

// suffices: the largest volume that can be created counts, if the driver publishes it.
func suffices(c *storagev1.CSIStorageCapacity, size int64) bool {
	limit := c.MaximumVolumeSize
	if limit == nil {
		limit = c.Capacity
	}
	return limit != nil && limit.Value() >= size
}

func reaches(c *storagev1.CSIStorageCapacity, node *corev1.Node) bool {
	if c.NodeTopology == nil {
		return false
	}
	selector, err := metav1.LabelSelectorAsSelector(c.NodeTopology)
	return err == nil && selector.Matches(labels.Set(node.Labels))
}
