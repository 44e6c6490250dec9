/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package doctor

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/volume"
	"github.com/hawser-io/hawser/internal/explain"
	"github.com/hawser-io/hawser/internal/explain/catalog"
	"github.com/hawser-io/hawser/internal/explain/facts"
)

// attachment is a VolumeAttachment with its volume.
type attachment struct {
	*storagev1.VolumeAttachment
	ref   facts.Ref
	pv    *corev1.PersistentVolume // nil if there is none
	claim *facts.Ref
}

func (x *examination) attachment(va *storagev1.VolumeAttachment) attachment {
	pv := x.translated(ptr.Deref(va.Spec.Source.PersistentVolumeName, ""))
	return attachment{va, refOf(facts.KindAttachment, va), pv, x.claimOf(pv)}
}

// about begins a finding about the attachment.
func (a attachment) about(severity Severity, reason string) about {
	f := about{severity: severity, reason: reason, object: a.ref, claim: a.claim, group: a.Spec.Attacher,
		namespaces: []string{namespaceOf(a.pv)},
		places:     map[string]string{"node": a.Spec.NodeName, "driver": a.Spec.Attacher},
		detail: "volume " + ptr.Deref(a.Spec.Source.PersistentVolumeName, "in the attachment itself") + " on node " +
			a.Spec.NodeName}
	if a.pv != nil {
		f.places["volume"] = a.pv.Name
	}
	return f
}

// unusedAttachments finds attachments that no pod and no intent needs.
func unusedAttachments(x *examination) {
	for _, va := range x.c.Attachments.Items {
		a := x.attachment(va)
		_, held := va.Annotations[volumesv1alpha1.HoldAnnotation]
		node := of(x.nodes, va.Spec.NodeName)
		if va.DeletionTimestamp != nil || held || node == nil || a.pv == nil || !x.old(va.CreationTimestamp.Time, unused) ||
			x.c.Namespace != "" && namespaceOf(a.pv) != x.c.Namespace || x.used(a) || !ready(node) {
			continue
		}
		since, known := facts.UnusedSince(a.pv, x.claims[keyOf(a.claim)])
		if known && !x.old(since, unused) {
			continue
		}
		f := a.about(Notice, catalog.AttachmentUnused)
		if slices.Contains(node.Status.VolumesInUse, corev1.UniqueVolumeName(volume.UniqueNameOf(a.pv))) {
			f.severity, f.reason, f.group = Risk, catalog.KubeletKeepsVolume, va.Spec.NodeName
		}
		f.since = since
		x.find(f)
	}
}

// used reports whether a pod or an intent on the node uses the volume, or Hawser's agent reports it in use. Several
// PersistentVolumes may be the volume.
func (x *examination) used(a attachment) bool {
	node := a.Spec.NodeName
	wants := func(i *volumesv1alpha1.VolumeAttachmentIntent) bool { return i.Spec.NodeName == node }
	runs := func(p *corev1.Pod) bool { return p.Spec.NodeName == node }
	for _, pv := range append(x.sameVolume[volume.UniqueNameOf(a.pv)], a.pv) {
		claim := keyOf(x.claimOf(pv))
		if slices.ContainsFunc(x.usersOf(pv), runs) || slices.ContainsFunc(x.intentsOf[pv.Name], wants) ||
			slices.ContainsFunc(x.intentsOfClaim[claim], wants) {
			return true
		}
	}
	state := of(x.states, node)
	return state != nil && slices.ContainsFunc(state.Status.Volumes, func(l volumesv1alpha1.NodeVolume) bool {
		return l.AttachmentUID == a.UID && l.InUse
	})
}

// lostAttachments finds attachments whose node or volume is gone.
func lostAttachments(x *examination) {
	for _, va := range x.c.Attachments.Items {
		a := x.attachment(va)
		if va.DeletionTimestamp != nil || !x.old(va.CreationTimestamp.Time, unused) {
			continue
		}
		if of(x.nodes, va.Spec.NodeName) == nil {
			since, known := x.removed(va.Spec.NodeName)
			if known && !x.old(since, unused) {
				continue
			}
			f := a.about(Risk, catalog.AttachmentNodeGone)
			f.since, f.group = since, va.Spec.NodeName
			x.find(f)
		} else if a.pv == nil && va.Spec.Source.PersistentVolumeName != nil {
			x.find(a.about(Risk, catalog.AttachmentVolumeGone))
		}
	}
}

// removed is when Kubernetes has seen that a Node was deleted. It is known for as long as events are kept.
func (x *examination) removed(node string) (when time.Time, known bool) {
	for _, e := range x.c.Events.Items {
		if e.Reason == "RemovingNode" && e.InvolvedObject.Name == node {
			for _, t := range []time.Time{e.LastTimestamp.Time, e.EventTime.Time, e.CreationTimestamp.Time} {
				if t.After(when) {
					when, known = t, true
				}
			}
		}
	}
	return when, known
}

// terminatingAttachments finds attachments whose deletion does not end. What Hawser keeps after a forced detach is in
// its node state.
func terminatingAttachments(x *examination) {
	for _, va := range x.c.Attachments.Items {
		finalizers := slices.DeleteFunc(slices.Clone(va.Finalizers), func(f string) bool {
			return f == volumesv1alpha1.ForcedAwayFinalizer
		})
		if va.DeletionTimestamp == nil || !x.old(va.DeletionTimestamp.Time, stepTakes) || len(finalizers) == 0 {
			continue
		}
		a := x.attachment(va)
		f := a.about(Risk, catalog.DetachPending)
		f.since = va.DeletionTimestamp.Time
		f.detail += "; finalizers " + strings.Join(va.Finalizers, ", ")
		maps.Copy(f.places, explain.AttacherFinalizer(va))
		switch why := x.noAttacher(va.Spec.Attacher); {
		case why != "" && slices.ContainsFunc(finalizers, func(f string) bool {
			return strings.HasPrefix(f, facts.AttacherFinalizer)
		}):
			f.reason, f.detail = catalog.FinalizerStays, f.detail+"; "+why
		case va.Status.DetachError != nil:
			f.reason, f.detail = volumesv1alpha1.ReasonDetachFailed, va.Status.DetachError.Message
		}
		x.find(f)
	}
}

// noAttacher is why no external-attacher works for a driver; empty if one may.
func (x *examination) noAttacher(driver string) string {
	d := of(x.drivers, driver)
	switch {
	case d != nil && !ptr.Deref(d.Spec.AttachRequired, true):
		return "the CSIDriver has attachRequired false"
	case d == nil && !slices.ContainsFunc(x.c.CSINodes.Items, func(n *storagev1.CSINode) bool {
		return driverOf(n, driver) != nil
	}):
		return "driver " + driver + " has no CSIDriver and is on no node"
	}
	return ""
}

// refusedAttachments finds what counts as attached and could not be attached again, though an intent needs that.
func refusedAttachments(x *examination) {
	for _, va := range x.c.Attachments.Items {
		intents := x.intentsOf[ptr.Deref(va.Spec.Source.PersistentVolumeName, "")]
		needed := slices.ContainsFunc(intents, func(i *volumesv1alpha1.VolumeAttachmentIntent) bool {
			return explain.NeedsAgain(va, i)
		})
		if needed && x.old(va.Status.AttachError.Time.Time, settles) {
			f := x.attachment(va).about(Outage, volumesv1alpha1.ReasonAttachFailed)
			f.detail, f.since = va.Status.AttachError.Message, va.Status.AttachError.Time.Time
			f.group += " " + withoutIDs(f.detail, va.Spec.NodeName)
			x.find(f)
		}
	}
}

// exclusiveTwice finds exclusive volumes that are attached to several nodes.
func exclusiveTwice(x *examination) {
	for _, pv := range x.c.Volumes.Items {
		attached := slices.DeleteFunc(slices.Clone(x.attachmentsOf[pv.Name]), func(va *storagev1.VolumeAttachment) bool {
			return !va.Status.Attached || va.DeletionTimestamp != nil
		})
		if len(attached) < 2 || !volume.Exclusive(x.translated(pv.Name)) {
			continue
		}
		slices.SortFunc(attached, func(a, b *storagev1.VolumeAttachment) int {
			return a.CreationTimestamp.Compare(b.CreationTimestamp.Time)
		})
		since := attached[1].CreationTimestamp.Time // since then there are two
		if !x.old(since, settles) {
			continue
		}
		var nodes []string
		for _, va := range attached {
			nodes = append(nodes, va.Spec.NodeName)
		}
		x.find(about{severity: Danger, reason: catalog.ExclusiveTwice, object: refOf(facts.KindVolume, pv),
			claim: x.claimOf(pv), since: since, namespaces: []string{namespaceOf(pv)},
			detail: "attached to nodes " + strings.Join(nodes, ", ")})
	}
}

// otherIDs finds attachments to an ID of the node that its driver does not register any more.
func otherIDs(x *examination) {
	for _, va := range x.c.Attachments.Items {
		node := va.Spec.NodeName
		driver := driverOf(of(x.csiNodes, node), va.Spec.Attacher)
		id := va.Annotations[volume.NodeIDAnnotation]
		if driver == nil || id == "" || id == driver.NodeID || !va.Status.Attached || va.DeletionTimestamp != nil {
			continue
		}
		x.once[volumesv1alpha1.ReasonNodeIDChanged+" "+node] = true
		f := x.attachment(va).about(Outage, volumesv1alpha1.ReasonNodeIDChanged)
		f.group = node
		f.detail = fmt.Sprintf("attached to node ID %s, and driver %s registers %s now; %s", id, driver.Name, driver.NodeID,
			f.detail)
		x.find(f)
	}
}

// driverOf is a driver in a CSINode, which may be nil; nil for none.
func driverOf(node *storagev1.CSINode, driver string) *storagev1.CSINodeDriver {
	if node == nil {
		return nil
	}
	i := slices.IndexFunc(node.Spec.Drivers, func(d storagev1.CSINodeDriver) bool { return d.Name == driver })
	if i < 0 {
		return nil
	}
	return &node.Spec.Drivers[i]
}

func claimCondition(claim *corev1.PersistentVolumeClaim, kind corev1.PersistentVolumeClaimConditionType,
) corev1.PersistentVolumeClaimCondition {
	for _, c := range claim.Status.Conditions {
		if c.Type == kind {
			return c
		}
	}
	return corev1.PersistentVolumeClaimCondition{}
}

// namesOf are the names of objects in short: the first ones, and how many more.
func namesOf[T client.Object](list []T) string {
	const shown = 3
	var names []string
	for _, o := range list[:min(len(list), shown)] {
		names = append(names, strings.TrimPrefix(o.GetNamespace()+"/"+o.GetName(), "/"))
	}
	if more := len(list) - shown; more > 0 {
		names = append(names, fmt.Sprintf("%d more", more))
	}
	return strings.Join(names, ", ")
}
