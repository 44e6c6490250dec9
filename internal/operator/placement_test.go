/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package operator

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
		want     []leftNode
	}{
		{"nothing changes", pool("a"), pool("a"), nil},
		{"a selector is narrowed", corev1.PodSpec{Tolerations: every}, pool("a"), []leftNode{{"b-1", 5}}},
		{"a selector is widened", pool("a"), corev1.PodSpec{Tolerations: every}, nil},
		{"a selector moves", pool("b"), pool("a"), []leftNode{{"b-1", 5}}},
		{"tolerations are narrowed: a drained node keeps its agent", pool("a"),
			corev1.PodSpec{NodeSelector: map[string]string{"pool": "a"}}, []leftNode{{"a-2", 2}}},
		{"nodes are in the order of their names", pool("a"), pool("c"),
			[]leftNode{{"a-1", 1}, {"a-2", 2}, {"a-3", 3}, {"a-4", 4}}},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := leaving(nodes, func(node string) int { return volumes[node] }, test.from, test.to)
			if !reflect.DeepEqual(got, test.want) {
				t.Errorf("got %v, want %v", got, test.want)
			}
		})
	}
}

func notIn(key, value string) *corev1.Affinity {
	return &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{
			{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: key, Operator: corev1.NodeSelectorOpNotIn,
				Values: []string{value}}}}}}}}
}

func TestANodeThatTheAffinityLeavesOutLosesItsAgent(t *testing.T) {
	nodes := []corev1.Node{node("b-1", "b"), node("a-1", "a")}
	got := leaving(nodes, func(string) int { return 1 }, corev1.PodSpec{}, corev1.PodSpec{Affinity: notIn("pool", "b")})
	if want := []leftNode{{"b-1", 1}}; !reflect.DeepEqual(got, want) {
		t.Errorf("nodes that lose their agent by a node affinity: %v, want %v", got, want)
	}
}

func TestOnlyNodesWhoseKubeletLeavesAttachingToAControllerNeedAnAgent(t *testing.T) {
	windows, virtual, linux, left := node("win", "a"), node("virtual", "a"), node("linux", "a"), node("left-out", "b")
	for _, n := range []*corev1.Node{&windows, &linux, &left} {
		n.Annotations = map[string]string{"volumes.kubernetes.io/controller-managed-attach-detach": "true"}
		n.Labels[corev1.LabelOSStable] = "linux"
	}
	windows.Labels[corev1.LabelOSStable], virtual.Labels[corev1.LabelOSStable] = "windows", "linux"
	virtual.Labels["type"] = "virtual-kubelet"
	agent := corev1.PodSpec{NodeSelector: map[string]string{corev1.LabelOSStable: "linux", "pool": "a"},
		Affinity: notIn("type", "virtual-kubelet")}
	got := withoutAgent([]corev1.Node{windows, virtual, linux, left}, agent)
	if want := []string{"left-out", "win (windows)"}; !reflect.DeepEqual(got, want) {
		t.Errorf("nodes that need an agent and have none: %q, want %q", got, want)
	}
}

func TestTheMessageCountsAllNodesAndNamesAFew(t *testing.T) {
	left := []leftNode{{"a", 1}, {"b", -1}, {"c", 3}, {"d", 4}, {"e", 5}, {"f", 6}, {"g", 7}}
	want := "from 7 node(s) with volumes in use: a (1), b (unknown), c (3), d (4), e (5), 2 more. Release these volumes"
	if got := leavingMessage(left); !strings.Contains(got, want) {
		t.Errorf("got %q, want it to contain %q", got, want)
	}
}
