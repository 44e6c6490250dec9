/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package attachment

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/attachment/decision"
	"github.com/hawser-io/hawser/internal/controller/metrics"
	"github.com/hawser-io/hawser/internal/controller/nodestate"
	"github.com/hawser-io/hawser/internal/handshake"
	"github.com/hawser-io/hawser/internal/status"
)

// EventFailedDetach is the reason of an event on a NodeVolumeState: a volume is to be detached and its driver does not.
const EventFailedDetach = "FailedDetachVolume"

// longestDetachError in bytes, as an event takes it too.
const longestDetachError = 900

// attacherPatience is how long a driver's attacher may take to attach or detach a volume, or to say why it cannot.
const attacherPatience = 2 * time.Minute

// noteSilence records that the attacher has neither carried out an attachment of the node nor reported an error. It
// returns when that is due.
func (c *Controller) noteSilence(f *decision.Facts, n *decision.Node) time.Duration {
	return sooner(c.noteSilentAttach(f, n), c.noteSilentDetach(f, n))
}

// noteSilentAttach: while the driver gets other volumes attached, this one is in its queue.
func (c *Controller) noteSilentAttach(f *decision.Facts, n *decision.Node) time.Duration {
	a := n.Usable(f)
	if a == nil || a.Attached || a.AttachError != nil || a.Created.IsZero() || n.State.Entry.State == handshake.Attached {
		return 0
	}
	asked := a.Created
	if progress := c.attachTimes.lastProgress(f.Driver); progress.After(asked) {
		asked = progress
	}
	if left := attacherPatience - c.Clock.Since(asked); left > 0 {
		return left
	}
	a.Silent = true
	return 0
}

// noteSilentDetach makes it an error of the attachment too, which the entry then shows.
func (c *Controller) noteSilentDetach(f *decision.Facts, n *decision.Node) time.Duration {
	a := n.AttachmentOf(n.Detaching())
	if a == nil || a.Deleted.IsZero() || a.Gone() || a.DetachError != nil {
		return 0
	}
	if left := attacherPatience - c.Clock.Since(a.Deleted); left > 0 {
		return left
	}
	finalizers := slices.DeleteFunc(slices.Clone(a.Finalizers), func(s string) bool {
		return s == volumesv1alpha1.ForcedAwayFinalizer
	})
	a.Silent = true
	a.DetachError = &storagev1.VolumeError{Time: metav1.NewTime(a.Deleted.Add(attacherPatience)), Message: fmt.Sprintf(
		"the attacher of driver %s has neither detached the volume nor said why not since %s, "+
			"when VolumeAttachment %s was deleted; "+
			"that waits for its finalizer %s: see that the driver's external-attacher runs",
		f.Driver, a.Deleted.UTC().Format(time.RFC3339), a.Name, strings.Join(finalizers, ", "))}
	return 0
}

// noteDetachError puts what keeps the driver's attacher from detaching where it stays readable: by then no intent
// need be left that could say so.
func (c *Controller) noteDetachError(ctx context.Context, f *decision.Facts, n *decision.Node) error {
	a := n.AttachmentOf(n.Detaching())
	if a == nil || a.DetachError == nil || n.Entry == nil {
		return nil
	}
	message := status.Shorten(a.DetachError.Message, longestDetachError)
	if n.Entry.DetachError == message {
		return nil
	}
	written := false
	nvs, err := c.Writer.Apply(ctx, n.Name,
		func(_ context.Context, nvs *volumesv1alpha1.NodeVolumeState) (nodestate.Change, error) {
			e := handshake.AttachmentOf(decision.OrEmpty(nvs), f.Volume)
			written = e != nil && e.State == volumesv1alpha1.AttachmentDetaching && e.AttachmentUID == a.UID &&
				e.DetachError != message && nodestate.Size(nvs) < nodestate.SizeLimit // the errors must not fill it
			if !written {
				return nil, nil
			}
			return func(nvs *volumesv1alpha1.NodeVolumeState) {
				handshake.AttachmentOf(nvs, f.Volume).DetachError = message
			}, nil
		})
	if err != nil {
		return fmt.Errorf("noting why %s is not detached from node %s: %w", f.Volume, n.Name, err)
	}
	if written {
		c.Events.Eventf(nvs, nil, corev1.EventTypeWarning, EventFailedDetach, "Detach",
			"VolumeAttachment %s is not detached: %s", a.Name, message)
	}
	return nil
}

// EventNodeRenamed is the reason of an event on the NodeVolumeState of a node that is out of reach: what is attached
// to it is in use under another node's name.
const EventNodeRenamed = "NodeRenamed"

// reportRenamed puts an event on the NodeVolumeState of a node that goes on under another name.
func (c *Controller) reportRenamed(ctx context.Context, f *decision.Facts, n *decision.Node) {
	if n.RenamedTo == "" {
		return
	}
	nvs := &volumesv1alpha1.NodeVolumeState{}
	if err := c.Client.Get(ctx, client.ObjectKey{Name: n.Name}, nvs); err == nil {
		c.Events.Eventf(nvs, nil, corev1.EventTypeWarning, EventNodeRenamed, "Detach",
			"not detaching %s: node %s is out of reach, but node %s reports the volume in use by the same attachment, "+
				"as it does when a node is renamed",
			f.Volume, n.Name, n.RenamedTo)
	}
}

// announceDetach puts the evidence of an entry, as it was written in nvs, into the metric and an event. Volumes that
// the agent released come by the dozen: those that went out in one write share one event. A detach that the node was
// not asked for has one of its own.
func (c *Controller) announceDetach(nvs *volumesv1alpha1.NodeVolumeState, e *volumesv1alpha1.NodeAttachment) {
	metrics.Detached(e.Driver, e.Evidence)
	if e.Evidence.Type != volumesv1alpha1.EvidenceAgentReleased {
		c.Events.Eventf(
			nvs, attachmentIn(e), corev1.EventTypeWarning, eventDetaching, "Detach", "%s", status.ShortenNote(forcedNote(e)),
		)
		return
	}
	if c.announcements.first(nvs) {
		c.Events.Eventf(nvs, nil, corev1.EventTypeNormal, eventDetaching, "Detach", "%s",
			status.ShortenNote(releasedNote(nvs)))
	}
}

const eventDetaching = "DetachingVolume"

// attachmentIn keeps events of one version of a node's state apart, which their recorder would otherwise count as one.
func attachmentIn(e *volumesv1alpha1.NodeAttachment) runtime.Object {
	if e.AttachmentName == "" {
		return nil
	}
	return &corev1.ObjectReference{
		APIVersion: "storage.k8s.io/v1", Kind: "VolumeAttachment", Name: e.AttachmentName, UID: e.AttachmentUID,
	}
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
		if e.State == volumesv1alpha1.AttachmentDetaching && e.Evidence != nil &&
			e.Evidence.Type == volumesv1alpha1.EvidenceAgentReleased {
			names = append(names, e.VolumeName)
		}
	}
	return fmt.Sprintf("volumes being detached on evidence %s, the agent of node %s reports them not in use: %s",
		volumesv1alpha1.EvidenceAgentReleased, nvs.Name, strings.Join(names, ", "))
}

// announcements remembers the version of each node's state that the last event was about.
type announcements struct {
	mu       sync.Mutex
	versions map[string]string
}

// first reports whether there was no event about this version yet.
func (t *announcements) first(nvs *volumesv1alpha1.NodeVolumeState) bool {
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
func (t *announcements) forget(node string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.versions, node)
}
