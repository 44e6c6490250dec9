/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package fences

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/prometheus/client_golang/prometheus"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/metrics"
	"github.com/hawser-io/hawser/internal/controller/nodestate"
	"github.com/hawser-io/hawser/internal/fencing"
)

// cutAway is the state of node n, from which volumes in use were forced away by the fence of cutRef.
func cutAway(volumes ...string) *volumesv1alpha1.NodeVolumeState {
	nvs := &volumesv1alpha1.NodeVolumeState{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "state"}}
	for _, volume := range volumes {
		uid, ref := types.UID("of-"+volume), cutRef
		nvs.Spec.Attachments = append(nvs.Spec.Attachments, volumesv1alpha1.NodeAttachment{
			VolumeName: volume, AttachmentUID: uid, Driver: "d", State: volumesv1alpha1.AttachmentDetaching,
			Evidence: &volumesv1alpha1.DetachEvidence{Type: volumesv1alpha1.EvidenceFenced, Fence: &ref},
		})
		nvs.Status.Volumes = append(nvs.Status.Volumes, volumesv1alpha1.NodeVolume{
			VolumeName: volume, AttachmentUID: uid, InUse: true,
		})
	}
	return nvs
}

// cluster is what lifts are noted in.
type cluster struct {
	*Lifts
	state  client.WithWatch
	fences *dynamicfake.FakeDynamicClient
	events *events.FakeRecorder
	// updates of the node's state; before each of them, and before each read of the fences, something may happen once.
	updates                    int
	beforeUpdate, beforeFences func()
}

func clusterOf(t *testing.T, objects []client.Object, fences ...*unstructured.Unstructured) *cluster {
	t.Helper()
	once := func(what *func()) {
		if do := *what; do != nil {
			*what = nil
			do()
		}
	}
	c := &cluster{state: cacheOf(t, objects...), fences: live(fences...), events: events.NewFakeRecorder(10)}
	c.fences.PrependReactor("list", "fences", func(clienttesting.Action) (bool, runtime.Object, error) {
		once(&c.beforeFences)
		return false, nil, nil
	})
	through := interceptor.NewClient(c.state, interceptor.Funcs{
		Update: func(ctx context.Context, state client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
			c.updates++
			once(&c.beforeUpdate)
			return state.Update(ctx, o, opts...)
		},
	})
	c.Lifts = &Lifts{Fences: &Watcher{Sources: []*fencing.Source{cutSource(t)}, Client: c.fences}, Client: through,
		Writer: &nodestate.Writer{Client: through, Reader: c.state}, Events: c.events}
	return c
}

func (c *cluster) now(t *testing.T) *volumesv1alpha1.NodeVolumeState {
	t.Helper()
	nvs := &volumesv1alpha1.NodeVolumeState{}
	if err := c.state.Get(t.Context(), client.ObjectKey{Name: "n"}, nvs); err != nil {
		t.Fatal(err)
	}
	return nvs
}

// alter the state behind the back of Lifts.
func (c *cluster) alter(t *testing.T, change func(*volumesv1alpha1.NodeVolumeState)) {
	t.Helper()
	nvs := c.now(t)
	change(nvs)
	status := nvs.Status
	if err := c.state.Update(t.Context(), nvs); err != nil {
		t.Fatal(err)
	}
	nvs.Status = status // the answer has that of before
	if err := c.state.Status().Update(t.Context(), nvs); err != nil {
		t.Fatal(err)
	}
}

// unprotected volumes of the node.
func (c *cluster) unprotected(t *testing.T) []string {
	t.Helper()
	var names []string
	for _, e := range c.now(t).Spec.Attachments {
		if e.Evidence != nil && e.Evidence.Unprotected {
			names = append(names, e.VolumeName)
		}
	}
	return names
}

func (c *cluster) notes() []string {
	var notes []string
	for len(c.events.Events) > 0 {
		notes = append(notes, <-c.events.Events)
	}
	return notes
}

// counted are the detaches on fences that left the node its access.
func counted(t *testing.T) float64 {
	t.Helper()
	r := prometheus.NewRegistry()
	for _, c := range metrics.Collectors(nil, nil, nil)[:2] { // the counters, which need no reader
		r.MustRegister(c)
	}
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			labels := fmt.Sprint(m.GetLabel())
			if f.GetName() == "hawser_forced_detaches_total" && strings.Contains(labels, `"none"`) &&
				strings.Contains(labels, `"Fenced"`) {
				return m.GetCounter().GetValue()
			}
		}
	}
	return 0
}

var (
	lifted  = cutFence(func(s map[string]any) { s["holds"] = false })
	holding = cutFence(whole)
)

func TestALiftIsWrittenShownAndCountedOnce(t *testing.T) {
	for name, note := range map[string]func(*cluster) error{
		"of one volume": func(c *cluster) error {
			_, err := c.Note(t.Context(), "n", "v")
			return err
		},
		"of all of a node": func(c *cluster) error { return c.NoteAll(t.Context(), c.now(t)) },
	} {
		for cause, fences := range map[string][]*unstructured.Unstructured{causeLifted: {lifted}, causeGone: nil} {
			t.Run(name+", whose fence "+cause, func(t *testing.T) {
				c, before := clusterOf(t, []client.Object{cutAway("v")}, fences...), counted(t)
				for range 2 {
					if err := note(c); err != nil {
						t.Fatal(err)
					}
				}
				if got := c.unprotected(t); !slices.Equal(got, []string{"v"}) || c.updates != 1 {
					t.Errorf("unprotected volumes %q after %d writes, want v after one", got, c.updates)
				}
				notes, want := c.notes(), fmt.Sprintf("Warning FenceLifted fence f of source net %s. ", cause)
				if len(notes) != 1 || !strings.Contains(notes[0], want) {
					t.Errorf("events %q, want one with %q", notes, want)
				}
				if got := counted(t) - before; got != 1 {
					t.Errorf("detaches that left the node its access grew by %v, want 1", got)
				}
			})
		}
	}
}

// TestALiftThatIsNoneAnyMoreIsNeitherWrittenNorShown: the agent has reported, or the entry is another one.
func TestALiftThatIsNoneAnyMoreIsNeitherWrittenNorShown(t *testing.T) {
	another := func(nvs *volumesv1alpha1.NodeVolumeState) { nvs.Spec.Attachments[0].AttachmentUID = "another" }
	for _, c := range []struct {
		name    string
		during  func(*cluster) *func()
		change  func(*volumesv1alpha1.NodeVolumeState)
		updates int
	}{
		{"while the fence is read", func(cl *cluster) *func() { return &cl.beforeFences }, another, 0},
		{"before it is written", func(cl *cluster) *func() { return &cl.beforeUpdate }, another, 1},
		{"before it is written, by a report", func(cl *cluster) *func() { return &cl.beforeUpdate },
			func(nvs *volumesv1alpha1.NodeVolumeState) {
				nvs.Status = volumesv1alpha1.NodeVolumeStateStatus{
					Protocol: volumesv1alpha1.AgentProtocol{ObservedUID: nvs.UID}}
			}, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			cl, before := clusterOf(t, []client.Object{cutAway("v")}, lifted), counted(t)
			*c.during(cl) = func() { cl.alter(t, c.change) }
			if err := cl.NoteAll(t.Context(), cl.now(t)); err != nil {
				t.Fatal(err)
			}
			if got, notes := cl.unprotected(t), cl.notes(); got != nil || notes != nil || counted(t) != before ||
				cl.updates != c.updates {
				t.Errorf("unprotected volumes %q, events %q, %d writes; want none, and %d", got, notes, cl.updates, c.updates)
			}
		})
	}
}

// TestLiftsThatGoOutInOneWriteAreShownOnce: what was decided on one version is written with what others decided.
func TestLiftsThatGoOutInOneWriteAreShownOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := clusterOf(t, []client.Object{cutAway("first", "v", "w")}, lifted)
		c.beforeUpdate = func() {
			for _, change := range []func() error{
				func() error {
					_, err := c.Writer.Apply(t.Context(), "n", func(context.Context, *volumesv1alpha1.NodeVolumeState,
					) (nodestate.Change, error) {
						return func(nvs *volumesv1alpha1.NodeVolumeState) { // w goes
							nvs.Spec.Attachments = nvs.Spec.Attachments[:2]
						}, nil
					})
					return err
				},
				func() error { return c.NoteAll(t.Context(), c.now(t)) },
				func() error {
					_, err := c.Note(t.Context(), "n", "v")
					return err
				},
			} {
				go func() {
					if err := change(); err != nil {
						t.Error(err)
					}
				}()
				synctest.Wait() // it waits for the write that goes on
			}
		}
		if _, err := c.Note(t.Context(), "n", "first"); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if got, want := c.unprotected(t), []string{"first", "v"}; !slices.Equal(got, want) || c.updates != 2 {
			t.Errorf("unprotected volumes %q after %d writes, want %q after 2", got, c.updates, want)
		}
		if notes := c.notes(); len(notes) != 2 {
			t.Errorf("events %q, want one for each volume", notes)
		}
	})
}

func TestNothingIsNotedWhileTheFenceHolds(t *testing.T) {
	c, before := clusterOf(t, []client.Object{cutAway("v")}, holding), counted(t)
	if err := c.NoteAll(t.Context(), c.now(t)); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Note(t.Context(), "n", "v"); err != nil {
		t.Fatal(err)
	}
	if got, notes := c.unprotected(t), c.notes(); got != nil || notes != nil || counted(t) != before || c.updates > 0 {
		t.Errorf("unprotected volumes %q, events %q, %d writes; want none", got, notes, c.updates)
	}
}

// TestALiftOfADriverThatCutsAccessItself concerns nothing once that driver has unpublished the volume.
func TestALiftOfADriverThatCutsAccessItself(t *testing.T) {
	promise := func(value string) *storagev1.CSIDriver {
		return &storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: "d",
			Annotations: map[string]string{volumesv1alpha1.CutsAccessAnnotation: value}}}
	}
	for _, c := range []struct {
		name     string
		driver   client.Object
		detached bool
		want     []string
	}{
		{"it has unpublished the volume", promise("true"), true, nil},
		{"it has not yet", promise("true"), false, []string{"v"}},
		{"another driver has", &storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: "d"}}, true, []string{"v"}},
		{"one that promises nothing has", promise("false"), true, []string{"v"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			nvs := cutAway("v")
			if c.detached {
				now := metav1.Now()
				nvs.Spec.Attachments[0].DetachedTime = &now
			}
			cl := clusterOf(t, []client.Object{nvs, c.driver}, lifted)
			if found, err := cl.Lifted(t.Context(), cl.now(t), "v"); found != (c.want != nil) || err != nil {
				t.Errorf("lifted: %t, error %v; want %t", found, err, c.want != nil)
			}
			if err := cl.NoteAll(t.Context(), cl.now(t)); err != nil {
				t.Fatal(err)
			}
			if got := cl.unprotected(t); !slices.Equal(got, c.want) {
				t.Errorf("unprotected volumes %q, want %q", got, c.want)
			}
		})
	}
}

// TestWhatChangesWhileAFenceIsRead decides: the lift of all volumes was found for an older state.
func TestWhatChangesWhileAFenceIsRead(t *testing.T) {
	other := cutRef
	other.UID = "another"
	for _, c := range []struct {
		name   string
		change func(*volumesv1alpha1.NodeVolumeState)
		want   []string
		// notes are the events that follow.
		notes int
	}{
		{"nothing", func(*volumesv1alpha1.NodeVolumeState) {}, []string{"v", "w"}, 2},
		{"the agent has reported that nothing is left", func(nvs *volumesv1alpha1.NodeVolumeState) {
			nvs.Status.Volumes = nvs.Status.Volumes[1:]
			nvs.Status.Protocol = volumesv1alpha1.AgentProtocol{ObservedUID: nvs.UID}
		}, []string{"w"}, 1},
		{"the entry is gone", func(nvs *volumesv1alpha1.NodeVolumeState) {
			nvs.Spec.Attachments = nvs.Spec.Attachments[1:]
		}, []string{"w"}, 1},
		{"it is of another attachment", func(nvs *volumesv1alpha1.NodeVolumeState) {
			nvs.Spec.Attachments[0].AttachmentUID = "another"
		}, []string{"w"}, 1},
		{"it rests on another fence", func(nvs *volumesv1alpha1.NodeVolumeState) {
			nvs.Spec.Attachments[0].Evidence.Fence = &other
		}, []string{"w"}, 1},
		{"another writer was first", func(nvs *volumesv1alpha1.NodeVolumeState) {
			nvs.Spec.Attachments[0].Evidence.Unprotected = true
		}, []string{"v", "w"}, 1},
	} {
		for when, at := range map[string]func(*cluster) *func(){
			"while it is read":           func(cl *cluster) *func() { return &cl.beforeFences },
			"before the lift is written": func(cl *cluster) *func() { return &cl.beforeUpdate },
		} {
			t.Run(c.name+" "+when, func(t *testing.T) {
				cl, before := clusterOf(t, []client.Object{cutAway("v", "w")}, lifted), counted(t)
				*at(cl) = func() { cl.alter(t, c.change) }
				if err := cl.NoteAll(t.Context(), cl.now(t)); err != nil {
					t.Fatal(err)
				}
				if got, notes := cl.unprotected(t), cl.notes(); !slices.Equal(got, c.want) || len(notes) != c.notes ||
					counted(t)-before != float64(c.notes) {
					t.Errorf("unprotected volumes %q, events %q, counted %v; want %q, and %d", got, notes, counted(t)-before,
						c.want, c.notes)
				}
			})
		}
	}
}

func TestALiftThatCannotBeReadKeepsNoOtherWaiting(t *testing.T) {
	nvs, unconfigured := cutAway("v", "w"), cutRef
	unconfigured.Source = "another"
	nvs.Spec.Attachments[1].Evidence.Fence = &unconfigured
	c, down := clusterOf(t, []client.Object{nvs}, lifted), errors.New("down")
	c.fences.PrependReactor("list", "*", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, down
	})
	if err := c.NoteAll(t.Context(), c.now(t)); !errors.Is(err, down) {
		t.Errorf("error %v, want that the source cannot be read", err)
	}
	if got := c.unprotected(t); !slices.Equal(got, []string{"w"}) {
		t.Errorf("unprotected volumes %q, want w alone", got)
	}
	notes := c.notes()
	if len(notes) != 1 || !strings.Contains(notes[0], causeUnconfigured) {
		t.Errorf("events %q, want one: the source is not configured", notes)
	}
	if _, err := c.Note(t.Context(), "n", "v"); !errors.Is(err, down) {
		t.Errorf("error %v of one volume, want that the source cannot be read", err)
	}
}

// TestALiftOfAStateThatIsGoneIsNone also for a state that was known before.
func TestALiftOfAStateThatIsGoneIsNone(t *testing.T) {
	c := clusterOf(t, nil, lifted)
	if err := c.NoteAll(t.Context(), cutAway("v")); err != nil {
		t.Error(err)
	}
	if nvs, err := c.Note(t.Context(), "n", "v"); nvs != nil || err != nil {
		t.Errorf("state %v, error %v; want neither", nvs, err)
	}
	if found, err := c.Lifted(t.Context(), nil, "v"); found || err != nil {
		t.Errorf("lifted: %t, error %v; want that nothing is", found, err)
	}
}
