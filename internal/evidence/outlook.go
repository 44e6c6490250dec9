/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package evidence

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/attachment/decision"
	"github.com/hawser-io/hawser/internal/handshake"
	"github.com/hawser-io/hawser/internal/status"
)

// Fate of a volume on a node whose machine is off.
type Fate string

const (
	// Detaches means that the volume is detached once there is evidence.
	Detaches Fate = "Detaches"
	// Detaching means that it is detached already, or is being detached.
	Detaching Fate = "Detaching"
	// NeedsDelete means that an intent has to be deleted: evidence does not overrule an intent that wants the volume.
	NeedsDelete Fate = "NeedsDelete"
	// DetachesByKubernetes means that Kubernetes' own controller detaches it on the taint.
	DetachesByKubernetes Fate = "DetachesByKubernetes"
	// Stays means that no evidence about the machine has the volume detached.
	Stays Fate = "Stays"
)

// Outlook is what happens to a volume of a node whose machine is off, and why.
type Outlook struct {
	Fate Fate   `json:"fate"`
	Why  string `json:"why"`
	// Evidence that it is detached on already; empty as long as it is not.
	Evidence volumesv1alpha1.EvidenceType `json:"evidence,omitempty"`
	// Since is when that began.
	Since time.Time `json:"-"`
	// Delete are the intents that have to be deleted, with their namespaces.
	Delete []string `json:"delete,omitempty"`
	// AfterPods is true if the volume is detached after the pods of its intents are deleted.
	AfterPods bool `json:"afterPods,omitempty"`
	// ForcedAfter is for how long the node has to be out of reach before time alone has the volume detached, once no
	// intent wants it here; absent if time alone does not.
	ForcedAfter *metav1.Duration `json:"forcedAfter,omitempty"`
}

// Outlook of a volume. intents are those on the node.
func (g Ground) Outlook(volumeName string, intents []volumesv1alpha1.VolumeAttachmentIntent) Outlook {
	n, e := handshake.NodeOf(g.State, volumeName), handshake.AttachmentOf(g.State, volumeName)
	if e != nil && e.State == volumesv1alpha1.AttachmentDetaching {
		return detaching(e)
	}
	if e != nil {
		if _, declared := n.Declares(e.AttachmentUID); declared {
			return Outlook{Fate: Detaches, Why: "an administrator has declared it released"}
		}
	}
	switch {
	case n.Use.Foreign:
		return Outlook{Fate: Stays, Why: "another machine of this node name uses it, and neither a taint nor a fence is " +
			"about that machine. Declare it released if that machine is off for good"}
	case renamed(g.State, volumeName):
		return Outlook{Fate: Stays, Why: "the machine goes on under another node name and uses it"}
	case e == nil && g.Manager != nil && g.Manager.AttachMode == volumesv1alpha1.AttachReplace:
		return Outlook{Fate: Stays, Why: "the node uses it without an attachment that Hawser made"}
	case e == nil:
		who := "Kubernetes' own controller attached it"
		if g.Manager == nil { // the mode is not known
			who = "Hawser did not attach it. In mode Coexist Kubernetes' own controller did"
		}
		return Outlook{Fate: DetachesByKubernetes, AfterPods: true, Why: who + ". It deletes the pods on the taint, and " +
			"detaches then without an unmount, also from a machine that runs" + g.onFence()}
	}
	return g.wanted(volumeName, intents)
}

// FenceTaints reports whether a fence of the machine has the manager set the taint.
func (g Ground) FenceTaints() bool {
	return g.Manager != nil && g.Manager.Fencing != nil && ptr.Deref(g.Manager.Fencing.ManageOutOfServiceTaint, false)
}

// onFence is what a fence does to the pods of the node, as the end of a sentence on what the taint does.
func (g Ground) onFence() string {
	switch {
	case g.Manager == nil:
		return ". On a fence it does so only where the manager sets that taint (spec.fencing.manageOutOfServiceTaint)"
	case g.FenceTaints():
		return ". The manager sets that taint on a fence of the machine (spec.fencing.manageOutOfServiceTaint)"
	}
	return ". A fence alone deletes no pod (spec.fencing.manageOutOfServiceTaint is not set)"
}

func detaching(e *volumesv1alpha1.NodeAttachment) Outlook {
	o := Outlook{Fate: Detaching, Why: "it is being detached"}
	if e.Evidence != nil {
		o.Evidence, o.Since = e.Evidence.Type, e.Evidence.Time.Time
	}
	switch {
	case e.DetachedTime != nil:
		o.Why, o.Since = "it is detached, and does not come back here before the agent has reported", e.DetachedTime.Time
	case e.DetachError != "":
		o.Fate, o.Why = Stays, "its detach fails: "+e.DetachError
	}
	return o
}

// renamed reports whether the manager has found that another node's agent uses what is attached here.
func renamed(nvs *volumesv1alpha1.NodeVolumeState, volumeName string) bool {
	c := meta.FindStatusCondition(nvs.Status.Conditions, volumesv1alpha1.ConditionAttachmentsHealthy)
	return c != nil && c.Reason == volumesv1alpha1.ReasonNodeRenamed && strings.Contains(c.Message, volumeName)
}

// wanted is the outlook of a volume by the intents that want it on the node.
func (g Ground) wanted(volumeName string, intents []volumesv1alpha1.VolumeAttachmentIntent) Outlook {
	o := Outlook{Fate: Detaches, Why: "no intent wants it here"}
	var pods []string
	// The policies of all that have to leave decide together, as they do in the manager once all are being deleted.
	var leaving []*decision.Intent
	for i := range intents {
		intent := &intents[i]
		key := intent.Namespace + "/" + intent.Name
		if intent.Status.UniqueVolumeName != volumeName {
			continue
		}
		if staysToLeave(intent) {
			leaving = append(leaving, &decision.Intent{Object: intent})
		}
		switch _, ofPod := intent.Labels[volumesv1alpha1.PodUIDLabel]; {
		case intent.DeletionTimestamp != nil:
		case ofPod:
			pods = append(pods, key)
		default:
			o.Delete = append(o.Delete, key)
		}
	}
	slices.Sort(o.Delete)
	after, timed := decision.ForceAfter(leaving)
	if timed {
		o.ForcedAfter = &metav1.Duration{Duration: after}
	}
	switch {
	case len(o.Delete) > 0:
		o.Fate = NeedsDelete
		o.Why = "intents want it here, and evidence does not overrule them: " + strings.Join(o.Delete, ", ")
		if len(pods) > 0 {
			o.Why += o.byTime(". Deleting them and its pods")
		} else {
			o.Why += o.byTime(". Deleting them")
		}
	case g.Unseen() != "" && !timed:
		o.Fate, o.Why = Stays, "the Node is gone, which is no evidence: "+g.Unseen()
	case len(pods) > 0:
		o.AfterPods = true
		o.Why = "its pods have to be deleted first, which Kubernetes does on the taint" + g.onFence() +
			o.byTime(". Deleting them")
	case timed:
		o.Why = "its intents are being deleted" + o.byTime(", and their policy")
	}
	return o
}

// staysToLeave reports whether an intent is there, once it is deleted, until its node has released the volume. Only
// the policies of such intents count for the manager.
func staysToLeave(intent *volumesv1alpha1.VolumeAttachmentIntent) bool {
	return status.Finalized(intent) || intent.DeletionTimestamp == nil && status.NeedsFinalizer(intent)
}

// byTime is that something forces the detach by time alone; empty if it does not. The time is not that since the
// deletion: the manager watches the node for all of its volumes together.
func (o *Outlook) byTime(what string) string {
	if o.ForcedAfter == nil {
		return ""
	}
	return fmt.Sprintf("%s forces the detach after %s by time alone, also from a machine that still runs, and at once if "+
		"the node was watched out of reach for so long already", what, o.ForcedAfter.Duration)
}

// readOnly reports whether every publication is. Where not all are listed, some may not be.
func readOnly(line *volumesv1alpha1.NodeVolume) bool {
	return len(line.Publications) > 0 && line.PublicationCount == 0 &&
		!slices.ContainsFunc(line.Publications, func(p volumesv1alpha1.Publication) bool { return !p.ReadOnly })
}

// Loss is what a program on the node loses if its machine is powered off now: what is not on the storage yet. Before an
// agent has reported, everything counts as in use. Later, an agent that is silent does not see what the kubelet mounts.
func (g Ground) Loss(volumeName string) string {
	n, line := handshake.NodeOf(g.State, volumeName), handshake.VolumeOf(g.State, volumeName)
	unused := line == nil || !line.InUse || line.Waiting
	switch {
	case unused && !n.Reported:
		return "not known: no agent has reported whether the volume is in use"
	case unused && g.Silence > 0 && handshake.AttachmentOf(g.State, volumeName) == nil:
		return "not known: the agent has been silent, and the kubelet may use the volume since"
	case unused:
		return "nothing: the volume is not in use"
	case line.PublishedBy == volumesv1alpha1.PublisherKubelet:
		return "what its filesystem has not written yet, unless the pods mount it read-only"
	case readOnly(line):
		return "nothing: it is published read-only"
	case slices.ContainsFunc(line.Publications, func(p volumesv1alpha1.Publication) bool {
		return p.Type == volumesv1alpha1.PublicationDevice
	}):
		return "what programs have not synced to the device yet"
	}
	return "what its filesystem has not written yet: it is mounted read-write"
}
