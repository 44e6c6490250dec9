/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package nodestate

import (
	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
)

// apply makes the changes of the group and returns the changed object, the requests that still wait for its write,
// and the number of changes.
func apply(nvs *volumesv1alpha1.NodeVolumeState, group []*request) (*volumesv1alpha1.NodeVolumeState, []*request, int) {
	if nvs == nil {
		return nil, refuseMissing(group), 0
	}
	changed, original := 0, nvs.DeepCopy()
	for _, r := range group {
		if r.change != nil {
			r.alter(nvs)
			changed++
		}
	}
	if changed == 0 || refusal(original, nvs) == nil {
		return nvs, group, changed
	}
	return applySingly(original, group)
}

func refuseMissing(group []*request) []*request {
	var passed []*request
	for _, r := range group {
		if r.change != nil {
			finish([]*request{r}, nil, ErrNotFound)
			continue
		}
		passed = append(passed, r)
	}
	return passed
}

// applySingly leaves out the entries for which there is no room.
func applySingly(
	nvs *volumesv1alpha1.NodeVolumeState, group []*request,
) (*volumesv1alpha1.NodeVolumeState, []*request, int) {
	changed := 0
	var passed []*request
	for _, r := range group {
		if r.change != nil {
			next := nvs.DeepCopy()
			r.alter(next)
			if err := refusal(nvs, next); err != nil {
				finish([]*request{r}, nvs, err)
				continue
			}
			nvs = next
			changed++
		}
		passed = append(passed, r)
	}
	return nvs, passed, changed
}
