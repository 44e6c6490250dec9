/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package nodestate

import (
	"encoding/json"
	"errors"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
)

// SizeLimit of a NodeVolumeState in JSON. Below what the API server stores, so that a Detaching and the
// agent's own lines always fit.
const SizeLimit = 1 << 20

// ErrTooLarge: the change would let the NodeVolumeState grow beyond SizeLimit.
var ErrTooLarge = errors.New("the node's NodeVolumeState is full")

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
	if changed == 0 || size(nvs) <= SizeLimit {
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

// applySingly leaves out the attachments that make the object grow beyond the limit. What lets go of one is never
// left out.
func applySingly(
	nvs *volumesv1alpha1.NodeVolumeState, group []*request,
) (*volumesv1alpha1.NodeVolumeState, []*request, int) {
	changed := 0
	var passed []*request
	for _, r := range group {
		if r.change != nil {
			next := nvs.DeepCopy()
			r.alter(next)
			if attached(next) > attached(nvs) && size(next) > SizeLimit {
				finish([]*request{r}, nvs, ErrTooLarge)
				continue
			}
			nvs = next
			changed++
		}
		passed = append(passed, r)
	}
	return nvs, passed, changed
}

func attached(nvs *volumesv1alpha1.NodeVolumeState) int {
	n := 0
	for i := range nvs.Spec.Attachments {
		if nvs.Spec.Attachments[i].State == volumesv1alpha1.AttachmentAttached {
			n++
		}
	}
	return n
}

func size(nvs *volumesv1alpha1.NodeVolumeState) int {
	b, err := json.Marshal(nvs)
	if err != nil {
		return SizeLimit + 1
	}
	return len(b)
}
