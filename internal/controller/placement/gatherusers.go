/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package placement

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/exclusive"
	"github.com/hawser-io/hawser/internal/controller/index"
	"github.com/hawser-io/hawser/internal/controller/volume"
	"github.com/hawser-io/hawser/internal/handshake"
)

// +kubebuilder:rbac:groups=volumes.hawser.io,resources=nodevolumestates,verbs=get;list;watch

// Locks are the locks of exclusive volumes, as they are known here.
type Locks interface {
	Known(ctx context.Context, volumeName string) (exclusive.Lock, error)
}

// gatherUsers finds the other users of the claim and its volume. A pod that waits for its own place is none.
func (g gatherer) gatherUsers(ctx context.Context, pod *corev1.Pod, v *volumeFacts) error {
	key := index.ClaimKey(pod.Namespace, v.claimName)
	// A pod that uses the claim inline is in the first list from its creation on, any other one once it has a node.
	for _, field := range []string{index.InlineClaim, index.Claim} {
		list := &corev1.PodList{}
		if err := g.cache.List(ctx, list, client.MatchingFields{field: key}); err != nil {
			return fmt.Errorf("listing the pods of claim %s: %w", key, err)
		}
		if err := g.readGates(ctx, pod, list.Items); err != nil {
			return err
		}
		for i := range list.Items {
			v.users.addPod(pod, &list.Items[i])
		}
	}
	unique := ""
	if v.pv != nil {
		unique = volume.UniqueNameOf(v.pv)
	}
	if err := g.gatherIntents(ctx, pod, v, key, unique); err != nil {
		return err
	}
	if unique == "" {
		return nil
	}
	if err := g.gatherPresent(ctx, v, unique); err != nil {
		return err
	}
	lock, err := g.locks.Known(ctx, unique)
	if unreadable := (&exclusive.UnreadableError{}); errors.As(err, &unreadable) {
		return nil // It only decides which of several users comes first. The attachment waits for its repair.
	}
	v.users.lock = lock.Holder
	return err
}

// readGates replaces the other pods that the cache shows gated, and that are not gated any more, by what they are now.
// A list of the gated pods of the namespace spares a request for each.
func (g gatherer) readGates(ctx context.Context, self *corev1.Pod, pods []corev1.Pod) error {
	gated := func(pod corev1.Pod) bool { return pod.UID != self.UID && !index.Ungated(&pod) }
	if g.gates == nil || !slices.ContainsFunc(pods, gated) {
		return nil
	}
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("PodList"))
	labelled := client.MatchingLabels{volumesv1alpha1.GatedLabel: "true"}
	if err := g.gates.List(ctx, list, client.InNamespace(self.Namespace), labelled); err != nil {
		return fmt.Errorf("listing the gated pods of namespace %s: %w", self.Namespace, err)
	}
	still := map[types.UID]bool{}
	for i := range list.Items {
		still[list.Items[i].UID] = true
	}
	for i := range pods {
		if !gated(pods[i]) || still[pods[i].UID] {
			continue
		}
		live, err := find(ctx, g.gates, client.ObjectKeyFromObject(&pods[i]), &corev1.Pod{})
		if err != nil {
			return err
		}
		if live != nil {
			pods[i] = *live
		}
	}
	return nil
}

func (u *users) addPod(self, pod *corev1.Pod) {
	if pod.UID == self.UID || !index.Ungated(pod) || index.Terminated(pod) ||
		slices.ContainsFunc(u.all, func(known user) bool { return known.pod == pod.UID }) {
		return
	}
	u.all = append(u.all, user{name: "pod " + pod.Namespace + "/" + pod.Name, node: pod.Spec.NodeName, pod: pod.UID,
		leaving: !pod.DeletionTimestamp.IsZero()})
}

// gatherIntents finds the intents of the claim and, since another claim may lead to it too, of the volume.
func (g gatherer) gatherIntents(ctx context.Context, pod *corev1.Pod, v *volumeFacts, key, unique string) error {
	seen := map[types.UID]bool{}
	for field, value := range map[string]string{index.Claim: key, index.Volume: unique} {
		if value == "" {
			continue
		}
		list := &volumesv1alpha1.VolumeAttachmentIntentList{}
		if err := g.cache.List(ctx, list, client.MatchingFields{field: value}); err != nil {
			return fmt.Errorf("listing the intents of %s: %w", value, err)
		}
		for i := range list.Items {
			intent := &list.Items[i]
			if seen[intent.UID] {
				continue
			}
			seen[intent.UID] = true
			if err := g.addIntent(ctx, pod, v, intent); err != nil {
				return err
			}
		}
	}
	return nil
}

func (g gatherer) addIntent(
	ctx context.Context, pod *corev1.Pod, v *volumeFacts, intent *volumesv1alpha1.VolumeAttachmentIntent,
) error {
	u := user{name: "intent " + intent.Namespace + "/" + intent.Name, node: intent.Spec.NodeName,
		leaving: !intent.DeletionTimestamp.IsZero()}
	if name, uid, ok := index.PodOf(intent); ok {
		owner, err := find(ctx, g.cache, client.ObjectKey{Namespace: intent.Namespace, Name: name}, &corev1.Pod{})
		if err != nil {
			return err
		}
		u.name, u.pod = "pod "+intent.Namespace+"/"+name, uid
		u.leaving = u.leaving || owner == nil || owner.UID != uid || index.Terminated(owner) ||
			!owner.DeletionTimestamp.IsZero()
	}
	if intent.Namespace != pod.Namespace {
		u.name = ""
	}
	if u.pod == "" || !slices.ContainsFunc(v.users.all, func(known user) bool { return known.pod == u.pod }) {
		v.users.all = append(v.users.all, u)
	}
	return nil
}

// gatherPresent finds the nodes where the volume is in use.
func (g gatherer) gatherPresent(ctx context.Context, v *volumeFacts, unique string) error {
	list := &volumesv1alpha1.NodeVolumeStateList{}
	if err := g.cache.List(ctx, list, client.MatchingFields{index.Volume: unique}); err != nil {
		return fmt.Errorf("listing the nodes of %s: %w", unique, err)
	}
	for i := range list.Items {
		if holds(handshake.NodeOf(&list.Items[i], unique)) {
			v.users.present = append(v.users.present, list.Items[i].Name)
		}
	}
	slices.Sort(v.users.present)
	return nil
}

// holds reports whether the volume is in use on the node, as far as that is known. What was forced away does not count.
func holds(state handshake.Node) bool {
	return state.InUse() && !state.Entry.Forced && !state.DeclaredAway()
}
