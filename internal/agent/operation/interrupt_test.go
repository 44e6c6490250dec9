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
	"k8s.io/utils/clock"

	"github.com/hawser-io/hawser/internal/agent/failure"
	"github.com/hawser-io/hawser/internal/agent/plan"
)

var errGather = errors.New("the mount table cannot be read")

// works is long work on a volume. It ends when its context does, or when the test lets it.
type works struct {
	volume *Volume
	// mu is held by what gathers, and by a test that reads what the work has noted until then.
	mu       sync.Mutex
	gathered int
	// gatherErr is what gathering fails with, still whether the step is still the next one.
	gatherErr error
	still     bool
	finish    chan error
	// ends is what the work returns when its context ends.
	ends func(context.Context) error
}

func newWorks() *works {
	w := &works{volume: NewVolume("vol"), still: true, finish: make(chan error, 1), ends: context.Cause}
	w.volume.stillNext = func(plan.Facts) bool { return w.still }
	return w
}

// begin returns what the work ends with.
func (w *works) begin(ctx context.Context) <-chan error {
	env := &Environment{Options: Options{Clock: clock.RealClock{}, Log: logr.Discard(),
		Gather: func(context.Context, *Volume) (plan.Facts, error) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.gathered++
			return plan.Facts{}, w.gatherErr
		}}}
	long := longWork{Environment: env, volume: w.volume, name: "test", describe: func() string { return "half done" }}
	ended := make(chan error, 1)
	go func() {
		ended <- long.run(ctx, func(ctx context.Context) error {
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
		w.finish <- nil
		if err := <-ended; err != nil {
			t.Errorf("the work on %s ended with %v, want success", w.volume.Name, err)
		}
	})
}
