/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

// Package attachment brings volumes to nodes and away from them. Its key is the volume: whatever
// happens to one volume on whichever node is decided in one place.
//
// A pass gathers the facts from the cache, decides in a pure function (decide.go) on the next
// steps, acts, takes the API server's answers over into the facts, and decides again until nothing is left to
// do now; then it reports. Every act checks the rules of package handshake again on what it reads live, so a
// stale cache costs a request but never a wrong step. What has to be waited for comes as an event, or at a time that is known.
package attachment

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/hawser-io/hawser/internal/controller/batch"
	"github.com/hawser-io/hawser/internal/controller/exclusive"
	"github.com/hawser-io/hawser/internal/controller/inflight"
	"github.com/hawser-io/hawser/internal/controller/liveness"
	"github.com/hawser-io/hawser/internal/controller/nodestate"
	"github.com/hawser-io/hawser/internal/controller/outage"
	"github.com/hawser-io/hawser/internal/controller/report"
	"github.com/hawser-io/hawser/internal/controller/volumesattached"
	"github.com/hawser-io/hawser/internal/handshake"
)

// Workers reconcile so many volumes at once; most of them wait for a write that they share with others.
const Workers = 1024

// Slots is how many of them may be at work beside each other and beside those writes. More do not get more out of an API server,
// and the fewer there are, the more volumes share a write while they wait.
const Slots = 16

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
	// Locks of exclusive volumes.
	Locks *exclusive.Store
	// Lister keeps the Nodes' volumesAttached in Replace.
	Lister *volumesattached.Writer
	// Slots that a pass holds while it works, and lends while it waits for what it shares with others.
	Slots *inflight.Slots
	// Replace: attach for pods too, in place of upstream's controller.
	Replace bool
	// Policies without which nothing new is attached.
	Policies Policies
	Reporter *report.Reporter
	Tracker  *liveness.Tracker
	Events   events.EventRecorder
	Clock    clock.PassiveClock
	Protocol handshake.Protocol

	// waiting are the volumes that wait for a slot.
	waiting *inflight.Queue

	unready  outage.Watch
	begun    begun
	answers  answers
	limits   limits
	told     told
	departed departed
	// users of the nodes' volumes, read live.
	users *batch.Reads[*users]
	// farewells are for the metrics only.
	farewells farewells
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

// pass over one volume. The answer is when to look again by the clock.
func (c *Controller) pass(ctx context.Context, volumeName string) (time.Duration, error) {
	f, err := c.gather(ctx, volumeName)
	if err != nil {
		return 0, err
	}
	if err := c.prepare(ctx, f); err != nil {
		return 0, err
	}
	defer c.limits.settle(f)
	var failures []error
	for round := 0; ; round++ {
		elect(f)
		steps := decide(f, c.Protocol)
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
				s.Node.wait("", "")
				failures = append(failures, fmt.Errorf("node %s: %s: %w", s.Node.Name, s.Act, err))
			}
		}
	}
	failures = append(failures, c.finishMove(ctx, f), c.collect(ctx, f))
	due, err := c.awaitEvidence(ctx, f)
	failures = append(failures, err, c.gatherHolders(ctx, f))
	wait, err := c.report(ctx, f)
	wait = sooner(wait, due)
	if err := errors.Join(append(failures, err)...); err != nil {
		return 0, err
	}
	return wait, nil
}

// prepare registers the volume with what keeps count: when its intents were first seen, and who waits for capacity.
func (c *Controller) prepare(ctx context.Context, f *Facts) error {
	for _, n := range f.Nodes {
		for _, i := range n.Wanted {
			c.Reporter.Saw(i.Object)
		}
		if err := c.gatherLimit(ctx, f, n); err != nil {
			return err
		}
	}
	return nil
}

// awaitEvidence watches the nodes that have not released the volume, and returns when to do that again.
func (c *Controller) awaitEvidence(ctx context.Context, f *Facts) (time.Duration, error) {
	var wait time.Duration
	var failures []error
	for _, n := range f.Nodes {
		due, err := c.await(ctx, n, evidenceDue(f, c.Protocol, n))
		wait, failures = sooner(wait, due), append(failures, err)
	}
	return wait, errors.Join(failures...)
}

func (c *Controller) act(ctx context.Context, f *Facts, s Step) error {
	logStep(ctx, f, s)
	switch s.Act {
	case Release:
		return c.release(ctx, s.Node, s.Intents)
	case Look:
		return c.look(ctx, f, s.Node)
	case MarkLost:
		return c.markLost(ctx, f, s.Node)
	case MarkDetaching:
		return c.markDetaching(ctx, f, s)
	case Unlist:
		return c.unlist(ctx, f, s.Node)
	case Ask:
		return c.ask(ctx, f, s.Node)
	case Delete:
		return c.delete(ctx, f, s.Node, s.Attachment)
	case Forget:
		return c.forget(ctx, f, s.Node)
	case FreeName:
		return c.freeName(ctx, f, s.Node, s.Attachment)
	case Attach:
		return c.attach(ctx, f, s.Node)
	case TakeUser:
		_, err := c.takeLock(ctx, f, s.Node)
		return err
	case Hold:
		return c.hold(ctx, f, s.Node, s.Attachment)
	case Confirm:
		return c.confirm(ctx, f, s.Node, s.Attachment)
	case List:
		return c.list(ctx, f, s.Node)
	}
	return fmt.Errorf("unknown act %q", s.Act)
}
