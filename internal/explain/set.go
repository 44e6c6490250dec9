/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package explain

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/explain/catalog"
	"github.com/hawser-io/hawser/internal/explain/facts"
)

// mostNamed is how many objects of one kind a text names.
const mostNamed = 3

// setSubject explains a set: its conditions, and for each reason of its intents the one that has waited longest.
func (w *walk) setSubject() {
	w.set()
	w.under(func() {
		if err := w.f.SetIntents.Err; err != nil {
			w.unreadable(facts.Ref{Kind: facts.KindIntent, Namespace: w.f.Subject.Namespace, Name: "(of the set)"}, err)
		}
		for i, part := range facts.Waiting(w.f.SetIntents.Items) {
			w.part(&w.f.Volumes[i], part)
		}
	})
}

// set explains the set itself.
func (w *walk) set() {
	set, ref := w.f.Set.Value, w.f.Set.Ref
	s := set.Status
	text := fmt.Sprintf("%d of %d intents are ready", s.Ready, s.Desired)
	ready := meta.FindStatusCondition(s.Conditions, volumesv1alpha1.ConditionReady)
	state, since := Waits, set.CreationTimestamp.Time
	if ready != nil {
		state, since = stateOf(ready), ready.LastTransitionTime.Time
	}
	switch {
	case set.DeletionTimestamp != nil:
		state, text, since = Waits, "being deleted", set.DeletionTimestamp.Time
		w.find(about{object: ref, reason: catalog.SetDeleting, since: since})
	case ready == nil || s.ObservedGeneration < set.Generation:
		state, text = Waits, "not reconciled yet"
		w.find(w.recent(about{object: ref, reason: catalog.SetNotObserved, since: asked(set),
			detail: generations(s.ObservedGeneration, set)}))
	case s.Desired == 0 && ready.Status == metav1.ConditionTrue:
		w.find(about{object: ref, reason: catalog.SetEmpty})
	}
	w.link(ref, state, text, since)
	for i := range s.Conditions {
		c := &s.Conditions[i]
		if Healthy(c) || c.Type == volumesv1alpha1.ConditionStalled || c.Reason == volumesv1alpha1.ReasonProgressing &&
			len(w.f.Volumes) > 0 {
			continue // Stalled has the reason of Ready, and the intents have what is waited for
		}
		reason := c.Reason
		if reason == volumesv1alpha1.ReasonRollingOut {
			reason = catalog.SetRollingOut // that of a VolumeManager is about workloads
		}
		w.find(about{object: ref, reason: reason, detail: c.Message, since: c.LastTransitionTime.Time})
	}
}

// part explains the first of some intents of the set, and names the others.
func (w *walk) part(v *facts.Volume, part facts.Part) {
	first := len(w.report.Chain)
	w.intent(v)
	w.under(func() {
		w.node(v.Node)
		w.volume(v, v.Intent.Value.DeletionTimestamp == nil)
	})
	if len(part.Intents) == 1 {
		return
	}
	others := "; the same for " + several(part.Intents[1:])
	w.report.Chain[first].Text += others
	for i := range w.report.Findings {
		if f := &w.report.Findings[i]; f.Object == v.Intent.Ref {
			f.Detail += others
			break
		}
	}
}

// several lists some intents with their nodes.
func several(intents []volumesv1alpha1.VolumeAttachmentIntent) string {
	var names []string
	for i := range intents[:min(len(intents), mostNamed)] {
		names = append(names, intents[i].Name+" on "+intents[i].Spec.NodeName)
	}
	if more := len(intents) - mostNamed; more > 0 {
		names = append(names, fmt.Sprintf("%d more", more))
	}
	return strings.Join(names, ", ")
}
