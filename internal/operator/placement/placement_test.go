/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package placement

import (
	"reflect"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func node(name, pool string, taints ...corev1.Taint) corev1.Node {
	n := corev1.Node{}
	n.Name, n.Labels, n.Spec.Taints = name, map[string]string{"pool": pool}, taints
	return n
}

func TestANodeThatLosesItsAgentIsNamedIfVolumesAreUsedThere(t *testing.T) {
	every := []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
	pool := func(name string) corev1.PodSpec {
		return corev1.PodSpec{NodeSelector: map[string]string{"pool": name}, Tolerations: every}
	}
	taint := func(key string, effect corev1.TaintEffect) corev1.Taint {
		return corev1.Taint{Key: key, Effect: effect}
	}
	nodes := []corev1.Node{
		node("b-1", "b"), node("a-2", "a", taint("gpu", corev1.TaintEffectNoSchedule)), node("a-1", "a"),
		node("a-3", "a", taint(corev1.TaintNodeUnschedulable, corev1.TaintEffectNoSchedule)),
		node("a-4", "a", taint("soft", corev1.TaintEffectPreferNoSchedule)),
		node("unused", "a", taint("gpu", corev1.TaintEffectNoExecute)),
	}
	volumes := map[string]int{"a-1": 1, "a-2": 2, "a-3": 3, "a-4": 4, "b-1": 5}
	for _, test := range []struct {
		name     string
		from, to corev1.PodSpec
		want     []Left
	}{
		{"nothing changes", pool("a"), pool("a"), nil},
		{"a selector is narrowed", corev1.PodSpec{Tolerations: every}, pool("a"), []Left{{"b-1", 5}}},
		{"a selector is widened", pool("a"), corev1.PodSpec{Tolerations: every}, nil},
		{"a selector moves", pool("b"), pool("a"), []Left{{"b-1", 5}}},
		{"tolerations are narrowed: a drained node keeps its agent", pool("a"),
			corev1.PodSpec{NodeSelector: map[string]string{"pool": "a"}}, []Left{{"a-2", 2}}},
		{"nodes are in the order of their names", pool("a"), pool("c"),
			[]Left{{"a-1", 1}, {"a-2", 2}, {"a-3", 3}, {"a-4", 4}}},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := Leaving(nodes, func(node string) int { return volumes[node] }, test.from, test.to)
			if !reflect.DeepEqual(got, test.want) {
				t.Errorf("got %v, want %v", got, test.want)
			}
		})
	}
}

func TestTheMessageCountsAllNodesAndNamesAFew(t *testing.T) {
	left := []Left{{"a", 1}, {"b", -1}, {"c", 3}, {"d", 4}, {"e", 5}, {"f", 6}, {"g", 7}}
	want := "from 7 node(s) with volumes in use: a (1), b (unknown), c (3), d (4), e (5), 2 more. Release these volumes"
	if got := Message(left); !strings.Contains(got, want) {
		t.Errorf("got %q, want it to contain %q", got, want)
	}
}
