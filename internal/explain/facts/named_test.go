/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package facts

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func TestAMessageNamesTheObjectThatWasNotFound(t *testing.T) {
	for message, want := range map[string]Ref{
		`MountVolume.SetUp failed for volume "x" : configmap "settings" not found`: {KindConfigMap, "shop", "settings"},
		`MountVolume.SetUp failed for volume "keys" : secret "keys" not found`:     {KindSecret, "shop", "keys"},
		`fetching NodeStageSecretRef storage/keys failed: kubernetes.io/csi: failed to find the secret keys in the ` +
			`namespace storage with error: secrets "keys" not found`: {KindSecret, "storage", "keys"},
		`references non-existent secret key: password`: {},
		`pods "web" not found`:                         {},
	} {
		got, ok := NotFoundIn(message, "shop")
		if got != want || ok != (want != Ref{}) {
			t.Errorf("%s: %v, found %t, want %v", message, got, ok, want)
		}
	}
}

func TestAPodThatMayUseOneNodeNamesIt(t *testing.T) {
	in := func(key string, values ...string) corev1.NodeSelectorTerm {
		return corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: key,
			Operator: corev1.NodeSelectorOpIn, Values: values}}}
	}
	host := corev1.LabelHostname
	for name, tt := range map[string]struct {
		terms []corev1.NodeSelectorTerm
		want  string
	}{
		"one host":          {[]corev1.NodeSelectorTerm{in(host, "node-a")}, "node-a"},
		"one of two hosts":  {[]corev1.NodeSelectorTerm{in(host, "node-a", "node-b")}, ""},
		"one or another":    {[]corev1.NodeSelectorTerm{in(host, "node-a"), in(host, "node-b")}, ""},
		"a zone":            {[]corev1.NodeSelectorTerm{in("zone", "east")}, ""},
		"one that is bound": {nil, "node-z"},
	} {
		pod := &corev1.Pod{Spec: corev1.PodSpec{Affinity: &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: tt.terms}}}}}
		if tt.terms == nil {
			pod.Spec.NodeName = "node-z"
		}
		if got := NodeOf(pod); got != tt.want {
			t.Errorf("%s: node %q, want %q", name, got, tt.want)
		}
	}
}
