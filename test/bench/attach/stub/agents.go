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
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/handshake"
	"github.com/hawser-io/hawser/test/bench/attach/feed"
	"github.com/hawser-io/hawser/test/bench/attach/stage"
)

// Agents of all nodes. Each reports an empty state once, and acknowledges every fence. As with the real agent,
// a node has one write at a time, and changes meanwhile join the next write.
type Agents struct {
	Client client.Client
	// Renewing are the nodes whose Leases are renewed in time; nil for all.
	Renewing []string
	// RenewRest is the interval for the others, whose Leases outlast the run; zero is never.
	RenewRest time.Duration
	// Failed is called for every violation.
	Failed func(error)

	mu    sync.Mutex
	nodes map[string]*agent
}

type agent struct {
	// latest state that a watch showed.
	latest *volumesv1alpha1.NodeVolumeState
	busy   bool
	// silent agents neither report nor renew.
	silent bool
	// renewing is held by the one renewal at a time.
	renewing sync.Mutex
	// uid of the state that the agent has reported on, and the fences that it has acknowledged.
	uid    types.UID
	fences int64
}

// Listen reports until ctx ends.
func (a *Agents) Listen(ctx context.Context, f *feed.Feed) error {
	a.nodes = map[string]*agent{}
	go a.RenewEvery(ctx, LeaseInterval, a.Renewing)
	if a.RenewRest > 0 {
		go a.RenewEvery(ctx, a.RenewRest, nil)
	}
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

// LeaseInterval is the interval of the real agents.
const LeaseInterval = 10 * time.Second

// RenewEvery renews the Leases of these nodes, nil for all, evenly spread over the interval. A renewal that takes long
// holds up no other agent.
func (a *Agents) RenewEvery(ctx context.Context, interval time.Duration, nodes []string) {
	for ctx.Err() == nil {
		due := a.renewing(nodes)
		pace := time.NewTicker(interval / time.Duration(max(len(due), 1)))
		for _, name := range append(due, "") {
			select {
			case <-ctx.Done():
			case <-pace.C:
			}
			if name == "" || ctx.Err() != nil {
				continue
			}
			go func() {
				if err := a.renewNext(ctx, name); err != nil && ctx.Err() == nil {
					a.Failed(err)
				}
			}()
		}
		pace.Stop()
	}
}

// renewNext renews unless the agent is silent, or its last renewal still runs.
func (a *Agents) renewNext(ctx context.Context, name string) error {
	n := a.agent(name)
	if !n.renewing.TryLock() {
		return nil
	}
	defer n.renewing.Unlock()
	a.mu.Lock()
	silent := n.silent
	a.mu.Unlock()
	if silent {
		return nil
	}
	return a.writeLease(ctx, name)
}

func (a *Agents) agent(node string) *agent {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.nodes[node]
}

// RenewAll renews the Leases of all agents that are not silent, at once.
func (a *Agents) RenewAll(ctx context.Context) error {
	return stage.Each(ctx, a.renewing(nil), a.renew)
}

// renewing are those of these nodes, nil for all, whose agents are there and not silent.
func (a *Agents) renewing(nodes []string) []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	if nodes == nil {
		nodes = slices.Collect(maps.Keys(a.nodes))
	}
	return slices.DeleteFunc(slices.Clone(nodes), func(name string) bool {
		return a.nodes[name] == nil || a.nodes[name].silent
	})
}

// Silence has the agents of these nodes do nothing after one last renewal.
func (a *Agents) Silence(ctx context.Context, nodes []string) error {
	a.set(nodes, true)
	return stage.Each(ctx, nodes, a.renew)
}

// Return has silent agents renew and report again.
func (a *Agents) Return(ctx context.Context, nodes []string) error {
	a.set(nodes, false)
	return stage.Each(ctx, nodes, func(ctx context.Context, name string) error {
		if err := a.renew(ctx, name); err != nil {
			return err
		}
		a.mu.Lock()
		nvs := a.nodes[name].latest.DeepCopy()
		a.mu.Unlock()
		if err := a.report(ctx, nvs); err != nil {
			return fmt.Errorf("reporting the state of node %s: %w", name, err)
		}
		return nil
	})
}

func (a *Agents) set(nodes []string, silent bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, name := range nodes {
		a.nodes[name].silent = silent
	}
}

// renew the Lease of a node after a renewal that still runs.
func (a *Agents) renew(ctx context.Context, node string) error {
	n := a.agent(node)
	n.renewing.Lock()
	defer n.renewing.Unlock()
	return a.writeLease(ctx, node)
}

// writeLease renews the Lease of a node, which is created if there is none.
func (a *Agents) writeLease(ctx context.Context, node string) error {
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: volumesv1alpha1.InstallNamespace,
		Name: volumesv1alpha1.AgentLeasePrefix + node}}
	now := metav1.NowMicro()
	spec := map[string]any{"renewTime": now, "holderIdentity": node}
	err := a.Client.Patch(ctx, lease, merge(map[string]any{"spec": spec}))
	if apierrors.IsNotFound(err) {
		lease.Spec.RenewTime, lease.Spec.HolderIdentity = &now, &node
		err = client.IgnoreAlreadyExists(a.Client.Create(ctx, lease))
	}
	if err != nil {
		return fmt.Errorf("renewing the Lease of node %s: %w", node, err)
	}
	return nil
}

// due reports whether the agent has to report: for a new state, for a fence, or because it counts as silent.
func (n *agent) due() bool {
	return !n.silent && (n.latest.UID != n.uid || n.latest.Spec.Protocol.Fences > n.fences || handshake.Silent(n.latest))
}

// work writes until nothing is due.
func (a *Agents) work(ctx context.Context, n *agent) {
	for {
		a.mu.Lock()
		latest := n.latest
		nvs := latest.DeepCopy()
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
		if n.latest == latest { // the watch shows what was written later
			n.latest = nvs
		}
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
