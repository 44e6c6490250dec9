/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package operator

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/handshake"
	"github.com/hawser-io/hawser/internal/install"
)

// page is how many objects one list request returns.
const page = 500

// unlistings is the manager's annotation on Nodes.
const unlistings = "volumes.hawser.io/unlistings"

// traces are what manager and agents wrote to objects that are not theirs, or made without the operator.
type traces struct {
	client    client.Client
	live      client.Reader
	namespace string
	// serves reports whether the API server serves a kind.
	serves func(schema.GroupVersionKind) bool
}

// eachLive calls do with the metadata of every object of a kind, read live: the cache has none of them.
func (t traces) eachLive(ctx context.Context, kind schema.GroupVersionKind,
	do func(*metav1.PartialObjectMetadata) error, options ...client.ListOption) error {
	token := ""
	for {
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(kind)
		all := append(slices.Clone(options), client.Limit(page), client.Continue(token))
		if err := t.live.List(ctx, list, all...); err != nil {
			return fmt.Errorf("listing %s: %w", kind.Kind, err)
		}
		for i := range list.Items {
			object := &list.Items[i]
			object.SetGroupVersionKind(kind)
			if err := client.IgnoreNotFound(do(object)); err != nil {
				return fmt.Errorf("%s %s: %w", kind.Kind, client.ObjectKeyFromObject(object), err)
			}
		}
		if token = list.Continue; token == "" {
			return nil
		}
	}
}

// lateIntent is an intent that was created after the cache had none: an API server applies a policy a moment after it
// was created. It is empty if there is none.
func (t traces) lateIntent(ctx context.Context) (string, error) {
	found := ""
	if !t.serves(intentKind) {
		return found, nil
	}
	err := t.eachLive(ctx, intentKind, func(intent *metav1.PartialObjectMetadata) error {
		found = intent.Namespace + "/" + intent.Name
		return nil
	})
	return found, err
}

// deleteLive deletes the object under its UID.
func (t traces) deleteLive(ctx context.Context, object *metav1.PartialObjectMetadata) error {
	return t.client.Delete(ctx, object, client.Preconditions{UID: &object.UID})
}

// patchMetadata writes finalizers and annotations of the version that was read.
func (t traces) patchMetadata(ctx context.Context, object *metav1.PartialObjectMetadata,
	change map[string]any) error {
	change["resourceVersion"], change["uid"] = object.ResourceVersion, object.UID
	patch, err := json.Marshal(map[string]any{"metadata": change})
	if err != nil {
		return err
	}
	return t.client.Patch(ctx, object, client.RawPatch(types.MergePatchType, patch))
}

// without returns the finalizers except one, and whether it was among them.
func without(finalizers []string, finalizer string) ([]string, bool) {
	rest := slices.DeleteFunc(slices.Clone(finalizers), func(f string) bool { return f == finalizer })
	return rest, len(rest) < len(finalizers)
}

// releaseAttachments removes holds, and lets go of the names that forced detaches reserved.
func (t traces) releaseAttachments(ctx context.Context) error {
	return t.eachLive(ctx, storagev1.SchemeGroupVersion.WithKind("VolumeAttachment"),
		func(va *metav1.PartialObjectMetadata) error {
			change, gone := map[string]any{}, map[string]any{}
			for _, annotation := range []string{volumesv1alpha1.HoldAnnotation, volumesv1alpha1.VolumeNameAnnotation} {
				if _, has := va.Annotations[annotation]; has {
					gone[annotation] = nil
				}
			}
			if len(gone) > 0 {
				change["annotations"] = gone
			}
			if rest, had := without(va.Finalizers, volumesv1alpha1.ForcedAwayFinalizer); had {
				change["finalizers"] = rest
			}
			if len(change) == 0 {
				return nil
			}
			return t.patchMetadata(ctx, va, change)
		})
}

// deleteStates deletes the node states. No manager is left to remove their finalizer.
func (t traces) deleteStates(ctx context.Context) error {
	if !t.serves(stateKind) {
		return nil
	}
	return t.eachLive(ctx, stateKind, func(state *metav1.PartialObjectMetadata) error {
		if rest, had := without(state.Finalizers, volumesv1alpha1.ReleaseFinalizer); had {
			if err := t.patchMetadata(ctx, state, map[string]any{"finalizers": rest}); err != nil {
				return err
			}
		}
		return t.deleteLive(ctx, state)
	})
}

func (t traces) deleteLocks(ctx context.Context) error {
	return t.eachLive(ctx, corev1.SchemeGroupVersion.WithKind("ConfigMap"),
		func(locks *metav1.PartialObjectMetadata) error { return t.deleteLive(ctx, locks) },
		client.InNamespace(t.namespace), client.HasLabels{volumesv1alpha1.ExclusiveLocksLabel})
}

// releaseClaims removes Hawser's finalizer and mark, and no other.
func (t traces) releaseClaims(ctx context.Context) error {
	return t.eachLive(ctx, corev1.SchemeGroupVersion.WithKind("PersistentVolumeClaim"),
		func(claim *metav1.PartialObjectMetadata) error {
			rest, had := without(claim.Finalizers, volumesv1alpha1.ClaimFinalizer)
			if !had {
				return nil
			}
			return t.patchMetadata(ctx, claim, map[string]any{"finalizers": rest,
				"annotations": map[string]any{volumesv1alpha1.InUseAnnotation: nil}})
		})
}

// deleteAccounts deletes the accounts with which agents read Secrets, and what these accounts may. The manager and
// garbage collection have deleted most of them; the latter never does once the kind of their owner is gone.
func (t traces) deleteAccounts(ctx context.Context) error {
	node := client.MatchingLabels{install.NodeAccountLabel: "true"}
	remove := func(object *metav1.PartialObjectMetadata) error {
		if !install.IsNodeAccess(object) {
			return nil
		}
		return t.deleteLive(ctx, object)
	}
	for _, kind := range []string{"RoleBinding", "Role"} {
		if err := t.eachLive(ctx, rbacv1.SchemeGroupVersion.WithKind(kind), remove, node); err != nil {
			return err
		}
	}
	return t.eachLive(ctx, corev1.SchemeGroupVersion.WithKind("ServiceAccount"), remove, node,
		client.InNamespace(t.namespace))
}

// releaseNodes removes the manager's annotation and labels.
func (t traces) releaseNodes(ctx context.Context) error {
	return t.eachLive(ctx, corev1.SchemeGroupVersion.WithKind("Node"), func(node *metav1.PartialObjectMetadata) error {
		change := map[string]any{}
		if _, has := node.Annotations[unlistings]; has {
			change["annotations"] = map[string]any{unlistings: nil}
		}
		if labels := noReadyLabels(node.Labels); len(labels) > 0 {
			change["labels"] = labels
		}
		if len(change) == 0 {
			return nil
		}
		patch, err := json.Marshal(map[string]any{"metadata": change})
		if err != nil {
			return err
		}
		return t.client.Patch(ctx, node, client.RawPatch(types.MergePatchType, patch))
	})
}

// deleteLeases deletes those of agents and manager. The operator needs its own.
func (t traces) deleteLeases(ctx context.Context) error {
	return t.eachLive(ctx, coordinationv1.SchemeGroupVersion.WithKind("Lease"),
		func(lease *metav1.PartialObjectMetadata) error {
			if lease.Name != "hawser-manager" && !strings.HasPrefix(lease.Name, volumesv1alpha1.AgentLeasePrefix) {
				return nil
			}
			return t.deleteLive(ctx, lease)
		}, client.InNamespace(t.namespace))
}

// unlabelNodes removes the labels of sets where Nodes get none any more. The manager has no right to it then. It does
// so once the manager that wrote them has ended, and its right with it.
func (r *Reconciler) unlabelNodes(ctx context.Context, spec volumesv1alpha1.VolumeManagerSpec) error {
	if ptr.Deref(spec.NodeLabels, false) {
		return nil
	}
	nodes := &corev1.NodeList{}
	if err := r.Cache.List(ctx, nodes); err != nil {
		return fmt.Errorf("listing nodes: %w", err)
	}
	for i := range nodes.Items {
		labels := noReadyLabels(nodes.Items[i].Labels)
		if len(labels) == 0 {
			continue
		}
		patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": labels}})
		if err != nil {
			return err
		}
		node := &corev1.Node{}
		node.Name = nodes.Items[i].Name
		err = r.Client.Patch(ctx, node, client.RawPatch(types.MergePatchType, patch))
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("removing the labels of sets from node %s: %w", node.Name, err)
		}
	}
	return nil
}

// tainted reports whether a Node carries the taint that the manager sets on a fence. It needs the right to remove it,
// with or without the option.
func (r *Reconciler) tainted(ctx context.Context) (bool, error) {
	nodes := &corev1.NodeList{}
	if err := r.Cache.List(ctx, nodes); err != nil {
		return false, fmt.Errorf("listing nodes: %w", err)
	}
	return slices.ContainsFunc(nodes.Items, func(node corev1.Node) bool {
		return slices.ContainsFunc(node.Spec.Taints, isManagersTaint)
	}), nil
}

// untaintNodes removes the taint that the manager has set. Nothing is in use and no manager runs, so nothing of an old
// mount is left and none sets it again.
func (r *Reconciler) untaintNodes(ctx context.Context) error {
	nodes := &corev1.NodeList{}
	if err := r.Live.List(ctx, nodes); err != nil {
		return fmt.Errorf("listing nodes: %w", err)
	}
	for i := range nodes.Items {
		node := &nodes.Items[i]
		if !slices.ContainsFunc(node.Spec.Taints, isManagersTaint) {
			continue
		}
		patch := client.MergeFromWithOptions(node.DeepCopy(), client.MergeFromWithOptimisticLock{})
		node.Spec.Taints = slices.DeleteFunc(node.Spec.Taints, isManagersTaint)
		if err := client.IgnoreNotFound(r.Client.Patch(ctx, node, patch)); err != nil {
			return fmt.Errorf("removing the manager's taint from node %s: %w", node.Name, err)
		}
	}
	return nil
}

func isManagersTaint(taint corev1.Taint) bool { return handshake.SetByHawser(&taint) }

// noReadyLabels is the merge patch that removes the labels of sets.
func noReadyLabels(labels map[string]string) map[string]any {
	change := map[string]any{}
	for key := range labels {
		if isReadyLabel(key) {
			change[key] = nil
		}
	}
	return change
}

// equalBesideReady compares labels without those of sets, which come and go with volumes.
func equalBesideReady(before, after map[string]string) bool {
	rest := func(labels map[string]string) map[string]string {
		labels = maps.Clone(labels)
		maps.DeleteFunc(labels, func(key, _ string) bool { return isReadyLabel(key) })
		return labels
	}
	return maps.Equal(rest(before), rest(after))
}

func isReadyLabel(key string) bool { return strings.HasPrefix(key, volumesv1alpha1.ReadyLabelPrefix) }
