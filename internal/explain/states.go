/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package explain

import (
	"cmp"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/explain/catalog"
	"github.com/hawser-io/hawser/internal/explain/facts"
	"github.com/hawser-io/hawser/internal/handshake"
	"github.com/hawser-io/hawser/internal/status"
)

// known has the state of every object that was read.
type known map[facts.Ref]catalog.State

// note adds an object that was asked for.
func note[P client.Object](k known, o facts.Object[P]) {
	switch {
	case o.Found:
		k.object(o.Ref, o.Value)
	case facts.Absent(o.Err):
		k[o.Ref] = catalog.Gone
	}
}

func (k known) object(ref facts.Ref, object client.Object) { k[ref] = StateOf(object) }

// StateOf is the state of an object that was read.
func StateOf(object client.Object) catalog.State {
	state := catalog.Present
	switch o := object.(type) {
	case *corev1.Node:
		if handshake.DeclaredOff(o) != nil {
			return catalog.Tainted
		}
		if handshake.OutOfService(o) != nil {
			return catalog.Fenced
		}
	case *storagev1.VolumeAttachment:
		if _, held := o.Annotations[volumesv1alpha1.HoldAnnotation]; held {
			state = catalog.Held
		}
	case *volumesv1alpha1.VolumeAttachmentIntent:
		// The manager writes that of a pod again.
		if o.Status.ClaimUID != "" && o.Labels[volumesv1alpha1.PodUIDLabel] == "" {
			state = catalog.Pinned
		}
	}
	if object.GetDeletionTimestamp() != nil {
		return catalog.Deleting
	}
	return state
}

// Contradicted reports whether a manager has seen that the agent of a node renewed its Lease after the out-of-service
// taint. state is nil if the node has none.
func Contradicted(state *volumesv1alpha1.NodeVolumeState) bool {
	return state != nil && state.Status.Node.OutOfService != nil && state.Status.Node.OutOfService.Contradicted != nil
}

// items adds the objects of a list.
func items[T any, P interface {
	*T
	client.Object
}](k known, kind string, list []T) {
	for i := range list {
		o := P(&list[i])
		k.object(facts.Ref{Kind: kind, Namespace: o.GetNamespace(), Name: o.GetName()}, o)
	}
}

// knownOf lists what was read.
func knownOf(f *facts.Facts) known {
	k := known{}
	note(k, f.Pod)
	note(k, f.Set)
	note(k, f.Manager)
	note(k, f.ManagerLease)
	items(k, facts.KindIntent, slices.Concat(f.PodIntents.Items, f.NodeIntents.Items, f.SetIntents.Items))
	items(k, facts.KindPod, slices.Concat(f.NodePods.Items, f.Users.Items))
	for i := range f.Nodes {
		n := &f.Nodes[i]
		note(k, n.Node)
		note(k, n.CSINode)
		note(k, n.State)
		if k[n.Node.Ref] == catalog.Tainted && Contradicted(n.State.Value) {
			k[n.Node.Ref] = catalog.Contradicted
		}
		if !f.Installed {
			k[facts.Ref{Kind: facts.KindState, Name: n.Name}] = catalog.Gone
		}
	}
	for _, v := range slices.Concat(f.Volumes, f.Keepers) {
		note(k, v.Intent)
		note(k, v.Claim)
		note(k, v.Class)
		note(k, v.Volume)
		note(k, v.Kept)
		note(k, v.CSIDriver)
		note(k, v.Attachment)
		items(k, facts.KindIntent, v.Intents.Items)
		items(k, facts.KindAttachment, v.Elsewhere.Items)
	}
	return k
}

// kindsOf are the kinds that commands name, with the place of the name.
var kindsOf = []struct{ command, place, kind string }{
	{"pod", "pod", facts.KindPod}, {"pvc", "claim", facts.KindClaim}, {"pv", "volume", facts.KindVolume},
	{"vai", "intent", facts.KindIntent}, {"vais", "set", facts.KindSet},
	{"node", "node", facts.KindNode}, {"node", "holder", facts.KindNode},
	{"csinode", "node", facts.KindCSINode}, {"nvs", "node", facts.KindState}, {"nvs", "holder", facts.KindState},
	{"volumeattachment", "attachment", facts.KindAttachment}, {"storageclass", "class", facts.KindClass},
	{"csidriver", "driver", facts.KindCSIDriver},
}

// states are what was read of the objects that commands name by these places.
func (b *builder) states(places map[string]string) catalog.States {
	states := catalog.States{catalog.Users: b.users(), catalog.Holders: b.holders(places["node"]),
		catalog.Retain: b.retained(places["volume"]), "lease hawser-manager": b.known[b.f.ManagerLease.Ref]}
	if !b.f.Installed {
		states["lease hawser-manager"], states[catalog.Installation] = catalog.Gone, catalog.Gone
	}
	if b.f.ManagerLease.Found && b.overdue(b.f.ManagerLease) <= 0 {
		states[catalog.Leader] = catalog.Present
	}
	maps.Copy(states, Named(places, func(ref facts.Ref) catalog.State { return b.known[ref] }))
	if n, ok := b.f.NodeOf(places["node"]); ok && n.State.Found {
		states[catalog.AllStuck] = stuck(b.f, n.State.Value)
		_, states[catalog.OtherMachine] = Undeclared(n.State.Value, OfOtherMachine)
		if _, ok := n.State.Value.Annotations[volumesv1alpha1.DeclaredReleasedPrefix+places["uid"]]; ok {
			states[catalog.OneAttachment] = catalog.Done
		}
	}
	return states
}

// Named are the states of the objects that commands name by these places.
func Named(places map[string]string, of func(facts.Ref) catalog.State) catalog.States {
	states := catalog.States{}
	for _, k := range kindsOf {
		name, ref := places[k.place], facts.Ref{Kind: k.kind, Name: places[k.place]}
		if slices.Contains([]string{facts.KindPod, facts.KindClaim, facts.KindIntent, facts.KindSet}, k.kind) {
			ref.Namespace = places["namespace"]
		}
		state := catalog.Unset
		if name != "" {
			state = of(ref)
		}
		states[k.command+" {"+k.place+"}"] = state
	}
	return states
}

// retained is the state of the reclaim policy Retain of a volume, as catalog.Retain has it.
func (b *builder) retained(name string) catalog.State {
	for _, v := range slices.Concat(b.f.Volumes, b.f.Keepers) {
		for _, pv := range []facts.Object[*corev1.PersistentVolume]{v.Volume, v.Kept} {
			switch {
			case pv.Ref.Name != name:
			case facts.Absent(pv.Err), pv.Found && facts.Stays(v.Claim.Value, pv.Value):
				return catalog.Unset
			case pv.Found:
				return Retained(pv.Value)
			}
		}
	}
	return catalog.Unread
}

// Retained is the state of the reclaim policy Retain of a PersistentVolume.
func Retained(pv *corev1.PersistentVolume) catalog.State {
	switch pv.Spec.PersistentVolumeReclaimPolicy {
	case corev1.PersistentVolumeReclaimRetain:
		return catalog.Present
	case corev1.PersistentVolumeReclaimDelete:
		return catalog.Gone
	}
	return catalog.Unread
}

// users is the state of the pods and intents that use the volume of the subject, as far as they were read.
func (b *builder) users() catalog.State {
	var all []client.Object
	for i := range b.f.Users.Items {
		all = append(all, &b.f.Users.Items[i])
	}
	if len(b.f.Volumes) > 0 {
		for i := range b.f.Volumes[0].Intents.Items {
			all = append(all, &b.f.Volumes[0].Intents.Items[i])
		}
	}
	if len(all) == 0 && b.f.Subject.Kind == facts.KindClaim && b.f.Users.Err == nil {
		return catalog.Gone
	}
	return together(all)
}

// holders is the state of the pods and intents that have the volume on another node than that of the subject.
func (b *builder) holders(node string) catalog.State {
	var all []client.Object
	for i := range b.f.Volumes {
		v := &b.f.Volumes[i]
		node := cmp.Or(v.Node, node)
		for j := range v.Intents.Items {
			intent := &v.Intents.Items[j]
			if intent.Spec.NodeName != node && conditionTrue(intent.Status.Conditions, volumesv1alpha1.ConditionAttached) {
				all = append(all, intent)
			}
		}
		for _, pod := range pointers(v.Pods.Items) {
			if pod.Spec.NodeName != "" && pod.Spec.NodeName != node && !facts.Ended(pod) {
				all = append(all, pod)
			}
		}
	}
	return together(all)
}

// together is Deleting if all of some objects are being deleted.
func together(objects []client.Object) catalog.State {
	switch {
	case len(objects) == 0:
		return catalog.Unread
	case slices.ContainsFunc(objects, func(o client.Object) bool { return o.GetDeletionTimestamp() == nil }):
		return catalog.Present
	}
	return catalog.Deleting
}

// Stuck are the lines whose release fails on the machine that reports, although nothing there is known to use the
// volume. As long as something does, the failure protects it.
func Stuck(f *facts.Facts) func(*volumesv1alpha1.NodeVolume) bool {
	return func(l *volumesv1alpha1.NodeVolume) bool { return releaseFails(l) && !used(f, l) }
}

func releaseFails(l *volumesv1alpha1.NodeVolume) bool {
	return l.Machine == nil && status.ReleaseFails(l)
}

// ofUse are the codes of a release that waits for the end of a use.
var ofUse = []string{volumesv1alpha1.ReasonUsedByPods, volumesv1alpha1.ReasonDeviceHeld,
	volumesv1alpha1.ReasonSharedByKubelet}

// NamesUse reports whether an error names a use of the volume.
func NamesUse(e *volumesv1alpha1.OperationError) bool {
	return slices.Contains(ofUse, e.Code) || busy.MatchString(e.Message)
}

// used reports whether a release fails because something uses the volume, or an intent that was read still wants it.
func used(f *facts.Facts, l *volumesv1alpha1.NodeVolume) bool {
	return NamesUse(l.Error) || l.Unlisted() > 0 ||
		slices.ContainsFunc(l.Publications, func(p volumesv1alpha1.Publication) bool {
			return slices.ContainsFunc(f.NodeIntents.Items, func(i volumesv1alpha1.VolumeAttachmentIntent) bool {
				return i.UID == p.Intent.UID && i.DeletionTimestamp == nil
			})
		})
}

// stuck is the state of declaring all lines whose release fails: Held if something uses each that is left.
func stuck(f *facts.Facts, state *volumesv1alpha1.NodeVolumeState) catalog.State {
	_, is := Undeclared(state, Stuck(f))
	if is == catalog.Gone && slices.ContainsFunc(state.Status.Volumes,
		func(l volumesv1alpha1.NodeVolume) bool { return releaseFails(&l) && used(f, &l) }) {
		return catalog.Held
	}
	return is
}

// OfOtherMachine reports whether a line is the use by another machine of the node's name.
func OfOtherMachine(l *volumesv1alpha1.NodeVolume) bool { return l.Machine != nil }

// Undeclared are the attachments of some lines that can be declared released, and the state of declaring them all. What
// the machine that reports uses beside another one cannot be declared, nor can a line that names no attachment.
func Undeclared(state *volumesv1alpha1.NodeVolumeState, of func(*volumesv1alpha1.NodeVolume) bool,
) (uids []string, is catalog.State) {
	lines, done, shared := 0, 0, false
	for i := range state.Status.Volumes {
		l := &state.Status.Volumes[i]
		if !of(l) {
			continue
		}
		lines++
		switch _, declared := state.Annotations[volumesv1alpha1.DeclaredReleasedPrefix+string(l.AttachmentUID)]; {
		case l.AttachmentUID == "":
		case handshake.UsedByTwo(state, l.AttachmentUID):
			shared = true
		case declared:
			done++
		default:
			uids = append(uids, string(l.AttachmentUID))
		}
	}
	slices.Sort(uids)
	switch uids = slices.Compact(uids); {
	case shared:
		return uids, catalog.Shared
	case len(uids) > 0:
		return uids, catalog.Present
	case lines > 0 && done == lines:
		return nil, catalog.Done
	}
	return nil, catalog.Gone
}

// attachmentUID is the UID of a volume's attachment in the node state; empty if it has none.
func attachmentUID(state *volumesv1alpha1.NodeVolumeState, volumeName string) types.UID {
	for i := range state.Spec.Attachments {
		if e := &state.Spec.Attachments[i]; e.VolumeName == volumeName {
			return e.AttachmentUID
		}
	}
	return ""
}
