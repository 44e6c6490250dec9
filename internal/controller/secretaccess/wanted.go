/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package secretaccess

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/index"
	"github.com/hawser-io/hawser/internal/controller/resolve"
	"github.com/hawser-io/hawser/internal/controller/volume"
	"github.com/hawser-io/hawser/internal/handshake"
)

// wanted are the Secrets that the node's agent needs, by namespace. Each list is sorted.
func (c *Controller) wanted(ctx context.Context, node string, nvs *volumesv1alpha1.NodeVolumeState) (
	map[string][]string, error) {
	intents := &volumesv1alpha1.VolumeAttachmentIntentList{}
	if err := c.Client.List(ctx, intents, client.MatchingFields{index.Node: node}); err != nil {
		return nil, fmt.Errorf("listing the intents of node %s: %w", node, err)
	}
	wanted := map[string][]string{}
	for i := range intents.Items {
		intent := &intents.Items[i]
		if !staged(intent) {
			continue
		}
		r, _, err := c.refsOf(ctx, intent, nvs)
		if err != nil {
			return nil, err
		}
		for _, ref := range r.needed(intent) {
			wanted[ref.Namespace] = append(wanted[ref.Namespace], ref.Name)
		}
	}
	for namespace, names := range wanted {
		slices.Sort(names)
		wanted[namespace] = slices.Compact(names)
	}
	return wanted, nil
}

// refs are the Secrets that a volume names.
type refs struct{ stage, publish, expand *corev1.SecretReference }

func (r refs) any() bool { return r.stage != nil || r.publish != nil || r.expand != nil }

// needed are those that the agent reads for the intent.
func (r refs) needed(intent *volumesv1alpha1.VolumeAttachmentIntent) []corev1.SecretReference {
	if intent.Spec.DesiredState == volumesv1alpha1.DesiredStaged {
		r.publish = nil
	}
	var needed []corev1.SecretReference
	for _, ref := range []*corev1.SecretReference{r.stage, r.publish, r.expand} {
		if ref != nil {
			needed = append(needed, *ref)
		}
	}
	return needed
}

// staged reports whether the agent has to stage the volume for the intent, or keep it staged. The kubelet has an access
// of its own.
func staged(intent *volumesv1alpha1.VolumeAttachmentIntent) bool {
	return intent.DeletionTimestamp.IsZero() && stages(intent)
}

// stages reports the same of an intent that may be gone.
func stages(intent *volumesv1alpha1.VolumeAttachmentIntent) bool {
	return intent.Spec.Publisher != volumesv1alpha1.PublisherKubelet &&
		intent.Spec.DesiredState != volumesv1alpha1.DesiredAttached
}

func ofEntry(e *volumesv1alpha1.NodeAttachment) refs {
	return refs{e.NodeStageSecretRef, e.NodePublishSecretRef, e.NodeExpandSecretRef}
}

func ofSource(s *volume.Source) refs { return refs{s.StageSecret, s.PublishSecret, s.ExpandSecret} }

// refsOf are the Secrets that the intent's volume names. They are unknown while the intent has no volume. An intent
// that has had one keeps the Secrets of its entry, which the agent goes by, also when it does not resolve any more.
func (c *Controller) refsOf(ctx context.Context, intent *volumesv1alpha1.VolumeAttachmentIntent,
	nvs *volumesv1alpha1.NodeVolumeState) (r refs, known bool, err error) {
	if name := intent.Status.UniqueVolumeName; name != "" {
		if e := handshake.AttachmentOf(nvs, name); e != nil && e.State == volumesv1alpha1.AttachmentAttached {
			return ofEntry(e), true, nil
		}
	}
	facts, err := resolve.Gather(ctx, c.Client, intent)
	if err != nil {
		return refs{}, false, fmt.Errorf("resolving intent %s: %w", client.ObjectKeyFromObject(intent), err)
	}
	result := resolve.Intent(facts)
	if !result.OK {
		return refs{}, false, nil
	}
	return ofSource(result.Source), true, nil
}
