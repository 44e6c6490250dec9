/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package node

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/index"
	"github.com/hawser-io/hawser/internal/controller/metrics"
	"github.com/hawser-io/hawser/internal/controller/nodestate"
	"github.com/hawser-io/hawser/internal/handshake"
)

// EventGoneNodeForgotten is the reason of the event that says what the policy declared.
const EventGoneNodeForgotten = "GoneNodeForgotten"

// errNotGone: the Node is there, and is not being deleted.
var errNotGone = errors.New("the Node is there")

// forgetGone declares released, in the name of the administrator that set the policy, what was forced away from a Node
// that has been gone, or was being deleted, for as long as the policy asks. An autoscaler keeps the Node until nothing
// is attached to it. It detaches nothing: what was detached already need not wait for
// the agent's report any more. It returns when to reconcile again.
func (c *Controller) forgetGone(ctx context.Context, nvs *volumesv1alpha1.NodeVolumeState) (time.Duration, error) {
	if c.ForgetAfter == 0 {
		return never, nil
	}
	waiting, err := c.forcedAway(ctx, nvs)
	if err != nil || len(waiting) == 0 {
		return never, err
	}
	if due := c.absences.due(nvs.Name, c.lookPeriod(), c.Clock.Now()); due > 0 {
		return due, nil
	}
	enough, err := c.watchGone(ctx, nvs.Name)
	var declared []types.UID
	if err == nil && enough {
		declared, err = c.declareForgotten(ctx, nvs.Name)
	}
	switch {
	case errors.Is(err, errNotGone):
		// Its event is on the way.
		return never, nil
	case err != nil:
		c.absences.missed(nvs.Name)
		return never, fmt.Errorf("watching node %s, which is gone: %w", nvs.Name, err)
	}
	if len(declared) > 0 {
		metrics.Forgotten.Add(float64(len(declared)))
		c.Events.Eventf(nvs, nil, corev1.EventTypeWarning, EventGoneNodeForgotten, "Forget",
			"forgetting what was forced away from node %s, which is gone (%s): attachments %s", nvs.Name, c.reason(),
			join(declared))
	}
	return c.lookPeriod(), nil
}

// watchGone reads the Node and writes down for how long it was watched being gone. It reports whether that is as long
// as the policy asks.
func (c *Controller) watchGone(ctx context.Context, node string) (enough bool, err error) {
	_, err = c.Observations.Apply(ctx, node, func(
		ctx context.Context, nvs *volumesv1alpha1.NodeVolumeState,
	) (nodestate.Change, error) {
		enough = false
		if nvs == nil {
			return nil, nil
		}
		observed, err := c.lookForGone(ctx, nvs)
		if err != nil {
			return nil, err
		}
		enough = observed.Observed.Duration >= c.ForgetAfter
		return func(nvs *volumesv1alpha1.NodeVolumeState) { nvs.Status.Node.Gone = observed }, nil
	})
	return enough, err
}

// declareForgotten declares released what was forced away, and returns it. The Node is read again, after the version
// that the declaration is written to.
func (c *Controller) declareForgotten(ctx context.Context, node string) (declared []types.UID, err error) {
	_, err = c.Writer.Apply(ctx, node, func(
		ctx context.Context, nvs *volumesv1alpha1.NodeVolumeState,
	) (nodestate.Change, error) {
		declared = nil
		if nvs == nil {
			return nil, nil
		}
		observed, err := c.lookForGone(ctx, nvs)
		if err != nil || observed.Observed.Duration < c.ForgetAfter {
			return nil, err
		}
		if declared, err = c.forcedAway(ctx, nvs); err != nil {
			return nil, err
		}
		return func(nvs *volumesv1alpha1.NodeVolumeState) {
			for _, uid := range declared {
				metav1.SetMetaDataAnnotation(&nvs.ObjectMeta, volumesv1alpha1.DeclaredReleasedPrefix+string(uid), c.reason())
			}
		}, nil
	})
	return declared, err
}

// reason of each declaration.
func (c *Controller) reason() string {
	return fmt.Sprintf(
		"%s%s: there was no such Node, or it was being deleted, and nothing was heard of its agent",
		volumesv1alpha1.ForgetGoneReason, c.ForgetAfter,
	)
}

// lookPeriod is how often to check for a Node that is gone.
func (c *Controller) lookPeriod() time.Duration { return max(c.ForgetAfter/24, 10*time.Second) }

// lookForGone reads the Node and its agent's Lease live, and returns for how long they have been gone. A deletion of a
// Node is not taken back.
func (c *Controller) lookForGone(
	ctx context.Context, nvs *volumesv1alpha1.NodeVolumeState,
) (*volumesv1alpha1.GoneObservation, error) {
	node := &corev1.Node{}
	err := c.Reader.Get(ctx, client.ObjectKey{Name: nvs.Name}, node)
	switch {
	case err == nil && node.DeletionTimestamp.IsZero():
		return nil, errNotGone
	case client.IgnoreNotFound(err) != nil:
		return nil, fmt.Errorf("reading node %s: %w", nvs.Name, err)
	}
	lease, err := c.readLease(ctx, nvs.Name)
	if err != nil {
		return nil, err
	}
	observed := c.absences.look(nvs.Name, handshake.Renewal(lease), nvs.Status.Node.Gone, c.lookPeriod(), c.Clock.Now())
	return &observed, nil
}

// returned voids what was watched of a Node that is there again.
func (c *Controller) returned(ctx context.Context, nvs *volumesv1alpha1.NodeVolumeState) (time.Duration, error) {
	if nvs.Status.Node.Gone != nil {
		_, err := c.Observations.Apply(ctx, nvs.Name,
			func(_ context.Context, nvs *volumesv1alpha1.NodeVolumeState) (nodestate.Change, error) {
				if nvs == nil || nvs.Status.Node.Gone == nil {
					return nil, nil
				}
				return func(nvs *volumesv1alpha1.NodeVolumeState) { nvs.Status.Node.Gone = nil }, nil
			})
		if err != nil {
			return never, fmt.Errorf("clearing for how long node %s was gone: %w", nvs.Name, err)
		}
	}
	c.absences.forget(nvs.Name)
	return never, nil
}

// forcedAway are the attachments that were forced away from the node, are detached, and wait for its agent, except
// for those that an agent reports in use under another node's name: a machine that was renamed is not gone.
func (c *Controller) forcedAway(ctx context.Context, nvs *volumesv1alpha1.NodeVolumeState) ([]types.UID, error) {
	attachments, err := c.attachments(ctx, nvs.Name)
	if err != nil {
		return nil, err
	}
	var uids []types.UID
	for _, left := range waiting(nvs, attachments) {
		elsewhere, err := c.usedElsewhere(ctx, nvs.Name, left)
		if err != nil {
			return nil, err
		}
		if !elsewhere {
			uids = append(uids, left.uid)
		}
	}
	return uids, nil
}

// remnant is one attachment that waits for the agent of a node; the volume is empty where only its VolumeAttachment
// is left.
type remnant struct {
	uid    types.UID
	volume string
}

// waiting are the attachments that entries, lines and kept names still speak of, although nothing is attached by them
// any more.
func waiting(nvs *volumesv1alpha1.NodeVolumeState, attachments []storagev1.VolumeAttachment) []remnant {
	published := map[types.UID]bool{}
	for i := range attachments {
		published[attachments[i].UID] = !handshake.AttachmentFrom(&attachments[i]).Gone()
	}
	var found []remnant
	add := func(uid types.UID, volume string) {
		_, declared := handshake.NodeOf(nvs, volume).Declares(uid)
		known := slices.ContainsFunc(found, func(r remnant) bool { return r.uid == uid })
		if uid != "" && !declared && !known && !published[uid] {
			found = append(found, remnant{uid, volume})
		}
	}
	for i := range nvs.Spec.Attachments {
		if e := handshake.NodeOf(nvs, nvs.Spec.Attachments[i].VolumeName).Entry; e.Forced && e.Detached {
			add(e.UID, nvs.Spec.Attachments[i].VolumeName)
		}
	}
	for i := range nvs.Status.Volumes {
		name := nvs.Status.Volumes[i].VolumeName
		if n := handshake.NodeOf(nvs, name); n.Use.InUse &&
			(n.Entry.State == handshake.Absent || n.Entry.Forced && n.Entry.Detached) {
			add(n.Use.UID, name)
		}
	}
	for i := range attachments {
		if a := handshake.AttachmentFrom(&attachments[i]); a.NameHeld {
			add(a.UID, "")
		}
	}
	return found
}

// usedElsewhere reports whether the agent of another node reports the attachment in use.
func (c *Controller) usedElsewhere(ctx context.Context, node string, r remnant) (bool, error) {
	if r.volume == "" {
		return false, nil
	}
	states := &volumesv1alpha1.NodeVolumeStateList{}
	if err := c.Client.List(ctx, states, client.MatchingFields{index.Volume: r.volume}); err != nil {
		return false, fmt.Errorf("listing the nodes of %s: %w", r.volume, err)
	}
	return slices.ContainsFunc(states.Items, func(s volumesv1alpha1.NodeVolumeState) bool {
		use := handshake.NodeOf(&s, r.volume).Use
		return s.Name != node && use.InUse && use.UID == r.uid
	}), nil
}

func join(uids []types.UID) string {
	texts := make([]string, len(uids))
	for i, uid := range uids {
		texts[i] = string(uid)
	}
	return strings.Join(texts, ", ")
}
