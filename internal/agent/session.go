/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package agent

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
)

// A session is a time in which the API server was never out of reach, so that nobody can have restored it from a backup. It begins
// with a report of all that the node uses, under a number that is higher than every earlier one, and a renewed Lease tells the
// manager of it. It ends with the connection, and with a renewal that fails. See package handshake.

// errHistory ends the agent: its caches hold objects of a history that the API server has forgotten. The next process begins with none.
var errHistory = errors.New("the API server was restored from a backup: it has forgotten what this agent has written")

// errNoSession is for what would be written outside of a session.
var errNoSession = errors.New("the API server was out of reach; nothing is reported before it is known whether it was restored from a backup")

// lastReport is what the agent remembers of its reports, so that it notices that the API server has forgotten some.
type lastReport struct {
	Schema int       `json:"schema"`
	UID    types.UID `json:"uid"`
	// Reports is the number of the last report that was acknowledged when this was written.
	Reports int64 `json:"reports"`
	// Restored: the API server had forgotten some, and no manager has confirmed a session since.
	Restored bool `json:"restored,omitempty"`
}

// forgottenBy reports whether the API server remembers less than was reported to it.
func (l lastReport) forgottenBy(nvs *volumesv1alpha1.NodeVolumeState) bool {
	switch l.UID {
	case "":
		return false // nothing was reported
	case nvs.UID:
		return nvs.Status.Reports < l.Reports
	default:
		return nvs.UID != "" && nvs.Status.ObservedUID == nvs.UID // it was reported to, and then one that was made after it
	}
}

func (s *store) lastReportPath() string { return s.dir + "-last-report" + recordSuffix }

// loadLastReport returns the zero value where nothing was saved.
func (s *store) loadLastReport() (lastReport, error) {
	data, err := os.ReadFile(s.lastReportPath())
	if errors.Is(err, fs.ErrNotExist) {
		return lastReport{}, nil
	}
	var l lastReport
	if err == nil {
		err = json.Unmarshal(data, &l)
	}
	if err == nil && l.Schema != recordSchema {
		err = fmt.Errorf("schema %d is not known", l.Schema)
	}
	if err != nil {
		return lastReport{}, fmt.Errorf("reading the number of the last report: %w", err)
	}
	return l, nil
}

func (s *store) saveLastReport(l lastReport) error {
	data, err := json.Marshal(l)
	if err != nil {
		return fmt.Errorf("encoding the number of the last report: %w", err)
	}
	if err := s.replace(s.lastReportPath(), data); err != nil {
		return fmt.Errorf("writing the number of the last report: %w", err)
	}
	return nil
}

// noteReport brings the number of the last report to the disk, if it is news there.
func (a *Agent) noteReport() (lastReport, error) {
	now := a.lastNoted()
	a.restored = a.restored && !a.state.confirmed()
	now.Restored = a.restored
	if now == a.noted {
		return now, nil
	}
	if err := a.store.saveLastReport(now); err != nil {
		return now, err
	}
	a.noted = now
	return now, nil
}

// lastNoted is the last report to the state that the disk names. What was reported to one before says nothing of a state that was made anew.
func (a *Agent) lastNoted() lastReport {
	if last := a.state.lastReport(); last.UID == a.noted.UID {
		return last
	}
	return a.noted
}

// beginSession looks for what the API server may have forgotten, and reports everything.
func (a *Agent) beginSession(ctx context.Context) error {
	since := a.state.sessionsEnded()
	if err := a.remembered(ctx); err != nil {
		return err
	}
	if err := a.state.urgent(ctx, change{begins: true, since: since, check: onlyOf(a.noted.UID)}); err != nil {
		return err
	}
	if !a.state.inSession() {
		return errNoSession // the connection has ended meanwhile
	}
	if a.state.confirmed() {
		a.queueAll() // the confirmation was here before the acknowledgement
	}
	_, err := a.noteReport()
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
func (a *Agent) remembered(ctx context.Context) error {
	if a.lease != nil {
		standing := &coordinationv1.Lease{}
		err := a.Live.Get(ctx, a.leaseKey(), standing)
		switch {
		case apierrors.IsNotFound(err):
			a.lease = nil // somebody deleted it, or it is of a later time than the backup: the state tells which
		case err != nil:
			return fmt.Errorf("reading the Lease: %w", err)
		case !a.lease.Spec.RenewTime.Equal(standing.Spec.RenewTime) && !a.attempted.Equal(standing.Spec.RenewTime):
			return a.forgotten()
		default:
			a.lease = standing
		}
	}
	last := a.state.lastReport() // before the read: a report may come between
	nvs, err := a.readState(ctx)
	if apierrors.IsNotFound(err) {
		return errNoState
	}
	if err != nil {
		return &unwrittenError{err}
	}
	if last.UID == a.noted.UID && last.forgottenBy(nvs) {
		return a.forgotten()
	}
	a.state.above(a.noted.Reports)
	return a.noteState(nvs)
}

// noteState brings to the disk whether the API server has forgotten reports, and which state the next ones go to. The report that follows
// leaves no trace of either.
func (a *Agent) noteState(nvs *volumesv1alpha1.NodeVolumeState) error {
	next := a.noted
	next.Restored = next.Restored || next.forgottenBy(nvs)
	if next.Restored && !a.restored {
		a.Log.Info("the API server was restored from a backup; nothing moves here until the manager has heard every agent",
			"remembered", nvs.Status.Reports, "reported", a.noted.Reports)
	}
	a.restored = next.Restored
	if next.UID != nvs.UID {
		next.Schema, next.UID, next.Reports = recordSchema, nvs.UID, 0
	}
	if next == a.noted {
		return nil
	}
	if err := a.store.saveLastReport(next); err != nil {
		return err
	}
	a.noted = next
	return nil
}

// forgotten ends the agent. The next process finds on the disk what was reported.
func (a *Agent) forgotten() error {
	a.restored = true
	if _, err := a.noteReport(); err != nil {
		return err
	}
	a.end(errHistory)
	return errHistory
}

// noState is in the Lease of an agent that has nothing to report to, and so no session.
const noState = "none"

// say puts into the Lease what a manager has to know of the agent's reports.
func (a *Agent) say(lease *coordinationv1.Lease, last lastReport) {
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
