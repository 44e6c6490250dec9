/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package decision

import (
	"fmt"
	"time"

	"google.golang.org/grpc/codes"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/handshake"
)

// Finding is what to report of one intent's attachment.
type Finding struct {
	Status          metav1.ConditionStatus
	Reason, Message string
	// Error of the driver's attacher, where that is the reason.
	Error *storagev1.VolumeError
}

func not(reason, format string, args ...any) *Finding {
	return &Finding{Status: metav1.ConditionFalse, Reason: reason, Message: fmt.Sprintf(format, args...)}
}

// FindingOf is the state of intent i on node n; nil if another controller has yet to do its part.
func FindingOf(f *Facts, n *Node, i *Intent) *Finding {
	if !i.Pinned() && !i.mayAttach() {
		return nil
	}
	if found := findUser(f, n, i); found != nil {
		return found
	}
	if n.State.Entry.State == handshake.Attached {
		return findAttached(f, n, i)
	}
	for _, find := range []func(*Facts, *Node, *Intent) *Finding{
		findRefusal, findAgent, findEarlier, findTaint, findObstacle, findLock, findHolder, findLimit, findPolicies,
		findAnother, findInTheWay,
	} {
		if found := find(f, n, i); found != nil {
			return found
		}
	}
	if !i.mayAttach() {
		return not(volumesv1alpha1.ReasonDetached,
			"the volume is not attached, and is not as long as the intent does not resolve: %s", i.Result.Message)
	}
	return findProgress(f, n)
}

func findAttached(f *Facts, n *Node, i *Intent) *Finding {
	name := i.Object.Status.VolumeName
	if i.mayAttach() {
		name = i.Result.Pins.VolumeName
	}
	switch {
	case n.Entry.PersistentVolumeName != name:
		return not(volumesv1alpha1.ReasonVolumeInUse,
			"the volume is attached to node %s as PersistentVolume %s, which has the same driver and handle as %s",
			n.Name, n.Entry.PersistentVolumeName, name)
	case n.Entry.AttachmentName == "":
		return &Finding{Status: metav1.ConditionTrue, Reason: volumesv1alpha1.ReasonAttachNotRequired,
			Message: fmt.Sprintf("driver %s needs no attach", f.Driver)}
	}
	if undone := findDetachedBehind(n); undone != nil {
		return undone
	}
	return &Finding{Status: metav1.ConditionTrue, Reason: volumesv1alpha1.ReasonAttached,
		Message: fmt.Sprintf("attached to node %s by VolumeAttachment %s", n.Name, n.Entry.AttachmentName)}
}

// findRefusal: an act of this pass was refused with a reason.
func findRefusal(_ *Facts, n *Node, i *Intent) *Finding {
	switch {
	case n.Wait == nil || n.Wait.Reason == "":
		return nil
	case n.Wait.Holder != nil:
		return not(n.Wait.Reason, "%s", heldBy([]*Node{n.Wait.Holder}, i.Object.Namespace))
	}
	return not(n.Wait.Reason, "%s", n.Wait.Message)
}

func findAgent(_ *Facts, n *Node, _ *Intent) *Finding {
	switch {
	case !n.State.Exists:
		return not(volumesv1alpha1.ReasonWaitingForAgent, "node %s has no NodeVolumeState yet", n.Name)
	case !n.State.Reported:
		return not(volumesv1alpha1.ReasonWaitingForAgent,
			"the agent of node %s has not reported what is mounted there since the manager listens; "+
				"until then everything counts as in use",
			n.Name)
	}
	return nil
}

// findEarlier: an earlier attachment to the same node is not over yet.
func findEarlier(f *Facts, n *Node, _ *Intent) *Finding {
	switch a := n.AttachmentOf(n.State.Entry.UID); {
	case n.State.Entry.State == handshake.Detaching && !handshake.Protocol{Kubelet: f.Replace}.ForcedAwayReported(n.State):
		if n.Entry.Evidence.Type == volumesv1alpha1.EvidenceAttachmentLost {
			return not(volumesv1alpha1.ReasonAttachmentLost,
				"%s; it is attached again once the agent of node %s has let go of it", n.Entry.Evidence.Message, n.Name)
		}
		return not(volumesv1alpha1.ReasonForcedAway,
			"the volume was forced away from node %s (%s) and is not attached there before its agent reports "+
				"that nothing of attachment %s is left",
			n.Name, n.Entry.Evidence.Type, n.State.Entry.UID)
	case n.State.Entry.State == handshake.Detaching && a != nil && a.DetachError != nil:
		reason := volumesv1alpha1.ReasonDetachFailed
		if a.Silent {
			reason = volumesv1alpha1.ReasonAttacherSilent
		}
		found := not(reason, "an earlier attachment to node %s cannot be detached: %s", n.Name, a.DetachError.Message)
		found.Error = a.DetachError
		return found
	case n.State.Entry.State == handshake.Detaching:
		return not(volumesv1alpha1.ReasonDetaching, "an earlier attachment to node %s is being detached", n.Name)
	case n.State.Use.InUse:
		return not(volumesv1alpha1.ReasonDetaching,
			"the volume is not attached to node %s before its agent reports that nothing of an earlier attachment is left (%s)",
			n.Name, n.State.Use.UID)
	}
	return nil
}

// findTaint: the machine is declared to be off.
func findTaint(_ *Facts, n *Node, _ *Intent) *Finding {
	switch {
	case n.Fenced:
		return not(volumesv1alpha1.ReasonNodeFenced,
			"the machine of node %s was fenced, so the manager has set the taint %s, and nothing new is attached there; it "+
				"removes the taint once the agent has reported that nothing of the old mounts is left",
			n.Name, corev1.TaintNodeOutOfService)
	case n.Tainted:
		return not(volumesv1alpha1.ReasonNodeTainted,
			"node %[1]s carries the taint %[2]s, and nothing new is attached to it; once the machine is back and has released "+
				"its volumes, an administrator removes the taint: kubectl taint node %[1]s %[2]s-",
			n.Name, corev1.TaintNodeOutOfService)
	}
	return nil
}

func findObstacle(f *Facts, n *Node, _ *Intent) *Finding {
	if f.AttachRequired && n.DriverMissing {
		return not(volumesv1alpha1.ReasonDriverNotInstalled, "driver %s is not registered on node %s", f.Driver, n.Name)
	}
	return nil
}

// findLock: it is not known on which node an exclusive volume may be used.
func findLock(f *Facts, _ *Node, _ *Intent) *Finding {
	if f.LockUnknown() {
		return not(volumesv1alpha1.ReasonLocksUnreadable,
			"the volume may be used on one node only, and %v; it is attached once an administrator has repaired that",
			f.LockUnreadable)
	}
	return nil
}

// findHolder: an exclusive volume is on another node, or another intent comes first.
func findHolder(f *Facts, n *Node, i *Intent) *Finding {
	if blocking := blockers(f, n); len(blocking) > 0 {
		return not(volumesv1alpha1.ReasonVolumeInUse, "%s", heldBy(blocking, i.Object.Namespace))
	}
	if first := choose(f); f.Exclusive && first != nil && first != n && !n.Limit.Reached() {
		return not(volumesv1alpha1.ReasonVolumeInUse, "%s", heldBy([]*Node{first}, i.Object.Namespace))
	}
	return nil
}

// findLimit: the node is full.
func findLimit(f *Facts, n *Node, _ *Intent) *Finding {
	if n.Limit.Reached() {
		return not(volumesv1alpha1.ReasonNodeLimitReached, "%s", n.Limit.Message(n.Name, f.Driver))
	}
	return nil
}

// findPolicies: nothing new is attached.
func findPolicies(f *Facts, _ *Node, _ *Intent) *Finding {
	if f.PolicyMissing != "" {
		return not(volumesv1alpha1.ReasonDetached,
			"the volume is not attached, and is not as long as the intent does not resolve: %s", f.PolicyMissing)
	}
	return nil
}

// findProgress: all that is left to wait for is the driver's attacher.
func findProgress(f *Facts, n *Node) *Finding {
	a := n.Usable(f)
	switch {
	case a == nil && len(n.Attachments) > 0:
		return not(volumesv1alpha1.ReasonDetaching, "an earlier attachment to node %s is being detached", n.Name)
	case a != nil && !a.Attached && a.AttachError != nil:
		found := not(volumesv1alpha1.ReasonAttachFailed, "attaching to node %s failed: %s", n.Name, a.AttachError.Message)
		if exhausted(a.AttachError) {
			found = not(volumesv1alpha1.ReasonNodeLimitReached, "the driver has no room for the volume on node %s: %s", n.Name,
				a.AttachError.Message)
		}
		found.Error = a.AttachError
		return found
	case a != nil && a.Silent:
		return not(volumesv1alpha1.ReasonAttacherSilent,
			"the attacher of driver %s has neither attached the volume nor said why not since %s, "+
				"when VolumeAttachment %s was created: see that the driver's external-attacher runs",
			f.Driver, a.Created.UTC().Format(time.RFC3339), a.Name)
	case a != nil:
		return not(volumesv1alpha1.ReasonAttaching, "waiting for the driver to carry out VolumeAttachment %s", a.Name)
	}
	return not(volumesv1alpha1.ReasonAttaching, "the attachment to node %s is being created", n.Name)
}

// exhausted: the driver says that the node cannot take more of its volumes.
func exhausted(e *storagev1.VolumeError) bool {
	return e.ErrorCode != nil && codes.Code(*e.ErrorCode) == codes.ResourceExhausted
}

// findDetachedBehind: the attachment exists, but it is not attached any more. Its attacher has to attach it again;
// what is mounted stays.
func findDetachedBehind(n *Node) *Finding {
	a := n.AttachmentOf(n.State.Entry.UID)
	switch {
	case a == nil || a.Terminating || a.Attached:
		return nil
	case a.AttachError != nil:
		found := not(volumesv1alpha1.ReasonAttachmentLost,
			"the volume was detached from node %s, not by Hawser, and attaching it again by VolumeAttachment %s fails: %s",
			n.Name, a.Name, a.AttachError.Message)
		found.Error = a.AttachError
		return found
	}
	return not(volumesv1alpha1.ReasonAttachmentLost,
		"the volume was detached from node %s, not by Hawser: VolumeAttachment %s is not attached any more; "+
			"the driver is to attach it again",
		n.Name, a.Name)
}
