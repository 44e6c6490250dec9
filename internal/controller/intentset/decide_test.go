/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package intentset

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
)

// newSet is a set whose nodes share a claim.
func newSet() *volumesv1alpha1.VolumeAttachmentIntentSet {
	return &volumesv1alpha1.VolumeAttachmentIntentSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "cache", UID: "set-uid", Generation: 1},
		Spec: volumesv1alpha1.VolumeAttachmentIntentSetSpec{
			NodeSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"pool": "a"}},
			Template: volumesv1alpha1.IntentTemplate{Spec: volumesv1alpha1.IntentTemplateSpec{
				Volume: &volumesv1alpha1.TemplateVolumeSource{
					PersistentVolumeClaim: volumesv1alpha1.PersistentVolumeClaimSource{ClaimName: "shared"}},
				DesiredState: volumesv1alpha1.DesiredPublished, Publisher: volumesv1alpha1.PublisherAgent,
			}},
		},
	}
}

// situation is a set with some nodes and intents.
type situation struct{ facts }

func newSituation(nodes ...string) *situation {
	set := newSet()
	s := &situation{facts{set: set, revision: revisionOf(set),
		leaving: func(intent *volumesv1alpha1.VolumeAttachmentIntent) bool { return !intent.DeletionTimestamp.IsZero() }}}
	for _, name := range nodes {
		s.nodes = append(s.nodes, nodeFacts{name: name, allowed: true})
	}
	return s
}

// intent adds one that the set made on the node.
func (s *situation) intent(node string, change ...func(*volumesv1alpha1.VolumeAttachmentIntent)) *situation {
	intent := s.newIntent(node)
	intent.UID = types.UID("uid-" + node)
	for _, c := range change {
		c(intent)
	}
	s.intents = append(s.intents, intent)
	return s
}

func isReady(intent *volumesv1alpha1.VolumeAttachmentIntent) { condition(intent, "Ready") }

func isAttached(intent *volumesv1alpha1.VolumeAttachmentIntent) { condition(intent, "Attached") }

func isSilent(intent *volumesv1alpha1.VolumeAttachmentIntent) {
	intent.Status.Conditions = append(intent.Status.Conditions, metav1.Condition{Type: volumesv1alpha1.ConditionReady,
		Status: metav1.ConditionUnknown, Reason: volumesv1alpha1.ReasonAgentUnreachable})
}

func isStalled(intent *volumesv1alpha1.VolumeAttachmentIntent) { condition(intent, "Stalled") }

func condition(intent *volumesv1alpha1.VolumeAttachmentIntent, name string) {
	intent.Status.Conditions = append(intent.Status.Conditions,
		metav1.Condition{Type: name, Status: metav1.ConditionTrue, Reason: name})
}

func isOutdated(intent *volumesv1alpha1.VolumeAttachmentIntent) {
	intent.Labels[volumesv1alpha1.RevisionLabel] = "earlier"
}

func isDeleting(intent *volumesv1alpha1.VolumeAttachmentIntent) {
	intent.DeletionTimestamp = &metav1.Time{}
	intent.DeletionTimestamp.Time = intent.DeletionTimestamp.Add(1)
}

func hasNoController(intent *volumesv1alpha1.VolumeAttachmentIntent) { intent.OwnerReferences = nil }

func isOfAnEarlierSet(intent *volumesv1alpha1.VolumeAttachmentIntent) {
	intent.OwnerReferences = nil
	intent.Labels[volumesv1alpha1.IntentSetUIDLabel] = "earlier"
}

func (s *situation) budget(b intstr.IntOrString) *situation {
	s.set.Spec.Rollout = &volumesv1alpha1.IntentRollout{MaxUnavailable: ptr.To(b)}
	return s
}

func (s *situation) node(change func(*nodeFacts)) *situation {
	change(&s.nodes[0])
	return s
}

// steps of a plan in one line, such as "create a; remove b".
func (p plan) steps() string {
	var steps []string
	add := func(what string, names []string) {
		if len(names) > 0 {
			steps = append(steps, what+" "+strings.Join(names, " "))
		}
	}
	names := func(intents []*volumesv1alpha1.VolumeAttachmentIntent) (n []string) {
		for _, intent := range intents {
			n = append(n, intent.Spec.NodeName)
		}
		return n
	}
	var created []string
	for _, node := range p.create {
		created = append(created, node.name)
	}
	add("create", created)
	add("adopt", names(p.adopt))
	add("remove", names(p.remove))
	add("replace", names(p.replace))
	return strings.Join(steps, "; ")
}

func TestWhatASetDoes(t *testing.T) {
	for name, c := range map[string]struct {
		situation *situation
		want      string
		// counts are desired, current, updated, ready, failing.
		counts string
		reason string
	}{
		"every selected node gets an intent": {newSituation("b", "a"), "create a b", "2 0 0 0 0", "Progressing"},
		"a node that is on its way out gets none": {
			newSituation("a").node(func(n *nodeFacts) { n.goes = true }), "", "0 0 0 0 0", "Ready"},
		"the intent of a node that is on its way out goes": {
			newSituation("a").node(func(n *nodeFacts) { n.goes = true }).intent("a", isReady), "remove a", "0 1 0 0 0",
			"Ready"},
		"nothing is left to do":                     {newSituation("a").intent("a", isReady), "", "1 1 1 1 0", "Ready"},
		"an intent that is not ready is waited for": {newSituation("a").intent("a"), "", "1 1 1 0 0", "Progressing"},
		"a stalled intent fails the set": {
			newSituation("a", "b").intent("a", isReady).intent("b", isStalled), "", "2 2 2 1 1", "IntentsFailing"},
		"the intent of a node that is not selected goes": {
			newSituation("a").intent("a", isReady).intent("gone", isReady), "remove gone", "1 2 1 1 0", "Ready"},
		"an intent goes once only": {newSituation().intent("gone", isDeleting), "", "0 1 0 0 0", "Ready"},
		"a name that another object has is not taken over": {
			newSituation("a").node(func(n *nodeFacts) { n.taken = true }), "", "1 0 0 0 1", "NameTaken"},
		"an orphan with the UID of the set is adopted": {
			newSituation("a").intent("a", isReady, hasNoController), "adopt a", "1 1 1 1 0", "Ready"},
		"an orphan of an earlier set of the name is not adopted": {
			newSituation("a").node(func(n *nodeFacts) { n.taken = true }).intent("a", isReady, isOfAnEarlierSet), "",
			"1 0 0 0 1", "NameTaken"},
		"an orphan whose node is not selected is left alone": {
			newSituation().intent("a", isReady, hasNoController), "", "0 1 0 0 0", "Ready"},
		"a node that the namespace may not use gets none": {
			newSituation("a").node(func(n *nodeFacts) { n.allowed = false }), "", "0 0 0 0 0", "Ready"},
		"the intent of a node that the namespace may not use any more is kept": {
			newSituation("a").node(func(n *nodeFacts) { n.allowed = false }).intent("a", isReady, isOutdated), "",
			"0 1 0 0 0", "Ready"},
		"one intent at a time is replaced": {
			newSituation("a", "b").intent("a", isReady, isOutdated).intent("b", isReady, isOutdated), "replace a",
			"2 2 0 2 0", "RollingOut"},
		"none is replaced while another node waits": {
			newSituation("a", "b").intent("a", isDeleting, isOutdated).intent("b", isReady, isOutdated), "", "2 2 0 1 0",
			"RollingOut"},
		"one that was replaced has to be ready before the next": {
			newSituation("a", "b").intent("a").intent("b", isReady, isOutdated), "", "2 2 1 1 0", "RollingOut"},
		"those without their volume are replaced at once": {
			newSituation("a", "b", "c").intent("a", isOutdated).intent("b", isOutdated, isStalled).
				intent("c", isReady, isOutdated),
			"replace a b", "3 3 0 1 0", "RollingOut"},
		"those whose node does not answer are not replaced": {
			newSituation("a", "b").intent("a", isOutdated, isSilent).intent("b", isOutdated, isSilent, isAttached), "",
			"2 2 0 0 0", "RollingOut"},
		"those that have their volume and are not ready are replaced one at a time": {
			newSituation("a", "b").intent("a", isOutdated, isAttached).intent("b", isOutdated, isAttached), "replace a",
			"2 2 0 0 0", "RollingOut"},
		"an orphan is adopted before it is replaced": {
			newSituation("a").intent("a", isOutdated, hasNoController), "adopt a", "1 1 0 0 0", "RollingOut"},
		"the budget may be larger": {
			newSituation("a", "b", "c").budget(intstr.FromInt32(2)).intent("a", isReady, isOutdated).
				intent("b", isReady, isOutdated).intent("c", isReady, isOutdated), "replace a b", "3 3 0 3 0", "RollingOut"},
		"a percentage is rounded up": {
			newSituation("a", "b", "c").budget(intstr.FromString("34%")).intent("a", isReady, isOutdated).
				intent("b", isReady, isOutdated).intent("c", isReady, isOutdated), "replace a b", "3 3 0 3 0", "RollingOut"},
	} {
		t.Run(name, func(t *testing.T) {
			p := decide(c.situation.facts)
			if got := p.steps(); got != c.want {
				t.Errorf("the set does %q, want %q", got, c.want)
			}
			o := p.outcome
			if got := fmt.Sprint(o.desired, o.current, o.updated, o.ready, o.failing); got != c.counts {
				t.Errorf("desired, current, updated, ready, failing are %s, want %s", got, c.counts)
			}
			if got := o.condition(); got.Reason != c.reason {
				t.Errorf("Ready has reason %s (%s), want %s", got.Reason, got.Message, c.reason)
			}
		})
	}
}

func TestAClaimThatAnIntentHadAndLostIsNotMadeAgain(t *testing.T) {
	for uid, want := range map[types.UID]int{"": 1, "claim-uid": 0} {
		s := newSituation("a").node(func(n *nodeFacts) { n.claimless = true }).
			intent("a", func(intent *volumesv1alpha1.VolumeAttachmentIntent) { intent.Status.ClaimUID = uid })
		if p := decide(s.facts); len(p.claims) != want {
			t.Errorf("the set makes %d claims for an intent with claim UID %q, want %d", len(p.claims), uid, want)
		}
	}
}

func TestALongNameIsCutToAValidOne(t *testing.T) {
	name := IntentName("cache", strings.Repeat("a", longestName-hashed-len("cache--")-1)+"."+strings.Repeat("b", 20))
	if wrong := validation.IsDNS1123Subdomain(name); len(wrong) > 0 {
		t.Errorf("the name of an intent is %q, want a valid one: %v", name, wrong)
	}
}

func TestASetIsStalledOnlyOnWhatNoRetryMends(t *testing.T) {
	for reason, want := range map[string]bool{
		volumesv1alpha1.ReasonNameTaken: true, volumesv1alpha1.ReasonSelectorInvalid: true,
		volumesv1alpha1.ReasonIntentRefused: false,
	} {
		o := outcome{problems: []problem{{reason, "message"}}}
		if got := o.stall() != nil; got != want {
			t.Errorf("a set with problem %s is stalled: %t, want %t", reason, got, want)
		}
	}
}

// Each pass creates in another order, so its problems come in another one.
func TestTheConditionOfASetDoesNotChangeWithTheOrderOfItsProblems(t *testing.T) {
	a, b := problem{volumesv1alpha1.ReasonNameTaken, "claim a"}, problem{volumesv1alpha1.ReasonNameTaken, "claim b"}
	refused := problem{volumesv1alpha1.ReasonIntentRefused, "a quota"}
	for _, problems := range [][]problem{{a, b, refused}, {refused, b, a}, {b, refused, a}} {
		o := outcome{problems: problems}
		if c := o.condition(); c.Reason != a.reason || !strings.HasPrefix(c.Message, a.message) || o.stall() == nil {
			t.Errorf("a set with the problems %v: %s %q, stalled %t; want the first name that is taken, and stalled", problems,
				c.Reason, c.Message, o.stall() != nil)
		}
	}
}

func TestALongNameIsShortenedAndStaysUnique(t *testing.T) {
	long := strings.Repeat("n", 250)
	a, b := IntentName("cache", long+"a"), IntentName("cache", long+"b")
	if len(a) != longestName || a == b || IntentName("cache", "node-a") != "cache-node-a" {
		t.Errorf("intents have names of %d characters, equal: %t; want %d and two names", len(a), a == b, longestName)
	}
}

// An upgrade of Hawser must not change the revision: it would replace every intent of every set.
func TestTheRevisionOfATemplateNeverChanges(t *testing.T) {
	if got, want := revisionOf(newSet()), "cba0add3b5"; got != want {
		t.Errorf("the template has revision %s, want %s as ever; leave out of the JSON what is not used", got, want)
	}
}

func TestNodesAreAllowedAsTheAdmissionPolicyReadsThem(t *testing.T) {
	for value, want := range map[string]string{
		"node-a, pool-1-*": "node-a pool-1-x", "": "", "*": "node-a node-b pool-1-x", "node-b": "node-b",
	} {
		may := allows(map[string]string{volumesv1alpha1.AllowedNodesAnnotation: value})
		got := slices.DeleteFunc([]string{"node-a", "node-b", "pool-1-x"}, func(node string) bool { return !may(node) })
		if strings.Join(got, " ") != want {
			t.Errorf("allowed-nodes %q allows %v, want %s", value, got, want)
		}
	}
	if !allows(nil)("node-a") {
		t.Error("a namespace without the annotation may not use node-a, want every node allowed")
	}
}
