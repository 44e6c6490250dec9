/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package intentset

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
)

const cacheLabel = volumesv1alpha1.ReadyLabelPrefix + "ns.cache"

// nodes is a server that labels Nodes too.
type nodes struct {
	*server
	clock *testingclock.FakePassiveClock
	// answer to a patch of a Node instead of the API server's; mayPatch is the answer to the question whether it may.
	answer   error
	mayPatch bool
	asked    int
}

func labelling(t *testing.T, objects ...client.Object) *nodes {
	t.Helper()
	n := &nodes{server: newServer(t, objects...)}
	n.clock = n.controller.Clock.(*testingclock.FakePassiveClock)
	writes := interceptor.NewClient(n.controller.Client.(client.WithWatch), interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			if review, ok := o.(*authorizationv1.SelfSubjectAccessReview); ok {
				n.asked++
				review.Status.Allowed = n.mayPatch
				return nil
			}
			return c.Create(ctx, o, opts...)
		},
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch,
			opts ...client.PatchOption) error {
			if n.answer != nil {
				n.writes = append(n.writes, "patch "+o.GetName())
				return n.answer
			}
			return c.Patch(ctx, o, p, opts...)
		},
	})
	n.controller.Client = writes
	n.controller.labeller = newLabeller(writes, n.clock, n.controller.isLeaving)
	return n
}

// expectLabelling reconciles the Node, and compares what was written.
func (n *nodes) expectLabelling(node, want string) reconcile.Result {
	n.Helper()
	n.writes = nil
	result, err := n.controller.labeller.Reconcile(n.Context(), reconcile.Request{
		NamespacedName: client.ObjectKey{Name: node}})
	if got := strings.Join(n.writes, ", "); err != nil || got != want {
		n.Errorf("reconciling node %s wrote %q with error %v, want %q and none", node, got, err, want)
	}
	return result
}

func (n *nodes) expectLabel(node string, want bool) {
	n.Helper()
	live := &corev1.Node{}
	if err := n.Live.Get(n.Context(), client.ObjectKey{Name: node}, live); err != nil {
		n.Fatal(err)
	}
	value, has := live.Labels[cacheLabel]
	if has != want || has && value != "true" || live.Labels["other"] != "kept" {
		n.Errorf("node %s has the labels %v, want %s=true: %t, and other=kept", node, live.Labels, cacheLabel, want)
	}
}

func (n *nodes) expectCondition(status metav1.ConditionStatus, reason, says string) {
	n.Helper()
	set := &volumesv1alpha1.VolumeAttachmentIntentSet{}
	if err := n.Live.Get(n.Context(), client.ObjectKey{Namespace: "ns", Name: "cache"}, set); err != nil {
		n.Fatal(err)
	}
	c := meta.FindStatusCondition(set.Status.Conditions, volumesv1alpha1.ConditionNodesLabelled)
	if c == nil || c.Status != status || c.Reason != reason || !strings.Contains(c.Message, says) {
		n.Errorf("condition NodesLabelled of set cache: %v, want %s %s with %q", c, status, reason, says)
	}
}

func otherNode(name string) *corev1.Node {
	node := newNode(name)
	node.UID = "uid"
	node.Labels["other"] = "kept"
	return node
}

// readyOn is a set with an intent on each of the Nodes that is Ready, and no label yet.
func readyOn(t *testing.T, names ...string) *nodes {
	t.Helper()
	objects := []client.Object{newSet()}
	var intents []string
	for _, name := range names {
		objects, intents = append(objects, otherNode(name)), append(intents, "cache-"+name)
	}
	n := labelling(t, objects...)
	n.pass()
	n.finish(intents...)
	return n
}

func TestANodeIsLabelledOnceWhileTheIntentOfASetIsReadyThere(t *testing.T) {
	n := labelling(t, newSet(), otherNode("a"))
	n.pass()
	n.expectLabelling("a", "")
	n.finish("cache-a")
	n.expectLabelling("a", "patch a")
	n.expectLabel("a", true)
	n.expectLabelling("a", "") // the cache does not show the label yet
	n.Sync()
	n.expectLabelling("a", "")
	n.pass()
	n.expectCondition(metav1.ConditionTrue, volumesv1alpha1.ReasonAsExpected, cacheLabel+"=true")
}

func TestALabelThatSomethingElseRemovedIsWrittenAgain(t *testing.T) {
	n := readyOn(t, "a")
	n.expectLabelling("a", "patch a")
	live := &corev1.Node{}
	if err := n.Live.Get(t.Context(), client.ObjectKey{Name: "a"}, live); err != nil {
		t.Fatal(err)
	}
	delete(live.Labels, cacheLabel)
	if err := n.Live.Update(t.Context(), live); err != nil {
		t.Fatal(err)
	}
	n.Sync()
	n.expectLabelling("a", "patch a")
	n.expectLabel("a", true)
}

func TestALabelIsRemovedWhereItIsNotTrueAnyMore(t *testing.T) {
	type live struct {
		set    *volumesv1alpha1.VolumeAttachmentIntentSet
		intent *volumesv1alpha1.VolumeAttachmentIntent
		node   *corev1.Node
	}
	for name, change := range map[string]func(client.WithWatch, live) error{
		"the intent is not Ready": func(c client.WithWatch, l live) error {
			l.intent.Status.Conditions = nil
			return c.Status().Update(t.Context(), l.intent)
		},
		"the intent is being deleted": func(c client.WithWatch, l live) error { return c.Delete(t.Context(), l.intent) },
		"the node has left the set": func(c client.WithWatch, l live) error {
			l.node.Labels["pool"] = "b"
			return c.Update(t.Context(), l.node)
		},
		"the set selects other nodes": func(c client.WithWatch, l live) error {
			l.set.Spec.NodeSelector.MatchLabels["pool"] = "b"
			return c.Update(t.Context(), l.set)
		},
		"the set is gone, and its intents stay": func(c client.WithWatch, l live) error {
			return c.Delete(t.Context(), l.set)
		},
		"another set has its name": func(c client.WithWatch, l live) error {
			if err := c.Delete(t.Context(), l.set); err != nil {
				return err
			}
			set := newSet()
			set.UID = "another"
			return c.Create(t.Context(), set)
		},
		"the intent is not the set's": func(c client.WithWatch, l live) error {
			l.intent.OwnerReferences = nil
			l.intent.Labels = map[string]string{volumesv1alpha1.IntentSetLabel: "cache"}
			return c.Update(t.Context(), l.intent)
		},
	} {
		t.Run(name, func(t *testing.T) {
			n := readyOn(t, "a")
			n.expectLabelling("a", "patch a")
			l := live{&volumesv1alpha1.VolumeAttachmentIntentSet{}, &volumesv1alpha1.VolumeAttachmentIntent{}, &corev1.Node{}}
			for key, o := range map[client.ObjectKey]client.Object{{Namespace: "ns", Name: "cache"}: l.set,
				{Namespace: "ns", Name: "cache-a"}: l.intent, {Name: "a"}: l.node} {
				if err := n.Live.Get(t.Context(), key, o); err != nil {
					t.Fatal(err)
				}
			}
			if err := change(n.Live, l); err != nil {
				t.Fatal(err)
			}
			n.Sync()
			n.expectLabelling("a", "patch a")
			n.expectLabel("a", false)
		})
	}
}

// TestTheLabelGoesBeforeTheIntent which is deleted because its node has left the set or its template has changed, and
// does not come back meanwhile.
func TestTheLabelGoesBeforeTheIntent(t *testing.T) {
	n := readyOn(t, "a")
	n.expectLabelling("a", "patch a") // and the cache does not show it
	live := &volumesv1alpha1.VolumeAttachmentIntentSet{}
	if err := n.Live.Get(t.Context(), client.ObjectKey{Namespace: "ns", Name: "cache"}, live); err != nil {
		t.Fatal(err)
	}
	live.Spec.Template.Spec.ReadOnly = true
	if err := n.Live.Update(t.Context(), live); err != nil {
		t.Fatal(err)
	}
	n.Sync()
	n.writes = nil
	if _, err := n.controller.Reconcile(t.Context(), reconcile.Request{
		NamespacedName: client.ObjectKey{Namespace: "ns", Name: "cache"}}); err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(n.writes, ", "); !strings.HasPrefix(got, "patch a, delete cache-a") {
		t.Errorf("set cache wrote %q, want the label of node a removed before intent cache-a", got)
	}
	n.expectLabelling("a", "") // the cache shows that the intent is Ready
	n.expectLabel("a", false)
}

func TestAnIntentIsNotDeletedBeforeTheAPIServerHasRemovedItsLabel(t *testing.T) {
	n := readyOn(t, "a")
	n.expectLabelling("a", "patch a")
	live := &corev1.Node{}
	if err := n.Live.Get(t.Context(), client.ObjectKey{Name: "a"}, live); err != nil {
		t.Fatal(err)
	}
	live.Labels["pool"] = "b"
	if err := n.Live.Update(t.Context(), live); err != nil {
		t.Fatal(err)
	}
	n.Sync()
	n.answer = errors.New("connection refused")
	n.writes = nil
	_, err := n.controller.Reconcile(t.Context(), reconcile.Request{
		NamespacedName: client.ObjectKey{Namespace: "ns", Name: "cache"}})
	if got := strings.Join(n.writes, ", "); err == nil || strings.Contains(got, "delete") {
		t.Errorf("set cache wrote %q with error %v, want no delete and an error: the label is still there", got, err)
	}
	n.answer = nil
	if got, _ := n.pass(); !strings.Contains(got, "delete cache-a") {
		t.Errorf("set cache wrote %q, want intent cache-a deleted", got)
	}
	n.expectLabel("a", false)
}

var errForbidden = apierrors.NewForbidden(schema.GroupResource{Resource: "nodes"}, "a", errors.New("no role"))

func TestWithoutTheRightOneNodeIsTriedEachMinuteAndTheSetReportsIt(t *testing.T) {
	n := readyOn(t, "a", "b")
	n.answer = errForbidden
	if again := n.expectLabelling("a", "patch a").RequeueAfter; again != problemAgain {
		t.Errorf("node a is tried again after %s, want %s", again, problemAgain)
	}
	if again := n.expectLabelling("b", "").RequeueAfter; again != problemAgain || n.asked != 1 {
		t.Errorf("node b is tried after %s, and %d reviews were asked for; want %s and 1", again, n.asked, problemAgain)
	}
	n.pass()
	n.expectCondition(metav1.ConditionFalse, volumesv1alpha1.ReasonNodesForbidden, "config/node-writes")
	n.expectPass("")

	n.answer = nil
	n.expectLabelling("b", "")
	n.clock.SetTime(n.clock.Now().Add(problemAgain + time.Second))
	n.expectLabelling("a", "patch a")
	n.expectLabelling("b", "patch b")
	n.pass()
	n.expectCondition(metav1.ConditionTrue, volumesv1alpha1.ReasonAsExpected, cacheLabel)
}

func TestARefusalOfOneNodeKeepsNoOtherWaiting(t *testing.T) {
	n := readyOn(t, "a", "b")
	n.mayPatch = true
	n.answer = errForbidden
	n.expectLabelling("a", "patch a")
	n.answer = nil
	n.expectLabelling("b", "patch b")
	n.pass()
	n.expectCondition(metav1.ConditionFalse, volumesv1alpha1.ReasonLabelRefused, "labelling node a")
	if err := n.Live.Delete(t.Context(), otherNode("a")); err != nil {
		t.Fatal(err)
	}
	n.Sync()
	n.expectLabelling("a", "")
	n.pass()
	n.expectCondition(metav1.ConditionTrue, volumesv1alpha1.ReasonAsExpected, cacheLabel)
}

func TestAVolumeIsReleasedAlthoughTheLabelCannotBeRemoved(t *testing.T) {
	n := readyOn(t, "a")
	n.expectLabelling("a", "patch a")
	n.answer = errForbidden
	live := &corev1.Node{}
	if err := n.Live.Get(t.Context(), client.ObjectKey{Name: "a"}, live); err != nil {
		t.Fatal(err)
	}
	live.Labels["pool"] = "b"
	if err := n.Live.Update(t.Context(), live); err != nil {
		t.Fatal(err)
	}
	n.Sync()
	if got, _ := n.pass(); !strings.Contains(got, "delete cache-a") {
		t.Errorf("set cache wrote %q, want intent cache-a deleted", got)
	}
	n.expectLabelling("a", "") // within the minute
	n.pass()
	n.expectCondition(metav1.ConditionFalse, volumesv1alpha1.ReasonNodesForbidden, "may not patch nodes")
}

// TestASetThatWasStoredWithALabelOfSetsInItsSelectorKeepsItsIntents although it matches no Node any more.
func TestASetThatWasStoredWithALabelOfSetsInItsSelectorKeepsItsIntents(t *testing.T) {
	n := readyOn(t, "a")
	n.expectLabelling("a", "patch a")
	n.Sync()
	live := &volumesv1alpha1.VolumeAttachmentIntentSet{}
	if err := n.Live.Get(t.Context(), client.ObjectKey{Namespace: "ns", Name: "cache"}, live); err != nil {
		t.Fatal(err)
	}
	live.Spec.NodeSelector.MatchExpressions = []metav1.LabelSelectorRequirement{
		{Key: cacheLabel, Operator: metav1.LabelSelectorOpDoesNotExist}}
	if err := n.Live.Update(t.Context(), live); err != nil {
		t.Fatal(err)
	}
	n.Sync()
	for range 2 { // with the label, and without
		if got, _ := n.pass(); strings.Contains(got, "cache-a") {
			t.Errorf("set cache wrote %q, want its intents left as they are", got)
		}
		n.expectReady(metav1.ConditionFalse, volumesv1alpha1.ReasonSelectorInvalid)
		if _, err := n.controller.labeller.Reconcile(t.Context(), reconcile.Request{
			NamespacedName: client.ObjectKey{Name: "a"}}); err != nil {
			t.Fatal(err)
		}
		n.Sync()
		n.expectLabel("a", false)
	}
}

func TestASetReportsANodeThatHasAsManyLabelsOfItsNamespaceAsItMay(t *testing.T) {
	l := newLabeller(nil, nil, nil)
	l.note(t.Context(), "a", unwritten{beyond: []string{cacheLabel}})
	c := l.condition(newSet())
	if c == nil || c.Status != metav1.ConditionFalse || c.Reason != volumesv1alpha1.ReasonTooManyLabels ||
		!strings.Contains(c.Message, "not on node a") {
		t.Errorf("condition of a set whose label node a does not get: %v, want TooManyLabels with the node", c)
	}
	l.note(t.Context(), "a", unwritten{})
	if c := l.condition(newSet()); c == nil || c.Status != metav1.ConditionTrue {
		t.Errorf("condition of the set once there is room: %v, want it True", c)
	}
}

func TestASetWhoseNameIsTooLongLabelsNoNodeAndReportsIt(t *testing.T) {
	l := newLabeller(nil, nil, nil)
	set := newSet()
	set.Name = strings.Repeat("s", 61)
	c := l.condition(set)
	if c == nil || c.Status != metav1.ConditionFalse || c.Reason != volumesv1alpha1.ReasonLabelTooLong ||
		!strings.Contains(c.Message, "has 64 characters") {
		t.Errorf("condition of a set with 61 characters in namespace ns: %v, want LabelTooLong", c)
	}
	set.Name = strings.Repeat("s", 60)
	if c := l.condition(set); c == nil || c.Status != metav1.ConditionTrue {
		t.Errorf("condition of a set with 60 characters in namespace ns: %v, want it True", c)
	}
}

func TestWithoutTheOptionASetHasNoConditionAboutLabels(t *testing.T) {
	s := newServer(t, newSet(), newNode("a"))
	s.pass()
	set := s.expectReady(metav1.ConditionFalse, volumesv1alpha1.ReasonProgressing)
	if c := meta.FindStatusCondition(set.Status.Conditions, volumesv1alpha1.ConditionNodesLabelled); c != nil {
		t.Errorf("condition NodesLabelled of set cache: %v, want none", c)
	}
}
