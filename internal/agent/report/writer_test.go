/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package report

import (
	"context"
	"errors"
	"testing"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
)

func TestAReadThatTheWatchHasOvertakenDoesNotHideWhatTheWatchBrought(t *testing.T) {
	version := func(resourceVersion string, confirmed int64) *volumesv1alpha1.NodeVolumeState {
		return &volumesv1alpha1.NodeVolumeState{
			ObjectMeta: metav1.ObjectMeta{UID: "state", ResourceVersion: resourceVersion},
			Spec: volumesv1alpha1.NodeVolumeStateSpec{
				Protocol: volumesv1alpha1.ManagerProtocol{ConfirmedSession: confirmed},
			},
			Status: volumesv1alpha1.NodeVolumeStateStatus{Protocol: volumesv1alpha1.AgentProtocol{Session: 4, Reports: 4}},
		}
	}
	for _, test := range []struct {
		name      string
		session   int64
		confirmed bool
	}{
		{"within a session", 4, true},
		{"between sessions, when the API server may have been restored from a backup", 0, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := NewWriter(clock.RealClock{}, logr.Discard())
			w.session, w.last.UID, w.known = test.session, "state", version("6", 0)
			w.Read = func(context.Context) (*volumesv1alpha1.NodeVolumeState, error) {
				w.Observe(version("7", 4)) // while the answer is on its way
				return version("6", 0), nil
			}
			base, err := w.base(t.Context())
			if err != nil || base.ResourceVersion != "6" {
				t.Errorf("the next write is decided on version %s, %v; want 6, which was read",
					base.GetResourceVersion(), err)
			}
			if w.Confirmed() != test.confirmed {
				t.Errorf("the session is confirmed: %t, want %t; known is version %s", w.Confirmed(), test.confirmed,
					w.known.ResourceVersion)
			}
		})
	}
}

func TestAReleaseWhoseAnswerIsLostIsNotFollowedByAReportOfTheUse(t *testing.T) {
	w := NewWriter(clock.RealClock{}, logr.Discard())
	w.session, w.readLive, w.known = 1, false, &volumesv1alpha1.NodeVolumeState{}
	w.SetReport("vol", VolumeReport{Line: volumesv1alpha1.NodeVolume{VolumeName: "vol", InUse: true}})
	w.Render = func(nvs *volumesv1alpha1.NodeVolumeState, reports map[string]VolumeReport) {
		nvs.Status.Volumes = nil
		for _, r := range reports {
			nvs.Status.Volumes = append(nvs.Status.Volumes, r.Line)
		}
	}
	w.Write = func(context.Context, *volumesv1alpha1.NodeVolumeState) error { return errors.New("no answer") }
	w.flush(t.Context(), []Change{{Volume: "vol", done: make(chan error, 1)}})

	next, _, _ := w.next(w.known, nil)
	if len(next.Status.Volumes) != 0 {
		t.Errorf("the next report has %v, want no volume: the release may have been taken", next.Status.Volumes)
	}
}
