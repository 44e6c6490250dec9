/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

// Package placement decides on which nodes a pod with inline volumes may run, and lifts its scheduling gate.
//
// The scheduler does not know what an inline volume of this driver refers to. So an admission policy gates such pods
// when they are created. A reconcile of one pod
//
//	gathers   what its volumes name, the other users of these, and what the nodes have room for (gather*.go)
//	decides   in a pure function: wait for something, or narrow the node affinity (decide.go and the files it uses)
//	acts      reports on the pod what it waits for; or writes the affinity and lifts the gate at once (act.go)
//
// A pod that others gate too is left alone until they have lifted their gates: it may never run.
//
// The affinity of a pod that is not gated any more cannot be changed. So a gate is lifted at the version of the pod
// that was decided on. That a volume does not restrict its pod is read live before.
//
// The node of the first pod of an exclusive volume decides about the others. So such pods of one claim are placed one
// at a time, and each is decided on with the gates of the others read live: the cache may not show yet what an earlier
// reconcile lifted. Nothing else is kept from one reconcile for the next.
package placement

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/hawser-io/hawser/internal/controller/index"
)

// workers reconcile so many pods at once.
const workers = 8

// Controller reconciles gated pods.
type Controller struct {
	// Client reads from the cache and writes.
	Client client.Client
	// Reader reads live.
	Reader client.Reader
	Locks  Locks
	Events events.EventRecorder
	Clock  clock.PassiveClock

	// turns of the claims: a pod that is to come first is placed while it has those of its claims.
	turns *turns
}

// Reconcile one pod.
func (c *Controller) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	pod := &corev1.Pod{}
	if err := c.Client.Get(ctx, req.NamespacedName, pod); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if !c.concerns(pod) {
		return reconcile.Result{}, nil
	}
	d, err := c.decide(ctx, pod, gatherer{reader: c.Client})
	if err == nil && d.lift {
		defer c.turns.take(d.first)()
		d, err = c.makeSure(ctx, pod, d)
	}
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("deciding on the nodes of pod %s: %w", req, err)
	}
	if !d.lift {
		return reconcile.Result{}, c.report(ctx, pod, d)
	}
	return reconcile.Result{}, c.lift(ctx, pod, d)
}

// concerns reports whether the pod waits for this controller alone.
func (c *Controller) concerns(pod *corev1.Pod) bool {
	return !index.Ungated(pod) && len(pod.Spec.SchedulingGates) == 1 && pod.DeletionTimestamp.IsZero() &&
		!index.Terminated(pod)
}

// makeSure decides again on what is read live: all that restricts the pod, unless each volume does so in the cache
// already, and the gates of the others, if it is to come first.
func (c *Controller) makeSure(ctx context.Context, pod *corev1.Pod, d decision) (decision, error) {
	if d.constrained && len(d.first) == 0 {
		return d, nil
	}
	g := gatherer{reader: c.Client}
	if !d.constrained {
		g.reader = c.Reader
	}
	if len(d.first) > 0 {
		g.gates = c.Reader
	}
	sure, err := c.decide(ctx, pod, g)
	unseen := func(claim string) bool { return !slices.Contains(d.first, claim) }
	if err == nil && sure.lift && slices.ContainsFunc(sure.first, unseen) {
		return d, errors.New("the cache does not show yet that a volume is exclusive")
	}
	return sure, err
}

func (c *Controller) decide(ctx context.Context, pod *corev1.Pod, g gatherer) (decision, error) {
	g.cache, g.locks = c.Client, c.Locks
	f, err := g.gather(ctx, pod)
	if err != nil {
		return decision{}, err
	}
	return decide(f), nil
}
