/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package report

import (
	"k8s.io/apimachinery/pkg/util/resourceversion"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/agent/record"
	"github.com/hawser-io/hawser/internal/machine"
)

// Observe takes in a version that the watch delivered.
func (w *Writer) Observe(nvs *volumesv1alpha1.NodeVolumeState) {
	w.mu.Lock()
	if w.known == nil || newer(nvs.ResourceVersion, w.known.ResourceVersion) {
		w.know(nvs)
	}
	if w.session == 0 {
		w.announceEnd() // there is a state to begin a session with
	}
	w.mu.Unlock()
	w.ReportSoon()
}

// know takes in a version. The session ends if the object was created again under the same name: that one was not
// checked for a restore. It ends too if another machine has reported: that one has taken the Lease.
func (w *Writer) know(nvs *volumesv1alpha1.NodeVolumeState) {
	w.known = nvs
	if w.session != 0 && (nvs.UID != w.last.UID || machine.Compare(w.Machine, nvs.Status.Machine) == machine.Other) {
		w.end()
	}
}

// Vanished takes in that the object is gone.
func (w *Writer) Vanished() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.known = nil
	w.end()
}

// EndSession ends the session: the API server may have been restored from a backup. Nothing that was acknowledged can
// be relied on.
func (w *Writer) EndSession() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.end()
}

func (w *Writer) end() {
	w.session, w.acked, w.readLive = 0, nil, true
	w.ends++
	w.announceEnd()
}

// announceEnd has another session begun.
func (w *Writer) announceEnd() {
	select {
	case w.ended <- struct{}{}:
	default:
	}
}

// sessionsEnded is how many sessions have ended.
func (w *Writer) sessionsEnded() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.ends
}

func (w *Writer) inSession() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.session != 0
}

// Confirmed reports that the manager has confirmed the session, so what the API says is of the history that the manager
// knows.
func (w *Writer) Confirmed() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.session != 0 && w.known != nil && w.known.Status.Protocol.Session == w.session &&
		w.known.Spec.Protocol.ConfirmedSession == w.session
}

// NumberAbove has the next report take a higher number than that.
func (w *Writer) NumberAbove(reports int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.highest = max(w.highest, reports)
}

// LastReport is the last report that was acknowledged.
func (w *Writer) LastReport() record.LastReport {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.last
}

// Acknowledged is what the agent may rely on: see handshake.Protocol.MayStage. It must not be changed.
func (w *Writer) Acknowledged() *volumesv1alpha1.NodeVolumeState {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.acked
}

// Newest is the newest version that is known; nil when none is. It must not be changed.
func (w *Writer) Newest() *volumesv1alpha1.NodeVolumeState {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.known
}

func newer(a, b string) bool {
	c, err := resourceversion.CompareResourceVersion(a, b)
	return err != nil || c > 0
}

// Assume begins a session in which state was acknowledged as it is, and last was the last report.
func (w *Writer) Assume(state *volumesv1alpha1.NodeVolumeState, last record.LastReport) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.known, w.acked = state.DeepCopy(), state.DeepCopy()
	w.session, w.readLive, w.highest, w.last = last.Reports, false, last.Reports, last
}

// Amend changes the versions that the writer knows, as if another writer had.
func (w *Writer) Amend(change func(*volumesv1alpha1.NodeVolumeState)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, s := range []*volumesv1alpha1.NodeVolumeState{w.known, w.acked} {
		if s != nil {
			change(s)
		}
	}
}

// Pending reports whether something is to be written.
func (w *Writer) Pending() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.queue) > 0 || !w.due.IsZero()
}

// ReportOf returns what is to be written of the volume.
func (w *Writer) ReportOf(volume string) (r VolumeReport, known bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	r, known = w.reports[volume]
	return r, known
}
