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
// that was decided on. That nothing restricts a pod is read live before.
package placement

import (
	"context"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
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

	firsts firsts
	// queue of the controller, for the pods that a reconcile of another one concerns. It is there before any reconcile.
	queue workqueue.TypedRateLimitingInterface[reconcile.Request]
	// lifted: UIDs of pods whose gate was lifted, until the cache shows that.
	lifted sync.Map
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
	d, err := c.decide(ctx, pod)
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("deciding on the nodes of pod %s: %w", req, err)
	}
	if !d.lift {
		c.giveWay(pod)
		return reconcile.Result{}, c.report(ctx, pod, d)
	}
	return reconcile.Result{}, c.lift(ctx, pod, d)
}

// giveWay lets another pod be the first of the claims, and reconciles those that wait for this one: a pod that stays as
// it is has no event.
func (c *Controller) giveWay(pod *corev1.Pod) {
	for _, key := range c.firsts.release(pod.UID) {
		c.queue.Add(reconcile.Request{NamespacedName: key})
	}
}

// concerns reports whether the pod waits for this controller alone.
func (c *Controller) concerns(pod *corev1.Pod) bool {
	_, lifted := c.lifted.Load(pod.UID)
	return !lifted && !index.Ungated(pod) && len(pod.Spec.SchedulingGates) == 1 && pod.DeletionTimestamp.IsZero() &&
		!index.Terminated(pod)
}

// decide on what the cache has and, if that restricts nothing, on what is read live.
func (c *Controller) decide(ctx context.Context, pod *corev1.Pod) (decision, error) {
	d, err := c.decideOn(ctx, pod, c.Client)
	if err != nil || !d.lift || d.constrained {
		return d, err
	}
	return c.decideOn(ctx, pod, c.Reader)
}

func (c *Controller) decideOn(ctx context.Context, pod *corev1.Pod, reader client.Reader) (decision, error) {
	f, err := gatherer{cache: c.Client, reader: reader, locks: c.Locks}.gather(ctx, pod)
	if err != nil {
		return decision{}, err
	}
	d := decide(f)
	if !d.lift {
		return d, nil
	}
	return c.firsts.take(f, d), nil
}
