/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package report

import (
	"context"
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/go-logr/logr"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/agent/record"
	"github.com/hawser-io/hawser/internal/controller/controllertest"
	"github.com/hawser-io/hawser/internal/machine"
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

func TestWithoutAnAnswerAboutTheLeaseNothingIsKnownOfARestore(t *testing.T) {
	down := errors.New("the API server is away")
	api := fake.NewClientBuilder().WithScheme(controllertest.Scheme()).
		WithObjects(&volumesv1alpha1.NodeVolumeState{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "state"}}).Build()
	s := NewSession(SessionOptions{NodeName: "n", Writer: NewWriter(clock.RealClock{}, logr.Discard()),
		Live: interceptor.NewClient(api, interceptor.Funcs{Get: func(ctx context.Context, c client.WithWatch,
			key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			if _, lease := o.(*coordinationv1.Lease); lease {
				return down
			}
			return c.Get(ctx, key, o, opts...)
		}})})
	s.Persisted = record.LastReport{Schema: record.Schema, UID: "state"}
	if err := s.CheckRestored(t.Context()); !errors.Is(err, down) {
		t.Errorf("checking for a restore without an answer about the Lease: error %v, want %v", err, down)
	}
}

func TestALeaseThatWasRenewedMeanwhileIsNotRenewed(t *testing.T) {
	now := clocktesting.NewFakeClock(time.Unix(1000, 0))
	api := fake.NewClientBuilder().WithScheme(controllertest.Scheme()).Build()
	var machines []*Session
	for range 2 {
		machines = append(machines, NewSession(SessionOptions{NodeName: "n", Clock: now, Log: logr.Discard(),
			Writer: NewWriter(now, logr.Discard()), Live: controllertest.Strict(t, api)}))
		if err := machines[len(machines)-1].writeLease(t.Context(), true, record.LastReport{}); err != nil {
			t.Fatal(err)
		}
	}
	if err := machines[0].writeLease(t.Context(), false, record.LastReport{}); !apierrors.IsConflict(err) {
		t.Errorf("renewing a Lease that another machine has taken over: error %v, want a conflict", err)
	}
}

func TestOnlyTheStateThatTheDiskNamesGetsTheFirstReport(t *testing.T) {
	for uid, want := range map[types.UID]bool{"state": true, "later": false} {
		err := requireState("state")(&volumesv1alpha1.NodeVolumeState{ObjectMeta: metav1.ObjectMeta{UID: uid}})
		if (err == nil) != want {
			t.Errorf("first report to the state %s: error %v, want none: %t", uid, err, want)
		}
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

func TestAStateThatAnotherMachineMadeLaterIsNoRestore(t *testing.T) {
	const system, other = "11111111-2222-4333-8444-555555555555", "66666666-7777-4888-8999-aaaaaaaaaaaa"
	created := metav1.NewTime(time.Unix(1000, 0))
	for name, c := range map[string]struct {
		reports string
		created time.Duration
		noted   int64
		want    bool
	}{
		"made later, for another machine":                     {other, time.Second, created.Unix(), false},
		"made later, and this machine has reported to it":     {system, time.Second, created.Unix(), true},
		"made before, for another machine":                    {other, -time.Second, created.Unix(), true},
		"made in the same second, for another machine":        {other, 0, created.Unix(), true},
		"made at a time that cannot be compared":              {other, time.Second, 0, true},
		"made later, for a machine that cannot be recognized": {"", time.Second, created.Unix(), true},
	} {
		t.Run(name, func(t *testing.T) {
			store := &record.Store{Replace: func(string, []byte) error { return nil }}
			s := NewSession(SessionOptions{Log: logr.Discard(), Store: store, Machine: machine.New(system, "")})
			s.Persisted = record.LastReport{Schema: record.Schema, UID: "mine", Created: c.noted, Reports: 3}
			nvs := &volumesv1alpha1.NodeVolumeState{ObjectMeta: metav1.ObjectMeta{UID: "new",
				CreationTimestamp: metav1.NewTime(created.Add(c.created))}}
			nvs.Status.Protocol.ObservedUID, nvs.Status.Machine = "new", machine.New(c.reports, "")
			if err := s.persistState(nvs); err != nil {
				t.Fatal(err)
			}
			if s.Persisted.Restored != c.want || s.Persisted.UID != "new" ||
				s.Persisted.Created != nvs.CreationTimestamp.Unix() {
				t.Errorf("noted on the disk: %+v; want a restore %t, and the state new of second %d", s.Persisted, c.want,
					nvs.CreationTimestamp.Unix())
			}
		})
	}
}

// stateAPI is an API server with the state of node n, created in that second.
func stateAPI(created int64) client.WithWatch {
	return fake.NewClientBuilder().WithScheme(controllertest.Scheme()).
		WithStatusSubresource(&volumesv1alpha1.NodeVolumeState{}).
		WithObjects(&volumesv1alpha1.NodeVolumeState{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "mine",
			CreationTimestamp: metav1.NewTime(time.Unix(created, 0))}}).Build()
}

// startSession returns the session of node n, whose writer runs. It fails the test if the agent is to end.
func startSession(t *testing.T, api client.Client, now clock.WithTicker, store *record.Store) *Session {
	t.Helper()
	w := NewWriter(now, logr.Discard())
	s := NewSession(SessionOptions{NodeName: "n", Machine: thisMachine, Live: api, Writer: w,
		Store: store, Clock: now, Log: logr.Discard(), RequeueAll: func() {}})
	s.End = func(err error) { t.Errorf("the agent ends with %v, want it to go on", err) }
	w.Machine, w.Read, w.Write = s.Machine, s.ReadState, s.WriteState
	w.Written = func(*volumesv1alpha1.NodeVolumeState) {}
	w.Render = func(nvs *volumesv1alpha1.NodeVolumeState, _ map[string]VolumeReport) {
		nvs.Status.Protocol.ObservedUID, nvs.Status.Machine = nvs.UID, s.Machine
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); w.Run(ctx) }()
	t.Cleanup(func() { stop(); <-done })
	return s
}

func TestAMachineThatHasReportedAndComesBackAfterAnotherOneSeesNoRestore(t *testing.T) {
	api := stateAPI(1000)
	now := clocktesting.NewFakeClock(time.Unix(5000, 0))
	store := &record.Store{Dir: filepath.Join(t.TempDir(), "volumes"), Replace: record.ReplaceFile}
	s := startSession(t, api, now, store)
	if err := s.Begin(t.Context()); err != nil {
		t.Fatal(err)
	}
	disk, err := store.LoadLastReport()
	if err != nil || disk.UID != "mine" || disk.Created != 1000 || disk.Reports == 0 {
		t.Errorf("on the disk after a report: %+v, %v; want a report to the state mine of second 1000", disk, err)
	}

	if err := api.Delete(t.Context(), &volumesv1alpha1.NodeVolumeState{
		ObjectMeta: metav1.ObjectMeta{Name: "n"}}); err != nil {
		t.Fatal(err)
	}
	later := &volumesv1alpha1.NodeVolumeState{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "later",
		CreationTimestamp: metav1.NewTime(time.Unix(2000, 0))}}
	if err := api.Create(t.Context(), later); err != nil {
		t.Fatal(err)
	}
	later.Status.Protocol.ObservedUID, later.Status.Machine = "later", otherMachine
	if err := api.Status().Update(t.Context(), later); err != nil {
		t.Fatal(err)
	}
	restarted := startSession(t, api, now, &record.Store{Replace: func(string, []byte) error { return nil }})
	restarted.Persisted = disk
	for name, s := range map[string]*Session{"the same process": s, "the next process": restarted} {
		if err := s.CheckRestored(t.Context()); err != nil || s.Persisted.Restored || s.Persisted.UID != "later" ||
			s.RestoreID != "" {
			t.Errorf("%s: error %v, on the disk %+v; want the state later, and no restore", name, err, s.Persisted)
		}
	}
}

// lateRenewal loses the answer to the first update of the Lease, which is taken only after the next read of it.
type lateRenewal struct {
	client.Client
	held  client.Object
	taken bool
}

func (l *lateRenewal) Update(ctx context.Context, o client.Object, opts ...client.UpdateOption) error {
	if l.held == nil {
		l.held = o.DeepCopyObject().(client.Object)
		return context.DeadlineExceeded
	}
	return l.Client.Update(ctx, o, opts...)
}

func (l *lateRenewal) Get(ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	err := l.Client.Get(ctx, key, o, opts...)
	if _, lease := o.(*coordinationv1.Lease); lease && err == nil && l.held != nil && !l.taken {
		l.taken = true
		return l.Client.Update(ctx, l.held)
	}
	return err
}

func TestARenewalThatIsTakenAfterTheNextOneWasSentIsNoRestore(t *testing.T) {
	now := clocktesting.NewFakeClock(time.Unix(5000, 0))
	api := &lateRenewal{Client: stateAPI(1000)}
	s := startSession(t, api, now, &record.Store{Replace: func(string, []byte) error { return nil }})
	if err := s.renew(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	var errs []error
	for range 3 { // one whose answer is lost, one that meets a conflict with it, and one that reads it
		now.Step(leaseInterval)
		errs = append(errs, s.renew(t.Context(), false))
	}
	if !errors.Is(errs[0], context.DeadlineExceeded) || !apierrors.IsConflict(errs[1]) {
		t.Fatalf("renewals with a late write: errors %v, want a deadline and then a conflict", errs)
	}
	if errs[2] != nil || !s.Writer.inSession() || s.RestoreID != "" || len(s.attempted) > 0 {
		t.Errorf("renewal after them: error %v, in a session %t, restore %q, remembered %v; want a session, no restore, "+
			"and nothing remembered", errs[2], s.Writer.inSession(), s.RestoreID, s.attempted)
	}
}
