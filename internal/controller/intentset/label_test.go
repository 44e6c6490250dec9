/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package intentset

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
)

func TestTheKeyOfALabelNamesOneSet(t *testing.T) {
	long := strings.Repeat("n", 40)
	seen := map[string]client.ObjectKey{}
	for _, set := range []client.ObjectKey{
		{Namespace: "a", Name: "b"}, {Namespace: "a", Name: "b.c"}, {Namespace: "a-b", Name: "c"},
		{Namespace: "a", Name: "b-c"}, {Namespace: "b", Name: "a"}, {Namespace: "a", Name: "c.b"},
		{Namespace: long, Name: strings.Repeat("s", 22)}, {Namespace: long, Name: strings.Repeat("s", 23)},
		{Namespace: long, Name: strings.Repeat("s", 63)},
	} {
		key := labelKey(set)
		if other, taken := seen[key]; taken {
			t.Errorf("sets %s and %s have the same label %s, want two", set, other, key)
		}
		seen[key] = set
		if got := setOfLabel(key); got != set {
			t.Errorf("label %s is of set %s, want %s", key, got, set)
		}
		if problems := validation.IsQualifiedName(key); labelFits(key) != (len(problems) == 0) {
			t.Errorf("label %s fits: %t, but the API server answers %v", key, labelFits(key), problems)
		}
	}
}

func TestAChangeOfLabelsNamesOnlyThoseOfSetsThatDiffer(t *testing.T) {
	const a, b = volumesv1alpha1.ReadyLabelPrefix + "ns.a", volumesv1alpha1.ReadyLabelPrefix + "ns.b"
	for _, c := range []struct {
		name   string
		labels map[string]string
		wanted sets.Set[string]
		change map[string]any
	}{
		{name: "nothing", labels: map[string]string{"pool": "a"}},
		{name: "as wanted", labels: map[string]string{"pool": "a", a: "true"}, wanted: sets.New(a)},
		{name: "a set became ready", labels: map[string]string{"pool": "a"}, wanted: sets.New(a),
			change: map[string]any{a: "true"}},
		{name: "a set is not ready any more", labels: map[string]string{"pool": "a", a: "true"},
			change: map[string]any{a: nil}},
		{name: "one instead of another", labels: map[string]string{a: "true"}, wanted: sets.New(b),
			change: map[string]any{a: nil, b: "true"}},
		{name: "another value", labels: map[string]string{a: "no"}, wanted: sets.New(a), change: map[string]any{a: "true"}},
		{name: "a key that is of no set", labels: map[string]string{volumesv1alpha1.ReadyLabelPrefix + "x": ""},
			change: map[string]any{volumesv1alpha1.ReadyLabelPrefix + "x": nil}},
		{name: "keys like ours", labels: map[string]string{"ready.volumes.hawser.io": "", "volumes.hawser.io/x": ""}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := labelChange(c.labels, c.wanted); !maps.Equal(got, c.change) {
				t.Errorf("labels %v with %v wanted: change %v, want %v", c.labels, c.wanted.UnsortedList(), got, c.change)
			}
		})
	}
}

func TestASetThatSelectsByLabelsOfSetsHasNoSelector(t *testing.T) {
	for _, c := range []struct {
		selector *metav1.LabelSelector
		refused  bool
	}{
		{selector: &metav1.LabelSelector{}},
		{selector: &metav1.LabelSelector{MatchLabels: map[string]string{"pool": "a"}}},
		{selector: &metav1.LabelSelector{MatchLabels: map[string]string{"ready.volumes.hawser.io": "a"}}},
		{selector: &metav1.LabelSelector{MatchLabels: map[string]string{cacheLabel: "true"}}, refused: true},
		{selector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
			{Key: cacheLabel, Operator: metav1.LabelSelectorOpDoesNotExist}}}, refused: true},
	} {
		set := newSet()
		set.Spec.NodeSelector = c.selector
		if _, err := selectorOf(set); (err != nil) != c.refused {
			t.Errorf("selector %v of a set: error %v, want one: %t", c.selector, err, c.refused)
		}
	}
}

func TestTheOldestSetsOfEachNamespaceShareTheLabelsOfANode(t *testing.T) {
	var ready []*volumesv1alpha1.VolumeAttachmentIntentSet
	for i := range mostLabels + 2 {
		set := newSet()
		set.Name = fmt.Sprintf("s%02d", i)
		set.CreationTimestamp = metav1.Unix(int64(1000-i), 0) // the last is the oldest
		ready = append(ready, set)
	}
	other := newSet()
	other.Namespace = "other"
	wanted, beyond := share(append(ready, other))
	if want := []string{volumesv1alpha1.ReadyLabelPrefix + "ns.s00",
		volumesv1alpha1.ReadyLabelPrefix + "ns.s01"}; !slices.Equal(beyond, want) {
		t.Errorf("labels beyond the limit are %v, want those of the newest sets, %v", beyond, want)
	}
	if len(wanted) != mostLabels+1 || !wanted.Has(labelKey(client.ObjectKeyFromObject(other))) {
		t.Errorf("the node is to have %d labels, %v; want %d and that of the set of another namespace", len(wanted),
			sets.List(wanted), mostLabels+1)
	}
}
