/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package stub

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/test/bench/attach/feed"
)

// Agents of all nodes. Each reports an empty state once, and acknowledges every fence. As with the real agent,
// a node has one write at a time, and changes meanwhile join the next write.
type Agents struct {
	Client client.Client
	// Failed is called for every violation.
	Failed func(error)

	mu    sync.Mutex
	nodes map[string]*agent
}

type agent struct {
	// latest state that a watch showed.
	latest *volumesv1alpha1.NodeVolumeState
	busy   bool
	// uid of the state that the agent has reported on, and the fences that it has acknowledged.
	uid    types.UID
	fences int64
}

// Listen reports until ctx ends.
func (a *Agents) Listen(ctx context.Context, f *feed.Feed) error {
	a.nodes = map[string]*agent{}
	go wait.JitterUntilWithContext(ctx, a.renewAll, leaseInterval, 0.1, true)
	return feed.On(ctx, f, &volumesv1alpha1.NodeVolumeState{},
		func(nvs *volumesv1alpha1.NodeVolumeState) { a.consider(ctx, nvs) }, nil)
}

func (a *Agents) consider(ctx context.Context, nvs *volumesv1alpha1.NodeVolumeState) {
	a.mu.Lock()
	defer a.mu.Unlock()
	n := a.nodes[nvs.Name]
	if n == nil {
		n = &agent{}
		if nvs.Status.ObservedGeneration >= nvs.Generation {
			n.uid, n.fences = nvs.Status.Protocol.ObservedUID, nvs.Spec.Protocol.Fences
		}
		a.nodes[nvs.Name] = n
	}
	n.latest = nvs
	if !n.busy && n.due() {
		n.busy = true
		go a.work(ctx, n)
	}
}

// leaseInterval is the interval of the real agents.
const leaseInterval = 10 * time.Second

// renewAll renews the Leases of all nodes, as their agents would.
func (a *Agents) renewAll(ctx context.Context) {
	a.mu.Lock()
	names := slices.Collect(maps.Keys(a.nodes))
	a.mu.Unlock()
	for _, name := range names {
		if err := a.renew(ctx, name); err != nil && ctx.Err() == nil {
			a.Failed(fmt.Errorf("renewing the Lease of node %s: %w", name, err))
			return
		}
	}
}

func (a *Agents) renew(ctx context.Context, node string) error {
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: volumesv1alpha1.InstallNamespace,
		Name: volumesv1alpha1.AgentLeasePrefix + node}}
	err := a.Client.Get(ctx, client.ObjectKeyFromObject(lease), lease)
	if client.IgnoreNotFound(err) != nil {
		return err
	}
	now := metav1.NowMicro()
	lease.Spec.RenewTime, lease.Spec.HolderIdentity = &now, &node
	if err != nil {
		return client.IgnoreAlreadyExists(a.Client.Create(ctx, lease))
	}
	if err := a.Client.Update(ctx, lease); !apierrors.IsConflict(err) {
		return err
	}
	return nil
}

// due reports whether the agent has to report: for a new state, or for a fence.
func (n *agent) due() bool { return n.latest.UID != n.uid || n.latest.Spec.Protocol.Fences > n.fences }

// work writes until nothing is due.
func (a *Agents) work(ctx context.Context, n *agent) {
	for {
		a.mu.Lock()
		nvs := n.latest.DeepCopy()
		if n.busy = n.due() && ctx.Err() == nil; !n.busy {
			a.mu.Unlock()
			return
		}
		a.mu.Unlock()
		err := a.report(ctx, nvs)
		if err == nil && n.uid == "" {
			err = a.renew(ctx, nvs.Name)
		}
		if err != nil && ctx.Err() == nil {
			a.Failed(fmt.Errorf("reporting the state of node %s: %w", nvs.Name, err))
			return
		}
		a.mu.Lock()
		n.uid, n.fences = nvs.UID, nvs.Spec.Protocol.Fences
		a.mu.Unlock()
	}
}

// report writes the status of an agent without mounts at the generation of nvs. After a conflict it reads nvs again.
func (a *Agents) report(ctx context.Context, nvs *volumesv1alpha1.NodeVolumeState) error {
	for {
		s := &nvs.Status
		s.Protocol.ObservedUID, s.ObservedGeneration, s.BootID, s.AgentVersion = nvs.UID, nvs.Generation, "stub", "stub"
		s.Protocol.Reports++
		meta.SetStatusCondition(&s.Conditions, metav1.Condition{
			Type: volumesv1alpha1.ConditionReady, Status: metav1.ConditionTrue, Reason: volumesv1alpha1.ReasonReady,
			ObservedGeneration: nvs.Generation,
		})
		err := a.Client.Status().Update(ctx, nvs)
		if !apierrors.IsConflict(err) {
			return err
		}
		if err := a.Client.Get(ctx, client.ObjectKeyFromObject(nvs), nvs); err != nil {
			return err
		}
	}
}
