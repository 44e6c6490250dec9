/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package explain

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/volume"
	"github.com/hawser-io/hawser/internal/explain/catalog"
	"github.com/hawser-io/hawser/internal/explain/facts"
)

// attachmentSubject explains a VolumeAttachment of Hawser or of Kubernetes: what its attacher reports, and its volume,
// node and users.
func (w *walk) attachmentSubject() {
	v := &w.f.Volumes[0]
	va, first := v.Attachment.Value, len(w.report.Chain)
	w.attachment(v, true)
	w.report.Chain[first].Text += madeBy(va)
	w.under(func() {
		w.attachedVolume(v)
		w.attachedNode(v)
		if va.DeletionTimestamp == nil {
			w.driverOnNode(v, !v.Attached())
		}
		if va.DeletionTimestamp == nil && !v.Attached() {
			w.elsewhere(v)
		} else {
			w.attachedTwice(v)
		}
		w.usersOf(v)
	})
	w.unused(v)
}

// keeps reports whether Hawser has to do with an attachment: an intent wants it, or Hawser keeps it from being deleted.
func keeps(v *facts.Volume) bool {
	_, held := v.Attachment.Value.Annotations[volumesv1alpha1.HoldAnnotation]
	return held || len(intentsOn(v)) > 0 ||
		slices.Contains(v.Attachment.Value.Finalizers, volumesv1alpha1.ForcedAwayFinalizer)
}

// madeBy names what created the attachment, as far as the API server has recorded that.
func madeBy(va *storagev1.VolumeAttachment) string {
	text := ""
	for _, f := range va.ManagedFields {
		if f.Operation == metav1.ManagedFieldsOperationUpdate && f.Subresource == "" && f.FieldsV1 != nil &&
			strings.Contains(f.FieldsV1.GetRawString(), `"f:attacher"`) {
			text = ", created by " + f.Manager
		}
	}
	if _, held := va.Annotations[volumesv1alpha1.HoldAnnotation]; held {
		text += ", held by Hawser"
	}
	return text
}

// attachedVolume explains the PersistentVolume and its claim.
func (w *walk) attachedVolume(v *facts.Volume) {
	if facts.Absent(v.Volume.Err) {
		w.link(v.Volume.Ref, Bad, "does not exist", time.Time{})
		w.find(about{object: v.Attachment.Ref, reason: catalog.AttachmentVolumeGone, detail: v.Volume.Ref.String()})
		return
	}
	w.persistentVolume(v, !v.Attached())
	if v.Volume.Found && v.Volume.Value.Status.Phase == corev1.VolumeBound {
		w.under(func() { w.claim(v, false) })
	}
}

// attachedNode explains the node. What is attached to one that is gone is detached by force.
func (w *walk) attachedNode(v *facts.Volume) {
	n, _ := w.f.NodeOf(v.Node)
	if !facts.Absent(n.Node.Err) {
		w.node(v.Node)
		return
	}
	w.link(n.Node.Ref, Bad, "does not exist", time.Time{})
	w.under(func() { w.agent(&n) })
	if v.Attachment.Value.DeletionTimestamp == nil {
		w.find(about{object: v.Attachment.Ref, reason: catalog.AttachmentNodeGone, places: at("node", v.Node),
			detail: n.Node.Ref.String()})
	}
}

// attachedTwice reports an exclusive volume that other nodes have as well.
func (w *walk) attachedTwice(v *facts.Volume) {
	if v.Elsewhere.Err != nil {
		w.unreadable(facts.Ref{Kind: facts.KindAttachment, Name: "of " + v.Volume.Ref.String()}, v.Elsewhere.Err)
	}
	for i := range v.Elsewhere.Items {
		va := &v.Elsewhere.Items[i]
		if !va.Status.Attached || va.DeletionTimestamp != nil || !v.Attached() {
			continue
		}
		w.link(facts.Ref{Kind: facts.KindAttachment, Name: va.Name}, Bad, "attached to "+va.Spec.NodeName,
			va.CreationTimestamp.Time)
		w.twice(v, va)
	}
}

// twice reports that an exclusive volume is attached to its node, and by another attachment to a second one.
func (w *walk) twice(v *facts.Volume, va *storagev1.VolumeAttachment) {
	if v.Attached() && va.Status.Attached {
		w.find(about{object: v.Volume.Ref, reason: catalog.ExclusiveTwice, since: va.CreationTimestamp.Time,
			detail: "attached to nodes " + v.Node + ", " + va.Spec.NodeName})
	}
}

// usersOf adds the intents and pods that use the volume on the node of the attachment.
func (w *walk) usersOf(v *facts.Volume) {
	here := *v
	here.Intents.Items = intentsOn(v)
	w.users(&here)
	for i := range w.f.Users.Items {
		w.userPod(&w.f.Users.Items[i])
	}
	if w.f.Users.Err != nil {
		w.unreadable(facts.Ref{Kind: facts.KindPod, Namespace: v.Claim.Ref.Namespace, Name: "(on " + v.Node + ")"},
			w.f.Users.Err)
	}
}

func intentsOn(v *facts.Volume) []volumesv1alpha1.VolumeAttachmentIntent {
	return slices.DeleteFunc(slices.Clone(v.Intents.Items), func(i volumesv1alpha1.VolumeAttachmentIntent) bool {
		return i.Spec.NodeName != v.Node
	})
}

// unused reports an attachment that nothing on its node is known to need.
func (w *walk) unused(v *facts.Volume) {
	va := v.Attachment.Value
	n, _ := w.f.NodeOf(v.Node)
	if va.DeletionTimestamp != nil || !n.Node.Found || !v.Claim.Asked() || w.f.Users.Err != nil || v.Intents.Err != nil ||
		len(intentsOn(v)) > 0 || slices.ContainsFunc(w.f.Users.Items, func(p corev1.Pod) bool { return !facts.Ended(&p) }) {
		return
	}
	since, known := facts.UnusedSince(v.Volume.Value, v.Claim.Value)
	if !known {
		since = va.CreationTimestamp.Time
	}
	a := about{object: v.Attachment.Ref, reason: catalog.AttachmentUnused, since: since,
		places: map[string]string{"node": v.Node, "volume": v.Volume.Ref.Name, "driver": v.Driver}}
	if _, held := va.Annotations[volumesv1alpha1.HoldAnnotation]; held || w.holds(v, v.Node) {
		a.reason = catalog.AttachmentHeld
	} else if slices.Contains(n.Node.Value.Status.VolumesInUse, corev1.UniqueVolumeName(v.UniqueName)) {
		a.reason = catalog.KubeletKeepsVolume
	}
	if w.f.Now.Sub(a.since) < facts.UnusedFor {
		a.level = catalog.Waiting
	}
	w.find(a)
}

// terminating is what the end of an attachment waits for: the agent of a node from which the volume was forced away,
// the driver's attacher, or another program.
func (w *walk) terminating(va *storagev1.VolumeAttachment, a about) about {
	finalizers := slices.DeleteFunc(slices.Clone(va.Finalizers), func(f string) bool {
		return f == volumesv1alpha1.ForcedAwayFinalizer
	})
	attacher := len(finalizers) == 0 || slices.ContainsFunc(finalizers, ofAttacher)
	a.reason, a.detail = catalog.DetachPending, "attacher "+va.Spec.Attacher+" has not removed its finalizer"
	switch why := w.noAttacher(va); {
	case len(finalizers) < len(va.Finalizers) && len(finalizers) == 0:
		a.reason, a.detail = volumesv1alpha1.ReasonForcedAway, "finalizer "+volumesv1alpha1.ForcedAwayFinalizer
		a.places["uid"] = string(va.UID)
		return a
	case attacher && why != "":
		a.reason = catalog.FinalizerStays
		a.detail = "finalizers " + strings.Join(va.Finalizers, ", ") + "; " + why
		maps.Copy(a.places, AttacherFinalizer(va))
	case !attacher:
		a.reason, a.detail = catalog.OtherFinalizer, "finalizers "+strings.Join(finalizers, ", ")
	}
	return w.late(a)
}

func ofAttacher(finalizer string) bool { return strings.HasPrefix(finalizer, facts.AttacherFinalizer) }

// AttacherFinalizer has the places of a command that removes the finalizer of the attacher and no other one, which may
// keep the name of the attachment from being taken. It is empty if there is not exactly one.
func AttacherFinalizer(va *storagev1.VolumeAttachment) map[string]string {
	i := slices.IndexFunc(va.Finalizers, ofAttacher)
	if i < 0 || slices.ContainsFunc(va.Finalizers[i+1:], ofAttacher) {
		return nil
	}
	return map[string]string{"index": strconv.Itoa(i), "finalizer": va.Finalizers[i]}
}

// noAttacher is why no external-attacher works for the driver of the subject; empty if one may.
func (w *walk) noAttacher(va *storagev1.VolumeAttachment) string {
	for i := range w.f.Volumes {
		v := &w.f.Volumes[i]
		switch {
		case v.Driver != va.Spec.Attacher:
		case v.CSIDriver.Found && !ptr.Deref(v.CSIDriver.Value.Spec.AttachRequired, true):
			return "the CSIDriver has attachRequired false"
		case v.Nowhere:
			return "driver " + v.Driver + " has no CSIDriver and is on no node"
		}
	}
	return ""
}

// NeedsAgain reports whether an intent needs that its volume is attached again, which the attacher could not: it is not
// Ready since. An attacher also leaves the error of an attempt that nothing needed, such as while the node had no
// driver. It does not try again then, so the error stays.
func NeedsAgain(va *storagev1.VolumeAttachment, intent *volumesv1alpha1.VolumeAttachmentIntent) bool {
	if !volume.Refused(va) || intent.Spec.NodeName != va.Spec.NodeName || intent.DeletionTimestamp != nil {
		return false
	}
	ready := meta.FindStatusCondition(intent.Status.Conditions, volumesv1alpha1.ConditionReady)
	return ready == nil || ready.Status != metav1.ConditionTrue ||
		!ready.LastTransitionTime.After(va.Status.AttachError.Time.Time)
}

// refused reports whether an intent needs that the volume is attached again.
func refused(v *facts.Volume) bool {
	intents := v.Intents.Items
	if v.Intent.Found {
		intents = append(slices.Clone(intents), *v.Intent.Value)
	}
	return slices.ContainsFunc(intents, func(i volumesv1alpha1.VolumeAttachmentIntent) bool {
		return NeedsAgain(v.Attachment.Value, &i)
	})
}

// attachFails reports an attachment whose attacher reports an error. It waits since it was made; the error is of the
// last try.
func (w *walk) attachFails(v *facts.Volume, places map[string]string) {
	ref, since, e := v.Attachment.Ref, v.Attachment.Value.CreationTimestamp.Time, v.Attachment.Value.Status.AttachError
	w.link(ref, Bad, "not attached to "+v.Node+", the attacher reports an error", since)
	a := w.unlessRefuted(about{object: ref, reason: attachReason(e.Message), places: places, since: since,
		detail: fmt.Sprintf("%s (last try at %s)", e.Message, e.Time.UTC().Format(time.RFC3339))}, v.Node, v)
	if a.reason != volumesv1alpha1.ReasonDriverNotInstalled || !w.report.has(a.reason) { // the CSINode has it
		w.find(a)
	}
}

// refused reports what counts as attached, and is not attached again.
func (w *walk) refused(v *facts.Volume, places map[string]string) {
	ref, e := v.Attachment.Ref, v.Attachment.Value.Status.AttachError
	w.link(ref, Bad, "counts as attached to "+v.Node+", but is not attached again",
		v.Attachment.Value.CreationTimestamp.Time)
	a := about{object: ref, reason: attachReason(e.Message), places: places, detail: e.Message, since: e.Time.Time}
	if a.reason == volumesv1alpha1.ReasonAttachFailed {
		a.depth = catalog.Chief
	}
	w.find(w.unlessRefuted(a, v.Node, v))
}

// errorLeft is the error that an attacher left in what is attached; empty if it left none.
func errorLeft(va *storagev1.VolumeAttachment) string {
	if va.Status.AttachError == nil {
		return ""
	}
	return fmt.Sprintf("; the attacher left the error of an attempt at %s: %s",
		va.Status.AttachError.Time.UTC().Format(time.RFC3339), va.Status.AttachError.Message)
}
