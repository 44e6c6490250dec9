/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

// Package attachment brings volumes to nodes and away from them. Its key is the volume: whatever
// happens to one volume on whichever node is decided in one place.
//
// A pass gathers the facts from the cache, decides in a pure function (package decision) on the next steps, acts,
// brings the facts up to date with the API server's answers, and decides again until nothing is left to do now; then
// it reports. Every act checks the rules of package handshake again on what it reads live, so a stale cache costs a
// request but never a wrong step. What has to be waited for comes as an event, or at a time that is known.
package attachment

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/attachment/capacity"
	"github.com/hawser-io/hawser/internal/controller/attachment/decision"
	"github.com/hawser-io/hawser/internal/controller/backoff"
	"github.com/hawser-io/hawser/internal/controller/batch"
	"github.com/hawser-io/hawser/internal/controller/exclusive"
	"github.com/hawser-io/hawser/internal/controller/fences"
	"github.com/hawser-io/hawser/internal/controller/inflight"
	"github.com/hawser-io/hawser/internal/controller/intentstatus"
	"github.com/hawser-io/hawser/internal/controller/liveness"
	"github.com/hawser-io/hawser/internal/controller/nodestate"
	"github.com/hawser-io/hawser/internal/controller/outage"
	"github.com/hawser-io/hawser/internal/controller/volumesattached"
	"github.com/hawser-io/hawser/internal/handshake"
)

// Workers reconcile so many volumes at once; most of them wait for a write that they share with others.
const Workers = 1024

// InFlight is how many of them may be at work beside each other and beside those writes. More do not get more out of an
// API server, and the fewer there are, the more volumes share a write while they wait.
const InFlight = 16

// slow is how long an attachment may take before the intent says that it is waited for. Most are there sooner, and
// then one write of the intent's status is enough.
const slow = 2 * time.Second

// verySlow is how long that is put off while the driver works through many.
const verySlow = 5 * slow

// maxRounds bounds one pass. The longest way, an exclusive volume's from node to node, takes seven.
const maxRounds = 16

// Controller reconciles volumes.
type Controller struct {
	// Client reads from the cache and writes.
	Client client.Client
	// Reader reads live.
	Reader client.Reader
	Writer *nodestate.Writer
	// Observations writes for how long a node was out of reach.
	Observations *nodestate.Writer
	// Locks of exclusive volumes.
	Locks *exclusive.Store
	// Lister keeps the Nodes' volumesAttached in Replace.
	Lister *volumesattached.Writer
	// Limiter of the passes that work at once. One that waits for what it shares with others lends its place.
	Limiter *inflight.Limiter
	// Replace: attach for pods too, in place of upstream's controller.
	Replace bool
	// Policies without which nothing new is attached.
	Policies Policies
	// Fences that prove that machines are off or gone, or that their access is cut.
	Fences Fences
	// Lifts of fences that cut access.
	Lifts    *fences.Lifts
	Reporter *intentstatus.Reporter
	Tracker  *liveness.Tracker
	Events   events.EventRecorder
	Clock    clock.PassiveClock
	Protocol handshake.Protocol

	unready       outage.Watch
	attachTimes   attachTimes
	ownWrites     ownWrites
	limits        capacity.Limits
	uses          capacity.Uses
	announcements announcements
	deletions     deletions
	// users of the nodes' volumes, read live.
	users *batch.Reads[*users]
	// detachTimes are for the metrics only.
	detachTimes detachTimes
	// released: the versions at which finalizers were taken off intents that the cache may still show.
	released sync.Map
}

// Policies are Hawser's admission policies.
type Policies interface {
	// Missing says why they are not known to be in force; empty while they are.
	Missing() string
	// Changed has an event when Missing may have another answer.
	Changed() <-chan event.GenericEvent
}

// Reconcile one volume; the request's name is its unique name.
func (c *Controller) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	wait, err := c.pass(ctx, req.Name)
	return reconcile.Result{RequeueAfter: wait}, err
}

// pass reconciles one volume. It returns after how long to reconcile again.
func (c *Controller) pass(ctx context.Context, volumeName string) (time.Duration, error) {
	f, err := c.gather(ctx, volumeName)
	if err == nil {
		err = c.prepare(ctx, f)
	}
	if err != nil {
		c.uses.EndPass(&decision.Facts{Volume: volumeName})
		return 0, err
	}
	defer c.limits.EndPass(f)
	defer c.uses.EndPass(f)
	var failures []error
	for round := 0; ; round++ {
		decision.KeepOneUser(f)
		steps := decision.Decide(f, c.Protocol)
		if len(steps) == 0 {
			break
		}
		if round == maxRounds {
			failures = append(failures, fmt.Errorf("not done after %d rounds", maxRounds))
			break
		}
		for _, s := range steps {
			if err := c.act(ctx, f, s); err != nil {
				// The other nodes of the volume need not wait for this one.
				s.Node.SetWait("", "")
				failures = append(failures, fmt.Errorf("node %s: %s: %w", s.Node.Name, s.Act, err))
			}
		}
	}
	failures = append(failures, c.finishMove(ctx, f), c.collectLock(ctx, f))
	due, err := c.awaitEvidence(ctx, f)
	failures = append(failures, err, c.gatherHolders(ctx, f))
	wait, err := c.report(ctx, f)
	wait = sooner(wait, due)
	if err := errors.Join(append(failures, err)...); err != nil {
		return 0, err
	}
	return wait, nil
}

// prepare records when the intents were first seen, and queues the volume for capacity.
func (c *Controller) prepare(ctx context.Context, f *decision.Facts) error {
	for _, n := range f.Nodes {
		c.uses.Gather(n)
		for _, i := range n.Wanted {
			c.Reporter.Saw(i.Object)
		}
		if err := c.counter().Queue(ctx, f, n); err != nil {
			return err
		}
	}
	return nil
}

// awaitEvidence watches the nodes that have not released the volume, and returns when to do that again.
func (c *Controller) awaitEvidence(ctx context.Context, f *decision.Facts) (time.Duration, error) {
	var wait time.Duration
	var failures []error
	for _, n := range f.Nodes {
		due, err := c.watchOutage(ctx, n, decision.EvidenceDue(f, c.Protocol, n))
		wait, failures = sooner(wait, due), append(failures, err)
		wait = sooner(wait, decision.UnheardDue(f, c.Protocol, n))
	}
	return wait, errors.Join(failures...)
}

func (c *Controller) act(ctx context.Context, f *decision.Facts, s decision.Step) error {
	logStep(ctx, f, s)
	switch s.Act {
	case decision.Release:
		return c.release(ctx, s.Node, s.Intents)
	case decision.ReleaseUnheard:
		return c.releaseUnheard(ctx, f, s.Node, s.Intents)
	case decision.ReadState:
		return c.readNow(ctx, f, s.Node)
	case decision.MarkLost:
		return c.markLost(ctx, f, s.Node)
	case decision.MarkDetaching:
		return c.markDetaching(ctx, f, s)
	case decision.Discard:
		return c.discard(ctx, f, s)
	case decision.Unlist:
		return c.unlistVolume(ctx, f, s.Node)
	case decision.Ask:
		return c.askAgent(ctx, f, s.Node)
	case decision.Delete:
		return c.deleteAttachment(ctx, f, s.Node, s.Attachment)
	case decision.Forget:
		return c.forgetEntry(ctx, f, s.Node)
	case decision.FreeName:
		return c.freeName(ctx, f, s.Node, s.Attachment)
	case decision.Attach:
		return c.attach(ctx, f, s.Node)
	case decision.TakeUser:
		_, err := c.takeLock(ctx, f, s.Node)
		return err
	case decision.Hold:
		return c.hold(ctx, f, s.Node, s.Attachment)
	case decision.Confirm:
		return c.confirmAttached(ctx, f, s.Node, s.Attachment)
	case decision.List:
		return c.listVolume(ctx, f, s.Node)
	}
	return fmt.Errorf("unknown act %q", s.Act)
}

// logStep logs what is about to be done: always if it changes an attachment, otherwise at a higher level. Names
// only: neither secrets nor what a driver keeps in its attributes.
func logStep(ctx context.Context, f *decision.Facts, s decision.Step) {
	level := 1
	switch s.Act {
	case decision.Attach, decision.MarkLost, decision.MarkDetaching, decision.Discard, decision.Delete:
		level = 0
	}
	log := ctrl.LoggerFrom(ctx).V(level)
	if !log.Enabled() {
		return
	}
	values := []any{"act", s.Act, "volume", f.Volume, "node", s.Node.Name}
	intents := s.Intents
	if len(intents) == 0 {
		intents = append(append(intents, s.Node.Wanted...), s.Node.Leaving...)
	}
	if names := namesOf(intents); len(names) > 0 {
		values = append(values, "intents", names)
	}
	if s.Attachment != nil {
		values = append(values, "attachment", s.Attachment.Name)
	}
	if s.Evidence && s.Node.Evidence != nil {
		values = append(values, "evidence", s.Node.Evidence.Type)
	}
	log.Info("acting", values...)
}

func namesOf(intents []*decision.Intent) []string {
	names := make([]string, len(intents))
	for i, intent := range intents {
		names[i] = intent.Name()
	}
	return names
}

// Register adds the controller to the manager.
func (c *Controller) Register(mgr manager.Manager) error {
	c.ownWrites.clock = c.Clock
	c.Protocol.Kubelet = c.Replace
	c.users = batch.NewReads(c.Limiter, c.readUsers)
	waiting := c.Limiter.Queue()
	b := ctrl.NewControllerManagedBy(mgr).Named("attachment")
	for _, w := range []struct {
		object client.Object
		// changed is for what comes, changes or goes, and found for what was there before this process.
		changed, found wake
	}{
		{&volumesv1alpha1.VolumeAttachmentIntent{}, c.intentChanged, c.intentChanged},
		{&corev1.PersistentVolumeClaim{}, c.pvcChanged, c.pvcFound},
		{&corev1.PersistentVolume{}, c.volumeChanged, c.volumeFound},
		{&volumesv1alpha1.NodeVolumeState{}, c.stateChanged, c.stateFound},
		{&storagev1.VolumeAttachment{}, c.attachmentChanged, c.attachmentChanged},
		{&corev1.ConfigMap{}, c.locksChanged, c.locksChanged},
		{&corev1.Node{}, c.nodeChanged, c.nodeFound},
		{&storagev1.CSINode{}, c.csiNodeChanged, nil},
		{&storagev1.CSIDriver{}, c.csiDriverChanged, nil},
		{&corev1.Pod{}, c.podChanged, c.podChanged},
	} {
		b = b.Watches(w.object, w.changed.handler(w.found))
	}
	b = b.WatchesRawSource(source.Channel(c.Policies.Changed(), handler.Funcs{GenericFunc: c.policiesChanged}))
	b = b.WatchesRawSource(source.Func(c.limits.Start)).WatchesRawSource(source.Func(c.uses.Start))
	b = b.WatchesRawSource(c.Tracker.Listen(c.agentHeard))
	b = b.WatchesRawSource(c.Fences.ListenToCuts(c.agentHeard))
	return b.WithOptions(controller.Options{
		MaxConcurrentReconciles: Workers,
		NewQueue:                waiting.New,
		RateLimiter:             backoff.Limiter(),
	}).Complete(waiting.Reconciler(c))
}
