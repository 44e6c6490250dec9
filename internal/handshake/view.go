/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package handshake

import (
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
)

// NodeOf is volumeName's part of nvs; the zero Node when nvs is nil.
func NodeOf(nvs *volumesv1alpha1.NodeVolumeState, volumeName string) Node {
	if nvs == nil {
		return Node{}
	}
	n := Node{
		Exists:   true,
		Reported: nvs.Status.Protocol.ObservedUID != "" && nvs.Status.Protocol.ObservedUID == nvs.UID,

		Blank:       blank(nvs),
		Unconfirmed: nvs.Status.Protocol.Session != nvs.Spec.Protocol.ConfirmedSession,
	}
	n.Silent = Silent(nvs)
	n.Boot = nvs.Status.BootID
	n.Declared = declarationsOf(nvs)
	if a := AttachmentOf(nvs, volumeName); a != nil {
		n.Entry = Entry{
			State: State(a.State), UID: a.AttachmentUID, Detached: a.DetachedTime != nil,
			Boot: a.Protocol.UnlistedBootID, Asked: a.Protocol.RebootGeneration > 0,
		}
		p, observed := a.Protocol, nvs.Status.ObservedGeneration
		n.Looked = n.Reported && p.UnlistedGeneration > 0 && observed >= p.UnlistedGeneration
		n.LookedAgain = n.Reported && p.RebootGeneration > 0 && observed >= p.RebootGeneration
		if a.Evidence != nil && a.Evidence.Type != volumesv1alpha1.EvidenceAgentReleased {
			n.Entry.Forced = true
			n.Entry.Declared = slices.Contains(aboutTheMachine, a.Evidence.Type) && !cutsAccess(a.Evidence)
			n.Entry.Lifted = cutsAccess(a.Evidence) && a.Evidence.Unprotected
		}
	}
	if v := VolumeOf(nvs, volumeName); v != nil {
		n.Use = Use{UID: v.AttachmentUID, InUse: v.InUse, Waiting: v.Waiting, Foreign: v.Machine != nil}
	}
	return n
}

// aboutTheMachine is evidence that the machine itself is off, gone, or done with the volume.
var aboutTheMachine = []volumesv1alpha1.EvidenceType{volumesv1alpha1.EvidenceOutOfServiceTaint,
	volumesv1alpha1.EvidenceFenced, volumesv1alpha1.EvidenceDeclaredByAdministrator}

// cutsAccess reports whether the evidence is that access is cut. It shows nothing of the machine.
func cutsAccess(e *volumesv1alpha1.DetachEvidence) bool {
	return e.Fence != nil && e.Fence.Proves == volumesv1alpha1.FenceAccessCut
}

// blank reports whether no agent has written to nvs itself, which may be the copy of an earlier one.
func blank(nvs *volumesv1alpha1.NodeVolumeState) bool {
	if p := nvs.Status.Protocol; p.ObservedUID == "" {
		return p.Session == 0 && p.Reports == 0
	}
	return nvs.Status.Protocol.ObservedUID != nvs.UID
}

// Silent reports whether a manager has marked the agent of nvs as unreachable. The agent takes that back with its next
// write.
func Silent(nvs *volumesv1alpha1.NodeVolumeState) bool {
	ready := meta.FindStatusCondition(nvs.Status.Conditions, volumesv1alpha1.ConditionReady)
	return ready != nil && ready.Reason == volumesv1alpha1.ReasonAgentUnreachable
}

// OutOfService returns the taint that puts the Node out of service; nil where there is none. node may be nil.
func OutOfService(node *corev1.Node) *corev1.Taint {
	if node == nil {
		return nil
	}
	for i := range node.Spec.Taints {
		if node.Spec.Taints[i].Key == corev1.TaintNodeOutOfService {
			return &node.Spec.Taints[i]
		}
	}
	return nil
}

// SetByHawser reports whether the manager has set that taint, which may be nil. It did so on a fence, which is the
// evidence: the taint itself asserts nothing.
func SetByHawser(taint *corev1.Taint) bool {
	return taint != nil && taint.Key == corev1.TaintNodeOutOfService &&
		taint.Value == volumesv1alpha1.OutOfServiceTaintValue && taint.Effect == corev1.TaintEffectNoExecute
}

// DeclaredOff returns the out-of-service taint by which another than the manager asserts that the Node's machine is
// off; nil where there is none. node may be nil.
func DeclaredOff(node *corev1.Node) *corev1.Taint {
	if node == nil {
		return nil
	}
	for i := range node.Spec.Taints {
		t := &node.Spec.Taints[i]
		if t.Key == corev1.TaintNodeOutOfService && !SetByHawser(t) {
			return t
		}
	}
	return nil
}

// Settled reports whether the node's agent has reported since it was marked as unreachable, and nothing is left of what
// was forced away from the node. A use that names no attachment is of one that others made: it is left over unless the
// Node lists the volume as attached. A pod that waits for its volume uses none.
func Settled(nvs *volumesv1alpha1.NodeVolumeState, node *corev1.Node) bool {
	if Silent(nvs) || nvs.Status.Protocol.ObservedUID != nvs.UID {
		return false
	}
	for i := range nvs.Spec.Attachments {
		if NodeOf(nvs, nvs.Spec.Attachments[i].VolumeName).Entry.Forced {
			return false
		}
	}
	return !slices.ContainsFunc(nvs.Status.Volumes, func(v volumesv1alpha1.NodeVolume) bool {
		entry := AttachmentOf(nvs, v.VolumeName)
		switch {
		case !v.InUse || v.Waiting:
			return false
		case v.AttachmentUID == "":
			return !slices.ContainsFunc(node.Status.VolumesAttached, func(a corev1.AttachedVolume) bool {
				return string(a.Name) == v.VolumeName
			})
		}
		return entry == nil || entry.AttachmentUID != v.AttachmentUID
	})
}

// RecordTaint is the record of the Node's out-of-service taint after record, which may be nil as the taint may be.
// heard is what the state and the agent's Lease show, the Lease read live after the Node.
func RecordTaint(
	record *volumesv1alpha1.OutOfServiceObservation, taint *corev1.Taint, heard Heard, now metav1.Time,
) *volumesv1alpha1.OutOfServiceObservation {
	switch {
	case taint == nil:
		return nil
	case !records(record, taint):
		return &volumesv1alpha1.OutOfServiceObservation{
			Value: taint.Value, Effect: taint.Effect, TimeAdded: taint.TimeAdded,
			LastRenewal: heard.Renewal, LastSession: heard.Session,
		}
	case record.Contradicted != nil || !heard.since(record.LastRenewal, record.LastSession):
		return record
	}
	contradicted := record.DeepCopy()
	contradicted.Contradicted = &now
	return contradicted
}

// TaintAssertion is what the taint asserts, given its record, which may be nil, and what was heard of the agent.
func TaintAssertion(
	record *volumesv1alpha1.OutOfServiceObservation, taint *corev1.Taint, heard Heard,
) Assertion {
	if taint == nil || !records(record, taint) {
		return Assertion{}
	}
	return Assertion{Recorded: true, Contradicted: record.Contradicted != nil ||
		heard.since(record.LastRenewal, record.LastSession)}
}

func records(record *volumesv1alpha1.OutOfServiceObservation, taint *corev1.Taint) bool {
	return record != nil && record.Value == taint.Value && record.Effect == taint.Effect &&
		record.TimeAdded.Equal(taint.TimeAdded)
}

// Heard is what was heard of an agent last: the renewal of its Lease, empty where there is no Lease, and the session of
// its reports.
type Heard struct {
	Renewal string
	Session int64
}

// LastHeard is what was heard of the agent of nvs, given the last renewal of its Lease.
func LastHeard(nvs *volumesv1alpha1.NodeVolumeState, renewal string) Heard {
	return Heard{Renewal: renewal, Session: nvs.Status.Protocol.Session}
}

// since reports whether the agent was heard after that. A Lease that was deleted was not renewed. An agent reports
// before it renews its Lease, so another session shows as much as another renewal.
func (h Heard) since(renewal string, session int64) bool {
	return h.Renewal != "" && h.Renewal != renewal || h.Session != session
}

// Renewal identifies the last renewal of an agent's Lease. It is only compared for equality.
func Renewal(lease *coordinationv1.Lease) string {
	renewal := string(lease.UID)
	if t := lease.Spec.RenewTime; t != nil {
		renewal += " " + t.UTC().Format(time.RFC3339Nano)
	}
	return strings.TrimSpace(renewal)
}

// declarationsOf nvs, in order of UID. One about two machines waits until the one that reports has ended its use: it
// was meant for the other one, and would have the volume detached under both.
func declarationsOf(nvs *volumesv1alpha1.NodeVolumeState) []Declaration {
	var declared []Declaration
	for key, reason := range nvs.Annotations {
		uid, ok := strings.CutPrefix(key, volumesv1alpha1.DeclaredReleasedPrefix)
		if ok && !UsedByTwo(nvs, types.UID(uid)) {
			declared = append(declared, Declaration{UID: types.UID(uid), Reason: reason})
		}
	}
	slices.SortFunc(declared, func(a, b Declaration) int { return strings.Compare(string(a.UID), string(b.UID)) })
	return declared
}

// UsedByTwo reports whether the machine that reports and another one under the node's name both use the attachment, as
// where a kubelet mounts for pods of the Node what is attached already.
func UsedByTwo(nvs *volumesv1alpha1.NodeVolumeState, attachment types.UID) bool {
	uses := func(other bool) bool {
		return slices.ContainsFunc(nvs.Status.Volumes, func(v volumesv1alpha1.NodeVolume) bool {
			return v.AttachmentUID == attachment && v.InUse && (v.Machine != nil) == other
		})
	}
	return uses(true) && uses(false)
}

// AttachmentOf returns volumeName's entry in nvs.spec, or nil. It points into nvs.
func AttachmentOf(nvs *volumesv1alpha1.NodeVolumeState, volumeName string) *volumesv1alpha1.NodeAttachment {
	i := slices.IndexFunc(nvs.Spec.Attachments, func(a volumesv1alpha1.NodeAttachment) bool {
		return a.VolumeName == volumeName
	})
	if i < 0 {
		return nil
	}
	return &nvs.Spec.Attachments[i]
}

// VolumeOf returns volumeName's line in nvs.status, or nil. It points into nvs. Where there are two, because two
// machines use the volume or a hand has made them, the first one that says in use counts.
func VolumeOf(nvs *volumesv1alpha1.NodeVolumeState, volumeName string) *volumesv1alpha1.NodeVolume {
	var found *volumesv1alpha1.NodeVolume
	for i := range nvs.Status.Volumes {
		if v := &nvs.Status.Volumes[i]; v.VolumeName == volumeName && (found == nil || v.InUse && !found.InUse) {
			found = v
		}
	}
	return found
}

// AttachmentFrom is va as the protocol sees it; the zero Attachment when va is nil.
func AttachmentFrom(va *storagev1.VolumeAttachment) Attachment {
	if va == nil {
		return Attachment{}
	}
	ours := func(f string) bool { return f == volumesv1alpha1.ForcedAwayFinalizer }
	terminating := va.DeletionTimestamp != nil
	return Attachment{
		Exists:      true,
		UID:         va.UID,
		Attached:    va.Status.Attached,
		Terminating: terminating,
		NameHeld:    slices.ContainsFunc(va.Finalizers, ours),
		Unpublished: terminating && !slices.ContainsFunc(va.Finalizers, func(f string) bool { return !ours(f) }),
	}
}
