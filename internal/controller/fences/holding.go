/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package fences

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/fencing"
)

// Holder reads fences live.
type Holder interface {
	// Holds reads a recorded fence live, and reports whether it still holds for the Node.
	Holds(ctx context.Context, ref volumesv1alpha1.FenceReference, node *corev1.Node,
		nvs *volumesv1alpha1.NodeVolumeState) (bool, error)
}

// Holding is the first of the recorded fences that still holds, read live; nil if none does. One that cannot be read
// proves nothing, and is in the way of no other one.
func Holding(ctx context.Context, h Holder, recorded []volumesv1alpha1.FenceReference, node *corev1.Node,
	nvs *volumesv1alpha1.NodeVolumeState) *volumesv1alpha1.FenceReference {
	for i := range recorded {
		holds, err := h.Holds(ctx, recorded[i], node, nvs)
		if err != nil {
			ctrl.LoggerFrom(ctx).Error(err, "a fence cannot be read", "node", nvs.Name, "source", recorded[i].Source)
		}
		if holds && err == nil {
			return &recorded[i]
		}
	}
	return nil
}

// Configured reports whether there is a source of that name whose fences are about machines.
func (w *Watcher) Configured(source string) bool {
	return slices.ContainsFunc(w.Sources, func(s *fencing.Source) bool {
		return s.Name == source && s.Proves != volumesv1alpha1.FenceAccessCut
	})
}
