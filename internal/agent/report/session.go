/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package report

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/agent/record"
	"github.com/hawser-io/hawser/internal/machine"
)

// A session is a time in which the API server was never out of reach, so it was not restored from a backup meanwhile.
// It begins with a report of all that the node uses, under a number that is higher than every earlier one, and a
// renewed Lease announces it to the manager. It ends with the connection, and with a renewal that fails. See package
// handshake.

// ErrRestored ends the agent: its caches hold objects of a history that the API server has forgotten. The next process
// begins with none.
var ErrRestored = errors.New("the API server was restored from a backup: it has forgotten what this agent has written")

// errNoSession is for what would be written outside of a session.
var errNoSession = errors.New("the API server was out of reach; nothing is reported before it is known whether it " +
	"was restored from a backup")

// SessionOptions are what sessions work with.
type SessionOptions struct {
	NodeName string
	Machine  volumesv1alpha1.MachineIdentity
	Live     client.Client
	Writer   *Writer
	Store    *record.Store
	Clock    clock.WithTicker
	Log      logr.Logger
	// RequeueAll has every volume reconciled.
	RequeueAll func()
	// Waits is called when the agent begins to wait for another machine of the node's name.
	Waits func(*OtherMachineError)
}

// Session begins sessions, and renews the Lease that announces them to the manager.
type Session struct {
	SessionOptions
	// lease as it was renewed last.
	lease *coordinationv1.Lease
	// attempted are the times that were written since a renewal was acknowledged last. Each of these writes may have been
	// taken, also late.
	attempted []metav1.MicroTime
	// renewed is when it was, on this process' own clock.
	renewed time.Time
	other   otherHolder
	// Persisted is the report whose number is on the disk. RestoreID is that of a restore of the API server, as long as no
	// manager has confirmed a session since; otherwise empty.
	Persisted record.LastReport
	RestoreID types.UID
	// Overdue: the manager has not confirmed the session in time.
	Overdue atomic.Bool
	// End ends the agent with that error.
	End context.CancelCauseFunc
}

// NewSession returns what begins sessions. It needs a Store and End by then.
func NewSession(options SessionOptions) *Session { return &Session{SessionOptions: options} }

// PersistLastReport brings the number of the last report to the disk, if it is news there.
func (s *Session) PersistLastReport() (record.LastReport, error) {
	now := s.lastPersisted()
	if s.Writer.Confirmed() {
		s.RestoreID = ""
	}
	now.Restored, now.RestoreID = s.RestoreID != "", s.RestoreID
	if now == s.Persisted {
		return now, nil
	}
	if err := s.Store.SaveLastReport(now); err != nil {
		return now, err
	}
	s.Persisted = now
	return now, nil
}

// lastPersisted is the last report to the state that the disk names. A report to an earlier state does not count for
// one that was created again.
func (s *Session) lastPersisted() record.LastReport {
	if last := s.Writer.LastReport(); last.UID == s.Persisted.UID {
		return last
	}
	return s.Persisted
}

// Begin checks what the API server may have forgotten, and reports everything.
func (s *Session) Begin(ctx context.Context) error {
	since := s.Writer.sessionsEnded()
	if err := s.CheckRestored(ctx); err != nil {
		return err
	}
	if err := s.Writer.WriteNow(ctx, Change{begins: true, since: since,
		Check: requireState(s.Persisted.UID)}); err != nil {
		return err
	}
	if !s.Writer.inSession() {
		return errNoSession // the connection has ended meanwhile
	}
	if s.Writer.Confirmed() {
		s.RequeueAll() // the confirmation was here before the acknowledgement
	}
	_, err := s.PersistLastReport()
	return err
}

// requireState refuses a state that was created since the check: the disk has to name it before the first report.
func requireState(state types.UID) func(*volumesv1alpha1.NodeVolumeState) error {
	return func(nvs *volumesv1alpha1.NodeVolumeState) error {
		if nvs.UID != state {
			return &UnwrittenError{Err: errNoSession}
		}
		return nil
	}
}

// CheckRestored fails with ErrRestored if the API server has forgotten what this process has written.
func (s *Session) CheckRestored(ctx context.Context) error {
	if err := s.checkLease(ctx); err != nil {
		return err
	}
	last := s.Writer.LastReport() // before the read: a report may come between
	nvs, err := s.ReadState(ctx)
	if apierrors.IsNotFound(err) {
		return ErrNoState
	}
	if err != nil {
		return &UnwrittenError{Err: err}
	}
	if last.UID == s.Persisted.UID && last.ForgottenBy(nvs) && !s.succeeded(nvs) {
		return s.endRestored()
	}
	s.Writer.NumberAbove(s.Persisted.Reports)
	return s.persistState(nvs)
}

// checkLease compares the Lease with how it was renewed last. Before the first renewal there is nothing to compare.
func (s *Session) checkLease(ctx context.Context) error {
	standing := &coordinationv1.Lease{}
	err := s.Live.Get(ctx, s.leaseKey(), standing)
	switch {
	case apierrors.IsNotFound(err):
		s.lease = nil // it was deleted, or is of a later time than the backup; the state shows which
		return nil
	case err != nil:
		return fmt.Errorf("reading the Lease: %w", err)
	case s.heldByOther(standing):
		return s.succeed(ctx, standing)
	case s.lease != nil && !s.lease.Spec.RenewTime.Equal(standing.Spec.RenewTime) &&
		!slices.ContainsFunc(s.attempted, func(t metav1.MicroTime) bool { return t.Equal(standing.Spec.RenewTime) }):
		return s.endRestored()
	}
	s.lease = standing
	return nil
}

// succeeded reports whether another machine had the node's name since, and reports to a state that was created after
// the one of this machine. A backup has only states that were created before.
func (s *Session) succeeded(nvs *volumesv1alpha1.NodeVolumeState) bool {
	last := s.Persisted
	return last.UID != nvs.UID && last.Created != 0 && nvs.CreationTimestamp.Unix() > last.Created &&
		machine.Compare(s.Machine, nvs.Status.Machine) == machine.Other
}

// persistState writes to the disk whether the API server has forgotten reports, and which state the next ones go to.
// The report that follows leaves no trace of either.
func (s *Session) persistState(nvs *volumesv1alpha1.NodeVolumeState) error {
	next := s.Persisted
	if next.ForgottenBy(nvs) && !s.succeeded(nvs) || next.Restored && next.RestoreID == "" {
		next.Restored, next.RestoreID = true, uuid.NewUUID()
	}
	if next.Restored && s.RestoreID == "" {
		s.Log.Info("the API server was restored from a backup; nothing is staged or published here until every agent "+
			"has reported to the manager",
			"remembered", nvs.Status.Protocol.Reports, "reported", s.Persisted.Reports)
	}
	s.RestoreID = next.RestoreID
	if next.UID != nvs.UID {
		next.Schema, next.UID, next.Created, next.Reports = record.Schema, nvs.UID, nvs.CreationTimestamp.Unix(), 0
	}
	if next == s.Persisted {
		return nil
	}
	if err := s.Store.SaveLastReport(next); err != nil {
		return err
	}
	s.Persisted = next
	return nil
}

// endRestored ends the agent. The next process finds on the disk what was reported.
func (s *Session) endRestored() error {
	s.RestoreID = uuid.NewUUID()
	if _, err := s.PersistLastReport(); err != nil {
		return err
	}
	s.End(ErrRestored)
	return ErrRestored
}

// noState is in the Lease of an agent that has nothing to report to, and so no session.
const noState = "none"

// annotate puts into the Lease what a manager has to know of the agent's reports.
func (s *Session) annotate(lease *coordinationv1.Lease, last record.LastReport) {
	if lease.Annotations == nil {
		lease.Annotations = map[string]string{}
	}
	lease.Annotations[volumesv1alpha1.LeaseStateAnnotation] = cmp.Or(string(last.UID), noState)
	lease.Annotations[volumesv1alpha1.LeaseReportsAnnotation] = strconv.FormatInt(last.Reports, 10)
	if last.Restored {
		lease.Annotations[volumesv1alpha1.LeaseRestoredAnnotation] = "true"
		lease.Annotations[volumesv1alpha1.LeaseRestoreIDAnnotation] = string(last.RestoreID)
	} else {
		delete(lease.Annotations, volumesv1alpha1.LeaseRestoredAnnotation)
		delete(lease.Annotations, volumesv1alpha1.LeaseRestoreIDAnnotation)
	}
}

// ReadState reads the node's state live.
func (s *Session) ReadState(ctx context.Context) (*volumesv1alpha1.NodeVolumeState, error) {
	nvs := &volumesv1alpha1.NodeVolumeState{}
	return nvs, s.Live.Get(ctx, types.NamespacedName{Name: s.NodeName}, nvs)
}

// WriteState writes the status of the node's state. It fails with a conflict if that has changed.
func (s *Session) WriteState(ctx context.Context, nvs *volumesv1alpha1.NodeVolumeState) error {
	return s.Live.Status().Update(ctx, nvs)
}
