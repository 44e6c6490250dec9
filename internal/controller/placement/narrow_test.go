/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package placement

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const zone, rack = corev1.LabelTopologyZone, "example.com/rack"

// terms of requirements in short: "zone=a,b rack=1", "name=node-a"; "!" instead of "=" for NotIn.
func parse(texts ...string) []term {
	var found []term
	for _, text := range texts {
		var t term
		for part := range strings.FieldsSeq(text) {
			at := strings.IndexAny(part, "=!")
			key := map[string]string{"zone": zone, "rack": rack, "host": corev1.LabelHostname,
				"name": metav1.ObjectNameField}[part[:at]]
			r := in(key, strings.Split(part[at+1:], ",")...)
			if part[at] == '!' {
				r.Operator = corev1.NodeSelectorOpNotIn
			}
			if key == metav1.ObjectNameField {
				t.MatchFields = append(t.MatchFields, r)
			} else {
				t.MatchExpressions = append(t.MatchExpressions, r)
			}
		}
		found = append(found, t)
	}
	return found
}

// short is the reverse of parse; the terms are separated by "|".
func short(terms []term) string {
	var texts []string
	for _, t := range terms {
		var parts []string
		for _, r := range append(append([]corev1.NodeSelectorRequirement{}, t.MatchExpressions...), t.MatchFields...) {
			key := map[string]string{zone: "zone", rack: "rack", corev1.LabelHostname: "host",
				metav1.ObjectNameField: "name"}[r.Key]
			sign := map[corev1.NodeSelectorOperator]string{corev1.NodeSelectorOpIn: "=", corev1.NodeSelectorOpNotIn: "!"}
			parts = append(parts, key+sign[r.Operator]+strings.Join(r.Values, ","))
		}
		texts = append(texts, strings.Join(parts, " "))
	}
	return strings.Join(texts, " | ")
}

func podWith(selector map[string]string, terms ...string) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "web"}}
	pod.Spec.NodeSelector = selector
	if len(terms) > 0 {
		pod.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: parse(terms...)}}}
	}
	return pod
}

// node "node-a zone=a rack=1"; the label of its host is its name.
func nodesOf(texts ...string) []*corev1.Node {
	var nodes []*corev1.Node
	for _, text := range texts {
		name, labels, _ := strings.Cut(text, " ")
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelHostname: name}}}
		for label := range strings.FieldsSeq(labels) {
			key, value, _ := strings.Cut(label, "=")
			node.Labels[map[string]string{"zone": zone, "rack": rack, "host": corev1.LabelHostname}[key]] = value
		}
		nodes = append(nodes, node)
	}
	return nodes
}

func TestTheAffinityOfAPodIsNarrowedToWhatItsVolumesAllow(t *testing.T) {
	nodes := nodesOf("node-a zone=a rack=1", "node-b zone=b rack=1", "node-b2 zone=b rack=2")
	for _, test := range []struct {
		name     string
		selector map[string]string
		own      []string
		allowed  []string
		// want is empty if no node can match.
		want string
		// left is part of what the message has of alternatives that are left out.
		left string
	}{
		{name: "a pod without terms gets the alternatives", allowed: []string{"zone=a rack=1", "zone=b rack=2"},
			want: "zone=a rack=1 | zone=b rack=2"},
		{name: "each term of the pod gets a single alternative", own: []string{"rack=1", "rack=2"},
			allowed: []string{"zone=b"}, want: "rack=1 zone=b | rack=2 zone=b"},
		{name: "a pin goes beside the expressions of each term", own: []string{"rack=1", "zone=a"},
			allowed: []string{"name=node-a"}, want: "rack=1 name=node-a | zone=a name=node-a"},
		{name: "zones of several alternatives become one requirement", own: []string{"rack=1"},
			allowed: []string{"zone=a", "zone=b"}, want: "rack=1 zone=a,b"},
		{name: "a term gets the alternative that goes with it", own: []string{"zone=a", "zone=b"},
			allowed: []string{"zone=a rack=1", "zone=b rack=2"}, want: "zone=a rack=1 | zone=b rack=2"},
		{name: "of several alternatives the one with the most nodes is chosen", own: []string{"rack=1,2"},
			allowed: []string{"zone=a rack=1", "zone=b"}, want: "rack=1,2 zone=b", left: zone + " In a and " + rack + " In 1"},
		{name: "the first of equal alternatives is chosen", own: []string{"rack=1,2,3"},
			allowed: []string{"zone=x rack=1", "zone=y rack=3"}, want: "rack=1,2,3 zone=x rack=1", left: zone + " In y"},
		{name: "the node selector counts", selector: map[string]string{zone: "b"}, own: []string{"rack=1,2"},
			allowed: []string{"zone=a rack=1", "zone=b"}, want: "rack=1,2 zone=b"},
		{name: "a node selector that contradicts", selector: map[string]string{zone: "c"}, allowed: []string{"zone=a,b"}},
		{name: "terms that all contradict", own: []string{"zone=c", "zone=d"}, allowed: []string{"zone=a,b"}},
		{name: "NotIn can contradict", own: []string{"zone!a,b"}, allowed: []string{"zone=a,b"}},
		{name: "a term that contradicts matches no node, the others stay", own: []string{"zone=c", "rack=1"},
			allowed: []string{"zone=a,b"}, want: "zone=c zone=a,b | rack=1 zone=a,b"},
		{name: "a pin to another node contradicts", own: []string{"name=node-b"}, allowed: []string{"name=node-a"}},
		{name: "a pin to the same node is not repeated", own: []string{"name=node-a"}, allowed: []string{"name=node-a"},
			want: "name=node-a"},
		{name: "an empty term matches nothing and stays", own: []string{"", "rack=1"}, allowed: []string{"zone=a"},
			want: " | rack=1 zone=a"},
		{name: "no restriction changes nothing", own: []string{"rack=1", ""}, allowed: []string{""}, want: "rack=1 | "},
	} {
		t.Run(test.name, func(t *testing.T) {
			pod := podWith(test.selector, test.own...)
			before := short(ownTerms(pod))
			got, possible := narrow(pod, merged(parse(test.allowed...)), nodes)
			if possible != (test.want != "") {
				t.Fatalf("narrowing %q to %q is possible: %t, want %t", test.own, test.allowed, possible, !possible)
			}
			if possible && short(got.terms) != test.want {
				t.Errorf("narrowing %q to %q gives %q, want %q", test.own, test.allowed, short(got.terms), test.want)
			}
			if (test.left == "") != (got.chosen == "") || !strings.Contains(got.chosen, test.left) {
				t.Errorf("the message is %q, want one that has %q", got.chosen, test.left)
			}
			if after := short(ownTerms(pod)); after != before {
				t.Errorf("the pod's own terms became %q, want them unchanged: %q", after, before)
			}
		})
	}
}

func TestAlternativesAreCombinedExactly(t *testing.T) {
	for _, test := range []struct {
		name string
		a, b []string
		want string
	}{
		{"any node changes nothing", []string{""}, []string{"zone=a", "zone=b rack=1"}, "zone=a | zone=b rack=1"},
		{"both requirements have to match", []string{"zone=a"}, []string{"rack=1"}, "zone=a rack=1"},
		{"what contradicts is left out", []string{"zone=a", "zone=b"}, []string{"zone=b,c"}, "zone=a,b zone=b,c"},
		{"nothing is left", []string{"zone=a"}, []string{"zone=b"}, ""},
		{"each with each", []string{"zone=a rack=1", "zone=b rack=2"}, []string{"name=n", "host=h"},
			"zone=a rack=1 name=n | zone=a rack=1 host=h | zone=b rack=2 name=n | zone=b rack=2 host=h"},
		{"a wider alternative takes in a narrower one", []string{"zone=a", "zone=a rack=1"}, []string{""}, "zone=a"},
		{"terms that differ in two requirements stay apart", []string{"zone=a rack=1", "zone=b rack=2"}, []string{""},
			"zone=a rack=1 | zone=b rack=2"},
		{"united terms unite again", []string{"zone=a rack=1", "zone=b rack=1", "zone=a rack=2", "zone=b rack=2"},
			[]string{""}, "zone=a,b rack=1,2"},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := merged(parse(test.a...)).and(merged(parse(test.b...)))
			if short(got) != test.want {
				t.Errorf("%q and %q give %q, want %q", test.a, test.b, short(got), test.want)
			}
		})
	}
}

func TestTooManyAlternativesAreCutNotWidened(t *testing.T) {
	var a, b alternatives
	for i := range 20 {
		a = append(a, parse("zone=z"+string(rune('a'+i))+" rack=r"+string(rune('a'+i)))...)
		b = append(b, parse("host=h"+string(rune('a'+i))+" name=n"+string(rune('a'+i)))...)
	}
	got := a.and(b)
	if len(got) != most {
		t.Fatalf("20 alternatives with 20 others give %d, want %d", len(got), most)
	}
	for _, g := range got {
		if len(g.MatchExpressions) != 3 || len(g.MatchFields) != 1 {
			t.Errorf("alternative %q has not every requirement of both", short([]term{g}))
		}
	}
}

func TestTheNodesOfAVolumeAreThoseOfKubernetes(t *testing.T) {
	pv := &corev1.PersistentVolume{}
	if got := ofVolume(pv); !got.unrestricted() {
		t.Errorf("a volume without affinity has the nodes %q, want any", short(got))
	}
	pv.Spec.NodeAffinity = &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{
		NodeSelectorTerms: parse("zone=a", "", "zone=b", "name=node-a")}}
	if got, want := short(ofVolume(pv)), "zone=a,b"; got != want {
		t.Errorf("a volume of two zones, with an empty term and one with fields, has the nodes %q, want %q", got, want)
	}
	pv.Spec.NodeAffinity.Required.NodeSelectorTerms = parse("name=node-a")
	if got := ofVolume(pv); len(got) != 0 {
		t.Errorf("a volume whose only term has fields has the nodes %q, want none", short(got))
	}
}

func TestTheNodesOfAStorageClassAreItsTopologies(t *testing.T) {
	class := &storagev1.StorageClass{}
	if got := ofTopologies(class); !got.unrestricted() {
		t.Errorf("a class without topologies has the nodes %q, want any", short(got))
	}
	topology := func(pairs ...string) corev1.TopologySelectorTerm {
		var t corev1.TopologySelectorTerm
		for i := 0; i < len(pairs); i += 2 {
			t.MatchLabelExpressions = append(t.MatchLabelExpressions, corev1.TopologySelectorLabelRequirement{
				Key: pairs[i], Values: strings.Split(pairs[i+1], ",")})
		}
		return t
	}
	class.AllowedTopologies = []corev1.TopologySelectorTerm{topology(zone, "a,b", rack, "1"), topology(),
		topology(zone, "c", rack, "2")}
	if got, want := short(ofTopologies(class)), "zone=a,b rack=1 | zone=c rack=2"; got != want {
		t.Errorf("the nodes of the class are %q, want %q", got, want)
	}
}

func TestExcludedNodesAreNamedAndTheOthersAreNot(t *testing.T) {
	nodes := nodesOf("node-a zone=a", "node-b zone=a", "node-c host=shared", "node-d host=shared", "node-e host=")
	for _, test := range []struct {
		name     string
		terms    []string
		excluded []*corev1.Node
		want     string
	}{
		{"none", []string{"zone=a"}, nil, "zone=a"},
		{"by the label of the host", []string{"zone=a", "rack=1"}, nodes[:2],
			"zone=a host!node-a,node-b | rack=1 host!node-a,node-b"},
		{"without a term of the pod", nil, nodes[:1], "host!node-a"},
		{"by name where the label is not of this node alone", nil, nodes[2:3], "name!node-c"},
		{"by name where there is no label", []string{"zone=a"}, nodes[4:], "zone=a name!node-e"},
		{"an empty term stays", []string{"", "zone=a"}, nodes[:1], " | zone=a host!node-a"},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := short(without(parse(test.terms...), test.excluded, nodes)); got != test.want {
				t.Errorf("%q without these nodes is %q, want %q", test.terms, got, test.want)
			}
		})
	}
}
