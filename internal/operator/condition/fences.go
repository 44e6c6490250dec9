/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package condition

import (
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
)

// FenceSources is what is known of the sources of spec.fencing.
type FenceSources struct {
	// Problems of the sources, one each, in the order of the spec.
	Problems []Problem
	// Again is when to examine them without an event; 0 is never.
	Again time.Duration
}

// fenceReasons, the worst first: no waiting mends an expression, and a kind that is missing has no rights to grant.
var fenceReasons = []string{volumesv1alpha1.ReasonFenceSourceBroken, volumesv1alpha1.ReasonFenceSourceMissing,
	volumesv1alpha1.ReasonFenceSourceForbidden}

// ready has the reason of the worst problem, and names all.
func (s FenceSources) ready() metav1.Condition {
	if len(s.Problems) == 0 {
		return newCondition(volumesv1alpha1.ConditionFenceSourcesReady, true, volumesv1alpha1.ReasonAsExpected, "")
	}
	sorted := slices.Clone(s.Problems)
	slices.SortStableFunc(sorted, func(a, b Problem) int {
		return slices.Index(fenceReasons, a.Reason) - slices.Index(fenceReasons, b.Reason)
	})
	messages := make([]string, 0, len(sorted))
	for _, p := range sorted {
		messages = append(messages, p.Message)
	}
	return newCondition(volumesv1alpha1.ConditionFenceSourcesReady, false, sorted[0].Reason,
		strings.Join(messages, "; "))
}
