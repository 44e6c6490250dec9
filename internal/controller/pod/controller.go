/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

// Package pod writes the intents of pods: for every pod that is bound to a managed node and has not terminated, one
// intent for each volume that has to be attached, owned by the pod, with publisher Kubelet. It takes them back when
// the pod has terminated or is gone, and all of them while it is switched off.
//
// Inline volumes that name a claim get an intent too, with publisher Agent, whether it is switched off or not. The
// agent finds it by its name, which the pod's UID and the name of the claim determine.
//
// Its key is the pod's name. A pass gathers from the cache what belongs to that pod alone, decides in a
// pure function (decide.go), creates and deletes, and reports on the pod what keeps one of its volumes out.
package pod

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/hawser-io/hawser/internal/controller/inflight"
)

// Workers reconcile so many pods at once.
const Workers = 32

// Shortest and longest time after which a detach may be forced, as the intents' own validation has it.
const (
	shortestForceAfter = time.Minute
	longestForceAfter  = 720 * time.Hour
)

// Controller reconciles pods.
type Controller struct {
	// Client reads from the cache and writes.
	Client client.Client
	// Reader reads live.
	Reader client.Reader
	// Limiter is shared with the controller of the attachments.
	Limiter *inflight.Limiter
	Events  events.EventRecorder
	Clock   clock.PassiveClock
	// Enabled: pods get intents for the volumes that their kubelets mount. Otherwise those that were made before are
	// taken back.
	Enabled bool
	// ForceDetachAfter goes into the detachPolicy of the intents that are made from now on; 0 for none.
	ForceDetachAfter time.Duration

	// over: name of a pod -> UID of the one of that name that terminated or was deleted before our eyes.
	over sync.Map
	// leaving: UIDs of intents that were deleted, until the cache has seen the last of them.
	leaving sync.Map
	told    told
}

// check says what is wrong with the controller's settings.
func (c *Controller) check() error {
	if d := c.ForceDetachAfter; d != 0 && (d < shortestForceAfter || d > longestForceAfter) {
		return fmt.Errorf(
			"detaching by force after %s: must be 0 for never, or from %s to %s", d, shortestForceAfter, longestForceAfter,
		)
	}
	return nil
}

// Reconcile the pod of one name.
func (c *Controller) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	f, err := c.gather(ctx, req.NamespacedName)
	if err != nil {
		return reconcile.Result{}, err
	}
	p := decide(f)
	if err := c.confirmGone(ctx, req.NamespacedName, &p); err != nil {
		return reconcile.Result{}, err
	}
	// What makes room comes first.
	undeleted := c.delete(ctx, p.remove)
	problems, uncreated := c.create(ctx, p.create)
	wait, untold := c.tell(ctx, req.NamespacedName, f.pod, append(p.problems, problems...))
	if err := errors.Join(undeleted, uncreated, untold); err != nil {
		return reconcile.Result{}, err
	}
	return reconcile.Result{RequeueAfter: wait}, nil
}

// confirmGone keeps intents whose pod merely is not in the cache: what is deleted for a pod that is not there is
// deleted because its end was seen, or on a live read.
func (c *Controller) confirmGone(ctx context.Context, key types.NamespacedName, p *plan) error {
	if len(p.orphans) == 0 {
		c.over.Delete(key)
		return nil
	}
	var live *types.UID
	for _, o := range p.orphans {
		if c.isLeaving(o.intent) {
			continue
		}
		if uid, ok := c.over.Load(key); !ok || uid != o.pod {
			if live == nil {
				uid, err := c.liveUID(ctx, key)
				if err != nil {
					return err
				}
				live = &uid
			}
			if *live == o.pod {
				continue
			}
		}
		p.remove = append(p.remove, o.intent)
	}
	return nil
}
