/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package report

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
	"github.com/hawser-io/hawser/internal/agent/record"
	"github.com/hawser-io/hawser/internal/install"
	"github.com/hawser-io/hawser/internal/machine"
	"github.com/hawser-io/hawser/internal/status"
)

// +kubebuilder:rbac:groups=coordination.k8s.io,resources=leases,namespace=hawser-system,verbs=get;create;update

const (
	// leaseDuration after which an agent that was not heard of counts as unreachable.
	leaseDuration = 40 * time.Second
	// leaseInterval between two renewals.
	leaseInterval = 10 * time.Second
)

// RenewLease renews the Lease every few seconds, which only an agent that lives can do. Where the session has ended it
// begins another.
func (s *Session) RenewLease(ctx context.Context) {
	ticker := s.Clock.NewTicker(leaseInterval)
	defer ticker.Stop()
	acquired, failures := false, int32(0)
	for ctx.Err() == nil {
		err := s.renew(ctx, !acquired)
		if err == nil {
			acquired, failures = true, 0
			select {
			case <-ctx.Done():
			case <-s.Writer.ended:
			case <-ticker.C():
				s.updateOverdue()
			}
			continue
		}
		failures++
		again := min(status.Backoff(failures), leaseInterval)
		if ctx.Err() == nil {
			s.Log.Error(err, "lease not renewed", "again", again)
		}
		select {
		case <-ctx.Done():
		case <-s.Clock.After(again):
		}
	}
}

// updateOverdue has the intents that wait say so once the manager has not confirmed a session in time.
func (s *Session) updateOverdue() {
	overdue := s.Writer.inSession() && !s.Writer.Confirmed()
	if s.Overdue.Swap(overdue) != overdue {
		s.RequeueAll()
	}
}

// renew the lease, within a session. Whatever fails ends the session.
func (s *Session) renew(ctx context.Context, acquire bool) error {
	ctx, cancel := context.WithTimeout(ctx, leaseInterval)
	defer cancel()
	s.endLapsed()
	if !s.Writer.inSession() {
		err := s.Begin(ctx)
		if errors.Is(err, ErrNoState) {
			return s.writeLease(ctx, acquire, record.LastReport{})
		}
		if err != nil {
			return err
		}
	}
	last, err := s.PersistLastReport()
	if err == nil {
		err = s.writeLease(ctx, acquire, last)
	}
	if err != nil {
		s.Writer.EndSession()
	}
	return err
}

// endLapsed ends a session whose Lease has expired, as of a process that was stopped for long. The manager may have
// acted on that silence: the next session begins with a report, which voids what it decided before.
func (s *Session) endLapsed() {
	if !s.renewed.IsZero() && s.Clock.Since(s.renewed) >= leaseDuration {
		s.Writer.EndSession()
	}
}

func (s *Session) leaseKey() types.NamespacedName {
	return types.NamespacedName{Namespace: install.Namespace(),
		Name: volumesv1alpha1.AgentLeasePrefix + s.NodeName}
}

// writeLease renews the lease as it was renewed last. This process reads it before the first renewal.
func (s *Session) writeLease(ctx context.Context, acquire bool, last record.LastReport) error {
	key := s.leaseKey()
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
	create := false
	if s.lease != nil {
		lease = s.lease.DeepCopy()
	} else if err := s.Live.Get(ctx, key, lease); apierrors.IsNotFound(err) {
		create, acquire = true, true
	} else if err != nil {
		return err
	}
	s.renewSpec(lease, acquire)
	s.annotate(lease, last)
	s.attempted = append(s.attempted, *lease.Spec.RenewTime)
	begun := s.Clock.Now()
	write := func() error { return s.Live.Update(ctx, lease) }
	if create {
		write = func() error { return s.Live.Create(ctx, lease) }
	}
	if err := write(); err != nil {
		if apierrors.IsForbidden(err) || apierrors.IsInvalid(err) { // certainly not taken
			s.attempted = s.attempted[:len(s.attempted)-1]
		}
		return err
	}
	s.lease, s.renewed, s.attempted = lease, begun, nil
	return nil
}

// renewSpec renews the lease; each process acquires it once.
func (s *Session) renewSpec(lease *coordinationv1.Lease, acquire bool) {
	// as the API keeps it, so that it is recognised
	now := metav1.NewMicroTime(s.Clock.Now().Truncate(time.Microsecond))
	if acquire || lease.Spec.AcquireTime == nil {
		lease.Spec.AcquireTime = &now
	}
	lease.Spec.HolderIdentity = ptr.To(machine.Holder(s.NodeName, s.Machine))
	lease.Spec.LeaseDurationSeconds = ptr.To(int32(leaseDuration / time.Second))
	lease.Spec.RenewTime = &now
}

// ReportStopped reports that the agent was stopped. It gives up soon: the report only informs.
func (s *Session) ReportStopped() {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	nvs, err := s.ReadState(ctx)
	if err == nil {
		SetStopped(nvs)
		err = s.WriteState(ctx, nvs)
	}
	if err != nil && !apierrors.IsNotFound(err) && !errors.Is(err, context.DeadlineExceeded) {
		s.Log.Info("end not reported", "error", err.Error())
	}
}
