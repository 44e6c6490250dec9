/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package intentset

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/index"
)

// +kubebuilder:rbac:groups="",resources=nodes,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=namespaces,verbs=list;watch
// +kubebuilder:rbac:groups=volumes.hawser.io,resources=volumeattachmentintentsets,verbs=get;list;watch
// +kubebuilder:rbac:groups=volumes.hawser.io,resources=volumeattachmentintents,verbs=get;list;watch

// facts are all that is known of one set.
type facts struct {
	set      *volumesv1alpha1.VolumeAttachmentIntentSet
	revision string
	selector labels.Selector
	// invalid is why the selector cannot be used.
	invalid error
	// nodes that the selector matches, by name.
	nodes []nodeFacts
	// intents that were made for the set, by name.
	intents []*volumesv1alpha1.VolumeAttachmentIntent
	// leaving reports whether an intent is being deleted.
	leaving func(*volumesv1alpha1.VolumeAttachmentIntent) bool
}

// nodeFacts are what is known of one Node that the selector matches.
type nodeFacts struct {
	name string
	// goes: the Node is being deleted, or is about to be, and an autoscaler waits until nothing is attached there.
	goes bool
	// allowed: the namespace of the set may use the node.
	allowed bool
	// taken: the name of the node's intent belongs to another object.
	taken bool
	// claimless: the set has a claim template, and the claim of the node is missing.
	claimless bool
}

// gather collects from the cache.
func (c *Controller) gather(ctx context.Context, set *volumesv1alpha1.VolumeAttachmentIntentSet) (facts, error) {
	f := facts{set: set, revision: revisionOf(set), leaving: c.isLeaving}
	if f.selector, f.invalid = selectorOf(set); f.invalid != nil {
		return f, nil
	}
	list := &volumesv1alpha1.VolumeAttachmentIntentList{}
	if err := c.Client.List(ctx, list,
		client.MatchingFields{index.Set: index.SetKey(set.Namespace, set.Name)}); err != nil {
		return f, fmt.Errorf("listing the intents: %w", err)
	}
	for i := range list.Items {
		f.intents = append(f.intents, &list.Items[i])
	}
	nodes := &corev1.NodeList{}
	if err := c.Client.List(ctx, nodes, client.MatchingLabelsSelector{Selector: f.selector}); err != nil {
		return f, fmt.Errorf("listing the nodes: %w", err)
	}
	allowed, err := c.allowedNodes(ctx, set.Namespace)
	if err != nil {
		return f, err
	}
	for i := range nodes.Items {
		node, err := c.gatherNode(ctx, set, &nodes.Items[i])
		if err != nil {
			return f, err
		}
		node.allowed = allowed(node.name)
		f.nodes = append(f.nodes, node)
	}
	return f, nil
}

func (c *Controller) gatherNode(
	ctx context.Context, set *volumesv1alpha1.VolumeAttachmentIntentSet, node *corev1.Node,
) (nodeFacts, error) {
	f := nodeFacts{name: node.Name, goes: c.goes(node)}
	key := client.ObjectKey{Namespace: set.Namespace, Name: IntentName(set.Name, node.Name)}
	intent := &volumesv1alpha1.VolumeAttachmentIntent{}
	switch err := c.Client.Get(ctx, key, intent); {
	case err == nil:
		f.taken = !belongs(set, intent)
	case !apierrors.IsNotFound(err):
		return f, fmt.Errorf("reading intent %s: %w", key, err)
	}
	if set.Spec.ClaimTemplate == nil {
		return f, nil
	}
	err := c.Client.Get(ctx, key, &corev1.PersistentVolumeClaim{})
	if client.IgnoreNotFound(err) != nil {
		return f, fmt.Errorf("reading claim %s: %w", key, err)
	}
	f.claimless = err != nil
	return f, nil
}

// goes reports whether the Node is being deleted, or carries a taint by which an administrator has said that it is
// about to be.
func (c *Controller) goes(node *corev1.Node) bool {
	return !node.DeletionTimestamp.IsZero() || slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool {
		return slices.Contains(c.ReleaseTaints, t.Key)
	})
}

// allowedNodes reads which nodes the namespace may use. An admission policy holds the intents themselves to it; here it
// spares requests that would be refused.
func (c *Controller) allowedNodes(ctx context.Context, namespace string) (func(node string) bool, error) {
	object := namespaceMetadata()
	if err := c.Client.Get(ctx, client.ObjectKey{Name: namespace}, object); client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("reading namespace %s: %w", namespace, err)
	}
	return allows(object.Annotations), nil
}

func namespaceMetadata() *metav1.PartialObjectMetadata {
	object := &metav1.PartialObjectMetadata{}
	object.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
	return object
}

// allows reads the annotation as config/admission/intent_authors.yaml does.
func allows(annotations map[string]string) func(node string) bool {
	value, ok := annotations[volumesv1alpha1.AllowedNodesAnnotation]
	return func(node string) bool {
		if !ok {
			return true
		}
		for pattern := range strings.SplitSeq(value, ",") {
			pattern = strings.TrimSpace(pattern)
			prefix, open := strings.CutSuffix(pattern, "*")
			if pattern == node || open && strings.HasPrefix(node, prefix) {
				return true
			}
		}
		return false
	}
}

// belongs reports whether the set owns the intent, or may adopt it: the intent has no other controller, and has the UID
// of this set as its label.
func belongs(set *volumesv1alpha1.VolumeAttachmentIntentSet, intent *volumesv1alpha1.VolumeAttachmentIntent) bool {
	return metav1.IsControlledBy(intent, set) || adoptable(set, intent)
}

func adoptable(set *volumesv1alpha1.VolumeAttachmentIntentSet, intent *volumesv1alpha1.VolumeAttachmentIntent) bool {
	return metav1.GetControllerOf(intent) == nil && intent.Labels[volumesv1alpha1.IntentSetLabel] == set.Name &&
		intent.Labels[volumesv1alpha1.IntentSetUIDLabel] == string(set.UID)
}
