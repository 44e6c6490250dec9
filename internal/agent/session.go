/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"

	"github.com/go-logr/logr"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
)

// A session is a time in which the API server was never out of reach, so that nobody can have restored it from a backup. It begins
// with a report of all that the node uses, under a number that is higher than every earlier one, and a renewed Lease tells the
// manager of it. It ends with the connection, and with a renewal that fails. See package handshake.

// errHistory ends the agent: its caches hold objects of a history that the API server has forgotten. The next process begins with none.
var errHistory = errors.New("the API server was restored from a backup: it has forgotten what this agent has written")

// errNoSession is for what would be written outside of a session.
var errNoSession = errors.New("the API server was out of reach; nothing is reported before it is known whether it was restored from a backup")

// sessionOptions are what sessions work with.
type sessionOptions struct {
	NodeName string
	Live     client.Client
	Writer   *stateWriter
	Store    *store
	Clock    clock.WithTicker
	Log      logr.Logger
	// RequeueAll has every volume reconciled.
	RequeueAll func()
}

// session begins sessions, and renews the Lease that tells the manager of them.
type session struct {
	sessionOptions
	// lease as it was renewed last, attempted the time that was written last, acknowledged or not.
	lease     *coordinationv1.Lease
	attempted metav1.MicroTime
	// noted is the report whose number is on the disk; restored: the API server knew less when this process began, and no manager has
	// confirmed the session since.
	noted    lastReport
	restored bool
	// overdue: the manager has not confirmed the session in time.
	overdue atomic.Bool
	// end ends the agent with that error.
	end context.CancelCauseFunc
}

func newSession(options sessionOptions) *session { return &session{sessionOptions: options} }

// noteReport brings the number of the last report to the disk, if it is news there.
func (s *session) noteReport() (lastReport, error) {
	now := s.lastNoted()
	s.restored = s.restored && !s.Writer.confirmed()
	now.Restored = s.restored
	if now == s.noted {
		return now, nil
	}
	if err := s.Store.saveLastReport(now); err != nil {
		return now, err
	}
	s.noted = now
	return now, nil
}

// lastNoted is the last report to the state that the disk names. What was reported to one before says nothing of a state that was made anew.
func (s *session) lastNoted() lastReport {
	if last := s.Writer.lastReport(); last.UID == s.noted.UID {
		return last
	}
	return s.noted
}

// beginSession looks for what the API server may have forgotten, and reports everything.
func (s *session) beginSession(ctx context.Context) error {
	since := s.Writer.sessionsEnded()
	if err := s.remembered(ctx); err != nil {
		return err
	}
	if err := s.Writer.urgent(ctx, change{begins: true, since: since, check: onlyOf(s.noted.UID)}); err != nil {
		return err
	}
	if !s.Writer.inSession() {
		return errNoSession // the connection has ended meanwhile
	}
	if s.Writer.confirmed() {
		s.RequeueAll() // the confirmation was here before the acknowledgement
	}
	_, err := s.noteReport()
	return err
}

// onlyOf refuses a state that was made since the agent has looked: the disk has to know of it before the first report.
func onlyOf(state types.UID) func(*volumesv1alpha1.NodeVolumeState) error {
	return func(nvs *volumesv1alpha1.NodeVolumeState) error {
		if nvs.UID != state {
			return &unwrittenError{errNoSession}
		}
		return nil
	}
}

// remembered fails with errHistory if the API server has forgotten what this process has written.
func (s *session) remembered(ctx context.Context) error {
	if s.lease != nil {
		standing := &coordinationv1.Lease{}
		err := s.Live.Get(ctx, s.leaseKey(), standing)
		switch {
		case apierrors.IsNotFound(err):
			s.lease = nil // somebody deleted it, or it is of a later time than the backup: the state tells which
		case err != nil:
			return fmt.Errorf("reading the Lease: %w", err)
		case !s.lease.Spec.RenewTime.Equal(standing.Spec.RenewTime) && !s.attempted.Equal(standing.Spec.RenewTime):
			return s.forgotten()
		default:
			s.lease = standing
		}
	}
	last := s.Writer.lastReport() // before the read: a report may come between
	nvs, err := s.readState(ctx)
	if apierrors.IsNotFound(err) {
		return errNoState
	}
	if err != nil {
		return &unwrittenError{err}
	}
	if last.UID == s.noted.UID && last.forgottenBy(nvs) {
		return s.forgotten()
	}
	s.Writer.above(s.noted.Reports)
	return s.noteState(nvs)
}

// noteState brings to the disk whether the API server has forgotten reports, and which state the next ones go to. The report that follows
// leaves no trace of either.
func (s *session) noteState(nvs *volumesv1alpha1.NodeVolumeState) error {
	next := s.noted
	next.Restored = next.Restored || next.forgottenBy(nvs)
	if next.Restored && !s.restored {
		s.Log.Info("the API server was restored from a backup; nothing moves here until the manager has heard every agent",
			"remembered", nvs.Status.Reports, "reported", s.noted.Reports)
	}
	s.restored = next.Restored
	if next.UID != nvs.UID {
		next.Schema, next.UID, next.Reports = recordSchema, nvs.UID, 0
	}
	if next == s.noted {
		return nil
	}
	if err := s.Store.saveLastReport(next); err != nil {
		return err
	}
	s.noted = next
	return nil
}

// forgotten ends the agent. The next process finds on the disk what was reported.
func (s *session) forgotten() error {
	s.restored = true
	if _, err := s.noteReport(); err != nil {
		return err
	}
	s.end(errHistory)
	return errHistory
}

// noState is in the Lease of an agent that has nothing to report to, and so no session.
const noState = "none"

// say puts into the Lease what a manager has to know of the agent's reports.
func (s *session) say(lease *coordinationv1.Lease, last lastReport) {
	if lease.Annotations == nil {
		lease.Annotations = map[string]string{}
	}
	lease.Annotations[volumesv1alpha1.LeaseStateAnnotation] = cmp.Or(string(last.UID), noState)
	lease.Annotations[volumesv1alpha1.LeaseReportsAnnotation] = strconv.FormatInt(last.Reports, 10)
	if last.Restored {
		lease.Annotations[volumesv1alpha1.LeaseRestoredAnnotation] = "true"
	} else {
		delete(lease.Annotations, volumesv1alpha1.LeaseRestoredAnnotation)
	}
}

func (s *session) readState(ctx context.Context) (*volumesv1alpha1.NodeVolumeState, error) {
	nvs := &volumesv1alpha1.NodeVolumeState{}
	return nvs, s.Live.Get(ctx, types.NamespacedName{Name: s.NodeName}, nvs)
}

func (s *session) writeState(ctx context.Context, nvs *volumesv1alpha1.NodeVolumeState) error {
	return s.Live.Status().Update(ctx, nvs)
}
