/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package intentset

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/clock"
	"k8s.io/utils/keymutex"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/index"
)

// turns that Nodes share.
const turns = 64

// Labeller writes on each Node the labels of the sets whose intents there are Ready. Its key is the Node. It may write
// Nodes only with the ClusterRole of config/node-writes. A nil Labeller labels nothing.
//
// One pass compares what the Node has with the intents, so that it does not matter what a manager has missed: every
// Node that the cache comes to have is compared once.
type Labeller struct {
	// Client reads from the cache and writes.
	Client client.Client
	Clock  clock.PassiveClock

	// leaving reports whether an intent is being deleted, or is about to be.
	leaving func(*volumesv1alpha1.VolumeAttachmentIntent) bool
	// turns: one writer for each Node. An intent that leaves is marked first, and its label is removed after a pass that
	// did not see the mark.
	turns keymutex.KeyMutex

	mu sync.Mutex
	// written are the answers to writes that are newer than the cache, by Node.
	written map[string]*metav1.PartialObjectMetadata
	// unwritten changes, by Node.
	unwritten map[string]unwritten
	// forbiddenUntil is when a change is tried again that the manager has no right to.
	forbiddenUntil time.Time
	// sets and nodes are the queues of both controllers; nil in a test of one pass.
	sets, nodes queue
}

// unwritten are the labels of a Node that are not as its intents are.
type unwritten struct {
	// keys of the labels that the API server refuses to change, sorted.
	keys []string
	// beyond are the keys of labels that the Node does not get, because it has as many of their namespace, sorted.
	beyond []string
	// forbidden: no Node may be changed, so the message names none.
	forbidden bool
	message   string
}

// refusedAs reports whether the API server refuses the same for the same reason.
func (u unwritten) refusedAs(v unwritten) bool {
	return slices.Equal(u.keys, v.keys) && u.forbidden == v.forbidden && (u.forbidden || u.message == v.message)
}

func newLabeller(c client.Client, now clock.PassiveClock, leaving func(*volumesv1alpha1.VolumeAttachmentIntent) bool,
) *Labeller {
	return &Labeller{Client: c, Clock: now, leaving: leaving, turns: keymutex.NewHashed(turns),
		written: map[string]*metav1.PartialObjectMetadata{}, unwritten: map[string]unwritten{}}
}

// Reconcile one Node.
func (l *Labeller) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	l.turns.LockKey(req.Name)
	defer func() { _ = l.turns.UnlockKey(req.Name) }()
	node := &corev1.Node{}
	err := l.Client.Get(ctx, req.NamespacedName, node)
	if apierrors.IsNotFound(err) {
		l.forget(ctx, req.Name)
	}
	if err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	wanted, beyond, err := l.wanted(ctx, node)
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("gathering the sets that are ready on node %s: %w", node.Name, err)
	}
	refused, again, err := l.write(ctx, node, labelChange(l.labelsOf(node), wanted))
	if err == nil {
		refused.beyond = beyond
		l.note(ctx, node.Name, refused)
	}
	return reconcile.Result{RequeueAfter: again}, err
}

// wanted are the labels of the sets that select the Node and whose intents there are Ready, and those beyond what their
// namespaces may have.
func (l *Labeller) wanted(
	ctx context.Context, node *corev1.Node,
) (wanted sets.Set[string], beyond []string, err error) {
	list := &volumesv1alpha1.VolumeAttachmentIntentList{}
	if err := l.Client.List(ctx, list, client.MatchingFields{index.Node: node.Name}); err != nil {
		return nil, nil, fmt.Errorf("listing the intents: %w", err)
	}
	found := map[client.ObjectKey]*volumesv1alpha1.VolumeAttachmentIntentSet{}
	for i := range list.Items {
		intent := &list.Items[i]
		name := client.ObjectKey{Namespace: intent.Namespace, Name: index.SetOf(intent)}
		if name.Name == "" || !ready(intent) || l.leaving(intent) || !labelFits(labelKey(name)) {
			continue
		}
		set := &volumesv1alpha1.VolumeAttachmentIntentSet{}
		err := l.Client.Get(ctx, name, set)
		if client.IgnoreNotFound(err) != nil {
			return nil, nil, fmt.Errorf("reading set %s: %w", name, err)
		}
		if err == nil && set.DeletionTimestamp.IsZero() && belongs(set, intent) && selects(set, node) {
			found[name] = set
		}
	}
	wanted, beyond = share(slices.Collect(maps.Values(found)))
	return wanted, beyond, nil
}

func selects(set *volumesv1alpha1.VolumeAttachmentIntentSet, node *corev1.Node) bool {
	selector, err := selectorOf(set)
	return err == nil && selector.Matches(labels.Set(node.Labels))
}

// withdraw removes the label of an intent's set from its Node before the intent is deleted. The intent must be leaving
// by now. What the API server refuses keeps no volume from being released: the pass that the end of the intent leads to
// reports it.
func (l *Labeller) withdraw(ctx context.Context, intent *volumesv1alpha1.VolumeAttachmentIntent) error {
	if l == nil {
		return nil
	}
	key := labelKey(client.ObjectKey{Namespace: intent.Namespace, Name: index.SetOf(intent)})
	l.turns.LockKey(intent.Spec.NodeName)
	defer func() { _ = l.turns.UnlockKey(intent.Spec.NodeName) }()
	node := &corev1.Node{}
	if err := l.Client.Get(ctx, client.ObjectKey{Name: intent.Spec.NodeName}, node); err != nil {
		return client.IgnoreNotFound(err)
	}
	if _, has := l.labelsOf(node)[key]; !has {
		return nil
	}
	_, _, err := l.write(ctx, node, map[string]any{key: nil})
	return err
}

// labelsOf the Node, from the cache or from the answer to the last write.
func (l *Labeller) labelsOf(node *corev1.Node) map[string]string {
	l.mu.Lock()
	defer l.mu.Unlock()
	last, wrote := l.written[node.Name]
	if !wrote {
		return node.Labels
	}
	order, err := resourceversion.CompareResourceVersion(last.ResourceVersion, node.ResourceVersion)
	if err != nil || order <= 0 || last.UID != node.UID {
		delete(l.written, node.Name)
		return node.Labels
	}
	return last.Labels
}

// write a change of the Node's labels, of no other ones, under its UID. It returns what the API server refuses, and
// when to try that again: no event shows that it would not any more.
func (l *Labeller) write(ctx context.Context, node *corev1.Node, change map[string]any,
) (unwritten, time.Duration, error) {
	if len(change) == 0 {
		return unwritten{}, 0, nil
	}
	keys := slices.Sorted(maps.Keys(change))
	if left := l.forbidden(); left > 0 {
		return unwritten{keys: keys, forbidden: true}, left, nil
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": node.UID, "labels": change}})
	if err != nil {
		return unwritten{}, 0, err
	}
	// Only the metadata of the answer is decoded.
	target := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: node.Name}}
	target.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Node"))
	err = l.Client.Patch(ctx, target, client.RawPatch(types.MergePatchType, patch))
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return unwritten{}, 0, nil // Another Node, whose event follows.
	}
	refused, err := refusal("labelling node "+node.Name, err)
	if err != nil {
		return unwritten{}, 0, err
	}
	if refused == nil {
		target.ManagedFields, target.Annotations = nil, nil
		l.mu.Lock()
		l.written[node.Name] = target
		l.mu.Unlock()
		return unwritten{}, 0, nil
	}
	u := unwritten{keys: keys, message: refused.message, forbidden: !l.mayWrite(ctx)}
	if u.forbidden {
		l.mu.Lock()
		l.forbiddenUntil = l.Clock.Now().Add(problemAgain)
		l.mu.Unlock()
	}
	return u, problemAgain, nil
}

// forbidden is for how long the manager does not try to write a Node, because it had no right to.
func (l *Labeller) forbidden() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.forbiddenUntil.Sub(l.Clock.Now())
}

// mayWrite distinguishes a refusal of one Node, by a policy, from a right that is missing. It is true where this
// cannot be found out.
func (l *Labeller) mayWrite(ctx context.Context) bool {
	review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
		ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "patch", Version: "v1", Resource: "nodes"}}}
	if err := l.Client.Create(ctx, review); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "asking whether the manager may patch nodes")
		return true
	}
	return review.Status.Allowed
}

// note what keeps a Node from having its labels, and have the sets of the labels report it where that changes.
func (l *Labeller) note(ctx context.Context, node string, now unwritten) {
	l.mu.Lock()
	defer l.mu.Unlock()
	before := l.unwritten[node]
	concerned := sets.New(before.beyond...).SymmetricDifference(sets.New(now.beyond...))
	if !before.refusedAs(now) {
		concerned.Insert(before.keys...).Insert(now.keys...)
	}
	if len(now.keys) == 0 && len(now.beyond) == 0 {
		delete(l.unwritten, node)
	} else {
		l.unwritten[node] = now
	}
	if len(concerned) == 0 {
		return
	}
	ctrl.LoggerFrom(ctx).Info("labels of a node that are not written have changed", "node", node, "labels", now.keys,
		"forbidden", now.forbidden, "answer", now.message, "beyond", len(now.beyond))
	for key := range concerned {
		if l.sets != nil {
			l.sets.Add(reconcile.Request{NamespacedName: setOfLabel(key)})
		}
	}
}

// forget a Node that is gone.
func (l *Labeller) forget(ctx context.Context, node string) {
	l.note(ctx, node, unwritten{})
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.written, node)
}

// wake compares the Node again.
func (l *Labeller) wake(node string) {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.nodes != nil {
		l.nodes.Add(reconcile.Request{NamespacedName: client.ObjectKey{Name: node}})
	}
}

// condition is NodesLabelled of the set, or nil where Nodes get no labels.
func (l *Labeller) condition(set *volumesv1alpha1.VolumeAttachmentIntentSet) *metav1.Condition {
	if l == nil {
		return nil
	}
	is := func(value metav1.ConditionStatus, reason, format string, args ...any) *metav1.Condition {
		return &metav1.Condition{Status: value, Reason: reason, Message: fmt.Sprintf(format, args...)}
	}
	key := labelKey(client.ObjectKeyFromObject(set))
	if !labelFits(key) {
		return is(metav1.ConditionFalse, volumesv1alpha1.ReasonLabelTooLong,
			"no Node is labelled: %s.%s has %d characters, and a label's name at most %d. Use a shorter name for the set, or a "+
				"namespace with a shorter one", set.Namespace, set.Name, len(set.Namespace)+1+len(set.Name), longestLabelName)
	}
	nodes, full, forbidden := l.unwrittenOf(key)
	switch {
	case forbidden:
		return is(metav1.ConditionFalse, volumesv1alpha1.ReasonNodesForbidden, "the manager may not patch nodes, so label "+
			"%s is not as the intents are: bind the ClusterRole of config/node-writes to its account. It tries again every "+
			"minute", key)
	case len(nodes) > 0:
		return is(metav1.ConditionFalse, volumesv1alpha1.ReasonLabelRefused, "label %s: %s%s", key,
			l.messageOf(nodes[0]), more(len(nodes)))
	case len(full) > 0:
		return is(metav1.ConditionFalse, volumesv1alpha1.ReasonTooManyLabels, "label %s is not on node %s: the node has the "+
			"labels of %d older sets of namespace %s, and gets no more of one namespace. Delete sets, or select fewer nodes%s",
			key, full[0], mostLabels, set.Namespace, more(len(full)))
	}
	return is(metav1.ConditionTrue, volumesv1alpha1.ReasonAsExpected, "label %s=%s is on each Node whose intent is ready",
		key, readyValue)
}

// unwrittenOf are the Nodes, sorted, whose label of this key the API server refuses to change, and whether that is for
// want of a right; and those that have as many labels of the namespace as they may.
func (l *Labeller) unwrittenOf(key string) (nodes, full []string, forbidden bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for node, u := range l.unwritten {
		if slices.Contains(u.keys, key) {
			nodes, forbidden = append(nodes, node), forbidden || u.forbidden
		}
		if slices.Contains(u.beyond, key) {
			full = append(full, node)
		}
	}
	slices.Sort(nodes)
	slices.Sort(full)
	return nodes, full, forbidden
}

func (l *Labeller) messageOf(node string) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.unwritten[node].message
}
