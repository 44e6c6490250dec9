/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package report

import (
	"context"
	"testing"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/agent/record"
)

// reporting is an API server in which a report arrives just after the agent has read.
type reporting struct {
	client.Client
	report func(*volumesv1alpha1.NodeVolumeState)
}

func (r *reporting) Get(_ context.Context, _ client.ObjectKey, o client.Object, _ ...client.GetOption) error {
	nvs, ok := o.(*volumesv1alpha1.NodeVolumeState)
	if !ok {
		return apierrors.NewNotFound(schema.GroupResource{Resource: "leases"}, "")
	}
	nvs.UID, nvs.Status.Protocol.Reports = "state", 3
	next := nvs.DeepCopy()
	next.Status.Protocol.Reports = 4
	r.report(next)
	return nil
}

func TestAReportThatComesWhileTheAgentLooksForARestoreIsNoRestore(t *testing.T) {
	a := NewSession(SessionOptions{Writer: NewWriter(clock.RealClock{}, logr.Discard())})
	a.Persisted, a.End = record.LastReport{Schema: record.Schema,
		UID: "state"}, func(error) { t.Error("the agent whose node state has UID state ends, want it to continue") }
	a.Writer.Written = func(*volumesv1alpha1.NodeVolumeState) {}
	a.Writer.succeeded(&volumesv1alpha1.NodeVolumeState{
		ObjectMeta: metav1.ObjectMeta{UID: "state"},
		Status:     volumesv1alpha1.NodeVolumeStateStatus{Protocol: volumesv1alpha1.AgentProtocol{Reports: 3}},
	}, nil, true, 0)
	a.Live = &reporting{report: func(nvs *volumesv1alpha1.NodeVolumeState) { a.Writer.succeeded(nvs, nil, true, 0) }}
	if err := a.CheckRestored(t.Context()); err != nil {
		t.Errorf("checking whether node state was restored: error %v, want none", err)
	}
}

func TestASessionEndsWithItsLease(t *testing.T) {
	now := clocktesting.NewFakeClock(time.Unix(1000, 0))
	a := NewSession(SessionOptions{Writer: NewWriter(now, logr.Discard()), Clock: now})
	a.Writer.Assume(&volumesv1alpha1.NodeVolumeState{}, record.LastReport{Reports: 7})
	a.endLapsed()
	a.renewed = now.Now()
	now.Step(leaseDuration - 1)
	if a.endLapsed(); !a.Writer.inSession() {
		t.Error("the session ended before its Lease expired, want that it goes on")
	}
	now.Step(1)
	if a.endLapsed(); a.Writer.inSession() {
		t.Error("the session goes on although its Lease has expired, want the next one to begin with a report")
	}
}
