/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package explain

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/attachment/decision"
	"github.com/hawser-io/hawser/internal/evidence"
	"github.com/hawser-io/hawser/internal/explain/catalog"
	"github.com/hawser-io/hawser/internal/explain/facts"
	"github.com/hawser-io/hawser/internal/handshake"
	"github.com/hawser-io/hawser/internal/status"
)

// claimSubject explains a claim: how it is bound, and what uses it.
func (w *walk) claimSubject() {
	v := &w.f.Volumes[0]
	w.claim(v, false)
	w.under(func() {
		w.persistentVolume(v, false)
		w.attachments(v)
		w.full(v)
		w.users(v)
		for i := range w.f.Users.Items {
			w.userPod(&w.f.Users.Items[i])
		}
	})
	if w.f.Users.Err != nil {
		w.unreadable(facts.Ref{Kind: facts.KindPod, Namespace: v.Claim.Ref.Namespace, Name: "(all)"}, w.f.Users.Err)
	}
	if len(w.f.Users.Items) == 0 && len(v.Intents.Items) == 0 && w.f.Users.Err == nil && v.Intents.Err == nil {
		w.find(about{object: v.Claim.Ref, reason: catalog.ClaimUnused})
	}
}

// userPod adds a pod that uses the claim. Its own report has more.
func (w *walk) userPod(pod *corev1.Pod) {
	ref := facts.Ref{Kind: facts.KindPod, Namespace: pod.Namespace, Name: pod.Name}
	if PodSettled(pod) {
		w.link(ref, Good, string(pod.Status.Phase)+" on node "+pod.Spec.NodeName, time.Time{})
		return
	}
	w.link(ref, Waits, "waits; see kubectl hawser why pod "+pod.Name+" -n "+pod.Namespace, pod.CreationTimestamp.Time)
}

// volumeSubject explains a PersistentVolume: its claim, its attachments and its intents.
func (w *walk) volumeSubject() {
	v := &w.f.Volumes[0]
	pv, ref := v.Volume.Value, v.Volume.Ref
	w.persistentVolume(v, false)
	if pv.DeletionTimestamp == nil && pv.Status.Phase == corev1.VolumeReleased {
		w.find(about{object: ref, reason: catalog.VolumeReleased, detail: string(pv.Spec.PersistentVolumeReclaimPolicy)})
	}
	w.under(func() {
		if pv.Status.Phase == corev1.VolumeBound {
			w.claim(v, false)
		}
		w.attachments(v)
		w.full(v)
		w.users(v)
	})
}

// attachments adds every attachment of a volume that has no node of its own.
func (w *walk) attachments(v *facts.Volume) {
	if v.Elsewhere.Err != nil {
		w.unreadable(facts.Ref{Kind: facts.KindAttachment, Name: "of " + v.Volume.Ref.String()}, v.Elsewhere.Err)
	}
	if v.Elsewhere.Cut {
		w.find(about{object: v.Volume.Ref, reason: catalog.Partial, detail: "the volume has many attachments"})
	}
	for i := range v.Elsewhere.Items {
		va := v.Elsewhere.Items[i]
		one := facts.Volume{Node: va.Spec.NodeName, Driver: v.Driver, Volume: v.Volume, Claim: v.Claim}
		one.Attachment.Ref = facts.Ref{Kind: facts.KindAttachment, Name: va.Name}
		one.Attachment.Value, one.Attachment.Found = &va, true
		w.attachment(&one, false)
		w.under(func() {
			w.node(va.Spec.NodeName)
			if va.DeletionTimestamp == nil { // what is detached is not mounted
				w.driverOnNode(&one, false)
			}
		})
	}
}

// users adds the intents of a volume, with what each waits for.
func (w *walk) users(v *facts.Volume) {
	if v.Intents.Err != nil {
		w.unreadable(facts.Ref{Kind: facts.KindIntent, Name: "of " + v.Volume.Ref.String()}, v.Intents.Err)
	}
	for i := range v.Intents.Items {
		one := *v
		one.Intent = facts.Object[*volumesv1alpha1.VolumeAttachmentIntent]{Value: &v.Intents.Items[i], Found: true,
			Ref: facts.Ref{Kind: facts.KindIntent, Namespace: v.Intents.Items[i].Namespace, Name: v.Intents.Items[i].Name}}
		w.intent(&one)
	}
}

// nodeSubject explains a node and everything on it that waits.
func (w *walk) nodeSubject() {
	name := w.f.Subject.Name
	n, _ := w.f.NodeOf(name)
	if n.Node.Found && n.Node.Value.DeletionTimestamp != nil {
		w.keepers(&n)
	}
	w.node(name)
	w.under(func() {
		if n.State.Found {
			w.driversGone(&n, driversOf(n.State.Value)...)
			w.outlooks(&n)
			w.entries(&n)
			w.lines(&n)
			w.fullOn(&n)
		}
		w.intentsOnNode()
		for i := range w.f.NodePods.Items {
			w.userPod(&w.f.NodePods.Items[i])
		}
	})
	if w.f.NodePods.Err != nil {
		w.unreadable(facts.Ref{Kind: facts.KindPod, Name: "(pending on " + name + ")"}, w.f.NodePods.Err)
	}
}

// keepers reports what the deletion of the Node waits for.
func (w *walk) keepers(n *facts.Node) {
	for i := range w.f.NodeIntents.Items {
		intent := &w.f.NodeIntents.Items[i]
		if facts.KeepsNode(intent) {
			w.find(about{reason: catalog.IntentKeepsNode, since: n.Node.Value.DeletionTimestamp.Time,
				places: at("volume", intent.Status.VolumeName),
				object: facts.Ref{Kind: facts.KindIntent, Namespace: intent.Namespace, Name: intent.Name}})
		}
	}
	if !n.State.Found {
		return
	}
	for i := range n.State.Value.Spec.Attachments {
		e := &n.State.Value.Spec.Attachments[i]
		if e.DetachedTime != nil && handshake.NodeOf(n.State.Value, e.VolumeName).Entry.Forced {
			w.find(about{reason: catalog.ForcedAwayKeepsNode, since: e.DetachedTime.Time,
				places: map[string]string{"node": n.Name, "uid": string(e.AttachmentUID)},
				object: facts.Ref{Kind: facts.KindAttachment, Name: e.AttachmentName}})
		}
	}
}

// entries reports detaches that do not succeed.
func (w *walk) entries(n *facts.Node) {
	for i := range n.State.Value.Spec.Attachments {
		e := &n.State.Value.Spec.Attachments[i]
		ref := facts.Ref{Kind: facts.KindAttachment, Name: e.AttachmentName}
		if e.State != volumesv1alpha1.AttachmentDetaching {
			continue
		}
		var since time.Time
		text := w.named(n.State.Value, e.VolumeName) + " is being detached"
		if e.Evidence != nil {
			since = e.Evidence.Time.Time
			text += ", evidence " + string(e.Evidence.Type)
		}
		if decision.CutsAccess(e.Evidence) {
			text += w.cut(n, e)
		}
		if e.DetachError == "" {
			w.link(ref, Waits, text, since)
			continue
		}
		w.link(ref, Bad, text+", fails", since)
		w.find(about{object: ref, reason: catalog.DetachStuck, detail: e.DetachError, since: since})
	}
}

// cut describes the fence that keeps the volume from the node, and reports one that was lifted too early.
func (w *walk) cut(n *facts.Node, e *volumesv1alpha1.NodeAttachment) string {
	fence := evidence.FenceName(*e.Evidence.Fence)
	if (handshake.Protocol{}).CutHolds(handshake.NodeOf(n.State.Value, e.VolumeName)) == handshake.GuardNone {
		return ": " + fence + " cuts the access, and has to hold until the agent has reported that nothing is left"
	}
	w.find(about{object: n.State.Ref, reason: catalog.FenceLifted, since: e.Evidence.Time.Time, detail: fence,
		places: map[string]string{"node": n.Name, "uid": string(e.AttachmentUID)}})
	return ": " + fence + " has cut the access, and was lifted before the agent has reported"
}

// named is the name of a volume on the node that is the subject, with its PersistentVolume and claim.
func (w *walk) named(state *volumesv1alpha1.NodeVolumeState, volumeName string) string {
	if names := w.f.NamesOf(state, volumeName); names != "" {
		return volumeName + " (" + names + ")"
	}
	return volumeName
}

// lines reports orphans, mounts that may still write, and errors of volumes.
func (w *walk) lines(n *facts.Node) {
	for i := range n.State.Value.Status.Volumes {
		l := &n.State.Value.Status.Volumes[i]
		if l.Unprotected {
			w.find(about{object: n.State.Ref, reason: catalog.Unprotected,
				detail: w.named(n.State.Value, l.VolumeName)})
		}
		if l.Error != nil {
			a := about{object: n.State.Ref, reason: catalog.VolumeError, detail: fmt.Sprintf("%s: %s: %s",
				w.named(n.State.Value, l.VolumeName), l.Error.Operation, join(l.Error.Code, l.Error.Message))}
			if status.ReleaseFails(l) {
				a = unlessBusy(a)
			}
			w.find(a)
		}
		for _, p := range l.Publications {
			if p.Orphan {
				ref := facts.Ref{Kind: facts.KindIntent, Namespace: p.Intent.Namespace, Name: p.Intent.Name}
				w.link(ref, Bad, "does not exist, but its volume is published at "+p.Path, time.Time{})
				w.find(about{object: ref, reason: catalog.Orphaned, detail: "path " + p.Path, places: at("node", n.Name)})
			}
		}
	}
}

// intentsOnNode adds the intents of the node that are not ready, those with a problem first.
func (w *walk) intentsOnNode() {
	if w.f.NodeIntents.Err != nil {
		w.unreadable(facts.Ref{Kind: facts.KindIntent, Name: "(on " + w.f.Subject.Name + ")"}, w.f.NodeIntents.Err)
	}
	intents := slices.Clone(w.f.NodeIntents.Items)
	slices.SortStableFunc(intents, func(a, b volumesv1alpha1.VolumeAttachmentIntent) int {
		return a.CreationTimestamp.Compare(b.CreationTimestamp.Time)
	})
	for i := range intents {
		intent := &intents[i]
		ready := meta.FindStatusCondition(intent.Status.Conditions, volumesv1alpha1.ConditionReady)
		if ready != nil && Healthy(ready) {
			continue
		}
		ref := facts.Ref{Kind: facts.KindIntent, Namespace: intent.Namespace, Name: intent.Name}
		if ready == nil {
			w.notObserved(intent, ref)
			continue
		}
		w.link(ref, stateOf(ready), fmt.Sprintf("Ready %s: %s", ready.Status, ready.Reason), ready.LastTransitionTime.Time)
		w.find(about{object: ref, reason: catalog.IntentOnNode, detail: join(ready.Reason, ready.Message),
			since: ready.LastTransitionTime.Time})
	}
}
