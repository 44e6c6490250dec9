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
	// remove those whose node is gone, being deleted or not selected, if a live read says the same.
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
	// used is the number of nodes whose intent has its volume there, ready or not.
	used int
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
		if node.goes {
			continue // its intent is left over
		}
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
	case intent == nil:
		p.create = append(p.create, node)
		return false
	case f.leaving(intent):
		o.wait(intent)
		return false
	}
	current := intent.Labels[volumesv1alpha1.RevisionLabel] == f.revision
	o.count(intent, current)
	if adoptable(f.set, intent) {
		p.adopt = append(p.adopt, intent)
		return false // it is another's until the set has it
	}
	// A claim that an intent had and lost is not made again: the intent would refuse another one of the name.
	if node.claimless && intent.Status.ClaimUID == "" {
		p.claims = append(p.claims, node)
	}
	return !current
}

// count the state of an intent that stays. An error that is final for an earlier template is not for the present one.
func (o *outcome) count(intent *volumesv1alpha1.VolumeAttachmentIntent, current bool) {
	if current {
		o.updated++
	}
	if used(intent) {
		o.used++
	}
	switch {
	case ready(intent):
		o.ready++
	case current && meta.IsStatusConditionTrue(intent.Status.Conditions, volumesv1alpha1.ConditionStalled):
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

// used reports whether the volume is on the node of the intent, or was when the node answered last.
func used(intent *volumesv1alpha1.VolumeAttachmentIntent) bool {
	if ready(intent) || intent.Status.Path != "" {
		return true
	}
	for _, t := range []string{volumesv1alpha1.ConditionAttached, volumesv1alpha1.ConditionStaged,
		volumesv1alpha1.ConditionPublished} {
		c := meta.FindStatusCondition(intent.Status.Conditions, t)
		if c != nil && c.Status != metav1.ConditionFalse {
			return true
		}
	}
	return false
}

// silent reports whether the node of the intent does not answer. A program there may go on to write, and
// the deletion of the intent would allow a forced detach.
func silent(intent *volumesv1alpha1.VolumeAttachmentIntent) bool {
	c := meta.FindStatusCondition(intent.Status.Conditions, volumesv1alpha1.ConditionReady)
	return c != nil && c.Status == metav1.ConditionUnknown
}

// removeAll plans the end of the intents that are left over.
func (p *plan) removeAll(f facts, rest map[string]*volumesv1alpha1.VolumeAttachmentIntent) {
	for _, intent := range f.intents {
		if rest[intent.Name] == intent && metav1.IsControlledBy(intent, f.set) && !f.leaving(intent) {
			p.remove = append(p.remove, intent)
		}
	}
}

// rollOut plans the replacement of intents that have an earlier template. Those whose volume is not on its node go at
// once: their nodes lose nothing. Those that are ready go while the nodes without a ready intent are fewer than the
// budget, and those that have their volume and are not ready while the nodes without the volume are fewer. Those whose
// node does not answer stay until it does.
func (p *plan) rollOut(f facts, outdated []*volumesv1alpha1.VolumeAttachmentIntent) {
	unready := int(p.outcome.desired - p.outcome.ready)
	unused := int(p.outcome.desired) - p.outcome.used
	budget := budgetOf(f.set, int(p.outcome.desired))
	for _, intent := range outdated {
		switch {
		case silent(intent):
			continue
		case !used(intent):
			p.replace = append(p.replace, intent)
		case ready(intent) && unready < budget:
			p.replace = append(p.replace, intent)
			unready++
			unused++
		case !ready(intent) && unused < budget:
			p.replace = append(p.replace, intent)
			unused++
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
