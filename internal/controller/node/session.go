/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package node

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/liveness"
	"github.com/hawser-io/hawser/internal/controller/nodestate"
	"github.com/hawser-io/hawser/internal/controller/volume"
	"github.com/hawser-io/hawser/internal/handshake"
)

// Events that say what an agent's session waits for before it is confirmed.
const (
	// EventWaitingForAgents: after a restore of the API server nothing is taken into use before every agent was heard.
	EventWaitingForAgents = "WaitingForAgents"
	// EventWaitingForReports: an agent is heard, and what its Lease has as reported does not come.
	EventWaitingForReports = "WaitingForReports"
	// EventVolumeInUse: an exclusive volume that is attached to the node is in use on another one.
	EventVolumeInUse = "VolumeInUse"
)

// unconfirmed are the nodes whose agents' sessions wait to be confirmed, and what was reported last of why. The zero
// value is ready to use.
type unconfirmed struct {
	mu    sync.Mutex
	nodes map[string]string
}

// add a node before what it waits for is read, so that nothing that comes after is missed.
func (u *unconfirmed) add(node string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.nodes == nil {
		u.nodes = map[string]string{}
	}
	if _, waits := u.nodes[node]; !waits {
		u.nodes[node] = ""
	}
}

func (u *unconfirmed) drop(node string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.nodes, node)
}

// tell returns true unless this is what was reported last.
func (u *unconfirmed) tell(node, why string) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	told, waits := u.nodes[node]
	if waits {
		u.nodes[node] = why
	}
	return waits && told != why
}

// wake those that wait.
func (u *unconfirmed) wake(q workqueue.TypedRateLimitingInterface[reconcile.Request]) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for node := range u.nodes {
		q.Add(reconcile.Request{NamespacedName: client.ObjectKey{Name: node}})
	}
}

// heard wakes the node, and those that may have waited to hear it.
func (c *Controller) heard(
	ctx context.Context, node string, q workqueue.TypedRateLimitingInterface[reconcile.Request],
) {
	q.Add(reconcile.Request{NamespacedName: client.ObjectKey{Name: node}})
	if c.Tracker.Restored() {
		c.wakeConcerned(ctx, q)
	}
	c.unconfirmed.wake(q)
}

// used wakes those that wait when what is used somewhere may have changed, when what was heard of has come, and when
// the node was excused from a restore, or the record of its absence was contradicted.
func (c *Controller) used(
	_ context.Context, e event.UpdateEvent, q workqueue.TypedRateLimitingInterface[reconcile.Request],
) {
	was, is := e.ObjectOld.(*volumesv1alpha1.NodeVolumeState), e.ObjectNew.(*volumesv1alpha1.NodeVolumeState)
	if c.Tracker.IsCurrent(was) != c.Tracker.IsCurrent(is) ||
		liveness.Excuse(was) != liveness.Excuse(is) ||
		!equality.Semantic.DeepEqual(was.Status.Node.Absence, is.Status.Node.Absence) ||
		!equality.Semantic.DeepEqual(was.Status.Volumes, is.Status.Volumes) {
		c.unconfirmed.wake(q)
	}
}

// tainted wakes the node, and those that wait, when an administrator says that its machine is gone, or takes that back,
// when its deletion begins, and when another machine registers it.
func (c *Controller) tainted(
	_ context.Context, e event.UpdateEvent, q workqueue.TypedRateLimitingInterface[reconcile.Request],
) {
	was, is := e.ObjectOld.(*corev1.Node), e.ObjectNew.(*corev1.Node)
	if taintDiffers(was, is) || machineDiffers(was, is) || c.serviceDiffers(was, is) ||
		e.ObjectOld.GetDeletionTimestamp().IsZero() != e.ObjectNew.GetDeletionTimestamp().IsZero() {
		q.Add(reconcile.Request{NamespacedName: client.ObjectKeyFromObject(e.ObjectNew)})
		c.unconfirmed.wake(q)
	}
}

// serviceDiffers reports what decides about the taint that the manager sets: whether the Node is Ready, and, under that
// taint, what is attached to it.
func (c *Controller) serviceDiffers(was, is *corev1.Node) bool {
	ours := handshake.SetByHawser(handshake.OutOfService(is))
	return c.ManageTaint && liveness.Ready(was) != liveness.Ready(is) ||
		ours && !equality.Semantic.DeepEqual(was.Status.VolumesAttached, is.Status.VolumesAttached)
}

// unregistered wakes those that may have waited to hear the agent of the Node that was deleted.
func (c *Controller) unregistered(
	_ context.Context, _ event.DeleteEvent, q workqueue.TypedRateLimitingInterface[reconcile.Request],
) {
	c.unconfirmed.wake(q)
}

// confirm the session of the node's agent, once every agent was heard. Until then the API may be of the past, and
// what it says is attached to this node may be in use on another one.
func (c *Controller) confirm(ctx context.Context, nvs *volumesv1alpha1.NodeVolumeState) (time.Duration, error) {
	if !handshake.NodeOf(nvs, "").Unconfirmed {
		c.unconfirmed.drop(nvs.Name)
		return never, nil
	}
	c.unconfirmed.add(nvs.Name)
	unheard, wait, err := c.unheard(ctx)
	if err != nil {
		return never, err
	}
	if len(unheard) > 0 {
		c.tellUnheard(ctx, nvs, unheard)
		return wait, nil
	}
	guard, conflict := handshake.GuardNone, ""
	_, err = c.Writer.Apply(ctx, nvs.Name,
		func(ctx context.Context, nvs *volumesv1alpha1.NodeVolumeState) (nodestate.Change, error) {
			guard, conflict, err = c.mayConfirm(ctx, nvs)
			if nvs == nil || guard != handshake.GuardNone || err != nil ||
				nvs.Spec.Protocol.ConfirmedSession == nvs.Status.Protocol.Session {
				return nil, err
			}
			session := nvs.Status.Protocol.Session
			return func(nvs *volumesv1alpha1.NodeVolumeState) { nvs.Spec.Protocol.ConfirmedSession = session }, nil
		})
	if err != nil {
		return never, fmt.Errorf("confirming the session of the agent of node %s: %w", nvs.Name, err)
	}
	switch guard {
	case handshake.GuardNone:
		c.unconfirmed.drop(nvs.Name)
	case handshake.GuardUsedElsewhere:
		c.tellConflict(nvs, conflict)
	}
	return never, nil
}

// tellConflict reports once which volume is waited for.
func (c *Controller) tellConflict(nvs *volumesv1alpha1.NodeVolumeState, conflict string) {
	if c.unconfirmed.tell(nvs.Name, conflict) {
		c.Events.Eventf(nvs, nil, corev1.EventTypeWarning, EventVolumeInUse, "Confirm",
			"%s; no volume is taken into use here before that use has ended, or the volume is detached from this node", conflict)
	}
}

// tellUnheard reports once which agents are waited for after a restore, and whose reports do not come. Otherwise it is
// over in seconds.
func (c *Controller) tellUnheard(ctx context.Context, nvs *volumesv1alpha1.NodeVolumeState, unheard []string) {
	restored, restores, behind := c.Tracker.Restored(), c.Tracker.Restores(), c.Tracker.Behind(unheard)
	if !restored && len(behind) == 0 || !c.unconfirmed.tell(nvs.Name, fmt.Sprint(restored, restores, behind)) {
		return
	}
	if restored {
		c.tellRestored(ctx, nvs, unheard, restores)
	}
	if len(behind) > 0 {
		c.tellBehind(ctx, nvs, behind)
	}
}

func (c *Controller) tellRestored(
	ctx context.Context, nvs *volumesv1alpha1.NodeVolumeState, unheard []string, restores []types.UID,
) {
	excuse := ""
	if len(restores) > 0 {
		excuse = fmt.Sprintf(". One that uses no volume, or whose machine is off, is excused by the annotation %s=%s on its "+
			"NodeVolumeState", volumesv1alpha1.ExcusedFromRestoreAnnotation, restores[0])
	}
	ctrl.LoggerFrom(ctx).Info("the agent takes no volume into use before the agents of these nodes were heard",
		"unheard", len(unheard), "nodes", someOf(unheard))
	c.Events.Eventf(nvs, nil, corev1.EventTypeWarning, EventWaitingForAgents, "Confirm",
		"the API server was restored from a backup; "+
			"no volume is taken into use before the agents of %d more nodes are heard (%s). "+
			"Of one that never comes back delete the Node%s", len(unheard), someOf(unheard), excuse)
}

// tellBehind names agents that keep all others waiting while they are heard. They are not left out after some time:
// what has not come may be that they use a volume.
func (c *Controller) tellBehind(ctx context.Context, nvs *volumesv1alpha1.NodeVolumeState, behind []string) {
	ctrl.LoggerFrom(ctx).Info("the agent takes no volume into use before these nodes' states are as their agents' Leases",
		"behind", len(behind), "nodes", someOf(behind))
	c.Events.Eventf(nvs, nil, corev1.EventTypeWarning, EventWaitingForReports, "Confirm",
		"no volume is taken into use before the manager has the last reports of %d nodes whose agents are heard (%s). "+
			"If the annotation %s of such an agent's Lease stays above status.protocol.reports of its NodeVolumeState, or %s "+
			"is not the UID of that, the agent is at fault: delete its pod, with which its token ends",
		len(behind), someOf(behind), volumesv1alpha1.LeaseReportsAnnotation, volumesv1alpha1.LeaseStateAnnotation)
}

// someOf the nodes, for an event.
func someOf(nodes []string) string {
	const shown = 5
	return strings.Join(nodes[:min(len(nodes), shown)], ", ")
}

// unheard are the nodes whose agents were not heard and may still be, and how long to wait for them. After a restore
// the records of Nodes that are absent are contradicted first: later nothing shows that they are of the past.
func (c *Controller) unheard(ctx context.Context) ([]string, time.Duration, error) {
	list := &volumesv1alpha1.NodeVolumeStateList{}
	if err := c.Client.List(ctx, list); err != nil {
		return nil, 0, fmt.Errorf("listing the states of nodes: %w", err)
	}
	states := make(map[string]*volumesv1alpha1.NodeVolumeState, len(list.Items))
	for i := range list.Items {
		states[list.Items[i].Name] = &list.Items[i]
	}
	restores := c.Tracker.Restores()
	unheard, wait := c.Tracker.Unheard(list.Items, func(name string) bool {
		return c.neverSpeaks(ctx, states[name], restores)
	})
	if c.Tracker.Restored() {
		for i := range list.Items {
			nvs := &list.Items[i]
			if a := nvs.Status.Node.Absence; a != nil && a.Contradicted == nil && !slices.Contains(unheard, nvs.Name) {
				unheard = append(unheard, nvs.Name)
			}
		}
	}
	return unheard, wait, nil
}

// neverSpeaks: an administrator has excused the node from one of the restores, there is no Node, or no agent ever ran
// there. A taint does not count: unlike an excuse it names no restore, so the backup may contain it. It is asked only
// about agents that are silent.
func (c *Controller) neverSpeaks(
	ctx context.Context, nvs *volumesv1alpha1.NodeVolumeState, restores []types.UID,
) bool {
	if slices.Contains(restores, liveness.Excuse(nvs)) {
		return true
	}
	node := &corev1.Node{}
	if err := c.Client.Get(ctx, client.ObjectKeyFromObject(nvs), node); err != nil {
		return apierrors.IsNotFound(err)
	}
	return liveness.NeverHadAgent(node, nvs)
}

// mayConfirm asks the protocol about nvs, which may be nil. Where a volume is in use elsewhere it says which.
func (c *Controller) mayConfirm(
	ctx context.Context, nvs *volumesv1alpha1.NodeVolumeState,
) (handshake.Guard, string, error) {
	if nvs == nil {
		return handshake.GuardReported, "", nil
	}
	unheard, _, err := c.unheard(ctx)
	if err != nil {
		return handshake.GuardHeard, "", err
	}
	conflict, err := c.conflict(ctx, nvs)
	if err != nil {
		return handshake.GuardUsedElsewhere, "", err
	}
	return handshake.Protocol{}.MayConfirm(handshake.NodeOf(nvs, ""), len(unheard) == 0, conflict != ""), conflict, nil
}

// conflict names an exclusive volume that is Attached on the node and in use on another one; empty for none. That
// it is in use on this one too excuses nothing: the API may say so of the past.
func (c *Controller) conflict(ctx context.Context, nvs *volumesv1alpha1.NodeVolumeState) (string, error) {
	for i := range nvs.Spec.Attachments {
		e := &nvs.Spec.Attachments[i]
		if e.State != volumesv1alpha1.AttachmentAttached || volume.Shared(e.AccessModes) {
			continue
		}
		user, err := nodestate.UserElsewhere(ctx, c.Client, nvs.Name, e.VolumeName)
		if err != nil {
			return "", err
		}
		if user != "" {
			return fmt.Sprintf("volume %s is in use on node %s", e.VolumeName, user), nil
		}
	}
	return "", nil
}
