/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package placement

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
)

// narrowed is the node affinity that a pod gets.
type narrowed struct {
	terms []term
	// chosen names what was left out; empty if the terms allow exactly what is possible.
	chosen string
}

// ownTerms are what the pod itself requires.
func ownTerms(pod *corev1.Pod) []term {
	a := pod.Spec.Affinity
	if a == nil || a.NodeAffinity == nil || a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return nil
	}
	return a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
}

// selectorTerm is the pod's node selector as a term.
func selectorTerm(pod *corev1.Pod) term {
	var t term
	for _, key := range slices.Sorted(maps.Keys(pod.Spec.NodeSelector)) {
		t.MatchExpressions = append(t.MatchExpressions, in(key, pod.Spec.NodeSelector[key]))
	}
	return t
}

// narrow adds the alternatives to what the pod requires. It returns false if no node can ever match.
//
//	the pod has          the API server allows              so the result is
//	no term              any terms                          the alternatives: exact
//	terms                requirements, added to each term   for each term the one alternative that goes with it: exact;
//	                                                        if there are several, the one with the most nodes
func narrow(pod *corev1.Pod, allowed alternatives, nodes []*corev1.Node) (narrowed, bool) {
	selector := selectorTerm(pod)
	allowed = compatible(selector, allowed)
	own := ownTerms(pod)
	switch {
	case len(allowed) == 0:
		return narrowed{}, false
	case allowed.unrestricted():
		return narrowed{terms: own}, true
	case len(own) == 0:
		return narrowed{terms: allowed}, true
	}
	result, possible := narrowed{}, false
	var left []string
	for _, t := range own {
		choices := compatible(join(selector, t), allowed)
		switch {
		case empty(t): // It matches no node, and the API server lets nothing be added to it.
			result.terms = append(result.terms, t)
			continue
		case len(choices) == 0: // No node matches any more.
			result.terms = append(result.terms, join(t, allowed[0]))
			continue
		}
		possible = true
		best := widest(pod, t, choices, nodes)
		result.terms = append(result.terms, join(t, choices[best]))
		for i, choice := range choices {
			if d := describe(choice); i != best && !slices.Contains(left, d) {
				left = append(left, d)
			}
		}
	}
	if len(left) > 0 {
		result.chosen = fmt.Sprintf("the pod's own node affinity cannot take in alternatives, so the one with the most "+
			"nodes was chosen; left out: %s", strings.Join(left, "; or "))
	}
	return result, possible
}

// compatible returns the alternatives that do not contradict t.
func compatible(t term, allowed alternatives) alternatives {
	return slices.DeleteFunc(slices.Clone(allowed), func(a term) bool { return contradicts(join(t, a)) })
}

// widest is the choice that leaves the most of today's nodes to the pod's term; the first of several.
func widest(pod *corev1.Pod, t term, choices alternatives, nodes []*corev1.Node) int {
	best, count := 0, -1
	for i, choice := range choices {
		if n := len(matching(pod, []term{join(t, choice)}, nodes)); n > count {
			best, count = i, n
		}
	}
	return best
}

// matching returns the nodes on which a pod with these terms may run, as far as selector and affinity are concerned.
func matching(pod *corev1.Pod, terms []term, nodes []*corev1.Node) []*corev1.Node {
	var affinity *corev1.Affinity
	if len(terms) > 0 {
		affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: terms}}}
	}
	required := nodeaffinity.NewRequiredNodeAffinity(pod.Spec.NodeSelector, affinity)
	var found []*corev1.Node
	for _, node := range nodes {
		// An error is that of a term that can match nothing.
		if match, err := required.Match(node); err == nil && match {
			found = append(found, node)
		}
	}
	return found
}

// onlyOn reports whether the pod can run on none but these nodes, whatever nodes are added: its node selector, or each
// of the terms, names them.
func onlyOn(pod *corev1.Pod, terms []term, nodes []*corev1.Node) bool {
	others := join(selectorTerm(pod), exceptNamed(nodes))
	if len(terms) == 0 {
		return contradicts(others)
	}
	return !slices.ContainsFunc(terms, func(t term) bool { return !empty(t) && !contradicts(join(t, others)) })
}

// exceptNamed excludes the names of nodes, and every label that has such a name as its value: drivers of local volumes
// name a node by a label of their own.
func exceptNamed(nodes []*corev1.Node) term {
	var all []string
	byLabel := map[string][]string{}
	for _, node := range nodes {
		all = append(all, node.Name)
		for key, value := range node.Labels {
			if key == corev1.LabelHostname || value == node.Name {
				byLabel[key] = append(byLabel[key], value)
			}
		}
	}
	t := term{MatchFields: []corev1.NodeSelectorRequirement{notIn(metav1.ObjectNameField, all...)}}
	for key, values := range byLabel {
		t.MatchExpressions = append(t.MatchExpressions, notIn(key, values...))
	}
	return t
}

// without excludes nodes from each term. It does not name the others: a node that does not exist yet may be used. A
// node whose label for the host is missing, or is that of another node, is excluded by its name.
func without(terms []term, excluded, nodes []*corev1.Node) []term {
	if len(excluded) == 0 {
		return terms
	}
	hosts := map[string]int{}
	for _, node := range nodes {
		hosts[node.Labels[corev1.LabelHostname]]++
	}
	var names []string
	var t term
	for _, node := range excluded {
		if host := node.Labels[corev1.LabelHostname]; host != "" && hosts[host] == 1 {
			names = append(names, host)
		} else {
			t.MatchFields = append(t.MatchFields, notIn(metav1.ObjectNameField, node.Name))
		}
	}
	if len(names) > 0 {
		slices.Sort(names)
		t.MatchExpressions = append(t.MatchExpressions, notIn(corev1.LabelHostname, names...))
	}
	if len(terms) == 0 {
		return []term{t}
	}
	result := make([]term, len(terms))
	for i, own := range terms {
		if result[i] = own; !empty(own) {
			result[i] = join(own, t)
		}
	}
	return result
}
