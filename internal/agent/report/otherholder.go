/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package report

import (
	"context"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/utils/ptr"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/agent/record"
	"github.com/hawser-io/hawser/internal/handshake"
	"github.com/hawser-io/hawser/internal/machine"
)

// Two machines may run under one node name: one that was cut off and one that replaced it. One of them at a time
// reports, the one that holds the Lease. The other one has no session, so it takes nothing into use and releases
// nothing. That keeps the two from undoing each other's reports; that no use is lost rests on the node state, where
// each carries on what the other one uses.

// OtherMachineError means that the agent of another machine under the node's name holds the Lease and renews it.
type OtherMachineError struct {
	Node         string
	Holder, This volumesv1alpha1.MachineIdentity
	// Duration without a renewal after which this agent takes the Lease.
	Duration time.Duration
}

// Error names both machines, and who ends the wait.
func (e *OtherMachineError) Error() string {
	return fmt.Sprintf("the agent of another machine (%s) holds the Lease of node %s; this one (%s) reports nothing and "+
		"takes no volume into use until that Lease was not renewed for %s. Power one of the machines off, or give it "+
		"another node name", machine.Describe(e.Holder), e.Node, machine.Describe(e.This), e.Duration)
}

// otherHolder is the last renewal by another machine that was seen, and when it was seen first, by this machine's
// clock.
type otherHolder struct {
	renewal string
	since   time.Time
	waits   bool
}

func (s *Session) heldByOther(lease *coordinationv1.Lease) bool {
	return machine.Compare(s.Machine, machine.HolderOf(ptr.Deref(lease.Spec.HolderIdentity, ""))) == machine.Other
}

// succeed takes the Lease over from another machine once that has not renewed it for as long as it lasts. The write
// announces no report yet, and fails if the other agent renews it meanwhile.
func (s *Session) succeed(ctx context.Context, standing *coordinationv1.Lease) error {
	s.lease = nil
	renewal, now := handshake.Renewal(standing), s.Clock.Now()
	if s.other.renewal != renewal {
		s.other.renewal, s.other.since = renewal, now
	}
	duration := leaseDuration
	if seconds := ptr.Deref(standing.Spec.LeaseDurationSeconds, 0); seconds > 0 {
		duration = time.Duration(seconds) * time.Second
	}
	if now.Sub(s.other.since) < duration {
		err := &OtherMachineError{Node: s.NodeName, Duration: duration, This: s.Machine,
			Holder: machine.HolderOf(ptr.Deref(standing.Spec.HolderIdentity, ""))}
		if !s.other.waits {
			s.other.waits = true
			s.Waits(err)
		}
		return err
	}
	s.Log.Info("the agent of the other machine has not renewed the Lease of the node, taking it over",
		"holder", *standing.Spec.HolderIdentity)
	s.lease = standing
	if err := s.writeLease(ctx, true, record.LastReport{}); err != nil {
		s.lease = nil
		return fmt.Errorf("taking the Lease over: %w", err)
	}
	s.other = otherHolder{}
	return nil
}
