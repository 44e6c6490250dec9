/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package explain

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagehelpers "k8s.io/component-helpers/storage/volume"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/explain/catalog"
	"github.com/hawser-io/hawser/internal/explain/facts"
)

// unreadable reports a link that could not be read, in its place. The walk goes on.
func (b *builder) unreadable(ref facts.Ref, err error) {
	reason, level := catalog.Unreadable, catalog.Problem
	switch {
	case facts.Denied(err):
		// What may not be read is no fault of the subject.
		reason, level = catalog.Forbidden, catalog.Note
	case facts.NoKind(err):
		reason, level = catalog.NotInstalled, catalog.Note
	}
	b.link(ref, Unknown, "not read: "+err.Error(), time.Time{})
	b.find(about{object: ref, reason: reason, level: level, detail: err.Error()})
}

// missing reports an object that another one names, or that it cannot be read.
func (b *builder) missing(ref facts.Ref, err error, a about) {
	if !facts.Absent(err) {
		b.unreadable(ref, err)
		return
	}
	b.link(ref, Bad, "does not exist", time.Time{})
	a.object = ref
	b.find(a)
}

// unlessReleased is the level of what an intent needs to have a volume. One that is deleted only releases it. A pod
// needs it all the same.
func unlessReleased(v *facts.Volume) catalog.Level {
	if v.PodVolume == "" && v.Intent.Found && v.Intent.Value.DeletionTimestamp != nil {
		return catalog.Note
	}
	return ""
}

// claims is the part of the walk about claims and PersistentVolumes.
type claims struct{ *builder }

// claim explains the claim of a volume.
func (w *claims) claim(v *facts.Volume, waiting bool) {
	ref := v.Claim.Ref
	switch {
	case !v.Claim.Asked():
		return
	case v.Ephemeral && facts.Absent(v.Claim.Err):
		w.ephemeralClaim(ref)
		return
	case v.Claim.Err != nil:
		w.missing(ref, v.Claim.Err, about{reason: volumesv1alpha1.ReasonClaimNotFound, level: unlessReleased(v),
			places: at("volume", keptBy(v))})
		return
	}
	claim := v.Claim.Value
	if w.f.FromFile && claim.UID == "" {
		w.newClaim(v)
		return
	}
	if createdAgain(v) {
		w.link(ref, Bad, "created again: not the claim that the intent keeps to", claim.CreationTimestamp.Time)
		w.find(about{object: v.Intent.Ref, reason: volumesv1alpha1.ReasonClaimReplaced, level: unlessReleased(v),
			places: map[string]string{"intent": v.Intent.Ref.Name, "claim": ref.Name, "volume": keptBy(v)}})
		return
	}
	switch claim.Status.Phase {
	case corev1.ClaimBound:
		w.boundClaim(v, claim, ref, waiting)
	case corev1.ClaimLost:
		w.link(ref, Bad, "has lost its volume "+claim.Spec.VolumeName, time.Time{})
		w.find(about{object: ref, reason: volumesv1alpha1.ReasonClaimLost})
	default:
		w.link(ref, Waits, "not bound", claim.CreationTimestamp.Time)
		w.pendingClaim(v, claim, ref)
	}
}

// keptBy is the PersistentVolume that the intent keeps to; empty if there is none.
func keptBy(v *facts.Volume) string {
	if !v.Intent.Found {
		return ""
	}
	return v.Intent.Value.Status.VolumeName
}

// createdAgain reports whether the claim is another one than the intent began with. What it waits for is then nothing
// to the intent.
func createdAgain(v *facts.Volume) bool {
	return v.PodVolume == "" && v.Intent.Found && v.Intent.Value.Status.ClaimUID != "" &&
		v.Intent.Value.Status.ClaimUID != v.Claim.Value.UID
}

// ephemeralClaim reports a claim that is yet to be made for the pod, and what the controller could not do.
func (w *claims) ephemeralClaim(ref facts.Ref) {
	since := w.f.Pod.Value.CreationTimestamp.Time
	w.link(ref, Waits, "does not exist yet", since)
	a := w.late(about{object: ref, reason: catalog.PodEphemeralClaim, since: since})
	for _, e := range w.f.PodEvents.Items {
		if e.Reason == "FailedBinding" && strings.Contains(e.Message, ref.Name) {
			a.level, a.detail = catalog.Problem, repeated(e)
		}
	}
	w.find(a)
}

// newClaim checks the class of a claim that is not applied yet. It waits for nothing else.
func (w *claims) newClaim(v *facts.Volume) {
	w.link(v.Claim.Ref, Waits, "not applied yet", time.Time{})
	if v.Class.Asked() {
		w.under(func() { w.class(v) })
	}
}

func (w *claims) boundClaim(v *facts.Volume, claim *corev1.PersistentVolumeClaim, ref facts.Ref, waiting bool) {
	if claim.DeletionTimestamp == nil {
		w.link(ref, Good, "bound to "+claim.Spec.VolumeName, time.Time{})
	} else {
		w.link(ref, Waits, "bound to "+claim.Spec.VolumeName+", being deleted", claim.DeletionTimestamp.Time)
		reason, level := catalog.ClaimFinalizer, catalog.Level("")
		if v.PodVolume != "" && waiting {
			reason = volumesv1alpha1.ReasonClaimDeleting
		} else if v.PodVolume != "" || v.Intent.Found {
			level = catalog.Note
		}
		w.find(about{object: ref, reason: reason, level: level, since: claim.DeletionTimestamp.Time, detail: w.usedBy(v),
			places: map[string]string{"volume": claim.Spec.VolumeName, "pods": PodsToEnd(pointers(w.f.Users.Items))}})
	}
	w.resize(v, claim, ref)
	w.countedUnused(v, claim, ref)
}

// usedBy names the first users of a claim; empty if none is known.
func (w *claims) usedBy(v *facts.Volume) string {
	var names []string
	for i := range w.f.Users.Items {
		names = append(names, "pod "+w.f.Users.Items[i].Name)
	}
	for i := range v.Intents.Items {
		names = append(names, "intent "+v.Intents.Items[i].Name)
	}
	if len(names) == 0 {
		return ""
	}
	return "used by " + shortList(names)
}

// countedUnused notes that Kubernetes takes the claim for unused, which counts pods only, while intents use it.
func (w *claims) countedUnused(v *facts.Volume, claim *corev1.PersistentVolumeClaim, ref facts.Ref) {
	users := 0
	for i := range v.Intents.Items {
		if v.Intents.Items[i].Status.ClaimUID == claim.UID {
			users++
		}
	}
	for _, c := range claim.Status.Conditions {
		if c.Type == corev1.PersistentVolumeClaimUnused && c.Status == corev1.ConditionTrue && users > 0 {
			w.find(about{object: ref, reason: catalog.CountedUnused, since: c.LastTransitionTime.Time,
				detail: fmt.Sprintf("intents that use it: %d; the condition Unused counts pods only", users)})
		}
	}
}

// resize reports an expansion of the claim. It does not keep a pod from starting.
func (w *claims) resize(v *facts.Volume, claim *corev1.PersistentVolumeClaim, ref facts.Ref) {
	level := catalog.Note
	if w.f.Subject == ref {
		level = ""
	}
	for _, status := range claim.Status.AllocatedResourceStatuses {
		switch status {
		case corev1.PersistentVolumeClaimControllerResizeInfeasible, corev1.PersistentVolumeClaimNodeResizeInfeasible:
			w.find(about{object: ref, reason: catalog.ResizeInfeasible, level: level, detail: string(status)})
		default:
			a := about{object: ref, reason: catalog.ResizePending, level: level, detail: string(status)}
			if text, since := ResizeError(claim, v.ClaimEvents.Items); text != "" {
				a.reason, a.detail, a.since = ResizeFailure(claim), Sizes(claim)+": "+text, since
			}
			w.find(a)
		}
	}
}

// pendingClaim reports what a claim waits for: its class, or what its newest event means.
func (w *claims) pendingClaim(v *facts.Volume, claim *corev1.PersistentVolumeClaim, ref facts.Ref) {
	since := claim.CreationTimestamp.Time
	if v.ClaimEvents.Err != nil {
		w.unreadable(facts.Ref{Kind: "Event", Namespace: ref.Namespace, Name: ref.Name}, v.ClaimEvents.Err)
	}
	if v.Class.Asked() && claim.Spec.VolumeName == "" { // a claim that names its volume needs no class
		w.under(func() { w.class(v) })
		if facts.Absent(v.Class.Err) {
			return
		}
	}
	for i := len(v.ClaimEvents.Items) - 1; i >= 0; i-- {
		e := v.ClaimEvents.Items[i]
		if reason := claimReason(e); reason != "" {
			a := about{object: ref, reason: reason, detail: repeated(e), since: since, places: at("class", v.Class.Ref.Name)}
			if reason == catalog.WaitsForPod && v.PodVolume != "" && v.Node == "" {
				a.level = catalog.Note // it waits for the scheduler to bind the pod, which has its own finding
			}
			w.find(a)
			return
		}
	}
	switch {
	case claim.Spec.VolumeName != "":
		w.find(about{object: ref, reason: volumesv1alpha1.ReasonClaimNotBound, since: since,
			detail: "the claim names volume " + claim.Spec.VolumeName})
	case !v.Class.Asked():
		w.find(about{object: ref, reason: catalog.ClassUnset, since: since})
	default:
		w.find(about{object: ref, reason: volumesv1alpha1.ReasonClaimNotBound, since: since})
	}
}

func (w *claims) class(v *facts.Volume) {
	if v.Class.Err != nil {
		w.missing(v.Class.Ref, v.Class.Err, about{reason: catalog.ClassMissing})
		return
	}
	w.link(v.Class.Ref, Good, "made by "+v.Class.Value.Provisioner, time.Time{})
}

// persistentVolume explains the PersistentVolume and how it fits claim and node.
func (w *claims) persistentVolume(v *facts.Volume, waiting bool) {
	ref := v.Volume.Ref
	switch {
	case !v.Volume.Asked():
		return
	case v.Volume.Err != nil:
		w.missing(ref, v.Volume.Err, about{reason: volumesv1alpha1.ReasonVolumeNotFound, level: unlessReleased(v),
			places: map[string]string{"claim": v.Claim.Ref.Name, "namespace": v.Claim.Ref.Namespace}})
		return
	}
	pv := v.Volume.Value
	state, text := Good, string(pv.Status.Phase)
	if v.Driver != "" {
		text += ", of driver " + v.Driver
	}
	if problem := w.volumeProblem(v, pv, ref); problem != "" {
		state, text = Bad, text+", "+problem
	}
	claim := ""
	switch {
	case pv.DeletionTimestamp != nil:
	case v.Claim.Found && v.Claim.Value.DeletionTimestamp != nil:
		claim = ", with its claim being deleted: "
	case facts.Absent(v.Claim.Err) && !w.f.FromFile:
		claim = ", with its claim gone: "
	}
	switch retained := Retained(pv); {
	case claim != "" && retained == catalog.Present:
		text += claim + "the data stays (reclaim policy Retain)"
	case claim != "" && retained == catalog.Gone:
		state, text = Waits, text+claim+"the data goes with it (reclaim policy Delete)"
	}
	if pv.DeletionTimestamp != nil {
		state, text = Bad, text+", being deleted"
		w.volumeDeleting(v, waiting)
	}
	w.link(ref, state, text, time.Time{})
}

// volumeDeleting reports a PersistentVolume that is being deleted. No attacher attaches it any more. What uses it keeps
// it, and loses it in the end.
func (w *claims) volumeDeleting(v *facts.Volume, waiting bool) {
	pv := v.Volume.Value
	a := about{object: v.Volume.Ref, reason: catalog.VolumeDeleting, since: pv.DeletionTimestamp.Time,
		level: unlessReleased(v), detail: "reclaim policy " + string(pv.Spec.PersistentVolumeReclaimPolicy)}
	if v.Claim.Asked() {
		a.places = map[string]string{"claim": v.Claim.Ref.Name, "namespace": v.Claim.Ref.Namespace}
	}
	for i := range v.Intents.Items {
		intent := &v.Intents.Items[i]
		a.detail += fmt.Sprintf("; used by intent %s/%s on node %s", intent.Namespace, intent.Name, intent.Spec.NodeName)
	}
	if waiting && a.level == "" && !v.Attached() {
		a.level, a.depth = catalog.Problem, catalog.Root
	}
	w.find(a)
}

// volumeProblem reports what is wrong with the PersistentVolume itself, and returns it in a few words.
func (w *claims) volumeProblem(v *facts.Volume, pv *corev1.PersistentVolume, ref facts.Ref) string {
	if owner := pv.Spec.ClaimRef; owner != nil && v.Claim.Found && !createdAgain(v) &&
		(owner.Name != v.Claim.Ref.Name || owner.Namespace != v.Claim.Ref.Namespace ||
			owner.UID != "" && v.Claim.Value.UID != "" && owner.UID != v.Claim.Value.UID) {
		detail := fmt.Sprintf("it belongs to claim %s/%s", owner.Namespace, owner.Name)
		w.find(about{object: ref, reason: volumesv1alpha1.ReasonVolumeBoundElsewhere, detail: detail})
		return detail
	}
	if pv.Status.Phase == corev1.VolumeFailed {
		w.find(about{object: ref, reason: catalog.VolumeFailed, detail: pv.Status.Message})
		return "failed"
	}
	n, known := w.f.NodeOf(w.wantedOn(v))
	if !known || !n.Node.Found {
		return ""
	}
	if err := storagehelpers.CheckNodeAffinity(pv, n.Node.Value.Labels); err != nil {
		w.find(about{object: ref, reason: volumesv1alpha1.ReasonNodeAffinityMismatch, places: at("node", n.Name),
			detail: fmt.Sprintf("the volume requires %s; node %s has other labels", affinity(pv), n.Name)})
		return "not usable on node " + n.Name
	}
	return ""
}

// wantedOn is the node where the volume is wanted. A pod that is bound to none may ask for one.
func (w *claims) wantedOn(v *facts.Volume) string {
	if v.Node == "" && w.f.Pod.Found {
		return facts.NodeOf(w.f.Pod.Value)
	}
	return v.Node
}
