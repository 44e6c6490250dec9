/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package secretaccess

import (
	"cmp"
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
	"github.com/hawser-io/hawser/internal/status"
)

// mostEarly is up to how many Secrets of one namespace the agent may read because of volumes that are not attached yet.
// Those of attached volumes are bounded by the size of the node state. So a Role can always be written, whatever number
// of claims and Secrets an author creates.
const mostEarly = 1000

// wanted are the Secrets that the node's agent needs, by namespace. Each list is sorted.
func (c *Controller) wanted(ctx context.Context, node string, nvs *volumesv1alpha1.NodeVolumeState) (
	map[string][]string, error) {
	intents := &volumesv1alpha1.VolumeAttachmentIntentList{}
	if err := c.Client.List(ctx, intents, client.MatchingFields{index.Node: node}); err != nil {
		return nil, fmt.Errorf("listing the intents of node %s: %w", node, err)
	}
	slices.SortFunc(intents.Items, func(x, y volumesv1alpha1.VolumeAttachmentIntent) int {
		return cmp.Or(x.CreationTimestamp.Compare(y.CreationTimestamp.Time), cmp.Compare(x.UID, y.UID))
	})
	wanted, early := map[string][]string{}, map[string][]string{}
	for i := range intents.Items {
		intent := &intents.Items[i]
		if !staged(intent) && !unstages(intent) {
			continue
		}
		r, _, err := c.refsOf(ctx, intent, nvs)
		if err != nil {
			return nil, err
		}
		names := early
		if entryOf(intent, nvs) != nil {
			names = wanted
		}
		for _, ref := range r.needed(intent) {
			names[ref.Namespace] = append(names[ref.Namespace], ref.Name)
		}
	}
	for namespace, names := range early {
		wanted[namespace] = addEarly(unique(wanted[namespace]), names)
	}
	for namespace, names := range wanted {
		wanted[namespace] = unique(names)
	}
	return wanted, nil
}

// addEarly adds the first of the early names that fit.
func addEarly(names, early []string) []string {
	known := map[string]bool{}
	for _, name := range names {
		known[name] = true
	}
	for _, name := range early {
		if len(names) < mostEarly && !known[name] {
			known[name], names = true, append(names, name)
		}
	}
	return names
}

func unique(names []string) []string {
	slices.Sort(names)
	return slices.Compact(names)
}

// refs are the Secrets that a volume names.
type refs struct{ stage, publish, expand *corev1.SecretReference }

func (r refs) any() bool { return r.stage != nil || r.publish != nil || r.expand != nil }

// needed are those that the agent reads for the intent.
func (r refs) needed(intent *volumesv1alpha1.VolumeAttachmentIntent) []corev1.SecretReference {
	if unstages(intent) {
		r.publish, r.expand = nil, nil
	}
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

// unstages reports whether the agent has the volume of the intent staged, and is to undo that. If the kubelet begins to
// use the volume meanwhile, the agent stages it again.
func unstages(intent *volumesv1alpha1.VolumeAttachmentIntent) bool {
	return !staged(intent) && intent.Spec.Publisher != volumesv1alpha1.PublisherKubelet &&
		status.AgentConditionsPresent(intent)
}

func ofEntry(e *volumesv1alpha1.NodeAttachment) refs {
	return refs{e.NodeStageSecretRef, e.NodePublishSecretRef, e.NodeExpandSecretRef}
}

func ofSource(s *volume.Source) refs { return refs{s.StageSecret, s.PublishSecret, s.ExpandSecret} }

// refsOf are the Secrets that the intent's volume names. They are unknown while the intent has no volume. An intent
// that has had one keeps the Secrets of its entry, which the agent goes by, also when it does not resolve any more.
func (c *Controller) refsOf(ctx context.Context, intent *volumesv1alpha1.VolumeAttachmentIntent,
	nvs *volumesv1alpha1.NodeVolumeState) (r refs, known bool, err error) {
	if e := entryOf(intent, nvs); e != nil {
		return ofEntry(e), true, nil
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

// entryOf is the Attached entry of the volume that the intent is pinned to; nil if there is none.
func entryOf(intent *volumesv1alpha1.VolumeAttachmentIntent,
	nvs *volumesv1alpha1.NodeVolumeState) *volumesv1alpha1.NodeAttachment {
	name := intent.Status.UniqueVolumeName
	if name == "" {
		return nil
	}
	if e := handshake.AttachmentOf(nvs, name); e != nil && e.State == volumesv1alpha1.AttachmentAttached {
		return e
	}
	return nil
}
