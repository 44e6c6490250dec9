/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package survey

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/volume"
	"github.com/hawser-io/hawser/internal/evidence"
	"github.com/hawser-io/hawser/internal/explain"
	"github.com/hawser-io/hawser/internal/explain/catalog"
	"github.com/hawser-io/hawser/internal/explain/facts"
)

// Fence is what a node's volumes would meet if its machine were powered off.
type Fence struct {
	Node string `json:"node"`
	// Silent is true if the agent's Lease has ended. A live agent contradicts what is asserted of its machine.
	Silent bool `json:"silent"`
	// LastRenewal of the agent's Lease, by the clock of the API server; absent where there is no Lease.
	LastRenewal *metav1.Time `json:"lastRenewal,omitempty"`
	// Unrecognized is why no fence counts for the machine; empty if fences count.
	Unrecognized string `json:"unrecognized,omitempty"`
	// Sources are the names of the fence sources in the VolumeManager.
	Sources []string `json:"sources"`
	// SourcesReady is the condition FenceSourcesReady of the VolumeManager; absent without sources.
	SourcesReady *metav1.Condition `json:"sourcesReady,omitempty"`
	// Assertions are made of the machine now.
	Assertions []evidence.Assertion `json:"assertions"`
	Volumes    []Fenced             `json:"volumes"`
	// Unread is what could not be read, and is missing here.
	Unread []string `json:"unread,omitempty"`
	// LeaseUnread and SourcesUnread are true if the Lease of the agent, or the VolumeManager, is among it.
	LeaseUnread   bool `json:"leaseUnread,omitempty"`
	SourcesUnread bool `json:"sourcesUnread,omitempty"`
}

// Fenced is one volume of the node.
type Fenced struct {
	Volume           string `json:"volume"`
	PersistentVolume string `json:"persistentVolume,omitempty"`
	// Claim is the one that the PersistentVolume belongs to, with its namespace.
	Claim string `json:"claim,omitempty"`
	evidence.Outlook
	// On is the evidence on which it can be detached.
	On []volumesv1alpha1.EvidenceType `json:"on,omitempty"`
	// Pods on the node that use it, with their namespaces.
	Pods []string `json:"pods,omitempty"`
	// Lost is what is lost of its data.
	Lost string `json:"lost"`
	// LosesData is true if all of it is deleted once the volume is detached.
	LosesData bool `json:"losesData,omitempty"`
	// Unprotected is true if the detach does not cut the machine's access to the volume.
	Unprotected bool `json:"unprotected,omitempty"`
	// Next are the intents and pods that wait for the volume on other nodes.
	Next []string `json:"next,omitempty"`
	Run  []string `json:"run,omitempty"`
	// Remarks are when to run a command, by the command.
	Remarks map[string]string `json:"remarks,omitempty"`
}

// onlyIfOff is when to delete an intent whose policy forces the detach: the manager does not ask for evidence then.
const onlyIfOff = "only if the machine is off, because time alone forces the detach then"

// Count the volumes of a fate that wait for their pods, or of those that do not.
func (f *Fence) Count(fate evidence.Fate, afterPods bool) int {
	n := 0
	for i := range f.Volumes {
		if f.Volumes[i].Fate == fate && f.Volumes[i].AfterPods == afterPods {
			n++
		}
	}
	return n
}

// Losing counts the volumes whose data is deleted once they are detached.
func (f *Fence) Losing() int {
	n := 0
	for i := range f.Volumes {
		if f.Volumes[i].LosesData {
			n++
		}
	}
	return n
}

// Forced counts the volumes that time alone has detached once no intent wants them.
func (f *Fence) Forced() int {
	n := 0
	for i := range f.Volumes {
		if f.Volumes[i].ForcedAfter != nil {
			n++
		}
	}
	return n
}

// Staying counts the volumes that neither a taint nor a fence has detached.
func (f *Fence) Staying() int { return f.Count(evidence.Stays, false) }

// PlanFence explains for each volume of a node what a fence or the out-of-service taint would do to it, those that stay
// first.
func PlanFence(r *facts.Fencing) Fence {
	n, _ := r.NodeOf(r.Subject.Name)
	g := explain.Evidence(r.Facts, &n)
	f := Fence{Node: n.Name, Unrecognized: g.Unrecognized(), Assertions: g.Assertions(), Volumes: []Fenced{},
		Sources: explain.FenceSources(r.Facts)}
	if f.Assertions == nil {
		f.Assertions = []evidence.Assertion{}
	}
	if r.Manager.Found {
		f.SourcesReady = meta.FindStatusCondition(r.Manager.Value.Status.Conditions,
			volumesv1alpha1.ConditionFenceSourcesReady)
	}
	f.Silent = explain.Silent(r.Facts, &n)
	if n.Lease.Found {
		renewed := metav1.NewTime(explain.Renewal(n.Lease.Value).UTC().Truncate(time.Second))
		f.LastRenewal = &renewed
	}
	for i := range g.State.Spec.Attachments {
		e := &g.State.Spec.Attachments[i]
		f.add(r, g, e.VolumeName, facts.Attachment{Driver: e.Driver, Volume: e.PersistentVolumeName})
	}
	for _, a := range r.Attachments.Items {
		if name := uniqueName(r, a); a.Attached || !wanted(r, name) {
			f.add(r, g, name, a)
		}
	}
	for i := range g.State.Status.Volumes {
		if l := &g.State.Status.Volumes[i]; l.InUse {
			f.add(r, g, l.VolumeName, facts.Attachment{})
		}
	}
	order := []evidence.Fate{evidence.Stays, evidence.NeedsDelete, evidence.DetachesByKubernetes, evidence.Detaches,
		evidence.Detaching}
	slices.SortStableFunc(f.Volumes, func(a, b Fenced) int {
		return slices.Index(order, a.Fate) - slices.Index(order, b.Fate)
	})
	f.unread(r, &n)
	return f
}

// uniqueName of the volume of an attachment; the name of the attachment if that is not known.
func uniqueName(r *facts.Fencing, a facts.Attachment) string {
	if pv := r.Volumes[a.Volume]; pv != nil {
		if translated, err := volume.Translated(pv); err == nil {
			return volume.UniqueNameOf(translated)
		}
	}
	return a.Name
}

// wanted reports whether an intent on the node wants a volume. Hawser then makes the attachment, and nothing uses it
// before it is in the node state.
func wanted(r *facts.Fencing, volumeName string) bool {
	return slices.ContainsFunc(r.NodeIntents.Items, func(i volumesv1alpha1.VolumeAttachmentIntent) bool {
		return i.Status.UniqueVolumeName == volumeName
	})
}

// unread names what could not be read.
func (f *Fence) unread(r *facts.Fencing, n *facts.Node) {
	for what, err := range map[string]error{"pods on the node": r.Pods.Err, "pods that wait": r.Pending.Err,
		"intents on the node": r.NodeIntents.Err, "intents on other nodes": r.Elsewhere.Err,
		"PersistentVolumes": r.VolumesUnread, "VolumeAttachments": r.Attachments.Err} {
		if err != nil {
			f.Unread = append(f.Unread, fmt.Sprintf("%s: %s", what, err))
		}
	}
	f.LeaseUnread, f.SourcesUnread = n.Lease.Unread() != "", r.Manager.Unread() != ""
	unread := []string{n.Node.Unread(), n.Lease.Unread(), r.Manager.Unread()}
	for _, ending := range r.Endings {
		unread = append(unread, ending.Unread)
	}
	f.Unread = append(f.Unread, slices.DeleteFunc(unread, func(text string) bool { return text == "" })...)
	slices.Sort(f.Unread)
}

// add a volume with its attachment, once.
func (f *Fence) add(r *facts.Fencing, g evidence.Ground, volumeName string, attached facts.Attachment) {
	if slices.ContainsFunc(f.Volumes, func(v Fenced) bool { return v.Volume == volumeName }) {
		return
	}
	v := Fenced{Volume: volumeName, PersistentVolume: attached.Volume,
		Outlook: g.Outlook(volumeName, r.NodeIntents.Items)}
	v.Claim = facts.ClaimName(r.Volumes[v.PersistentVolume])
	if v.Claim == "" {
		v.Claim = r.ClaimOf(g.State, volumeName)
	}
	v.Lost = g.Loss(volumeName)
	v.Pods = podsOf(r.Pods.Items, volumeName, v.Claim, r.NodeIntents.Items)
	v.Next = nextOf(r, &v)
	if v.Fate == evidence.Detaches || v.Fate == evidence.NeedsDelete || v.Fate == evidence.DetachesByKubernetes {
		v.On = f.counts(g, !v.AfterPods || g.FenceTaints())
		if v.ForcedAfter != nil {
			v.On = append(v.On, volumesv1alpha1.EvidenceForcedAfterTimeout)
		}
		driver := r.Drivers[attached.Driver]
		v.Unprotected = driver == nil || driver.Annotations[volumesv1alpha1.CutsAccessAnnotation] != "true"
	}
	if ending := r.Endings[v.PersistentVolume]; ending.Why != "" {
		v.LosesData, v.Lost = true, "all: "+ending.Why
		v.Run = append(v.Run, catalog.SetRetain(v.PersistentVolume))
	}
	for _, intent := range v.Delete {
		command := deletion(intent)
		v.Run = append(v.Run, command)
		if v.ForcedAfter != nil {
			if v.Remarks == nil {
				v.Remarks = map[string]string{}
			}
			v.Remarks[command] = onlyIfOff
		}
	}
	f.Volumes = append(f.Volumes, v)
}

// counts is what would count as evidence. A fence alone deletes no pod.
func (f *Fence) counts(g evidence.Ground, onFence bool) []volumesv1alpha1.EvidenceType {
	switch {
	case g.Unseen() != "":
		return []volumesv1alpha1.EvidenceType{volumesv1alpha1.EvidenceDeclaredByAdministrator}
	case g.Node == nil:
		return []volumesv1alpha1.EvidenceType{volumesv1alpha1.EvidenceNodeGone}
	}
	on := []volumesv1alpha1.EvidenceType{volumesv1alpha1.EvidenceOutOfServiceTaint}
	if onFence && len(f.Sources) > 0 && f.Unrecognized == "" {
		on = append(on, volumesv1alpha1.EvidenceFenced)
	}
	return on
}

// podsOf are the pods that use a volume: by its claim, or by one of its intents.
func podsOf(
	pods []corev1.Pod, volumeName, claim string, intents []volumesv1alpha1.VolumeAttachmentIntent,
) []string {
	var names []string
	for i := range pods {
		pod := &pods[i]
		if !usesClaim(pod, claim) && !slices.ContainsFunc(intents, func(i volumesv1alpha1.VolumeAttachmentIntent) bool {
			return i.Status.UniqueVolumeName == volumeName && facts.Uses(pod, &i)
		}) {
			continue
		}
		names = append(names, facts.Key(pod))
	}
	slices.Sort(names)
	return names
}

func usesClaim(pod *corev1.Pod, claim string) bool {
	return slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool {
		name, ok := facts.ClaimOf(pod, &v)
		return ok && pod.Namespace+"/"+name == claim
	})
}

// nextOf are the users that wait for the volume on other nodes, or for a node.
func nextOf(r *facts.Fencing, v *Fenced) []string {
	var next []string
	for i := range r.Elsewhere.Items {
		intent := &r.Elsewhere.Items[i]
		if intent.Status.VolumeName == v.PersistentVolume && intent.DeletionTimestamp == nil {
			next = append(next, "intent "+facts.Key(intent)+" on node "+intent.Spec.NodeName)
		}
	}
	for i := range r.Pending.Items {
		switch pod := &r.Pending.Items[i]; {
		case pod.Spec.NodeName == r.Subject.Name || pod.DeletionTimestamp != nil || !usesClaim(pod, v.Claim):
		case pod.Spec.NodeName == "":
			next = append(next, "pod "+facts.Key(pod)+", which has no node yet")
		default:
			next = append(next, "pod "+facts.Key(pod)+" on node "+pod.Spec.NodeName)
		}
	}
	slices.Sort(next)
	return next
}
