/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package operation

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/agent/failure"
	"github.com/hawser-io/hawser/internal/agent/plan"
	"github.com/hawser-io/hawser/internal/agent/record"
	"github.com/hawser-io/hawser/internal/agent/report"
)

var errGather = errors.New("the mount table cannot be read")

// works is long work on a volume. It ends when its context does, or when the test lets it.
type works struct {
	volume *Volume
	clock  clock.WithTicker
	state  *report.Writer
	// mu is held by what gathers, and by a test that reads what the work has noted until then.
	mu       sync.Mutex
	gathered int
	// gatherErr is what gathering fails with, still whether the step is still the next one.
	gatherErr error
	still     bool
	finish    chan error
	// working is the context of the work, once it has begun.
	working context.Context
	// ends is what the work returns when its context ends.
	ends func(context.Context) error
}

func newWorks() *works {
	w := &works{volume: NewVolume("vol"), clock: clock.RealClock{},
		state: report.NewWriter(clock.RealClock{}, logr.Discard()), still: true, finish: make(chan error, 1),
		ends: context.Cause}
	w.volume.Record = &record.Record{VolumeName: "vol", InUse: true}
	w.volume.stillNext = func(plan.Facts) bool { return w.still }
	return w
}

func (w *works) environment() *Environment {
	return &Environment{Options: Options{Clock: w.clock, Log: logr.Discard(), State: w.state,
		Gather: func(context.Context, *Volume) (plan.Facts, error) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.gathered++
			return plan.Facts{Record: w.volume.Record}, w.gatherErr
		}}}
}

// begin returns what the work ends with.
func (w *works) begin(ctx context.Context) <-chan error {
	long := longWork{Environment: w.environment(), volume: w.volume, name: "test",
		describe: func() string { return "half done" }}
	ended := make(chan error, 1)
	go func() {
		ended <- long.run(ctx, func(ctx context.Context) error {
			w.working = ctx
			select {
			case err := <-w.finish:
				return err
			case <-ctx.Done():
				return w.ends(ctx)
			}
		})
	}()
	synctest.Wait()
	return ended
}

// noted returns how often the work gathered, and the progress that it reported last.
func (w *works) noted() (gathered int, progress string) {
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.gathered, w.volume.slow
}

func TestLongWorkEndsEarlyOnlyForWhatComesFirst(t *testing.T) {
	failed := errors.New("the filesystem is full")
	for name, test := range map[string]struct {
		do   func(w *works, stop context.CancelFunc)
		want error
	}{
		"something else comes first": {func(w *works, _ context.CancelFunc) {
			w.still = false
			w.volume.NoteRequeue()
		}, failure.ErrChanged},
		"it ended before it was interrupted": {func(w *works, _ context.CancelFunc) {
			w.still = false
			w.ends = func(context.Context) error { return nil }
			w.volume.NoteRequeue()
		}, nil},
		"nothing comes first": {func(w *works, _ context.CancelFunc) {
			w.volume.NoteRequeue()
			synctest.Wait()
			w.finish <- nil
		}, nil},
		"what comes first is not known": {func(w *works, _ context.CancelFunc) {
			w.still, w.gatherErr = false, errGather
			w.volume.NoteRequeue()
			synctest.Wait()
			w.finish <- nil
		}, nil},
		"it fails":        {func(w *works, _ context.CancelFunc) { w.finish <- failed }, failed},
		"the agent stops": {func(_ *works, stop context.CancelFunc) { stop() }, context.Canceled},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorks()
				ctx, stop := context.WithCancel(t.Context())
				defer stop()
				ended := w.begin(ctx)
				test.do(w, stop)
				synctest.Wait()
				select {
				case err := <-ended:
					if !errors.Is(err, test.want) {
						t.Errorf("the work on %s ended with %v, want %v", w.volume.Name, err, test.want)
					}
				default:
					t.Errorf("the work on %s goes on, want its end with %v", w.volume.Name, test.want)
					w.finish <- nil
				}
				if w.volume.slow != "" {
					t.Errorf("after the work on %s its progress is %q, want none", w.volume.Name, w.volume.slow)
				}
			})
		})
	}
}

func TestLongWorkReportsItsProgressFromTimeToTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorks()
		ended := w.begin(t.Context())
		for k, pause := range []time.Duration{slowCall, progressInterval, progressInterval} {
			<-time.After(pause - time.Nanosecond)
			if gathered, _ := w.noted(); gathered != k {
				t.Errorf("before report %d of %s: %d reports, want %d", k+1, w.volume.Name, gathered, k)
			}
			<-time.After(time.Nanosecond)
			if gathered, progress := w.noted(); gathered != k+1 || progress != "half done" {
				t.Errorf("report %d of %s: %d reports and %q, want %d and %q", k+1, w.volume.Name, gathered,
					progress, k+1, "half done")
			}
		}
		if _, known := w.state.ReportOf(w.volume.Name); !known {
			t.Errorf("a long work on %s: the node's line of it is not to be reported, want it with the progress",
				w.volume.Name)
		}
		w.succeeds(t, ended)
		if w.volume.slow != "" {
			t.Errorf("after the work on %s its progress is %q, want none", w.volume.Name, w.volume.slow)
		}
	})
}

// succeeds lets the work end.
func (w *works) succeeds(t *testing.T, ended <-chan error) {
	t.Helper()
	w.finish <- nil
	if err := <-ended; err != nil {
		t.Errorf("the work on %s ended with %v, want success", w.volume.Name, err)
	}
}

func TestLongWorkReportsNoProgressOnlyBecauseItsVolumeIsRequeued(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorks()
		ended := w.begin(t.Context())
		w.volume.NoteRequeue()
		if gathered, progress := w.noted(); gathered != 1 || progress != "" {
			t.Errorf("the work on %s, requeued once: facts gathered %d times and progress %q, want once and none",
				w.volume.Name, gathered, progress)
		}
		w.succeeds(t, ended)
	})
}

func TestLongWorkLeavesNoTimerAndNoContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, c := newWorks(), clocktesting.NewFakeClock(time.Now())
		w.clock = c
		ended := w.begin(t.Context())
		w.succeeds(t, ended)
		if c.HasWaiters() || w.working.Err() == nil {
			t.Errorf("after the work on %s: a timer is left: %t, its context has ended with %v; want no timer, and %v",
				w.volume.Name, c.HasWaiters(), w.working.Err(), context.Canceled)
		}
	})
}

// intentFor wants volume vol published.
func intentFor(uid types.UID) *volumesv1alpha1.VolumeAttachmentIntent {
	return &volumesv1alpha1.VolumeAttachmentIntent{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: string(uid), UID: uid,
			Finalizers: []string{volumesv1alpha1.ReleaseFinalizer}},
		Spec:   volumesv1alpha1.VolumeAttachmentIntentSpec{DesiredState: volumesv1alpha1.DesiredPublished},
		Status: volumesv1alpha1.VolumeAttachmentIntentStatus{UniqueVolumeName: "vol"},
	}
}

// half is a volume that is not published for its first intent, and whose files have yet to be given to the group of the
// second.
func half() plan.Facts {
	f := plan.Facts{
		Name: "vol", Now: record.Moment{BootID: "boot"},
		Entry: &volumesv1alpha1.NodeAttachment{VolumeName: "vol", AttachmentUID: "uid",
			State: volumesv1alpha1.AttachmentAttached},
		Record: &record.Record{VolumeName: "vol", AttachmentUID: "uid", InUse: true,
			Stage: record.Stage{Phase: record.PhaseDone, BootID: "boot"}},
		Reference: record.Present,
		Intents:   []*volumesv1alpha1.VolumeAttachmentIntent{intentFor("first"), intentFor("second")},
		Uses:      map[types.UID]record.Presence{"first": record.Missing, "second": record.Present},
	}
	f.Record.Uses = f.Joined()
	f.Record.Uses[1].Phase, f.Record.Uses[1].BootID = record.PhaseUnowned, "boot"
	return f
}

func TestAStepIsTheNextOneUntilSomethingNewComesFirst(t *testing.T) {
	publish, group := plan.Step{Kind: plan.Publish, Intent: "first"}, plan.Step{Kind: plan.SetOwnership, Intent: "second"}
	for name, test := range map[string]struct {
		step   plan.Step
		change func(f *plan.Facts)
		want   bool
	}{
		"what came first did not help": {group, func(*plan.Facts) {}, true},
		"it came first":                {publish, func(*plan.Facts) {}, true},
		"another intent has come": {group, func(f *plan.Facts) { f.Intents = append(f.Intents, intentFor("third")) },
			false},
		"its intent is deleted": {group, func(f *plan.Facts) { f.Intents[1].DeletionTimestamp = ptr.To(metav1.Now()) },
			false},
		"it is done": {group, func(f *plan.Facts) { f.Record.Uses[1].Phase = record.PhaseDone }, false},
		"a step that followed it is due too": {publish, func(f *plan.Facts) {
			f.Record.Uses[0].Phase, f.Record.Uses[0].BootID = record.PhaseUnowned, "boot"
			f.Uses["first"] = record.Present
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			f := half()
			if steps := plan.Of(f); len(steps) != 2 || steps[0] != publish || steps[1] != group {
				t.Fatalf("the plan for %s is %v, want %v and then %v", f.Name, steps, publish, group)
			}
			still := newWorks().environment().stillNext(NewVolume(f.Name), f, test.step)
			later := half()
			test.change(&later)
			if got := still(later); got != test.want {
				t.Errorf("%v of %s is still the next step: %t, want %t; the plan is %v", test.step, f.Name, got, test.want,
					plan.Of(later))
			}
		})
	}
}
