/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package controller

import (
	"context"
	"fmt"
	"time"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/hawser-io/hawser/internal/controller/attachment"
	"github.com/hawser-io/hawser/internal/controller/cached"
	"github.com/hawser-io/hawser/internal/controller/claim"
	"github.com/hawser-io/hawser/internal/controller/exclusive"
	"github.com/hawser-io/hawser/internal/controller/fences"
	"github.com/hawser-io/hawser/internal/controller/index"
	"github.com/hawser-io/hawser/internal/controller/inflight"
	"github.com/hawser-io/hawser/internal/controller/intent"
	"github.com/hawser-io/hawser/internal/controller/intentset"
	"github.com/hawser-io/hawser/internal/controller/intentstatus"
	"github.com/hawser-io/hawser/internal/controller/liveness"
	"github.com/hawser-io/hawser/internal/controller/node"
	"github.com/hawser-io/hawser/internal/controller/nodehealth"
	"github.com/hawser-io/hawser/internal/controller/nodestate"
	"github.com/hawser-io/hawser/internal/controller/placement"
	"github.com/hawser-io/hawser/internal/controller/pod"
	"github.com/hawser-io/hawser/internal/controller/secretaccess"
	"github.com/hawser-io/hawser/internal/controller/volumesattached"
	"github.com/hawser-io/hawser/internal/fencing"
	"github.com/hawser-io/hawser/internal/handshake"
	"github.com/hawser-io/hawser/internal/status"
)

// AttachMode is which controller attaches for pods.
type AttachMode string

const (
	// Coexist: upstream's attach/detach controller serves pods, Hawser serves its intents beside it.
	Coexist AttachMode = "Coexist"
	// Replace: upstream's attach/detach controller is off, Hawser serves pods through an unchanged kubelet too.
	Replace AttachMode = "Replace"
)

// Options of the cluster side.
type Options struct {
	AttachMode AttachMode
	// PodIntents: pods get intents. Needed in Replace.
	PodIntents bool
	// ForceDetachAfter goes into the detachPolicy of pod intents; 0 for none: time alone never forces a detach.
	ForceDetachAfter time.Duration
	// ForgetGoneNodesAfter is when what was forced away from a Node that is gone is declared released; 0 is never.
	ForgetGoneNodesAfter time.Duration
	// ReleaseSetsOnTaints are the keys of taints on which sets of intents let a Node go.
	ReleaseSetsOnTaints []string
	// LabelNodes with the sets whose intents there are Ready.
	LabelNodes bool
	// FenceSources are what proves that machines are off or gone.
	FenceSources []*fencing.Source
	// FenceObjects are read and watched by this client; nil makes one.
	FenceObjects dynamic.Interface
	// ManageOutOfServiceTaint of Nodes whose machines are fenced.
	ManageOutOfServiceTaint bool
	// Policies without which nothing new is attached.
	Policies attachment.Policies
	// Leases are watched by this client; nil makes one that does not share the manager's cache.
	Leases client.WithWatch
	Clock  clock.PassiveClock
}

// Register adds every controller and the indexes that they need to the manager, whose cache must
// have been made with cached.Options.
func Register(ctx context.Context, mgr manager.Manager, o Options) error {
	if err := index.Register(ctx, mgr.GetFieldIndexer()); err != nil {
		return err
	}
	if err := cached.Begin(ctx, mgr.GetCache()); err != nil {
		return err
	}
	events := mgr.GetEventRecorder("hawser")
	replace := o.AttachMode == Replace
	reporter := &intentstatus.Reporter{Client: mgr.GetClient(), Events: events, Clock: o.Clock}
	work := inflight.New(attachment.InFlight)
	writer := nodestate.New(mgr.GetClient(), mgr.GetAPIReader(), work)
	observations := nodestate.NewOfStatus(mgr.GetClient(), mgr.GetAPIReader(), work)
	tracker := liveness.NewTracker(o.Clock)
	writer.IsCurrent = tracker.IsCurrent
	if err := tracker.WatchDepartures(ctx, mgr.GetCache()); err != nil {
		return err
	}
	if o.Leases == nil {
		var err error
		o.Leases, err = client.NewWithWatch(mgr.GetConfig(), client.Options{
			Scheme: mgr.GetScheme(), HTTPClient: mgr.GetHTTPClient(), Mapper: mgr.GetRESTMapper(),
		})
		if err != nil {
			return fmt.Errorf("making a client for Leases: %w", err)
		}
	}
	if err := mgr.Add(&liveness.Listener{Tracker: tracker, Client: o.Leases}); err != nil {
		return fmt.Errorf("adding the listener: %w", err)
	}
	proofs := &fences.Watcher{Sources: o.FenceSources, Client: o.FenceObjects, Cache: mgr.GetClient()}
	if len(o.FenceSources) > 0 {
		if proofs.Client == nil {
			var err error
			if proofs.Client, err = dynamic.NewForConfigAndClient(mgr.GetConfig(), mgr.GetHTTPClient()); err != nil {
				return fmt.Errorf("making a client for fences: %w", err)
			}
		}
		if err := mgr.Add(proofs); err != nil {
			return fmt.Errorf("adding the watcher of fences: %w", err)
		}
	}
	lifts := &fences.Lifts{Fences: proofs, Client: mgr.GetClient(), Writer: writer, Events: events,
		Protocol: handshake.Protocol{Kubelet: replace}}
	locks := exclusive.New(mgr.GetClient(), mgr.GetAPIReader(), o.Clock, work)
	for _, controller := range []interface {
		Register(ctrl.Manager) error
	}{
		&intent.Controller{Client: mgr.GetClient(), Reader: mgr.GetAPIReader(), Reporter: reporter,
			Named: flowcontrol.NewBackOff(status.FirstBackoff, status.LongestBackoff)},
		&intentset.Controller{
			Client: mgr.GetClient(), Reader: mgr.GetAPIReader(), Events: events, Clock: o.Clock,
			ReleaseTaints: o.ReleaseSetsOnTaints, LabelNodes: o.LabelNodes,
		},
		&claim.Controller{Client: mgr.GetClient(), Limiter: work, Events: events},
		&node.Controller{
			Client: mgr.GetClient(), Reader: mgr.GetAPIReader(), Tracker: tracker, Writer: writer,
			Observations: observations, Replace: replace, Events: events, Clock: o.Clock, ForgetAfter: o.ForgetGoneNodesAfter,
			Fences: proofs, Lifts: lifts, ManageTaint: o.ManageOutOfServiceTaint,
		},
		&attachment.Controller{
			Client: mgr.GetClient(), Reader: mgr.GetAPIReader(), Writer: writer,
			Observations: observations, Reporter: reporter,
			Locks: locks, Tracker: tracker, Events: events, Clock: o.Clock,
			Lister: volumesattached.New(mgr.GetClient(), mgr.GetAPIReader(), writer, work), Limiter: work, Replace: replace,
			Policies: o.Policies, Fences: proofs, Lifts: lifts,
		},
		&node.Declarations{Client: mgr.GetClient(), Writer: writer, Events: events},
		&pod.Controller{
			Client: mgr.GetClient(), Reader: mgr.GetAPIReader(), Limiter: work, Events: events, Clock: o.Clock,
			Enabled: o.PodIntents, ForceDetachAfter: o.ForceDetachAfter,
		},
		&placement.Controller{
			Client: mgr.GetClient(), Reader: mgr.GetAPIReader(), Locks: locks, Events: events, Clock: o.Clock,
		},
		&secretaccess.Controller{Client: mgr.GetClient(), Reader: mgr.GetAPIReader(), Events: events},
		&nodehealth.Controller{Client: mgr.GetClient()},
	} {
		if err := controller.Register(mgr); err != nil {
			return fmt.Errorf("registering %T: %w", controller, err)
		}
	}
	return nil
}
