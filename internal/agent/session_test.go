/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package agent

import (
	"context"
	"errors"
	"math"
	"sync/atomic"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/agent/record"
	"github.com/hawser-io/hawser/internal/agent/report"
	"github.com/hawser-io/hawser/internal/handshake"
)

func TestSessions(t *testing.T) {
	c := newCluster(t)
	for name, test := range map[string]func(*testing.T, *cluster){
		"nothing is taken into use before the manager has confirmed the session":               testUnconfirmed,
		"what is in use stays, and can be let go, while no manager confirms the session":       testUnconfirmedInUse,
		"a confirmation that comes before the acknowledgement counts":                          testEarlyConfirmation,
		"a renewal whose answer is lost is no restore":                                         testLostAnswer,
		"a connection that ends ends the session":                                              testConnectionEnds,
		"an agent whose reports were forgotten ends, and the next one tells of it":             testForgotten,
		"an agent that is stopped keeps the number of its last report":                         testStoppedThenForgotten,
		"a state that was reported to before the one that was reported to last is of the past": testForgottenState,
		"a restore keeps its ID until another one comes":                                       testRestoreIDs,
		"a state that was made anew is of the past for nobody, even if the agent dies":         testStateMadeAnew,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, c)
		})
	}
}

// confirmSession lets a manager come that confirms what waits.
func (n *node) confirmSession() {
	n.t.Helper()
	n.silent.Store(false)
	n.changeState(func(s *volumesv1alpha1.NodeVolumeState) {
		s.Spec.Protocol.ConfirmedSession = s.Status.Protocol.Session
	})
}

func testUnconfirmed(t *testing.T, c *cluster) {
	n := c.node(t)
	n.silent.Store(true)
	v := testVolume{handle: "vol"}
	n.start()
	n.attach(v, "uid-1")
	i := n.want(v, "data")
	n.condition(i, volumesv1alpha1.ConditionStaged, volumesv1alpha1.ReasonSessionUnconfirmed)
	if calls := n.driver.made(); len(calls) > 0 {
		t.Errorf("calls on node %s before the session was confirmed: %v, want none", n.name, calls)
	}
	if s := n.state("any", func(*volumesv1alpha1.NodeVolumeState) bool { return true }); handshake.VolumeOf(s,
		v.name()) != nil {
		t.Errorf("volume %s is in use before the session was confirmed, want that it is not", v.name())
	}
	n.confirmSession()
	n.ready(i)
}

// lateAcknowledgement has each report acknowledged only once the agent has seen the confirmation of its session.
type lateAcknowledgement struct {
	client.Client
	seen func(session int64)
}

func (l *lateAcknowledgement) Status() client.SubResourceWriter {
	return &lateStatus{l.Client.Status(), l.seen}
}

type lateStatus struct {
	client.SubResourceWriter
	seen func(session int64)
}

func (l *lateStatus) Update(ctx context.Context, o client.Object, opts ...client.SubResourceUpdateOption) error {
	err := l.SubResourceWriter.Update(ctx, o, opts...)
	if nvs, ok := o.(*volumesv1alpha1.NodeVolumeState); ok && err == nil {
		l.seen(nvs.Status.Protocol.Session)
	}
	return err
}

func testEarlyConfirmation(t *testing.T, c *cluster) {
	n := c.node(t)
	var a *running
	// Sessions up to this one are acknowledged at once: they begin while no manager confirms any.
	var last atomic.Int64
	last.Store(math.MaxInt64)
	n.drive = func(o *Options) {
		o.Live = &lateAcknowledgement{o.Live, func(session int64) {
			if session <= last.Load() {
				return
			}
			n.eventually("the confirmation", func() bool { return a.state.Newest().Spec.Protocol.ConfirmedSession == session })
		}}
	}
	a = n.start()
	first := n.begun(0).Status.Protocol.Session
	n.silent.Store(true)
	a.cut()
	second := n.state(
		"another session",
		func(s *volumesv1alpha1.NodeVolumeState) bool { return s.Status.Protocol.Session > first },
	).Status.Protocol.Session
	v := testVolume{handle: "vol"}
	n.attach(v, "uid-1")
	i := n.want(v, "data")
	n.intent(i, "looked at", func(i *volumesv1alpha1.VolumeAttachmentIntent) bool {
		return meta.FindStatusCondition(i.Status.Conditions, volumesv1alpha1.ConditionReady) != nil
	})
	last.Store(second)
	n.silent.Store(false)
	a.cut()
	n.begun(second)
	n.ready(i)
}

func testUnconfirmedInUse(t *testing.T, c *cluster) {
	n, v, a := c.attached(t)
	i := n.want(v, "data")
	n.ready(i)
	a.stop()
	n.silent.Store(true)
	before := n.driver.made()
	n.start()
	// What the API says may be of the past: an entry that is gone shuts nothing down.
	n.changeState(func(s *volumesv1alpha1.NodeVolumeState) { s.Spec.Attachments = nil })
	other := testVolume{handle: "other"}
	n.attach(other, "uid-2")
	n.condition(n.want(other, "other"), volumesv1alpha1.ConditionStaged, volumesv1alpha1.ReasonSessionUnconfirmed)
	if calls := n.driver.made(); len(calls) != len(before) {
		t.Errorf("calls on node %s while the session was not confirmed: %v, want none", n.name, calls[len(before):])
	}
	if len(n.kernel.mounted()) == 0 {
		t.Errorf("nothing of volume %s is mounted any more, want its mounts to stay", v.name())
	}
	n.release(i)
	n.gone(v)
}

// begun waits for a session after that one, and for its confirmation.
func (n *node) begun(after int64) *volumesv1alpha1.NodeVolumeState {
	n.t.Helper()
	return n.state("another session", func(s *volumesv1alpha1.NodeVolumeState) bool {
		return s.Status.Protocol.Session > after && s.Spec.Protocol.ConfirmedSession == s.Status.Protocol.Session
	})
}

func testConnectionEnds(t *testing.T, c *cluster) {
	n := c.node(t)
	a := n.start()
	first := n.begun(0).Status.Protocol.Session
	n.silent.Store(true)
	a.cut()
	n.state("another session", func(s *volumesv1alpha1.NodeVolumeState) bool { return s.Status.Protocol.Session > first })
	if a.state.Confirmed() {
		t.Errorf("the session of node %s goes on although its connection has ended, want its end", n.name)
	}
	n.confirmSession()
	v := testVolume{handle: "vol"}
	n.attach(v, "uid-1")
	n.ready(n.want(v, "data"))
}

func testLostAnswer(t *testing.T, c *cluster) {
	n := c.node(t)
	a := n.start()
	first := n.begun(0).Status.Protocol.Session
	n.lease("renewed", func(*coordinationv1.Lease) bool { return true })
	a.writes.mu.Lock()
	a.writes.deafTo = "/leases/" + volumesv1alpha1.AgentLeasePrefix + n.name
	a.writes.mu.Unlock()
	n.begun(first)
	select {
	case <-a.done:
		t.Errorf("agent of node %s ended with %v, want it at work", n.name, a.err)
	default:
	}
	lease := n.lease("any", func(*coordinationv1.Lease) bool { return true })
	if lease.Annotations[volumesv1alpha1.LeaseRestoredAnnotation] != "" {
		t.Errorf("Lease of node %s has the annotation of a restore, want none", n.name)
	}
}

func testForgotten(t *testing.T, c *cluster) {
	n, v, a := c.attached(t)
	i := n.want(v, "data")
	n.ready(i)
	lease := n.lease("reports", func(l *coordinationv1.Lease) bool {
		return l.Annotations[volumesv1alpha1.LeaseReportsAnnotation] != "" &&
			l.Annotations[volumesv1alpha1.LeaseReportsAnnotation] != "0"
	})
	if lease.Annotations[volumesv1alpha1.LeaseRestoredAnnotation] != "" {
		t.Errorf("Lease of node %s has the annotation of a restore, want none", n.name)
	}
	n.silent.Store(true)
	a.writes.setDown(true)
	a.cut()
	n.forgetReports(0)
	a.writes.setDown(false)
	select {
	case <-a.done:
	case <-time.After(patience):
		t.Fatalf("agent of node %s goes on, want its end after a restore", n.name)
	}
	if !errors.Is(a.err, report.ErrRestored) {
		t.Errorf("agent of node %s ended with %v, want %v", n.name, a.err, report.ErrRestored)
	}
	n.start()
	n.lease("told of a restore", func(l *coordinationv1.Lease) bool {
		return l.Annotations[volumesv1alpha1.LeaseRestoredAnnotation] == "true"
	})
	s := n.state("in use", func(s *volumesv1alpha1.NodeVolumeState) bool {
		return handshake.VolumeOf(s, v.name()) != nil
	})
	if s.Status.Protocol.Session <= a.state.LastReport().Reports {
		t.Errorf("session of node state %s: %d, want it later than report %d", s.Name, s.Status.Protocol.Session,
			a.state.LastReport().Reports)
	}
	n.confirmSession()
	n.lease("the restore is over", func(l *coordinationv1.Lease) bool {
		return l.Annotations[volumesv1alpha1.LeaseRestoredAnnotation] == ""
	})
}

func testStoppedThenForgotten(t *testing.T, c *cluster) {
	n, v, a := c.started(t)
	backup := n.begun(0).Status.Protocol.Reports
	n.attach(v, "uid-1")
	n.ready(n.want(v, "data"))
	a.stop()
	n.silent.Store(true)
	n.forgetReports(backup)
	n.start()
	n.lease("told of a restore", func(l *coordinationv1.Lease) bool {
		return l.Annotations[volumesv1alpha1.LeaseRestoredAnnotation] == "true"
	})
}

func testForgottenState(t *testing.T, c *cluster) {
	n := c.node(t)
	a := n.start()
	n.begun(0)
	a.stop()
	// After the backup the state was deleted and created again; the restore has brought the earlier one back.
	n.must(a.store.SaveLastReport(record.LastReport{Schema: record.Schema, UID: "later", Reports: 1}))
	n.silent.Store(true)
	n.start()
	n.lease("told of a restore", func(l *coordinationv1.Lease) bool {
		return l.Annotations[volumesv1alpha1.LeaseRestoredAnnotation] == "true"
	})
}

func testRestoreIDs(t *testing.T, c *cluster) {
	n := c.node(t)
	a := n.start()
	n.begun(0)
	n.lease("of the first agent", func(*coordinationv1.Lease) bool { return true })
	n.silent.Store(true)
	id := ""
	// restart returns the ID of the restore that the next agent reports.
	restart := func(forgotten bool) string {
		a.stop()
		last := &coordinationv1.Lease{}
		n.must(n.client.Get(t.Context(), types.NamespacedName{
			Namespace: volumesv1alpha1.InstallNamespace, Name: volumesv1alpha1.AgentLeasePrefix + n.name,
		}, last))
		if forgotten {
			n.must(a.store.SaveLastReport(record.LastReport{
				Schema: record.Schema, UID: "later", Reports: 1, Restored: id != "", RestoreID: types.UID(id),
			}))
		}
		a = n.start()
		lease := n.lease("told of a restore", func(l *coordinationv1.Lease) bool {
			return l.Annotations[volumesv1alpha1.LeaseRestoredAnnotation] == "true" &&
				!l.Spec.RenewTime.Equal(last.Spec.RenewTime)
		})
		return lease.Annotations[volumesv1alpha1.LeaseRestoreIDAnnotation]
	}
	if id = restart(true); id == "" {
		t.Error("the restore has no ID, want one")
	}
	if again := restart(false); again != id {
		t.Errorf("after a restart of the agent the restore has ID %s, want %s still", again, id)
	}
	if next := restart(true); next == id || next == "" {
		t.Errorf("another restore has ID %q, want another than that of the first one, %s", next, id)
	}
}

func testStateMadeAnew(t *testing.T, c *cluster) {
	n := c.node(t)
	a := n.start()
	n.begun(0)
	a.stop()
	n.must(n.client.Delete(t.Context(), &volumesv1alpha1.NodeVolumeState{ObjectMeta: metav1.ObjectMeta{Name: n.name}}))
	n.must(n.client.Create(t.Context(), &volumesv1alpha1.NodeVolumeState{ObjectMeta: metav1.ObjectMeta{Name: n.name}}))
	dies := make(chan *running)
	n.drive = func(o *Options) {
		o.Live = &lateAcknowledgement{o.Live, func(int64) {
			(<-dies).kill()
			select {} // for ever, as a dead process
		}}
	}
	dies <- n.launch(0)
	n.drive = nil
	n.start()
	n.lease("of the new state", func(l *coordinationv1.Lease) bool {
		if l.Annotations[volumesv1alpha1.LeaseRestoredAnnotation] != "" {
			t.Errorf("Lease of node %s has the annotation of a restore, want none", n.name)
		}
		return l.Annotations[volumesv1alpha1.LeaseStateAnnotation] == string(n.begun(0).UID)
	})
}

// forgetReports writes the status of the node's state as it was when there were so many reports, of nothing.
func (n *node) forgetReports(but int64) {
	n.t.Helper()
	s := &volumesv1alpha1.NodeVolumeState{}
	n.must(n.client.Get(n.t.Context(), clientKey(n.name), s))
	s.Status.Protocol.Reports, s.Status.Protocol.Session, s.Status.Volumes = but, but, nil
	n.must(n.client.Status().Update(n.t.Context(), s))
}

func (n *node) lease(what string, ok func(*coordinationv1.Lease) bool) *coordinationv1.Lease {
	n.t.Helper()
	name := volumesv1alpha1.AgentLeasePrefix + n.name
	o := n.await(&coordinationv1.LeaseList{}, volumesv1alpha1.InstallNamespace, name, what, func(o client.Object) bool {
		return ok(o.(*coordinationv1.Lease))
	})
	return o.(*coordinationv1.Lease)
}
