/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package explain

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	storagehelpers "k8s.io/component-helpers/storage/volume"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/explain/catalog"
	"github.com/hawser-io/hawser/internal/explain/facts"
	"github.com/hawser-io/hawser/internal/handshake"
)

// A condition or an event is as old as its last change. The objects that it is about were read now. So where one of
// them shows otherwise, the condition is no cause: it is outdated until its writer has seen the object.

// ofVolume are what shows that a reason does not hold any more for a volume; empty if nothing does.
var ofVolume = map[string]func(*facts.Facts, *facts.Volume) string{
	volumesv1alpha1.ReasonClaimNotFound:        claimExists,
	catalog.PodEphemeralClaim:                  claimExists,
	volumesv1alpha1.ReasonClaimNotBound:        claimBound,
	volumesv1alpha1.ReasonWaitForFirstConsumer: claimBound,
	volumesv1alpha1.ReasonClaimLost:            claimBound,
	catalog.PodUnboundClaims:                   claimBound,
	catalog.PodNoStorage:                       claimBound,
	volumesv1alpha1.ReasonStorageClassNotFound: classExists,
	catalog.ClassMissing:                       classExists,
	volumesv1alpha1.ReasonVolumeNotFound:       volumeExists,
	volumesv1alpha1.ReasonVolumeBoundElsewhere: func(_ *facts.Facts, v *facts.Volume) string {
		return says(v.Volume.Found && v.Claim.Found && v.Volume.Value.Spec.ClaimRef != nil &&
			v.Volume.Value.Spec.ClaimRef.UID == v.Claim.Value.UID, v.Volume.Ref, "belongs to the claim")
	},
	volumesv1alpha1.ReasonPodNotFound: func(f *facts.Facts, _ *facts.Volume) string {
		return says(f.Pod.Found, f.Pod.Ref, "exists")
	},
	volumesv1alpha1.ReasonPodNotOnNode: func(f *facts.Facts, v *facts.Volume) string {
		return says(f.Pod.Found && f.Pod.Value.Spec.NodeName == v.Node, f.Pod.Ref, "is on the node")
	},
	volumesv1alpha1.ReasonVolumeInUse:      hasAlone,
	volumesv1alpha1.ReasonDetachFailed:     isAttached,
	volumesv1alpha1.ReasonAttachFailed:     isAttached,
	volumesv1alpha1.ReasonAttacherSilent:   isAttached,
	volumesv1alpha1.ReasonNodeLimitReached: isAttached,
	volumesv1alpha1.ReasonIntentNotFound: func(_ *facts.Facts, v *facts.Volume) string {
		return says(v.Intent.Found, v.Intent.Ref, "exists")
	},
	volumesv1alpha1.ReasonIntentDeleting: func(_ *facts.Facts, v *facts.Volume) string {
		return says(v.Intent.Found && v.Intent.Value.DeletionTimestamp == nil, v.Intent.Ref, "is not being deleted")
	},
	volumesv1alpha1.ReasonClaimDeleting: func(_ *facts.Facts, v *facts.Volume) string {
		return says(v.Claim.Found && v.Claim.Value.DeletionTimestamp == nil, v.Claim.Ref, "is not being deleted")
	},
}

// ofNode are what shows that a reason does not hold any more for a node and a driver; empty if nothing does.
var ofNode = map[string]func(n *facts.Node, driver string) string{
	volumesv1alpha1.ReasonNodeNotFound: func(n *facts.Node, _ string) string {
		return says(n.Node.Found, n.Node.Ref, "exists")
	},
	volumesv1alpha1.ReasonNodeDeleting: func(n *facts.Node, _ string) string {
		return says(n.Node.Found && n.Node.Value.DeletionTimestamp == nil, n.Node.Ref, "is not being deleted")
	},
	volumesv1alpha1.ReasonNodeTainted:        taintGone,
	volumesv1alpha1.ReasonNodeFenced:         taintGone,
	volumesv1alpha1.ReasonTaintContradicted:  taintGone,
	volumesv1alpha1.ReasonDriverNotInstalled: driverListed,
	volumesv1alpha1.ReasonDriverNotFound: func(n *facts.Node, driver string) string {
		// Kubelets keep a driver in the CSINode for a while. The agent asks the driver itself.
		return says(driverListed(n, driver) != "" && n.State.Found && slices.ContainsFunc(n.State.Value.Status.Drivers,
			func(d volumesv1alpha1.NodeDriver) bool { return d.Name == driver }), n.State.Ref, "lists driver "+driver)
	},
}

// says is what an object shows, if it does.
func says(does bool, ref facts.Ref, what string) string {
	if !does {
		return ""
	}
	return ref.String() + " " + what
}

func claimExists(_ *facts.Facts, v *facts.Volume) string {
	return says(v.Claim.Found, v.Claim.Ref, "exists")
}

func claimBound(_ *facts.Facts, v *facts.Volume) string {
	return says(v.Claim.Found && v.Claim.Value.Status.Phase == corev1.ClaimBound, v.Claim.Ref, "is bound")
}

func classExists(_ *facts.Facts, v *facts.Volume) string {
	return says(v.Class.Found, v.Class.Ref, "exists")
}

func volumeExists(_ *facts.Facts, v *facts.Volume) string {
	return says(v.Volume.Found, v.Volume.Ref, "exists")
}

func isAttached(f *facts.Facts, v *facts.Volume) string {
	return says(v.Attached() && v.Attachment.Value.Status.AttachError == nil && !v.Other.Asked() && !waitsForLifted(f, v),
		v.Attachment.Ref, "is attached")
}

// hasAlone shows that a volume is attached to its node, and that no other node has it. Kubernetes attaches a volume for
// a pod also while an intent has it on another node.
func hasAlone(f *facts.Facts, v *facts.Volume) string {
	holder := v.Lock.Value.Holder
	if holder != "" && holder != v.Node || len(v.Elsewhere.Items) > 0 ||
		slices.ContainsFunc(v.Intents.Items, func(i volumesv1alpha1.VolumeAttachmentIntent) bool {
			return i.Spec.NodeName != v.Node && conditionTrue(i.Status.Conditions, volumesv1alpha1.ConditionAttached)
		}) {
		return ""
	}
	return isAttached(f, v)
}

// waitsForLifted reports whether a node may write again to the volume, which was forced away from it. No other node
// gets it before that one has reported.
func waitsForLifted(f *facts.Facts, v *facts.Volume) bool {
	return slices.ContainsFunc(f.Nodes, func(n facts.Node) bool {
		return n.State.Found &&
			handshake.Protocol{}.CutHolds(handshake.NodeOf(n.State.Value, v.UniqueName)) != handshake.GuardNone
	})
}

func taintGone(n *facts.Node, _ string) string {
	return says(n.Node.Found && handshake.OutOfService(n.Node.Value) == nil, n.Node.Ref, "has no such taint")
}

func driverListed(n *facts.Node, driver string) string {
	return says(driver != "" && n.CSINode.Found && slices.ContainsFunc(n.CSINode.Value.Spec.Drivers,
		func(d storagev1.CSINodeDriver) bool { return d.Name == driver }), n.CSINode.Ref, "lists driver "+driver)
}

// unlessRefuted turns what a condition or an event reports about a node and volumes into a wait for its writer, if the
// objects show otherwise. Of several volumes each has to show it.
func (b *builder) unlessRefuted(a about, node string, volumes ...*facts.Volume) about {
	n, _ := b.f.NodeOf(node)
	otherwise := ""
	switch {
	case a.reason == volumesv1alpha1.ReasonNodeAffinityMismatch:
		otherwise = usableOn(&n, volumes)
	case a.reason == volumesv1alpha1.ReasonAgentUnreachable, a.reason == volumesv1alpha1.ReasonAgentStopped:
		otherwise = says(b.heardSince(&n, a.since), n.Lease.Ref, "was renewed since")
	case ofNode[a.reason] != nil && len(volumes) == 0:
		otherwise = ofNode[a.reason](&n, "")
	case ofNode[a.reason] != nil:
		otherwise = each(volumes, func(v *facts.Volume) string { return ofNode[a.reason](&n, v.Driver) })
	case ofVolume[a.reason] != nil:
		otherwise = each(volumes, func(v *facts.Volume) string { return ofVolume[a.reason](b.f, v) })
	}
	if otherwise == "" {
		return a
	}
	a.detail = join(a.reason, a.detail) + "; but " + otherwise
	a.reason, a.depth = catalog.Outdated, 0
	return a
}

// each is what the last volume shows, if every one shows something.
func each(volumes []*facts.Volume, shows func(*facts.Volume) string) (text string) {
	for _, v := range volumes {
		if text = shows(v); text == "" {
			return ""
		}
	}
	return text
}

// usableOn shows that the labels of a node match the affinity of the volumes.
func usableOn(n *facts.Node, volumes []*facts.Volume) string {
	if !n.Node.Found {
		return ""
	}
	for _, v := range volumes {
		if !v.Volume.Found || storagehelpers.CheckNodeAffinity(v.Volume.Value, n.Node.Value.Labels) != nil {
			return ""
		}
	}
	return says(len(volumes) > 0, n.Node.Ref, "has the labels that the volume requires")
}

// volumes of the subject.
func (b *builder) volumes() []*facts.Volume {
	var all []*facts.Volume
	for i := range b.f.Volumes {
		all = append(all, &b.f.Volumes[i])
	}
	return all
}
