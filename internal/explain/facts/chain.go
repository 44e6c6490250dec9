/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package facts

import (
	"context"
	"slices"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/exclusive"
	"github.com/hawser-io/hawser/internal/controller/volume"
)

// ManagerLease is the Lease of the leading manager.
const ManagerLease = "hawser-manager"

// system reads what concerns the whole installation.
func (g *Gatherer) system(ctx context.Context) {
	if !g.facts.Installed {
		return
	}
	g.facts.Manager = get[volumesv1alpha1.VolumeManager](ctx, g, KindManager, "", volumesv1alpha1.VolumeManagerName)
	g.facts.ManagerLease = get[coordinationv1.Lease](ctx, g, KindLease, g.System, ManagerLease)
}

// node reads what shows the state of one node, once.
func (g *Gatherer) node(ctx context.Context, name string) {
	if _, known := g.facts.NodeOf(name); known || name == "" {
		return
	}
	n := Node{Name: name, Node: get[corev1.Node](ctx, g, KindNode, "", name),
		CSINode: get[storagev1.CSINode](ctx, g, KindCSINode, "", name)}
	if g.facts.Installed {
		n.State = get[volumesv1alpha1.NodeVolumeState](ctx, g, KindState, "", name)
		n.Lease = get[coordinationv1.Lease](ctx, g, KindLease, g.System, volumesv1alpha1.AgentLeasePrefix+name)
	}
	if n.Node.Found && !isReady(n.Node.Value) && !g.OnlyVolumes {
		pods, err := list[corev1.PodList](ctx, g, "pods on "+name, client.MatchingFields{"spec.nodeName": name})
		n.Pods = List[corev1.Pod]{Items: pods.Items, Err: err}
	}
	g.facts.Nodes = append(g.facts.Nodes, n)
}

func isReady(node *corev1.Node) bool {
	return slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

// claim reads a claim, and what it waits for while it is not bound.
func (g *Gatherer) claim(ctx context.Context, v *Volume, namespace, name string) {
	v.Claim = get[corev1.PersistentVolumeClaim](ctx, g, KindClaim, namespace, name)
	if !v.Claim.Found {
		return
	}
	claim := v.Claim.Value
	if len(claim.Status.AllocatedResourceStatuses) > 0 {
		v.ClaimEvents = g.events(ctx, namespace, claim.UID)
	}
	if claim.Status.Phase != corev1.ClaimBound {
		v.ClaimEvents = g.events(ctx, namespace, claim.UID)
		if class := claim.Spec.StorageClassName; class != nil {
			v.Class = get[storagev1.StorageClass](ctx, g, KindClass, "", *class)
		}
	}
	g.volume(ctx, v, claim.Spec.VolumeName)
}

// volume reads a PersistentVolume and its driver.
func (g *Gatherer) volume(ctx context.Context, v *Volume, name string) {
	v.Volume = get[corev1.PersistentVolume](ctx, g, KindVolume, "", name)
	if !v.Volume.Found {
		return
	}
	v.Exclusive = volume.Exclusive(v.Volume.Value)
	if pv, err := volume.Translated(v.Volume.Value); err == nil {
		v.Driver, v.UniqueName = volume.DriverOf(pv), volume.UniqueNameOf(pv)
	}
	v.CSIDriver = get[storagev1.CSIDriver](ctx, g, KindCSIDriver, "", v.Driver)
}

// attachment reads how the volume is attached to its node, and to others if it can be attached once only.
func (g *Gatherer) attachment(ctx context.Context, v *Volume) {
	if v.Driver == "" || !v.NeedsAttach() {
		return
	}
	if v.Node != "" {
		driver, handle := volume.Split(v.UniqueName)
		v.Attachment = get[storagev1.VolumeAttachment](ctx, g, KindAttachment, "",
			volume.AttachmentName(driver, handle, v.Node))
		g.other(ctx, v)
	}
	if v.Attached() && !v.waits() || v.Node != "" && !v.Exclusive {
		return
	}
	g.elsewhere(ctx, v)
}

// waits reports whether the intent of a volume does not have it. Its node may have it all the same: Kubernetes attaches
// it there for a pod, also while another node has it.
func (v *Volume) waits() bool {
	return v.Intent.Found &&
		!meta.IsStatusConditionTrue(v.Intent.Value.Status.Conditions, volumesv1alpha1.ConditionAttached)
}

// other reads the PersistentVolume of an attachment that is for another one than is wanted.
func (g *Gatherer) other(ctx context.Context, v *Volume) {
	if !v.Attachment.Found {
		return
	}
	name := ptr.Deref(v.Attachment.Value.Spec.Source.PersistentVolumeName, "")
	if name != v.Volume.Ref.Name {
		v.Other = get[corev1.PersistentVolume](ctx, g, KindVolume, "", name)
	}
}

// NeedsAttach reports whether the driver attaches volumes.
func (v *Volume) NeedsAttach() bool {
	return !v.CSIDriver.Found || v.CSIDriver.Value.Spec.AttachRequired == nil || *v.CSIDriver.Value.Spec.AttachRequired
}

// Attached reports whether the volume is attached to its node and stays so.
func (v *Volume) Attached() bool {
	return v.Attachment.Found && v.Attachment.Value.Status.Attached && v.Attachment.Value.DeletionTimestamp == nil
}

// elsewhere reads the attachments of the volume to other nodes.
func (g *Gatherer) elsewhere(ctx context.Context, v *Volume) {
	g.progress("attachments of " + v.Volume.Ref.String())
	all, err := g.attachments(ctx)
	v.Elsewhere.Err = err
	read := 0
	for i := range all {
		a := &all[i]
		if a.Volume != v.Volume.Ref.Name {
			continue
		}
		if read == mostHolders {
			v.Elsewhere.Cut = true
			return
		}
		read++
		va := get[storagev1.VolumeAttachment](ctx, g, KindAttachment, "", a.Name)
		if va.Found && va.Value.Spec.NodeName != v.Node {
			v.Elsewhere.Items = append(v.Elsewhere.Items, *va.Value)
			g.node(ctx, va.Value.Spec.NodeName)
		}
	}
	if len(v.Elsewhere.Items) > 0 && v.Claim.Found {
		v.Pods = g.podsOf(ctx, v.Claim.Ref)
	}
}

// users reads the intents of a volume on all nodes, and the lock of an exclusive one.
func (g *Gatherer) users(ctx context.Context, v *Volume) {
	if !g.facts.Installed || !v.Volume.Found {
		return
	}
	v.Intents = g.intents(ctx, "intents of "+v.Volume.Ref.String(),
		client.MatchingFields{"status.volumeName": v.Volume.Ref.Name})
	if Denied(v.Intents.Err) && v.Claim.Found {
		// A user of one namespace still sees the intents there.
		v.Intents = g.intents(ctx, "intents of "+v.Claim.Ref.String(), client.InNamespace(v.Claim.Ref.Namespace),
			client.MatchingFields{"status.volumeName": v.Volume.Ref.Name})
	}
	if v.Exclusive && v.Driver != "" {
		g.lock(ctx, v)
	}
	for i := range v.Intents.Items {
		if other := v.Intents.Items[i].Spec.NodeName; v.Exclusive && other != v.Node && i < mostHolders {
			g.node(ctx, other)
		}
	}
}

func (g *Gatherer) lock(ctx context.Context, v *Volume) {
	locks := get[corev1.ConfigMap](ctx, g, KindLocks, g.System, exclusive.Key(v.UniqueName).Name)
	v.Lock = Object[exclusive.Lock]{Ref: locks.Ref, Err: locks.Err, Found: locks.Found}
	if !locks.Found {
		return
	}
	all, err := exclusive.Locks(locks.Value)
	v.Lock.Value, v.Lock.Err, v.Lock.Found = all[v.UniqueName], err, err == nil
	if holder := v.Lock.Value.Holder; holder != v.Node {
		g.node(ctx, holder)
	}
}

func (g *Gatherer) intents(ctx context.Context, what string, options ...client.ListOption,
) List[volumesv1alpha1.VolumeAttachmentIntent] {
	found, err := list[volumesv1alpha1.VolumeAttachmentIntentList](ctx, g, what, options...)
	return List[volumesv1alpha1.VolumeAttachmentIntent]{Items: found.Items, Err: err}
}
