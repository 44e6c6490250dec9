/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package nodehealth

import (
	"context"
	"fmt"

	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/index"
	"github.com/hawser-io/hawser/internal/controller/volume"
)

// +kubebuilder:rbac:groups=storage.k8s.io,resources=csinodes;volumeattachments,verbs=list;watch
// +kubebuilder:rbac:groups=volumes.hawser.io,resources=nodevolumestates;volumeattachmentintents,verbs=list;watch

// gather reads the cache.
func (c *Controller) gather(ctx context.Context, nvs *volumesv1alpha1.NodeVolumeState) (Facts, error) {
	f := Facts{Node: nvs.Name}
	ids, err := c.registered(ctx, nvs.Name)
	if err != nil {
		return f, err
	}
	for i := range nvs.Spec.Attachments {
		a, err := c.attachment(ctx, nvs, &nvs.Spec.Attachments[i])
		if err != nil {
			return f, err
		}
		a.RegisteredID = ids[a.Driver]
		f.Attachments = append(f.Attachments, a)
	}
	f.Silent, err = c.silent(ctx, nvs.Name)
	return f, err
}

// registered are the node's IDs, by driver.
func (c *Controller) registered(ctx context.Context, node string) (map[string]string, error) {
	registered := &storagev1.CSINode{}
	if err := c.Client.Get(ctx, client.ObjectKey{Name: node}, registered); client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("reading CSINode %s: %w", node, err)
	}
	ids := map[string]string{}
	for _, driver := range registered.Spec.Drivers {
		ids[driver.Name] = driver.NodeID
	}
	return ids, nil
}

func (c *Controller) attachment(
	ctx context.Context, nvs *volumesv1alpha1.NodeVolumeState, e *volumesv1alpha1.NodeAttachment,
) (Attachment, error) {
	a := Attachment{Name: e.AttachmentName, Volume: e.VolumeName, Driver: e.Driver}
	if e.AttachmentName == "" || e.DetachedTime != nil {
		return a, nil // no attacher has to do with it
	}
	va := &storagev1.VolumeAttachment{}
	err := c.Client.Get(ctx, client.ObjectKey{Name: e.AttachmentName}, va)
	if client.IgnoreNotFound(err) != nil {
		return a, fmt.Errorf("reading VolumeAttachment %s: %w", e.AttachmentName, err)
	}
	if err == nil && va.UID == e.AttachmentUID {
		a.AttachedID = va.Annotations[volume.NodeIDAnnotation]
		a.Refused = volume.Refused(va)
		a.DetachError, a.Reported = e.DetachError, va.Status.DetachError != nil
	}
	if unreachable(nvs) {
		a.UsedBy, err = c.usedBy(ctx, nvs.Name, e)
		return a, err
	}
	return a, nil
}

// usedBy names another node that uses the volume by the attachment of this entry.
func (c *Controller) usedBy(ctx context.Context, node string, e *volumesv1alpha1.NodeAttachment) (string, error) {
	states := &volumesv1alpha1.NodeVolumeStateList{}
	if err := c.Client.List(ctx, states, client.MatchingFields{index.Volume: e.VolumeName}); err != nil {
		return "", fmt.Errorf("listing the nodes of %s: %w", e.VolumeName, err)
	}
	for i := range states.Items {
		if states.Items[i].Name == node {
			continue
		}
		for _, v := range states.Items[i].Status.Volumes {
			if v.VolumeName == e.VolumeName && v.AttachmentUID == e.AttachmentUID && v.InUse {
				return states.Items[i].Name, nil
			}
		}
	}
	return "", nil
}

// silent are the messages of the node's intents whose attacher does not answer.
func (c *Controller) silent(ctx context.Context, node string) ([]string, error) {
	intents := &volumesv1alpha1.VolumeAttachmentIntentList{}
	if err := c.Client.List(ctx, intents, client.MatchingFields{index.Node: node}); err != nil {
		return nil, fmt.Errorf("listing the intents of node %s: %w", node, err)
	}
	var messages []string
	for i := range intents.Items {
		if waitsForAttacher(&intents.Items[i]) {
			attached := meta.FindStatusCondition(intents.Items[i].Status.Conditions, volumesv1alpha1.ConditionAttached)
			messages = append(messages, attached.Message)
		}
	}
	return messages, nil
}

func waitsForAttacher(intent *volumesv1alpha1.VolumeAttachmentIntent) bool {
	attached := meta.FindStatusCondition(intent.Status.Conditions, volumesv1alpha1.ConditionAttached)
	return attached != nil && attached.Reason == volumesv1alpha1.ReasonAttacherSilent
}

func unreachable(nvs *volumesv1alpha1.NodeVolumeState) bool {
	ready := meta.FindStatusCondition(nvs.Status.Conditions, volumesv1alpha1.ConditionReady)
	return ready != nil && ready.Reason == volumesv1alpha1.ReasonAgentUnreachable
}
