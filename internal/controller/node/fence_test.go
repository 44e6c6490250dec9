/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package node

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
)

// knownFences are the fences of each node, of the one source if it is configured.
type knownFences struct {
	Fences
	of         []volumesv1alpha1.FenceReference
	configured bool
}

func (k knownFences) Of(*corev1.Node, *volumesv1alpha1.NodeVolumeState) []volumesv1alpha1.FenceReference {
	return k.of
}

func (k knownFences) Configured(string) bool { return k.configured }

// TestAContradictedFenceIsShownWhileItsSourceIsConfigured: about another one there is nothing to do.
func TestAContradictedFenceIsShownWhileItsSourceIsConfigured(t *testing.T) {
	ref := volumesv1alpha1.FenceReference{Source: "bmc", Name: "h", UID: "1", Proves: volumesv1alpha1.FencePowerOff}
	contradicted := metav1.Unix(1000, 0)
	nvs := stateOf("n", func(nvs *volumesv1alpha1.NodeVolumeState) {
		nvs.Status.Node.Fences = []volumesv1alpha1.FenceObservation{{FenceReference: ref, Contradicted: &contradicted}}
	})
	for _, step := range []struct {
		configured bool
		want       metav1.ConditionStatus
		writes     int
	}{
		{false, "", 0}, {true, metav1.ConditionFalse, 1}, {true, metav1.ConditionFalse, 0},
		{false, metav1.ConditionTrue, 1}, {false, metav1.ConditionTrue, 0}, {true, metav1.ConditionFalse, 1},
	} {
		objects := []client.Object{nvs, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}}
		w := over(t, objects, objects)
		w.Fences = knownFences{of: []volumesv1alpha1.FenceReference{ref}, configured: step.configured}
		if _, err := w.recordFences(t.Context(), nvs); err != nil || w.observed != step.writes {
			t.Errorf("fences of node n, whose source is configured %t: error %v, %d writes; want none and %d", step.configured,
				err, w.observed, step.writes)
		}
		nvs = w.state(t, "n")
		var got metav1.ConditionStatus
		if c := meta.FindStatusCondition(nvs.Status.Conditions, volumesv1alpha1.ConditionFencesConsistent); c != nil {
			got = c.Status
		}
		if got != step.want || len(nvs.Status.Node.Fences) != 1 || nvs.Status.Node.Fences[0].Contradicted == nil {
			t.Errorf("node n, whose source is configured %t: condition %q, fences %+v; want %q, and the fence contradicted",
				step.configured, got, nvs.Status.Node.Fences, step.want)
		}
	}
}
