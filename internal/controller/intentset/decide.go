/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package intentset

import (
	"cmp"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
)

// plan is what there is to do, and what the set reports.
type plan struct {
	// create an intent on these nodes.
	create []nodeFacts
	// claims that are missing on nodes with an intent.
	claims []nodeFacts
	adopt  []*volumesv1alpha1.VolumeAttachmentIntent
	// remove those whose node is gone or not selected, if a live read says the same.
	remove []*volumesv1alpha1.VolumeAttachmentIntent
	// replace those that have an earlier template.
	replace []*volumesv1alpha1.VolumeAttachmentIntent
	outcome outcome
}

// outcome is what the set reports.
type outcome struct {
	revision string
	// desired, current, updated, ready and failing as the status has them.
	desired, current, updated, ready, failing int32
	// waiting is the first intent that is not ready, and stalled the first that no retry can mend.
	waiting, stalled *volumesv1alpha1.VolumeAttachmentIntent
	problems         []problem
}

// problem keeps the set from what it is to do.
type problem struct {
	reason, message string
}

// decide compares the nodes with the intents. Both are sorted by name first, so that passes over an old cache come to
// the same result.
func decide(f facts) plan {
	p := plan{outcome: outcome{revision: f.revision}}
	if f.invalid != nil {
		p.outcome.problems = []problem{{volumesv1alpha1.ReasonSelectorInvalid, f.invalid.Error()}}
		return p
	}
	slices.SortFunc(f.nodes, func(a, b nodeFacts) int { return cmp.Compare(a.name, b.name) })
	slices.SortFunc(f.intents, func(a, b *volumesv1alpha1.VolumeAttachmentIntent) int {
		return cmp.Compare(a.Name, b.Name)
	})
	mine := map[string]*volumesv1alpha1.VolumeAttachmentIntent{}
	for _, intent := range f.intents {
		if belongs(f.set, intent) {
			mine[intent.Name] = intent
			p.outcome.current++
		}
	}
	var outdated []*volumesv1alpha1.VolumeAttachmentIntent
	for _, node := range f.nodes {
		name := IntentName(f.set.Name, node.name)
		intent := mine[name]
		if intent != nil && intent.Spec.NodeName == node.name {
			delete(mine, name)
		} else if intent != nil {
			continue // by another node of the same name part: it goes first
		}
		if f.keep(&p, node, intent) {
			outdated = append(outdated, intent)
		}
	}
	p.removeAll(f, mine)
	p.rollOut(f, outdated)
	return p
}

// keep counts one node and its intent, nil for none, and plans what it needs. It returns true if the intent is to be
// replaced by one of the present template.
func (f facts) keep(p *plan, node nodeFacts, intent *volumesv1alpha1.VolumeAttachmentIntent) bool {
	if !node.allowed {
		return false // an intent that is there is kept as it is
	}
	o := &p.outcome
	o.desired++
	switch {
	case intent == nil && node.taken:
		o.failing++
		o.problems = append(o.problems, problem{volumesv1alpha1.ReasonNameTaken, fmt.Sprintf(
			"VolumeAttachmentIntent %s was not made for this set; delete or rename it", IntentName(f.set.Name, node.name))})
		return false
	case intent == nil && node.deleting:
		o.desired--
		return false
	case intent == nil:
		p.create = append(p.create, node)
		return false
	case f.leaving(intent):
		o.wait(intent)
		return false
	}
	if adoptable(f.set, intent) {
		p.adopt = append(p.adopt, intent)
	}
	if node.claimless {
		p.claims = append(p.claims, node)
	}
	o.count(intent)
	if intent.Labels[volumesv1alpha1.RevisionLabel] != f.revision {
		return true
	}
	o.updated++
	return false
}

// count the state of an intent that stays.
func (o *outcome) count(intent *volumesv1alpha1.VolumeAttachmentIntent) {
	switch {
	case ready(intent):
		o.ready++
	case meta.IsStatusConditionTrue(intent.Status.Conditions, volumesv1alpha1.ConditionStalled):
		o.failing++
		if o.stalled == nil {
			o.stalled = intent
		}
	default:
		o.wait(intent)
	}
}

func (o *outcome) wait(intent *volumesv1alpha1.VolumeAttachmentIntent) {
	if o.waiting == nil {
		o.waiting = intent
	}
}

func ready(intent *volumesv1alpha1.VolumeAttachmentIntent) bool {
	return intent.Status.ObservedGeneration == intent.Generation &&
		meta.IsStatusConditionTrue(intent.Status.Conditions, volumesv1alpha1.ConditionReady)
}

// removeAll plans the end of the intents that are left over.
func (p *plan) removeAll(f facts, rest map[string]*volumesv1alpha1.VolumeAttachmentIntent) {
	for _, intent := range f.intents {
		if rest[intent.Name] == intent && metav1.IsControlledBy(intent, f.set) && !f.leaving(intent) {
			p.remove = append(p.remove, intent)
		}
	}
}

// rollOut plans the replacement of intents that have an earlier template. Those that are not ready go at once: their
// nodes lose nothing. The others go while the nodes without a ready intent are fewer than the budget.
func (p *plan) rollOut(f facts, outdated []*volumesv1alpha1.VolumeAttachmentIntent) {
	unavailable := int(p.outcome.desired - p.outcome.ready)
	budget := budgetOf(f.set, int(p.outcome.desired))
	for _, intent := range outdated {
		switch {
		case !ready(intent):
			p.replace = append(p.replace, intent)
		case unavailable < budget:
			p.replace = append(p.replace, intent)
			unavailable++
		}
	}
}

// budgetOf is maxUnavailable as a number of at least 1.
func budgetOf(set *volumesv1alpha1.VolumeAttachmentIntentSet, desired int) int {
	if set.Spec.Rollout == nil || set.Spec.Rollout.MaxUnavailable == nil {
		return 1
	}
	budget, err := intstr.GetScaledValueFromIntOrPercent(set.Spec.Rollout.MaxUnavailable, desired, true)
	if err != nil {
		return 1 // the API's own validation refuses it
	}
	return max(budget, 1)
}
