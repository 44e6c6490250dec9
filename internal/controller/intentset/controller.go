/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

// Package intentset keeps one intent for each Node that a VolumeAttachmentIntentSet selects.
//
// Its key is the set. A pass gathers from the cache the Nodes that the selector matches and the intents of the set,
// decides in a pure function (decide.go), acts, and reports counts and conditions on the set:
//
//	a node is selected, and has no intent      create the intent, and its claim if there is a claim template
//	the node of an intent is gone              delete the intent, after a live read of the Node
//	it is being deleted                        the same: whoever removes the node waits until nothing is attached
//	the node is not selected any more          the same
//	the template has changed                   delete the intent within the budget; the next pass creates it again
//	the node of an intent does not answer      nothing, even if the template has changed
//	the node is not Ready, or unschedulable    nothing: its intent stays
//
// A second controller, whose key is the Node, labels each Node with the sets whose intents there are Ready
// (labeller.go). The label goes before the intent is deleted.
//
// The set owns its intents. When it is deleted, Kubernetes' garbage collection deletes them, or orphans them. An object
// that merely has the right name is never taken over.
package intentset

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
)

const (
	// Workers reconcile so many sets at once.
	Workers = 4
	// settle is how long the set waits for further changes of its intents, so that one status update has them all.
	settle = 500 * time.Millisecond
	// problemAgain is when a set with a problem is tried again. Quotas, admission policies and the labels of claims send
	// no event.
	problemAgain = time.Minute
)

// Controller reconciles sets.
type Controller struct {
	// Client reads from the cache and writes.
	Client client.Client
	// Reader reads live.
	Reader client.Reader
	Events events.EventRecorder
	Clock  clock.PassiveClock

	// ReleaseTaints are the keys of taints on which an intent leaves its Node.
	ReleaseTaints []string
	// LabelNodes on which an intent is Ready.
	LabelNodes bool

	// labeller of Nodes; nil for none.
	labeller *Labeller
	// leaving: UIDs of intents that were deleted, until the cache has seen the last of them.
	leaving sync.Map
}

// Reconcile one set. One that is being deleted is left to Kubernetes' garbage collection.
func (c *Controller) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	set := &volumesv1alpha1.VolumeAttachmentIntentSet{}
	if err := c.Client.Get(ctx, req.NamespacedName, set); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if !set.DeletionTimestamp.IsZero() {
		return reconcile.Result{}, nil
	}
	f, err := c.gather(ctx, set)
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("gathering what set %s needs: %w", req, err)
	}
	p := decide(f)
	failed := c.act(ctx, f, &p)
	reported := c.report(ctx, set, p.outcome)
	if apierrors.IsConflict(reported) {
		// The cache has an earlier set. The event of the newer one need not be one that wakes it.
		return reconcile.Result{RequeueAfter: settle}, failed
	}
	if err := errors.Join(failed, reported); err != nil {
		return reconcile.Result{}, err
	}
	if len(p.outcome.problems) > 0 {
		return reconcile.Result{RequeueAfter: problemAgain}, nil
	}
	return reconcile.Result{}, nil
}
