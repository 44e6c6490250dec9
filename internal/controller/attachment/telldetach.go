/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package attachment

import (
	"fmt"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/metrics"
	"github.com/hawser-io/hawser/internal/controller/report"
)

// tellDetach puts the evidence of an entry, as it was written in nvs, into the metric and an event. Volumes that the agent released come
// by the dozen: those that went out in one write share one event. A detach that the node was not asked for has one of its own.
func (c *Controller) tellDetach(nvs *volumesv1alpha1.NodeVolumeState, e *volumesv1alpha1.NodeAttachment) {
	metrics.Detached(e.Driver, e.Evidence.Type)
	if e.Evidence.Type != volumesv1alpha1.EvidenceAgentReleased {
		c.Events.Eventf(nvs, attachmentIn(e), corev1.EventTypeWarning, eventDetaching, "Detach", "%s", report.Shortened(forcedNote(e)))
		return
	}
	if c.told.first(nvs) {
		c.Events.Eventf(nvs, nil, corev1.EventTypeNormal, eventDetaching, "Detach", "%s", report.Shortened(releasedNote(nvs)))
	}
}

const eventDetaching = "DetachingVolume"

// attachmentIn keeps events of one version of a node's state apart, which their recorder would otherwise count as one.
func attachmentIn(e *volumesv1alpha1.NodeAttachment) runtime.Object {
	if e.AttachmentName == "" {
		return nil
	}
	return &corev1.ObjectReference{APIVersion: "storage.k8s.io/v1", Kind: "VolumeAttachment", Name: e.AttachmentName, UID: e.AttachmentUID}
}

func forcedNote(e *volumesv1alpha1.NodeAttachment) string {
	note := fmt.Sprintf("detaching %s on evidence %s: %s", e.VolumeName, e.Evidence.Type, e.Evidence.Message)
	if e.Evidence.Unprotected {
		note += "; unprotected: the driver is not known to cut the node's access"
	}
	return note
}

// releasedNote names everything that is on its way out because the agent released it.
func releasedNote(nvs *volumesv1alpha1.NodeVolumeState) string {
	var names []string
	for i := range nvs.Spec.Attachments {
		e := &nvs.Spec.Attachments[i]
		if e.State == volumesv1alpha1.AttachmentDetaching && e.Evidence != nil && e.Evidence.Type == volumesv1alpha1.EvidenceAgentReleased {
			names = append(names, e.VolumeName)
		}
	}
	return fmt.Sprintf("volumes being detached on evidence %s, the agent of node %s reports them not in use: %s",
		volumesv1alpha1.EvidenceAgentReleased, nvs.Name, strings.Join(names, ", "))
}

// told remembers the version of each node's state that was last told of.
type told struct {
	mu       sync.Mutex
	versions map[string]string
}

// first says whether nothing was told of this version yet.
func (t *told) first(nvs *volumesv1alpha1.NodeVolumeState) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.versions[nvs.Name] == nvs.ResourceVersion {
		return false
	}
	if t.versions == nil {
		t.versions = map[string]string{}
	}
	t.versions[nvs.Name] = nvs.ResourceVersion
	return true
}

// forget a node that is gone.
func (t *told) forget(node string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.versions, node)
}
