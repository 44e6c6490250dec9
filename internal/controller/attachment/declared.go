/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package attachment

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/backoff"
	"github.com/hawser-io/hawser/internal/controller/index"
	"github.com/hawser-io/hawser/internal/controller/nodestate"
	"github.com/hawser-io/hawser/internal/handshake"
)

// declaration is an administrator's word on the attachment as evidence; nil where there is none.
func declaration(state handshake.Node, uid types.UID) *volumesv1alpha1.DetachEvidence {
	reason, declared := state.Declares(uid)
	if !declared {
		return nil
	}
	if reason == "" {
		reason = "no reason given"
	}
	return &volumesv1alpha1.DetachEvidence{Type: volumesv1alpha1.EvidenceDeclaredByAdministrator, Message: reason}
}

// declared says whether an administrator has declared the attachment released. It is then detached whether an intent wants it
// or not; who wants the volume gets a new attachment.
func (n *Node) declared(uid types.UID) bool {
	_, declared := n.State.Declares(uid)
	return declared
}

// evident says whether anything stands in for the agent's release of the attachment.
func (n *Node) evident(uid types.UID) bool { return n.Evidence != nil || n.declared(uid) }

// declaredAway detaches the attachments of the volume that were declared released and that no entry speaks of.
func declaredAway(f *Facts, p handshake.Protocol, n *Node) []Step {
	for i := range n.Attachments {
		if a := &n.Attachments[i]; n.declared(a.UID) && !a.Terminating {
			return markDetaching(f, p, n, a.UID)
		}
	}
	return nil
}

// restOnEvidence lets a detach that rests on the agent's release rest on a declaration instead and, where it waits for the
// agent to look once more, on evidence.
func restOnEvidence(f *Facts, p handshake.Protocol, n *Node) []Step {
	uid := n.detaching()
	a := n.attachmentOf(uid)
	if n.State.Entry.Forced || a == nil || a.Terminating {
		return nil
	}
	stuck := n.Evidence != nil && awaitsLook(f.Replace, p, n)
	if !n.declared(uid) && !stuck || p.MayMarkDetaching(n.State, uid, true) != handshake.GuardNone {
		return nil
	}
	return []Step{{Act: MarkDetaching, Node: n, Attachment: a, Evidence: true}}
}

// awaitsLook: Detaching stands, and its attachment is deleted only once the agent has looked at its node again.
func awaitsLook(replace bool, p handshake.Protocol, n *Node) bool {
	a := n.attachmentOf(n.detaching())
	return replace && a != nil && !a.Terminating && !n.State.Entry.Forced && p.MayDeleteUnderKubelet(n.State, a.Attachment) != handshake.GuardNone
}

// addDeclared adds the volumes of attachments whose declaration came, went or changed.
func (c *Controller) addDeclared(ctx context.Context, was, is *volumesv1alpha1.NodeVolumeState, q queue) {
	before, after := handshake.NodeOf(was, ""), handshake.NodeOf(is, "")
	changed := map[types.UID]bool{}
	for _, d := range append(before.Declared, after.Declared...) {
		old, had := before.Declares(d.UID)
		now, has := after.Declares(d.UID)
		if had != has || old != now {
			changed[d.UID] = true
		}
	}
	if len(changed) == 0 {
		return
	}
	for name, entry := range entries(is) {
		if changed[entry.AttachmentUID] {
			c.add(q, is.Name, name)
		}
	}
	for name, use := range uses(is) {
		if changed[use.uid] {
			c.add(q, is.Name, name)
		}
	}
	attachments, err := attachmentsOn(ctx, c.Client, is.Name)
	if err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "finding the volumes that were declared released", "node", is.Name)
		return
	}
	for i := range attachments {
		if changed[attachments[i].UID] {
			c.attachmentChanged(ctx, nil, &attachments[i], q)
		}
	}
}

func attachmentsOn(ctx context.Context, c client.Reader, node string) ([]storagev1.VolumeAttachment, error) {
	list := &storagev1.VolumeAttachmentList{}
	if err := c.List(ctx, list, client.MatchingFields{index.Node: node}); err != nil {
		return nil, fmt.Errorf("listing the attachments of node %s: %w", node, err)
	}
	return list.Items, nil
}

// settle takes the declaration off nvs when nothing in it speaks of the attachment any more.
func settle(nvs *volumesv1alpha1.NodeVolumeState, uid types.UID) {
	if !speaksOf(nvs, uid) {
		delete(nvs.Annotations, volumesv1alpha1.DeclaredReleasedPrefix+string(uid))
	}
}

func speaksOf(nvs *volumesv1alpha1.NodeVolumeState, uid types.UID) bool {
	for i := range nvs.Spec.Attachments {
		if nvs.Spec.Attachments[i].AttachmentUID == uid {
			return true
		}
	}
	for i := range nvs.Status.Volumes {
		if nvs.Status.Volumes[i].AttachmentUID == uid {
			return true
		}
	}
	return false
}

// Declarations takes off the declarations of attachments that nothing on their node speaks of: those that have done
// their work and did not go with the entry, and those that never named anything.
type Declarations struct {
	// Client reads from the cache.
	Client client.Client
	Writer *nodestate.Writer
	Events events.EventRecorder
}

// Register adds the controller to the manager. Where nothing is declared it does nothing.
func (d *Declarations) Register(mgr manager.Manager) error {
	declares := predicate.NewPredicateFuncs(func(o client.Object) bool { return declaresAny(o.(*volumesv1alpha1.NodeVolumeState)) })
	gone := predicate.Funcs{
		CreateFunc: func(event.CreateEvent) bool { return false },
		UpdateFunc: func(event.UpdateEvent) bool { return false },
	}
	return ctrl.NewControllerManagedBy(mgr).
		Named("declarations").
		For(&volumesv1alpha1.NodeVolumeState{}, builder.WithPredicates(declares)).
		Watches(&storagev1.VolumeAttachment{}, handler.EnqueueRequestsFromMapFunc(d.ofAttachment), builder.WithPredicates(gone)).
		WithOptions(controller.Options{RateLimiter: backoff.Limiter()}).
		Complete(d)
}

// ofAttachment wakes the node of an attachment that is gone, where anything is declared. What is declared later is an event of its own.
func (d *Declarations) ofAttachment(ctx context.Context, o client.Object) []reconcile.Request {
	key := client.ObjectKey{Name: o.(*storagev1.VolumeAttachment).Spec.NodeName}
	nvs := &volumesv1alpha1.NodeVolumeState{}
	if err := d.Client.Get(ctx, key, nvs); err == nil && !declaresAny(nvs) || apierrors.IsNotFound(err) {
		return nil
	}
	return []reconcile.Request{{NamespacedName: key}}
}

func declaresAny(nvs *volumesv1alpha1.NodeVolumeState) bool {
	return len(handshake.NodeOf(nvs, "").Declared) > 0
}

// Reconcile one node.
func (d *Declarations) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	nvs := &volumesv1alpha1.NodeVolumeState{}
	if err := d.Client.Get(ctx, req.NamespacedName, nvs); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	for _, declared := range handshake.NodeOf(nvs, "").Declared {
		if err := d.settle(ctx, nvs, declared.UID); err != nil {
			return reconcile.Result{}, fmt.Errorf("taking off the declaration of attachment %s: %w", declared.UID, err)
		}
	}
	return reconcile.Result{}, nil
}

// settle takes the declaration off unless an entry, a line or an attachment of the node names its UID.
func (d *Declarations) settle(ctx context.Context, nvs *volumesv1alpha1.NodeVolumeState, uid types.UID) error {
	attachments, err := attachmentsOn(ctx, d.Client, nvs.Name)
	if err != nil {
		return err
	}
	for i := range attachments {
		if attachments[i].UID == uid {
			return nil
		}
	}
	if speaksOf(nvs, uid) {
		return nil
	}
	var taken bool
	_, err = d.Writer.Apply(ctx, nvs.Name, func(_ context.Context, nvs *volumesv1alpha1.NodeVolumeState) (nodestate.Change, error) {
		_, stands := handshake.NodeOf(nvs, "").Declares(uid)
		if taken = stands && !speaksOf(nvs, uid); !taken {
			return nil, nil
		}
		return func(nvs *volumesv1alpha1.NodeVolumeState) { settle(nvs, uid) }, nil
	})
	if err == nil && taken {
		d.Events.Eventf(nvs, nil, corev1.EventTypeWarning, "UnknownAttachment", "Declare",
			"nothing on node %s names attachment %s, or does any more: its declaration as released was taken off", nvs.Name, uid)
	}
	return err
}
