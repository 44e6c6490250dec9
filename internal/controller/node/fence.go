/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package node

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/fences"
	"github.com/hawser-io/hawser/internal/controller/nodestate"
	"github.com/hawser-io/hawser/internal/handshake"
)

const (
	// EventFenceContradicted: a fence holds for the Node, and its agent reports.
	EventFenceContradicted = volumesv1alpha1.ReasonFenceContradicted
	// EventFenceLifted: a fence on which volumes were detached does not hold any more.
	EventFenceLifted = fences.EventLifted
)

// liftAgain is when a fence is read again that cuts access and could not be read.
const liftAgain = 30 * time.Second

// Fences are what proves that machines are off or gone.
type Fences interface {
	// Of lists those that hold for the Node.
	Of(node *corev1.Node, nvs *volumesv1alpha1.NodeVolumeState) []volumesv1alpha1.FenceReference
	fences.Holder
	// Names of the sources.
	Names() []string
	// Configured reports whether there is a source of that name whose fences are about machines.
	Configured(source string) bool
	// Listen has wake called for each Node of which a fence comes to hold, or is lifted.
	Listen(wake func(context.Context, string, workqueue.TypedRateLimitingInterface[reconcile.Request])) source.Source
}

// fenced wakes the Node of a fence.
func (c *Controller) fenced(_ context.Context, node string, q workqueue.TypedRateLimitingInterface[reconcile.Request]) {
	q.Add(reconcile.Request{NamespacedName: client.ObjectKey{Name: node}})
}

// machineDiffers reports whether another machine has registered the Node, or the same one in another boot or by another
// name of its provider: what is asserted of the Node is about another life of it then.
func machineDiffers(was, is *corev1.Node) bool {
	before, now := was.Status.NodeInfo, is.Status.NodeInfo
	return was.Spec.ProviderID != is.Spec.ProviderID || before.SystemUUID != now.SystemUUID ||
		before.MachineID != now.MachineID || before.BootID != now.BootID
}

// recordFences keeps the record of the fences of a Node, as recordTaint does of its taint.
func (c *Controller) recordFences(ctx context.Context, cached *volumesv1alpha1.NodeVolumeState) (time.Duration, error) {
	node := &corev1.Node{}
	if err := c.Client.Get(ctx, client.ObjectKey{Name: cached.Name}, node); err != nil {
		return never, client.IgnoreNotFound(err)
	}
	records, renewal := cached.Status.Node.Fences, ""
	if slices.ContainsFunc(records, func(r volumesv1alpha1.FenceObservation) bool {
		return r.Contradicted == nil && c.Tracker.Await(cached.Name, r.LastRenewal)
	}) {
		renewal = c.Tracker.LastWord(cached.Name)
	}
	now := metav1.NewTime(c.Clock.Now())
	next := handshake.RecordFences(records, c.Fences.Of(node, cached), handshake.LastHeard(cached, renewal), now)
	if len(records)+len(next) == 0 || !c.putFences(cached.DeepCopy(), next) {
		return never, nil
	}
	var before []volumesv1alpha1.FenceObservation
	nvs, err := c.Observations.Apply(ctx, cached.Name, func(
		ctx context.Context, nvs *volumesv1alpha1.NodeVolumeState,
	) (nodestate.Change, error) {
		before, next = nil, nil
		if nvs == nil {
			return nil, nil
		}
		var err error
		before = nvs.Status.Node.Fences
		if next, err = c.readFences(ctx, nvs, now); err != nil || !c.putFences(nvs.DeepCopy(), next) {
			return nil, err
		}
		return func(nvs *volumesv1alpha1.NodeVolumeState) { c.putFences(nvs, next) }, nil
	})
	if err != nil {
		return never, fmt.Errorf("recording the fences of node %s: %w", cached.Name, err)
	}
	c.announceFences(nvs, before, next)
	for _, r := range next {
		if r.Contradicted == nil {
			c.Tracker.Await(cached.Name, r.LastRenewal)
		}
	}
	return never, nil
}

// readFences returns the record by what the Node and the agent's Lease show now, read in this order.
func (c *Controller) readFences(
	ctx context.Context, nvs *volumesv1alpha1.NodeVolumeState, now metav1.Time,
) ([]volumesv1alpha1.FenceObservation, error) {
	node := &corev1.Node{}
	err := c.Reader.Get(ctx, client.ObjectKey{Name: nvs.Name}, node)
	switch {
	case apierrors.IsNotFound(err):
		return nvs.Status.Node.Fences, nil // it is not known what machine a fence was about
	case err != nil:
		return nil, fmt.Errorf("reading node %s: %w", nvs.Name, err)
	}
	held := c.Fences.Of(node, nvs)
	heard, err := c.readHeard(ctx, nvs)
	if err != nil {
		return nil, err
	}
	return handshake.RecordFences(nvs.Status.Node.Fences, held, heard, now), nil
}

// announceFences sends an event for each fence that is contradicted now, or was lifted and had volumes detached.
func (c *Controller) announceFences(
	nvs *volumesv1alpha1.NodeVolumeState, before, next []volumesv1alpha1.FenceObservation,
) {
	for _, r := range before {
		i := slices.IndexFunc(next, func(n volumesv1alpha1.FenceObservation) bool {
			return n.FenceReference == r.FenceReference
		})
		switch {
		case i < 0 && restsOn(nvs, r.FenceReference):
			c.Events.Eventf(nvs, nil, corev1.EventTypeNormal, EventFenceLifted, "Detach",
				"fence %s of source %s does not hold any more; volumes of node %s were detached on it", r.Name, r.Source, nvs.Name)
		case i >= 0 && r.Contradicted == nil && next[i].Contradicted != nil:
			c.Events.Eventf(nvs, nil, corev1.EventTypeWarning, EventFenceContradicted, "Detach",
				"%s", fenceContradicted(nvs.Name, r.FenceReference))
		}
	}
}

// putFences sets the records, and the condition by those whose source is configured: about the others there is nothing
// to do. It reports whether that changed something. A condition that is absent stays so as long as nothing is wrong.
func (c *Controller) putFences(
	nvs *volumesv1alpha1.NodeVolumeState, records []volumesv1alpha1.FenceObservation,
) (changed bool) {
	changed = !equality.Semantic.DeepEqual(nvs.Status.Node.Fences, records)
	nvs.Status.Node.Fences = records
	condition := metav1.Condition{
		Type: volumesv1alpha1.ConditionFencesConsistent, Status: metav1.ConditionTrue,
		Reason: volumesv1alpha1.ReasonAsExpected, Message: "nothing is wrong any more",
	}
	i := slices.IndexFunc(records, func(r volumesv1alpha1.FenceObservation) bool {
		return r.Contradicted != nil && c.Fences.Configured(r.Source)
	})
	switch {
	case i >= 0:
		condition.Status, condition.Reason = metav1.ConditionFalse, volumesv1alpha1.ReasonFenceContradicted
		condition.Message = fenceContradicted(nvs.Name, records[i].FenceReference)
	case meta.FindStatusCondition(nvs.Status.Conditions, condition.Type) == nil:
		return changed
	}
	return meta.SetStatusCondition(&nvs.Status.Conditions, condition) || changed
}

func fenceContradicted(node string, f volumesv1alpha1.FenceReference) string {
	return fmt.Sprintf("%s of fence source %s proves %s of the machine of node %s, but its agent has reported since: the "+
		"fence forces no detach until it is lifted and holds again. Either the source names the wrong machine, or the fence "+
		"was not lifted when the machine came back", client.ObjectKey{Namespace: f.Namespace, Name: f.Name}, f.Source,
		f.Proves, node)
}

// noteLifts shows which fences were lifted that alone keep volumes from the node, also those that were while no manager
// ran.
func (c *Controller) noteLifts(ctx context.Context, cached *volumesv1alpha1.NodeVolumeState) (time.Duration, error) {
	if err := c.Lifts.NoteAll(ctx, cached); err != nil { // it keeps nothing else of the node waiting
		ctrl.LoggerFrom(ctx).Error(err, "whether fences were lifted is not known", "node", cached.Name)
		return liftAgain, nil
	}
	return never, nil
}

// restsOn reports whether a volume was detached from the node on that fence.
func restsOn(nvs *volumesv1alpha1.NodeVolumeState, ref volumesv1alpha1.FenceReference) bool {
	return nvs != nil && slices.ContainsFunc(nvs.Spec.Attachments, func(e volumesv1alpha1.NodeAttachment) bool {
		return e.Evidence != nil && e.Evidence.Fence != nil && *e.Evidence.Fence == ref
	})
}
