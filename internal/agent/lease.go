/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package agent

import (
	"context"
	"errors"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
)

// +kubebuilder:rbac:groups=coordination.k8s.io,resources=leases,namespace=hawser-system,verbs=get;create;update

const (
	// leaseDuration after which an agent that was not heard of counts as unreachable.
	leaseDuration = 40 * time.Second
	// leaseInterval between two renewals.
	leaseInterval = 10 * time.Second
)

// renewLease says every few seconds that the agent lives: a dead one cannot say so.
func (a *Agent) renewLease(ctx context.Context) {
	ticker := a.Clock.NewTicker(leaseInterval)
	defer ticker.Stop()
	var lease *coordinationv1.Lease
	acquired := false
	for {
		var err error
		if lease, err = a.renewed(ctx, lease, !acquired); err != nil && ctx.Err() == nil {
			a.Log.Error(err, "lease not renewed")
		}
		acquired = acquired || err == nil
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
		}
	}
}

// renewed renews the lease as it was renewed last; nil, or a conflict, has it read first.
func (a *Agent) renewed(ctx context.Context, lease *coordinationv1.Lease, acquire bool) (*coordinationv1.Lease, error) {
	ctx, cancel := context.WithTimeout(ctx, leaseInterval)
	defer cancel()
	key := types.NamespacedName{Namespace: volumesv1alpha1.InstallNamespace, Name: volumesv1alpha1.AgentLeasePrefix + a.NodeName}
	if lease == nil {
		lease = &coordinationv1.Lease{}
		err := a.Live.Get(ctx, key, lease)
		if apierrors.IsNotFound(err) {
			lease = &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
			a.renewSpec(lease, true)
			if err := a.Live.Create(ctx, lease); err != nil {
				return nil, err
			}
			return lease, nil
		}
		if err != nil {
			return nil, err
		}
	}
	a.renewSpec(lease, acquire)
	if err := a.Live.Update(ctx, lease); err != nil {
		return nil, err
	}
	return lease, nil
}

// renewSpec renews the lease; each process acquires it once.
func (a *Agent) renewSpec(lease *coordinationv1.Lease, acquire bool) {
	now := metav1.NewMicroTime(a.Clock.Now())
	if acquire || lease.Spec.AcquireTime == nil {
		lease.Spec.AcquireTime = &now
	}
	lease.Spec.HolderIdentity = &a.NodeName
	lease.Spec.LeaseDurationSeconds = ptr.To(int32(leaseDuration / time.Second))
	lease.Spec.RenewTime = &now
}

// sayGoodbye tells that the agent was stopped; nobody waits for it long.
func (a *Agent) sayGoodbye() {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	nvs, err := a.readState(ctx)
	if err == nil {
		stopped(nvs)
		err = a.writeState(ctx, nvs)
	}
	if err != nil && !apierrors.IsNotFound(err) && !errors.Is(err, context.DeadlineExceeded) {
		a.Log.Info("end not reported", "error", err.Error())
	}
}
