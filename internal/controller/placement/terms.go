/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package placement

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// term is a conjunction of requirements on a node.
type term = corev1.NodeSelectorTerm

// alternatives are terms of which one has to match. None at all match no node. anyNode has one that is empty, which
// here matches every node, unlike in the API.
type alternatives []term

func anyNode() alternatives { return alternatives{{}} }

// unrestricted reports whether every node matches.
func (a alternatives) unrestricted() bool { return slices.ContainsFunc(a, empty) }

func empty(t term) bool { return len(t.MatchExpressions) == 0 && len(t.MatchFields) == 0 }

// most is how many alternatives are kept. To drop some of them only narrows.
const most = 100

// ofVolume are the nodes of a PersistentVolume. Kubernetes compares these terms with labels only, so one with
// matchFields matches no node.
func ofVolume(pv *corev1.PersistentVolume) alternatives {
	if pv.Spec.NodeAffinity == nil || pv.Spec.NodeAffinity.Required == nil {
		return anyNode()
	}
	terms := slices.Clone(pv.Spec.NodeAffinity.Required.NodeSelectorTerms)
	return merged(slices.DeleteFunc(terms, func(t term) bool { return empty(t) || len(t.MatchFields) > 0 }))
}

// ofTopologies are the nodes of a StorageClass.
func ofTopologies(class *storagev1.StorageClass) alternatives {
	if len(class.AllowedTopologies) == 0 {
		return anyNode()
	}
	var found alternatives
	for _, topology := range class.AllowedTopologies {
		var t term
		for _, l := range topology.MatchLabelExpressions {
			t.MatchExpressions = append(t.MatchExpressions, in(l.Key, l.Values...))
		}
		if !empty(t) {
			found = append(found, t)
		}
	}
	return merged(found)
}

func in(key string, values ...string) corev1.NodeSelectorRequirement {
	return corev1.NodeSelectorRequirement{Key: key, Operator: corev1.NodeSelectorOpIn, Values: values}
}

func notIn(key string, values ...string) corev1.NodeSelectorRequirement {
	return corev1.NodeSelectorRequirement{Key: key, Operator: corev1.NodeSelectorOpNotIn, Values: values}
}

// pin is the one node of this name.
func pin(node string) alternatives {
	return alternatives{{MatchFields: []corev1.NodeSelectorRequirement{in(metav1.ObjectNameField, node)}}}
}

// pinned reports whether the term names its node.
func pinned(t term) bool {
	return slices.ContainsFunc(t.MatchFields, func(r corev1.NodeSelectorRequirement) bool {
		return r.Key == metav1.ObjectNameField && r.Operator == corev1.NodeSelectorOpIn
	})
}

// and returns what matches both.
func (a alternatives) and(b alternatives) alternatives {
	var both alternatives
	for _, t := range a {
		for _, u := range b {
			if joined := join(t, u); !contradicts(joined) {
				both = append(both, joined)
			}
		}
	}
	both = merged(both)
	return both[:min(len(both), most)]
}

// join appends what t does not have. What t has stays where it is, as the API server demands of an update.
func join(t, more term) term {
	return term{
		MatchExpressions: appendNew(t.MatchExpressions, more.MatchExpressions),
		MatchFields:      appendNew(t.MatchFields, more.MatchFields),
	}
}

func appendNew(list, more []corev1.NodeSelectorRequirement) []corev1.NodeSelectorRequirement {
	list = slices.Clone(list)
	for _, r := range more {
		if !slices.ContainsFunc(list, func(have corev1.NodeSelectorRequirement) bool { return same(have, r) }) {
			list = append(list, r)
		}
	}
	return list
}

func same(a, b corev1.NodeSelectorRequirement) bool { return equality.Semantic.DeepEqual(a, b) }

// merged unites terms that differ in the values of one requirement only, such as the zones of a volume. The result
// matches the same nodes.
func merged(terms alternatives) alternatives {
	found := slices.Clone(terms)
	for i := 0; i < len(found); i++ {
		for j := i + 1; j < len(found); j++ {
			if united, ok := unite(found[i], found[j]); ok {
				found[i] = united
				found = slices.Delete(found, j, j+1)
				j = i // The united term may go together with an earlier one.
			}
		}
	}
	return found
}

// unite returns the term that matches what a or b matches, if there is one.
func unite(a, b term) (term, bool) {
	switch {
	case includes(a, b):
		return b, true
	case includes(b, a):
		return a, true
	case !equality.Semantic.DeepEqual(a.MatchFields, b.MatchFields) || len(a.MatchExpressions) != len(b.MatchExpressions):
		return term{}, false
	}
	differs := -1
	for i, r := range a.MatchExpressions {
		if slices.ContainsFunc(b.MatchExpressions, func(s corev1.NodeSelectorRequirement) bool { return same(r, s) }) {
			continue
		}
		if differs >= 0 {
			return term{}, false
		}
		differs = i
	}
	r := a.MatchExpressions[differs]
	other := b.MatchExpressions[slices.IndexFunc(b.MatchExpressions, func(s corev1.NodeSelectorRequirement) bool {
		return !slices.ContainsFunc(a.MatchExpressions, func(r corev1.NodeSelectorRequirement) bool { return same(r, s) })
	})]
	if r.Key != other.Key || r.Operator != corev1.NodeSelectorOpIn || other.Operator != corev1.NodeSelectorOpIn {
		return term{}, false
	}
	united := term{MatchExpressions: slices.Clone(a.MatchExpressions), MatchFields: a.MatchFields}
	values := append(slices.Clone(r.Values), other.Values...)
	slices.Sort(values)
	united.MatchExpressions[differs] = in(r.Key, slices.Compact(values)...)
	return united, true
}

// includes reports whether a has every requirement of b, so that b matches whatever a matches.
func includes(a, b term) bool {
	all := func(have, want []corev1.NodeSelectorRequirement) bool {
		return !slices.ContainsFunc(want, func(r corev1.NodeSelectorRequirement) bool {
			return !slices.ContainsFunc(have, func(s corev1.NodeSelectorRequirement) bool { return same(r, s) })
		})
	}
	return all(a.MatchExpressions, b.MatchExpressions) && all(a.MatchFields, b.MatchFields)
}

// contradicts reports whether no node at all can match, whatever its labels are.
func contradicts(t term) bool {
	return contradict(t.MatchExpressions) || contradict(t.MatchFields)
}

func contradict(requirements []corev1.NodeSelectorRequirement) bool {
	for i, r := range requirements {
		if r.Operator != corev1.NodeSelectorOpIn {
			continue
		}
		// The values that are left of this requirement, once the others have taken theirs.
		left := slices.Clone(r.Values)
		for j, other := range requirements {
			if i == j || other.Key != r.Key {
				continue
			}
			left = slices.DeleteFunc(left, func(value string) bool { return !admits(other, value) })
		}
		if len(left) == 0 {
			return true
		}
	}
	return false
}

// admits reports whether a label of this value may match. A comparison of numbers counts as a match.
func admits(r corev1.NodeSelectorRequirement, value string) bool {
	switch r.Operator {
	case corev1.NodeSelectorOpIn:
		return slices.Contains(r.Values, value)
	case corev1.NodeSelectorOpNotIn:
		return !slices.Contains(r.Values, value)
	case corev1.NodeSelectorOpDoesNotExist:
		return false
	}
	return true
}

// describe a term in the notation of kubectl.
func describe(t term) string {
	var parts []string
	for _, r := range append(slices.Clone(t.MatchExpressions), t.MatchFields...) {
		parts = append(parts, strings.TrimSpace(fmt.Sprintf("%s %s %s", r.Key, r.Operator, strings.Join(r.Values, ","))))
	}
	return strings.Join(parts, " and ")
}
