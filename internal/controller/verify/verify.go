/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

// Package verify compares what the API says is attached with what the driver itself says, from time to time and with
// jitter. It is the only periodic work of the cluster side, and costs one ListVolumes a driver: everything else comes
// from the cache, unless something differs.
//
// A volume that the driver does not list as published to a node where it is attached was detached behind everybody's
// back. Its VolumeAttachment is marked not attached, which makes the driver's attacher attach it again; nothing is
// unmounted. What the driver lists beyond the VolumeAttachments is reported, never touched.
//
// Whether the VolumeAttachments themselves are there and attached needs no verification: their events show it.
package verify

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
)

// DefaultPeriod is about how long after one verification the next one follows.
const DefaultPeriod = time.Minute

// jitter is by how much of the period a wait may be longer.
const jitter = 0.2

// Verifier verifies the attachments of every driver that it can reach.
type Verifier struct {
	// Client reads from the cache and writes.
	Client client.Client
	// Reader reads live.
	Reader client.Reader
	Events events.EventRecorder
	// Findings take what is found; nil keeps nothing.
	Findings *Findings
	// Endpoints of the drivers' controller services. Drivers without one are not verified.
	Endpoints Endpoints
	// Period between verifications, more or less; 0 is never.
	Period time.Duration
}

// Register adds the verifier to the manager, whose leader alone runs it.
func (v *Verifier) Register(mgr manager.Manager) error {
	if v.Period <= 0 || len(v.Endpoints) == 0 {
		return nil
	}
	return mgr.Add(v)
}

// NeedLeaderElection makes it run on the leader only.
func (v *Verifier) NeedLeaderElection() bool { return true }

// Start verifies until ctx ends. Each driver goes its own way: one that hangs holds up no other.
func (v *Verifier) Start(ctx context.Context) error {
	var group wait.Group
	for name, socket := range v.Endpoints {
		d := &driver{
			Verifier: v, name: name, plugin: plugin{name: name, socket: socket},
			log: ctrl.LoggerFrom(ctx).WithName("verify").WithValues("driver", name),
		}
		group.StartWithContext(ctx, func(ctx context.Context) {
			wait.JitterUntilWithContext(ctx, d.verify, v.Period, jitter, true)
		})
	}
	group.Wait()
	return nil
}
