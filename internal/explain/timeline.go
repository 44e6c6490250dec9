/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package explain

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/explain/facts"
)

// Moment is when a pod or one of its volumes came into a state. Moments of pods have seconds only.
type Moment struct {
	Time   time.Time `json:"time"`
	Object facts.Ref `json:"object"`
	What   string    `json:"what"`
}

// timeline notes when the pod and the intents that Hawser made for it came into their states, in the order in which one
// leads to the next. A pod without such intents has none.
func (w *walk) timeline() {
	pod, ref := w.f.Pod.Value, w.f.Pod.Ref
	var volumes []Moment
	for i := range w.f.Volumes {
		v := &w.f.Volumes[i]
		if v.Intent.Found && v.Intent.Value.Labels[volumesv1alpha1.PodUIDLabel] != "" {
			volumes = append(volumes, reached(v.Intent.Ref, v.Intent.Value.Status.Timeline)...)
		}
	}
	if len(volumes) == 0 {
		return
	}
	moments := []Moment{{pod.CreationTimestamp.UTC(), ref, "created"}}
	if c := podCondition(pod, corev1.PodScheduled); c.Status == corev1.ConditionTrue && !c.LastTransitionTime.IsZero() {
		moments = append(moments, Moment{c.LastTransitionTime.UTC(), ref, "scheduled"})
	}
	moments = append(moments, volumes...)
	for _, c := range pod.Status.ContainerStatuses {
		if c.State.Running != nil {
			moments = append(moments, Moment{c.State.Running.StartedAt.UTC(), ref, "container " + c.Name + " running"})
		}
	}
	w.report.Timeline = moments
}

// reached lists the times of an intent.
func reached(ref facts.Ref, t *volumesv1alpha1.Timeline) []Moment {
	if t == nil {
		return nil
	}
	var moments []Moment
	for _, state := range []struct {
		what string
		at   *metav1.MicroTime
	}{{"requested", t.Requested}, {"attached", t.Attached}, {"staged", t.Staged}, {"published", t.Published}} {
		if state.at != nil {
			moments = append(moments, Moment{state.at.UTC(), ref, state.what})
		}
	}
	return moments
}
