/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package explain

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/volume"
	"github.com/hawser-io/hawser/internal/explain/catalog"
	"github.com/hawser-io/hawser/internal/explain/facts"
)

// patience is how long an attacher may need before its silence is a problem.
const patience = time.Minute

// volume explains one volume: claim, PersistentVolume, driver, intent and attachment. While its user waits, what is
// missing is a finding.
func (w *walk) volume(v *facts.Volume, waiting bool) {
	if v.Intent.Err != nil {
		w.missing(v.Intent.Ref, v.Intent.Err, about{reason: catalog.Missing})
	}
	w.claim(v, waiting)
	w.under(func() {
		w.persistentVolume(v, waiting)
		w.full(v)
		w.under(func() {
			if v.Intent.Found && v.PodVolume != "" {
				w.intent(v)
			}
			w.driverOnNode(v, waiting)
			w.attachment(v, waiting)
			if waiting {
				w.elsewhere(v)
			}
		})
	})
}

// driverOnNode reports a driver that the node does not list. The node's own links are elsewhere in the chain. A volume
// that is there needs its driver for its release.
func (w *walk) driverOnNode(v *facts.Volume, waiting bool) {
	n, known := w.f.NodeOf(v.Node)
	if !known || v.Driver == "" || !n.Node.Found {
		return
	}
	places := map[string]string{"node": n.Name, "driver": v.Driver}
	if facts.Absent(n.CSINode.Err) {
		w.find(about{object: n.CSINode.Ref, reason: catalog.CSINodeMissing, places: places})
		return
	}
	if !n.CSINode.Found {
		return
	}
	if waiting && driverListed(&n, v.Driver) == "" {
		w.find(about{object: n.CSINode.Ref, reason: volumesv1alpha1.ReasonDriverNotInstalled, places: places,
			detail: fmt.Sprintf("the volume needs driver %s; the node has %s", v.Driver,
				driverNames(n.CSINode.Value.Spec.Drivers))})
	}
	if !waiting {
		w.driversGone(&n, v.Driver)
	}
}

func driverNames(drivers []storagev1.CSINodeDriver) string {
	if len(drivers) == 0 {
		return "none"
	}
	names := make([]string, 0, len(drivers))
	for _, d := range drivers {
		names = append(names, d.Name)
	}
	return strings.Join(names, ", ")
}

// attachment explains the VolumeAttachment to the node where the volume is wanted.
func (w *walk) attachment(v *facts.Volume, waiting bool) {
	ref := v.Attachment.Ref
	if !v.Attachment.Asked() {
		return
	}
	places := map[string]string{"node": v.Node, "volume": v.Volume.Ref.Name, "driver": v.Driver}
	if v.Attachment.Err != nil {
		w.absentAttachment(v, waiting, places)
		return
	}
	va := v.Attachment.Value
	since := va.CreationTimestamp.Time
	switch {
	case va.DeletionTimestamp != nil:
		w.detaching(va, ref, places)
	case v.Other.Asked():
		w.otherAttachment(v, places)
	case va.Status.AttachError != nil && !va.Status.Attached:
		w.attachFails(v, places)
	case !va.Status.Attached:
		w.link(ref, Waits, "not attached to "+v.Node+" yet", since)
		w.find(w.late(about{object: ref, reason: catalog.AttachPending, since: since, places: places,
			detail: "attacher " + va.Spec.Attacher + " has set no status"}))
	case refused(v):
		w.refused(v, places)
	case w.otherID(v) != "":
		w.attachedToOtherID(v, waiting, places)
	default:
		w.link(ref, Good, "attached to "+v.Node+errorLeft(va), time.Time{})
	}
}

// otherID is the node's present ID in the driver, if the attachment was made for another one.
func (b *builder) otherID(v *facts.Volume) string {
	n, known := b.f.NodeOf(v.Node)
	if !known || !n.CSINode.Found || !v.Attachment.Found {
		return ""
	}
	attached := v.Attachment.Value.Annotations[volume.NodeIDAnnotation]
	if attached == "" {
		return ""
	}
	for _, d := range n.CSINode.Value.Spec.Drivers {
		if d.Name == v.Attachment.Value.Spec.Attacher && d.NodeID != attached {
			return d.NodeID
		}
	}
	return ""
}

// attachedToOtherID reports an attachment to the node's former ID. It is the cause of what fails on the node, and a
// note as long as nothing waits.
func (w *walk) attachedToOtherID(v *facts.Volume, waiting bool, places map[string]string) {
	ref, since := v.Attachment.Ref, v.Attachment.Value.CreationTimestamp.Time
	id := v.Attachment.Value.Annotations[volume.NodeIDAnnotation]
	a := about{object: ref, reason: volumesv1alpha1.ReasonNodeIDChanged, places: places, since: since,
		detail: fmt.Sprintf("attached to node ID %s; driver %s registers node %s as %s now", id,
			v.Attachment.Value.Spec.Attacher, v.Node, w.otherID(v))}
	state := Bad
	if !waiting {
		state, a.level = Good, catalog.Note
	}
	w.link(ref, state, "attached to "+v.Node+" under its former ID "+id, since)
	w.find(a)
}

// otherAttachment reports an attachment that is for another PersistentVolume of the same handle. What the driver says
// is about that one.
func (w *walk) otherAttachment(v *facts.Volume, places map[string]string) {
	va, other := v.Attachment.Value, "PersistentVolume "+v.Other.Ref.Name
	if facts.Absent(v.Other.Err) {
		other += ", which does not exist any more"
	}
	since := va.CreationTimestamp.Time
	attached := "not attached to "
	if va.Status.Attached {
		attached = "attached to "
	}
	w.link(v.Attachment.Ref, Bad, attached+v.Node+", and for "+other, since)
	detail := fmt.Sprintf("it is for %s; %s is wanted, which has the same driver and handle", other, v.Volume.Ref.Name)
	if !va.Status.Attached && len(va.Finalizers) > 0 {
		detail += "; it may be attached, because it has finalizers: " + strings.Join(va.Finalizers, ", ")
	}
	w.find(about{object: v.Attachment.Ref, reason: catalog.OtherAttachment, places: places, since: since, detail: detail})
}

func (w *walk) absentAttachment(v *facts.Volume, waiting bool, places map[string]string) {
	switch ref := v.Attachment.Ref; {
	case !facts.Absent(v.Attachment.Err):
		w.unreadable(ref, v.Attachment.Err)
	case !waiting:
		w.link(ref, Waits, "not attached to "+v.Node, time.Time{})
	default:
		w.link(ref, Waits, "does not exist: the volume is not attached to "+v.Node, time.Time{})
		a := about{object: w.f.Subject, reason: catalog.AttachmentMissing, places: places}
		if !v.Intent.Found && !w.f.FromFile { // an intent has the reason itself
			w.find(a)
		}
	}
}

// detaching reports an attachment that is being deleted.
func (w *walk) detaching(va *storagev1.VolumeAttachment, ref facts.Ref, places map[string]string) {
	since := va.DeletionTimestamp.Time
	if e := va.Status.DetachError; e != nil {
		w.link(ref, Bad, "being detached from "+va.Spec.NodeName+", the attacher reports an error", since)
		w.find(about{object: ref, reason: volumesv1alpha1.ReasonDetachFailed, detail: e.Message, since: since,
			places: places})
		return
	}
	w.link(ref, Waits, "being detached from "+va.Spec.NodeName, since)
	w.find(w.terminating(va, about{object: ref, since: since, places: places}))
}

// late turns a wait into a problem if it has lasted too long.
func (b *builder) late(a about) about {
	if !a.since.IsZero() && b.f.Now.Sub(a.since) > patience {
		a.level, a.depth = catalog.Problem, catalog.Root
	}
	return a
}

// elsewhere explains which node has an exclusive volume: by an attachment, by the lock, or by an intent.
func (w *walk) elsewhere(v *facts.Volume) {
	if v.Elsewhere.Err != nil {
		w.unreadable(facts.Ref{Kind: facts.KindAttachment, Name: "of " + v.Volume.Ref.String()}, v.Elsewhere.Err)
	}
	if !v.Exclusive {
		return
	}
	holders := map[string]bool{}
	if v.Node == "" {
		w.bindsPod(v)
		return
	}
	for i := range v.Elsewhere.Items {
		va := &v.Elsewhere.Items[i]
		ref := facts.Ref{Kind: facts.KindAttachment, Name: va.Name}
		holders[va.Spec.NodeName] = true
		places := map[string]string{"holder": va.Spec.NodeName, "volume": v.Volume.Ref.Name, "attachment": va.Name,
			"driver": v.Driver, "namespace": v.Claim.Ref.Namespace, "pods": PodsToEnd(podsOn(v, va.Spec.NodeName))}
		if va.DeletionTimestamp != nil {
			w.detaching(va, ref, places) // what is deleted there needs no deletion any more
			continue
		}
		w.link(ref, Bad, "attached to "+va.Spec.NodeName, va.CreationTimestamp.Time)
		w.twice(v, va)
		w.find(about{object: ref, reason: catalog.HeldElsewhere, since: va.CreationTimestamp.Time, places: places,
			detail: fmt.Sprintf("the volume is attached to node %s and wanted on node %s%s", va.Spec.NodeName, v.Node,
				podsThere(v, va.Spec.NodeName))})
	}
	if v.Lock.Err != nil && !facts.Absent(v.Lock.Err) {
		w.unreadable(v.Lock.Ref, v.Lock.Err)
	}
	if holder := v.Lock.Value.Holder; holder != "" && holder != v.Node {
		since, _ := time.Parse(time.RFC3339, v.Lock.Value.Since) // a line without time has none
		w.link(v.Lock.Ref, Good, "the lock of the volume names node "+holder, since)
		holders[holder] = holders[holder] || w.holds(v, holder)
	}
	w.otherIntents(v, holders)
	w.deadHolders(v, holders)
}

// podsThere names the pods that use the volume on a node; empty if none is known.
func podsThere(v *facts.Volume, node string) string {
	var names []string
	for _, pod := range podsOn(v, node) {
		names = append(names, pod.Name)
	}
	if len(names) == 0 {
		return ""
	}
	return "; used there by pod " + shortList(names)
}

// podsOn are the pods that use the volume on a node.
func podsOn(v *facts.Volume, node string) []*corev1.Pod {
	return slices.DeleteFunc(pointers(v.Pods.Items), func(pod *corev1.Pod) bool {
		return pod.Spec.NodeName != node || facts.Ended(pod)
	})
}

// bindsPod notes where the exclusive volume of a pod on no node is attached. The scheduler does not regard that.
func (w *walk) bindsPod(v *facts.Volume) {
	for i := range v.Elsewhere.Items {
		va := &v.Elsewhere.Items[i]
		ref := facts.Ref{Kind: facts.KindAttachment, Name: va.Name}
		w.link(ref, Good, "attached to "+va.Spec.NodeName, va.CreationTimestamp.Time)
		w.find(about{object: ref, reason: catalog.HeldElsewhere, level: catalog.Note,
			places: map[string]string{"holder": va.Spec.NodeName, "volume": v.Volume.Ref.Name},
			detail: fmt.Sprintf("the volume is attached to node %s; a pod on another node would wait", va.Spec.NodeName)})
	}
}

// holds reports whether the node still has the volume. A lock stays with its last holder, so it alone means nothing.
func (w *walk) holds(v *facts.Volume, node string) bool {
	n, known := w.f.NodeOf(node)
	if !known || !n.State.Found {
		return false
	}
	state := n.State.Value
	return slices.ContainsFunc(state.Spec.Attachments, func(a volumesv1alpha1.NodeAttachment) bool {
		return a.VolumeName == v.UniqueName
	}) || slices.ContainsFunc(state.Status.Volumes, func(l volumesv1alpha1.NodeVolume) bool {
		return l.VolumeName == v.UniqueName && l.InUse
	})
}

// otherIntents adds the intents that want the volume on another node.
func (w *walk) otherIntents(v *facts.Volume, holders map[string]bool) {
	if v.Intents.Err != nil {
		w.unreadable(facts.Ref{Kind: facts.KindIntent, Name: "of " + v.Volume.Ref.String()}, v.Intents.Err)
	}
	for i := range v.Intents.Items {
		other := &v.Intents.Items[i]
		if other.Spec.NodeName == v.Node {
			continue
		}
		ref := facts.Ref{Kind: facts.KindIntent, Namespace: other.Namespace, Name: other.Name}
		state, text := Waits, "wants the volume on node "+other.Spec.NodeName
		if conditionTrue(other.Status.Conditions, volumesv1alpha1.ConditionAttached) {
			state, text = Good, "has the volume on node "+other.Spec.NodeName
			holders[other.Spec.NodeName] = true
		}
		w.link(ref, state, text, other.CreationTimestamp.Time)
	}
}

// deadHolders reports nodes that have the volume and cannot release it.
func (w *walk) deadHolders(v *facts.Volume, holders map[string]bool) {
	for i := range w.f.Nodes {
		n := &w.f.Nodes[i]
		if !holders[n.Name] {
			continue
		}
		w.under(func() { w.nodeLink(n) })
		if cause := w.cannotRelease(n); cause != "" {
			w.find(about{object: n.Node.Ref, reason: catalog.HolderOnDeadNode, detail: cause,
				places: map[string]string{"holder": n.Name, "volume": v.Volume.Ref.Name}})
		}
	}
}

// affinity is the volume's node affinity in words.
func affinity(pv *corev1.PersistentVolume) string {
	if pv.Spec.NodeAffinity == nil || pv.Spec.NodeAffinity.Required == nil {
		return "nothing"
	}
	var terms []string
	for _, term := range pv.Spec.NodeAffinity.Required.NodeSelectorTerms {
		var parts []string
		for _, r := range append(term.MatchExpressions, term.MatchFields...) {
			parts = append(parts, strings.TrimSpace(fmt.Sprintf("%s %s %s", r.Key, strings.ToLower(string(r.Operator)),
				strings.Join(r.Values, ", "))))
		}
		terms = append(terms, strings.Join(parts, " and "))
	}
	return strings.Join(terms, ", or ")
}
