/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package agent

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/agent/operation"
	"github.com/hawser-io/hawser/internal/agent/plan"
	"github.com/hawser-io/hawser/internal/agent/record"
	"github.com/hawser-io/hawser/internal/agent/report"
	"github.com/hawser-io/hawser/internal/driver"
	"github.com/hawser-io/hawser/internal/handshake"
	"github.com/hawser-io/hawser/internal/mount"
)

func TestTheHealthThatDriversReport(t *testing.T) {
	runAll(t, map[string]func(*testing.T, *cluster){
		"of a volume is in the node state, until the volume is healthy again": testHealth,
		"of a volume is no news after a restart of the agent":                 testHealthRestart,
		"of a volume is read where its figures cannot be":                     testHealthWithoutFigures,
		"of a volume ends with its stage":                                     testHealthReleased,
		"of their storage is in the node state and a condition":               testStorageHealth,
		"of a volume is an event on each pod that has it or gets it":          testPodHealth,
	})
}

var (
	degraded = volumesv1alpha1.HealthProblem{Status: volumesv1alpha1.HealthDegraded, Reason: "PathLost",
		Message: "one of two"}
	gone = volumesv1alpha1.HealthProblem{Status: volumesv1alpha1.HealthInaccessible, Reason: "Gone"}
	slow = volumesv1alpha1.HealthProblem{Status: volumesv1alpha1.HealthStorageDegraded, Reason: "Slow",
		Message: "40 ms", VolumeMode: corev1.PersistentVolumeBlock}
)

// can has the node's driver announce the capabilities beside that of staging.
func (n *node) can(capabilities ...string) {
	r := n.registry
	r.mu.Lock()
	defer r.mu.Unlock()
	r.can = append([]string{"STAGE_UNSTAGE_VOLUME"}, capabilities...)
}

// reads has the agent read the health of the volume as it does now and then.
func (n *node) reads(a *running, v testVolume) {
	n.t.Helper()
	view, known := a.views.Load(v.name())
	if !known {
		n.t.Fatalf("the agent has no record of volume %s, want one", v.name())
	}
	a.readStatsOf(n.t.Context(), view.(*record.Record))
}

// unhealthy waits until the node state has a health of the volume with that reason; "" for none.
func (n *node) unhealthy(v testVolume, reason string) *volumesv1alpha1.Health {
	n.t.Helper()
	var found *volumesv1alpha1.Health
	n.state("the health "+reason, func(s *volumesv1alpha1.NodeVolumeState) bool {
		line := handshake.VolumeOf(s, v.name())
		c := meta.FindStatusCondition(s.Status.Conditions, volumesv1alpha1.ConditionVolumesHealthy)
		if line == nil || c == nil || (c.Status == metav1.ConditionTrue) != (reason == "") ||
			(line.Health == nil) != (reason == "") || (s.Status.Summary.Failing == 0) != (reason == "") {
			return false
		}
		found = line.Health
		return reason == "" || found.Problems[0].Reason == reason && strings.Contains(c.Message, reason)
	})
	return found
}

func testHealth(t *testing.T, c *cluster) {
	n, v, a := c.attached(t)
	n.can("GET_VOLUME_HEALTH")
	n.ready(n.want(v, "data"))
	n.settled(v)
	n.driver.reports(degraded, gone)
	n.reads(a, v)
	got := n.unhealthy(v, "Gone")
	if want := []volumesv1alpha1.HealthProblem{gone, degraded}; !slices.Equal(got.Problems, want) || got.Since.IsZero() {
		t.Errorf("health of volume %s: %+v, want %+v since a time", v.name(), got, want)
	}
	n.driver.reports()
	n.reads(a, v)
	n.unhealthy(v, "")
	a.rest()
	if e := a.recorded(); len(about(e, operation.EventVolumeUnhealthy)) != 1 ||
		len(about(e, operation.EventVolumeHealthy)) != 1 {
		t.Errorf("events: %v, want one that the volume is not healthy and one that it is", e)
	}
}

// about are the events with the reason.
func about(events []string, reason string) []string {
	return slices.DeleteFunc(slices.Clone(events), func(e string) bool { return !strings.Contains(e, " "+reason+" ") })
}

func testHealthRestart(t *testing.T, c *cluster) {
	n, v, a := c.attached(t)
	n.can("GET_VOLUME_HEALTH")
	n.ready(n.want(v, "data"))
	n.settled(v)
	n.driver.reports(degraded)
	n.reads(a, v)
	before := n.unhealthy(v, "PathLost")
	a.rest()
	a.kill()
	a = n.start()
	a.rest()
	n.driver.reports(volumesv1alpha1.HealthProblem{Status: degraded.Status, Reason: degraded.Reason, Message: "still"})
	n.reads(a, v)
	a.rest()
	if after := n.unhealthy(v, "PathLost"); !after.Since.Equal(&before.Since) ||
		after.Problems[0].Message != degraded.Message {
		t.Errorf("health of volume %s after a restart of the agent: %+v, want it unchanged: %+v", v.name(), after, before)
	}
	if e := a.recorded(); len(about(e, operation.EventVolumeUnhealthy)) > 0 {
		t.Errorf("events after the restart: %v, want none about the health", e)
	}
}

func testHealthWithoutFigures(t *testing.T, c *cluster) {
	n, v, a := c.attached(t)
	n.can("GET_VOLUME_STATS", "GET_VOLUME_HEALTH")
	n.ready(n.want(v, "data"))
	n.settled(v)
	n.driver.reports(gone)
	n.driver.fail("stats", &driver.Error{Outcome: driver.Transient, Code: "Internal", Message: "no answer"})
	n.reads(a, v)
	n.unhealthy(v, "Gone")
	n.driver.reports()
	n.driver.fail("health", &driver.Error{Outcome: driver.Transient, Code: "Internal", Message: "no answer"})
	n.reads(a, v)
	n.state("the figures", func(s *volumesv1alpha1.NodeVolumeState) bool {
		return handshake.VolumeOf(s, v.name()).Used != nil
	})
	n.unhealthy(v, "Gone")
}

func testHealthReleased(t *testing.T, c *cluster) {
	n, v, a := c.attached(t)
	n.can("GET_VOLUME_HEALTH")
	i := n.want(v, "data")
	n.ready(i)
	n.settled(v)
	n.driver.reports(degraded)
	n.reads(a, v)
	n.unhealthy(v, "PathLost")
	n.release(i)
	n.gone(v)
	n.unfinalize(i)
	n.driver.reports()
	n.ready(n.want(v, "again"))
	n.unhealthy(v, "")
}

func testPodHealth(t *testing.T, c *cluster) {
	n, v, a := c.attached(t)
	n.can("GET_VOLUME_HEALTH")
	i := n.want(v, "data")
	n.ready(i)
	first, second := n.pod("first", i), n.pod("second", i)
	first.mounted(a, v)
	n.settled(v)
	n.driver.reports(gone)
	n.reads(a, v)
	n.unhealthy(v, "Gone")
	a.rest()
	if e := about(a.recorded(), operation.EventVolumeUnhealthy); len(e) != 2 {
		t.Errorf("events when the driver reports a problem: %v, want one on the intent and one on its pod", e)
	}
	first.mounted(a, v) // as the kubelet asks again after a restart
	second.mounted(a, v)
	if e := about(a.recorded(), operation.EventVolumeUnhealthy); len(e) != 1 ||
		!strings.Contains(e[0], "Inaccessible Gone") {
		t.Errorf("events when another pod gets the volume: %v, want one on that pod, with the problem", e)
	}
	n.driver.reports()
	n.reads(a, v)
	n.unhealthy(v, "")
	a.rest()
	if e := about(a.recorded(), operation.EventVolumeHealthy); len(e) != 3 {
		t.Errorf("events when the volume is healthy again: %v, want one on the intent and one on each pod", e)
	}
}

func testStorageHealth(t *testing.T, c *cluster) {
	n, _, a := c.attached(t)
	reads := func(what string,
		ok func(*volumesv1alpha1.Health, *metav1.Condition) bool) *volumesv1alpha1.NodeVolumeState {
		t.Helper()
		a.Agent.readStorageHealth(t.Context(), fakeDriverName)
		return n.state(what, func(s *volumesv1alpha1.NodeVolumeState) bool {
			return len(s.Status.Drivers) > 0 && ok(s.Status.Drivers[0].StorageHealth,
				meta.FindStatusCondition(s.Status.Conditions, volumesv1alpha1.ConditionStorageHealthy))
		})
	}
	unknown := func(h *volumesv1alpha1.Health, c *metav1.Condition) bool { return h == nil && c == nil }
	healthy := func(h *volumesv1alpha1.Health, c *metav1.Condition) bool {
		return h == nil && c != nil && c.Status == metav1.ConditionTrue
	}
	unhealthy := func(h *volumesv1alpha1.Health, c *metav1.Condition) bool {
		return h != nil && c != nil && c.Status == metav1.ConditionFalse &&
			c.Reason == volumesv1alpha1.ReasonStorageUnhealthy &&
			strings.HasPrefix(c.Message, fakeDriverName+": StorageDegraded Slow Block: 40 ms, since ")
	}
	n.driver.reportsOfStorage(slow)
	reads("no storage health without the capability", unknown)
	n.can("GET_STORAGE_HEALTH")
	n.driver.reportsOfStorage()
	reads("storage that is healthy", healthy)
	n.driver.reportsOfStorage(slow)
	s := reads("storage that is not healthy", unhealthy)
	if !meta.IsStatusConditionTrue(s.Status.Conditions, volumesv1alpha1.ConditionReady) {
		t.Errorf("conditions while a driver reports a problem of its storage: %+v, want Ready True", s.Status.Conditions)
	}
	before := s.Status.Drivers[0].StorageHealth
	a.rest()
	a.kill()
	a = n.start()
	n.driver.fail("storage health", &driver.Error{Outcome: driver.Transient, Code: "Internal", Message: "no answer"})
	for range 2 { // first without an answer
		s := reads("storage that is still not healthy", unhealthy)
		if after := s.Status.Drivers[0].StorageHealth; !after.Since.Equal(&before.Since) {
			t.Errorf("health of the storage after a restart of the agent: %+v, want it unchanged: %+v", after, before)
		}
	}
	n.driver.reportsOfStorage()
	reads("storage that is healthy again", healthy)
	n.can()
	n.registry.set(n.driver)
	reads("no storage health of a driver that reports none", unknown)
}

func TestADriverThatDoesNotAnswerIsAskedOnce(t *testing.T) {
	b := newBench(t, filesystem)
	b.agent.Registry.(*fakeRegistry).can = []string{"GET_STORAGE_HEALTH"}
	release := b.driver.hang("storage health", "")
	ask := func() (done chan struct{}) {
		done = make(chan struct{})
		go func() { defer close(done); b.agent.readStorageHealth(t.Context(), fakeDriverName) }()
		return done
	}
	_, asked := b.driver.count("storage health ")
	first := ask()
	<-asked
	_, asked = b.driver.count("storage health ")
	second := ask()
	select {
	case <-second:
	case <-asked:
		t.Error("the driver was asked again while it did not answer, want that it is not")
	}
	release()
	<-first
	<-second
	b.agent.readStorageHealth(t.Context(), fakeDriverName)
	if calls, _ := b.driver.count("storage health "); calls != 2 {
		t.Errorf("the driver was asked %d times after it had answered, want twice", calls)
	}
}

// heard keeps the events with what they are about.
type heard []string

func (h *heard) Eventf(regarding, related runtime.Object, eventType, reason, _, note string, args ...any) {
	line := eventType + " " + reason + " "
	if r, ok := regarding.(*corev1.ObjectReference); ok {
		line += r.Kind + " " + r.Namespace + "/" + r.Name + " "
	}
	if r, ok := related.(*corev1.ObjectReference); ok {
		line += r.Kind + " " + r.Name + " "
	}
	*h = append(*h, line+fmt.Sprintf(note, args...))
}

func TestIntentsAndPodsGetAnEventWhenTheHealthOfTheirVolumeChanges(t *testing.T) {
	b := newBench(t, filesystem)
	b.publish()
	var events heard
	b.agent.steps.Recorder = &events
	bind := record.PodBind{Target: "/p", Pod: record.PodReference{Namespace: "shop", Name: "web", UID: "pod"},
		Intent: volumesv1alpha1.IntentReference{Namespace: "shop", Name: "web-data", UID: "intent"}}
	nameless := record.PodBind{Target: "/q", Pod: record.PodReference{UID: "other"}}
	var started time.Time
	var last report.VolumeReport
	for _, step := range []struct {
		name     string
		problems []volumesv1alpha1.HealthProblem
		news     string
	}{
		{"it is healthy", nil, ""},
		{"a path is lost", []volumesv1alpha1.HealthProblem{degraded}, "Degraded PathLost: one of two, since "},
		{"only the message differs", []volumesv1alpha1.HealthProblem{{Status: degraded.Status, Reason: degraded.Reason,
			Message: "one of two since 31 s"}}, ""},
		{"it is gone too", []volumesv1alpha1.HealthProblem{degraded, gone},
			"Inaccessible Gone; Degraded PathLost: one of two, since "},
		{"the order differs, and one is there twice", []volumesv1alpha1.HealthProblem{gone, degraded, gone}, ""},
		{"it is healthy again", nil, "reports no problem any more"},
		{"it stays so", nil, ""},
	} {
		events = nil
		b.clock.Step(time.Minute + time.Millisecond)
		b.volume.BeginStats()
		b.volume.NoteHealth(step.problems)
		b.volume.EndStats()
		f := b.facts()
		f.Pods = []record.PodBind{bind, nameless}
		for range 2 {
			b.agent.steps.TakeHealth(b.volume, f)
		}
		now := report.NewVolumeReport(b.volume.Snapshot(), f)
		if step.news == "" {
			if len(events) > 0 || step.name != "it is healthy" && !now.Equal(last) {
				t.Errorf("%s: events %q, report %+v; want none, and the report of before: %+v", step.name, events, now.Line,
					last.Line)
			}
			last = now
			continue
		}
		kind, reason := corev1.EventTypeWarning, operation.EventVolumeUnhealthy
		if started = b.clock.Now(); len(step.problems) == 0 {
			kind, reason = corev1.EventTypeNormal, operation.EventVolumeHealthy
		} else if since := now.Line.Health.Since.Time; !since.Equal(started.Truncate(time.Second)) {
			t.Errorf("%s: since %s, want %s in whole seconds, as the API keeps it", step.name, since, started)
		}
		if len(events) != 2 || !strings.HasPrefix(events[0], kind+" "+reason+" VolumeAttachmentIntent ns/intent ") ||
			!strings.HasPrefix(events[1], kind+" "+reason+" Pod shop/web VolumeAttachmentIntent web-data ") ||
			!strings.Contains(events[0], step.news) || !strings.Contains(events[1], step.news) {
			t.Errorf("%s: events %q, want one of reason %s on the intent and on the pod, with %q", step.name, events, reason,
				step.news)
		}
		last = now
	}
}

func TestTheHealthOfAVolumeThatCannotBeStagedIsRead(t *testing.T) {
	b := newBench(t, filesystem)
	b.agent.Registry.(*fakeRegistry).can = []string{"GET_VOLUME_STATS", "GET_VOLUME_HEALTH"}
	b.want("intent")
	b.done(plan.MarkInUse)
	b.agent.readStatsOf(t.Context(), b.volume.Record)
	b.driver.fail("stage", &driver.Error{Outcome: driver.Uncertain, Code: "DeadlineExceeded"})
	if err := b.act(plan.Stage); err == nil {
		t.Fatal("the stage succeeded, want the driver's error")
	}
	b.driver.reports(gone)
	b.agent.readStatsOf(t.Context(), b.volume.Record)
	b.agent.steps.TakeHealth(b.volume, b.facts())
	if h := b.volume.Record.Health; h == nil || h.Problems[0] != gone {
		t.Errorf("health of a volume that cannot be staged: %+v, want %+v", h, gone)
	}
	if calls := b.driver.made(); !slices.Equal(calls, []string{"stage vol", "health vol"}) {
		t.Errorf("calls: %v, want the stage and, after it alone, the health, and no figures", calls)
	}
}

func TestADriverIsNotAskedForTheFiguresOfAVolumeThatDoesNotAnswer(t *testing.T) {
	b := newBench(t, filesystem)
	b.publish()
	b.agent.Registry.(*fakeRegistry).can = []string{"GET_VOLUME_STATS", "GET_VOLUME_HEALTH"}
	b.kernel.access = &mount.PendingError{Call: mount.Call{Since: b.clock.Now()}}
	before := len(b.driver.made())
	for _, test := range []struct {
		access error
		want   []string
	}{{b.kernel.access, []string{"health vol"}}, {nil, []string{"stats vol", "health vol"}}} {
		b.kernel.access = test.access
		b.agent.examine(t.Context(), b.volume.Record)
		b.volume.RecordExamination()
		b.agent.readStatsOf(t.Context(), b.volume.Record)
		if got := b.driver.made()[before:]; !slices.Equal(got, test.want) {
			t.Errorf("calls for a volume, an access to which gives error %v: %v, want %v", test.access, got, test.want)
		}
		before = len(b.driver.made())
	}
}

func TestWhatADriverReportsOfAnEarlierStageDoesNotCount(t *testing.T) {
	b := newBench(t, filesystem)
	b.publish()
	b.driver.reports(degraded)
	b.agent.Registry.(*fakeRegistry).can = []string{"GET_VOLUME_HEALTH"}
	b.agent.readStatsOf(t.Context(), b.volume.Record)
	b.agent.steps.TakeHealth(b.volume, b.facts())
	if b.volume.Record.Health == nil {
		t.Fatal("the volume has no health, want the problem that the driver reports")
	}
	b.volume.BeginStats()
	nobodyWants(b)
	b.done(plan.Unstage)
	b.volume.NoteHealth([]volumesv1alpha1.HealthProblem{degraded})
	b.volume.EndStats()
	b.agent.steps.TakeHealth(b.volume, b.facts())
	if h := b.volume.Record.Health; h != nil {
		t.Errorf("health of a volume that was unstaged meanwhile: %+v, want none", h)
	}
}
