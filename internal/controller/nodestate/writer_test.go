/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package nodestate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/controllertest"
	"github.com/hawser-io/hawser/internal/controller/inflight"
)

const node = "node-a"

// writer over one NodeVolumeState, which its cache keeps as it is now; update, when not nil, comes before each write.
func writer(t *testing.T, update func(client.Client) error) (*Writer, client.Client) {
	t.Helper()
	return writerWith(t, nil, update)
}

func writerWith(t *testing.T, slots *inflight.Limiter, update func(client.Client) error) (*Writer, client.Client) {
	t.Helper()
	b := fake.NewClientBuilder().WithScheme(controllertest.Scheme()).
		WithInterceptorFuncs(interceptor.Funcs{
			Update: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
				if update != nil {
					if err := update(c); err != nil {
						return err
					}
				}
				return c.Update(ctx, o, opts...)
			},
		})
	api := controllertest.New(t, b, &volumesv1alpha1.NodeVolumeState{ObjectMeta: metav1.ObjectMeta{Name: node}})
	return New(api.Client, api.Live, slots), api.Live
}

func addEntry(name, padding string) Mutation {
	return func(context.Context, *volumesv1alpha1.NodeVolumeState) (Change, error) {
		return func(nvs *volumesv1alpha1.NodeVolumeState) {
			nvs.Spec.Attachments = append(nvs.Spec.Attachments, volumesv1alpha1.NodeAttachment{
				VolumeName: name, FSType: padding, State: volumesv1alpha1.AttachmentAttached,
			})
		}, nil
	}
}

func TestWaitingChangesAreWrittenTogetherAndLendTheirSlots(t *testing.T) { synctest.Test(t, applyMany) }

func applyMany(t *testing.T) {
	const many = 100
	writes := 0
	inFlight, first := make(chan struct{}), make(chan struct{})
	// The first commit holds one slot; all others have to get by with the other one.
	slots := inflight.New(2)
	w, c := writerWith(t, slots, func(client.Client) error {
		// One write at a time: nothing else counts meanwhile.
		if writes++; writes == 1 {
			close(inFlight)
			<-first
		}
		return nil
	})
	var wg sync.WaitGroup
	apply := func(i int) {
		wg.Go(func() {
			if err := slots.Do(t.Context(), func(ctx context.Context) error {
				_, err := w.Apply(ctx, node, addEntry(fmt.Sprint(i), ""))
				return err
			}); err != nil {
				t.Error(err)
			}
		})
	}
	apply(0)
	<-inFlight
	for i := 1; i < many; i++ {
		apply(i)
	}
	synctest.Wait()
	if n := w.batches.Waiting(node); n != many-1 {
		t.Errorf("%d changes wait for the second write of %s, want %d", n, node, many-1)
	}
	close(first)
	wg.Wait()
	nvs := &volumesv1alpha1.NodeVolumeState{}
	if err := c.Get(t.Context(), client.ObjectKey{Name: node}, nvs); err != nil || len(nvs.Spec.Attachments) != many {
		t.Errorf("entries of node state %s: %d, error %v; want %d", node, len(nvs.Spec.Attachments), err, many)
	}
	if writes != 2 {
		t.Errorf("%d writes for %d changes, of which all but the first waited; want 2", writes, many)
	}
}

func TestAfterAConflictEveryCheckRunsAgainOnAFreshRead(t *testing.T) {
	conflicts := 1
	w, _ := writer(t, func(c client.Client) error {
		if conflicts == 0 {
			return nil
		}
		conflicts--
		other := &volumesv1alpha1.NodeVolumeState{}
		if err := c.Get(t.Context(), client.ObjectKey{Name: node}, other); err != nil {
			return err
		}
		other.Spec.Protocol.Fences = 7
		if err := c.Update(t.Context(), other); err != nil {
			return err
		}
		return apierrors.NewConflict(schema.GroupResource{}, node, errors.New("somebody else was first"))
	})
	var seen []int64
	nvs, err := w.Apply(t.Context(), node, func(_ context.Context, nvs *volumesv1alpha1.NodeVolumeState) (Change, error) {
		seen = append(seen, nvs.Spec.Protocol.Fences)
		return func(nvs *volumesv1alpha1.NodeVolumeState) { nvs.Spec.Protocol.Fences++ }, nil
	})
	if err != nil || nvs.Spec.Protocol.Fences != 8 || len(seen) != 2 || seen[1] != 7 {
		t.Errorf("fences of node state %s after a conflict: %d, decided on %v, error %v; want 8, decided again on 7", node,
			nvs.Spec.Protocol.Fences, seen, err)
	}
}

func TestAStateThatCannotBeReadIsNotAMissingOne(t *testing.T) {
	w, c := writer(t, nil)
	down := errors.New("the API server is away")
	w.Reader = interceptor.NewClient(c.(client.WithWatch), interceptor.Funcs{
		Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
			return down
		},
	})
	if nvs, err := w.ReadState(t.Context(), node); !errors.Is(err, down) {
		t.Errorf("state of node %s: %v, error %v; want %v", node, nvs, err, down)
	}
}

func TestAWriterOfTheStatusDecidesOnLiveReadsAndSendsTheRestBack(t *testing.T) {
	b := fake.NewClientBuilder().WithScheme(controllertest.Scheme()).
		WithStatusSubresource(&volumesv1alpha1.NodeVolumeState{})
	api := controllertest.New(t, b, &volumesv1alpha1.NodeVolumeState{ObjectMeta: metav1.ObjectMeta{Name: node}})
	report := &volumesv1alpha1.NodeVolumeState{}
	if err := api.Live.Get(t.Context(), client.ObjectKey{Name: node}, report); err != nil {
		t.Fatal(err)
	}
	report.Status.Protocol.Reports = 7 // which the cache does not show yet
	if err := api.Live.Status().Update(t.Context(), report); err != nil {
		t.Fatal(err)
	}
	var seen []int64
	_, err := NewOfStatus(api.Client, api.Live, nil).Apply(t.Context(), node,
		func(_ context.Context, nvs *volumesv1alpha1.NodeVolumeState) (Change, error) {
			seen = append(seen, nvs.Status.Protocol.Reports)
			return func(nvs *volumesv1alpha1.NodeVolumeState) {
				nvs.Status.Node.Gone = &volumesv1alpha1.GoneObservation{LastRenewal: "last"}
				nvs.Spec.Protocol.Fences++
			}, nil
		})
	if err != nil || !slices.Equal(seen, []int64{7}) {
		t.Errorf("decided on reports %d, error %v; want on the live one alone, 7", seen, err)
	}
	if err := api.Live.Get(t.Context(), client.ObjectKey{Name: node}, report); err != nil {
		t.Fatal(err)
	}
	if s := report.Status; s.Protocol.Reports != 7 || s.Node.Gone == nil || report.Spec.Protocol.Fences != 0 {
		t.Errorf("status %+v and %d fences were written; want the observation beside report 7, and no fence", s,
			report.Spec.Protocol.Fences)
	}
}

func TestARefusedChangeDoesNotDelayTheOthers(t *testing.T) {
	w, _ := writer(t, nil)
	refused := errors.New("refused")
	if _, err := w.Apply(t.Context(), node, func(context.Context, *volumesv1alpha1.NodeVolumeState) (Change, error) {
		return nil, refused
	}); !errors.Is(err, refused) {
		t.Errorf("error of a refused change: %v, want %v", err, refused)
	}
	if nvs, err := w.Apply(t.Context(), node, addEntry("v", "")); err != nil || len(nvs.Spec.Attachments) != 1 {
		t.Errorf("change of node state %s after a refused one: error %v, want none and one entry", node, err)
	}
}

func TestNothingIsWrittenWhereNothingChanges(t *testing.T) {
	w, _ := writer(t, func(client.Client) error { return errors.New("written") })
	if nvs, err := w.ReadState(t.Context(), node); err != nil || nvs == nil || nvs.Name != node {
		t.Errorf("reading node state %s: %+v, error %v; want it without a write", node, nvs, err)
	}
	if nvs, err := w.ReadState(t.Context(), "other"); err != nil || nvs != nil {
		t.Errorf("reading absent node state other: %+v, error %v; want none", nvs, err)
	}
}

func TestSimultaneousReadersShareOneRead(t *testing.T) { synctest.Test(t, readMany) }

func readMany(t *testing.T) {
	const many = 100
	slots := inflight.New(1)
	w, c := writerWith(t, slots, nil)
	reads := 0
	w.Reader = interceptor.NewClient(c.(client.WithWatch), interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object,
			opts ...client.GetOption) error {
			reads++ // one commit at a time
			return c.Get(ctx, key, o, opts...)
		},
	})
	var wg sync.WaitGroup
	leave := slots.Take()
	for range many {
		wg.Go(func() {
			if _, err := w.ReadState(t.Context(), node); err != nil {
				t.Error(err)
			}
		})
	}
	synctest.Wait()
	if n := w.batches.Waiting(node); n != many {
		t.Errorf("%d reads of %s wait for a slot, want %d", n, node, many)
	}
	leave()
	wg.Wait()
	if reads != 1 {
		t.Errorf("%d reads of node state %s for %d requests, want 1", reads, node, many)
	}
}

func TestAChangeOfANodeWithoutStateIsRefused(t *testing.T) {
	w, _ := writer(t, nil)
	if _, err := w.Apply(t.Context(), "other", addEntry("v", "")); !errors.Is(err, ErrNotFound) {
		t.Errorf("changing absent node state other: error %v, want %v", err, ErrNotFound)
	}
}

func TestAFullNodeStateAcceptsOnlyRemovals(t *testing.T) {
	w, _ := writer(t, nil)
	if _, err := w.Apply(t.Context(), node, addEntry("big", strings.Repeat("x", SizeLimit-500))); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Apply(t.Context(), node, addEntry("more", strings.Repeat("x", 2000))); !errors.Is(err, ErrTooLarge) {
		t.Errorf("second large entry of node state %s: error %v, want %v", node, err, ErrTooLarge)
	}
	nvs, err := w.Apply(t.Context(), node, func(context.Context, *volumesv1alpha1.NodeVolumeState) (Change, error) {
		return func(nvs *volumesv1alpha1.NodeVolumeState) {
			nvs.Spec.Attachments[0].State = volumesv1alpha1.AttachmentDetaching
			nvs.Spec.Attachments[0].Evidence = &volumesv1alpha1.DetachEvidence{Message: strings.Repeat("x", 1000)}
		}, nil
	})
	if err != nil || nvs.Spec.Attachments[0].State != volumesv1alpha1.AttachmentDetaching {
		t.Errorf("entry of full node state %s set to Detaching: error %v, want none", node, err)
	}
}

// behind is a writer whose cache stays as cached, or shows what the API server has if that is nil; reads counts the
// live ones.
func behind(t *testing.T, cached *volumesv1alpha1.NodeVolumeState) (w *Writer, c client.Client, reads *int) {
	t.Helper()
	w, c = writer(t, nil)
	reads = new(int)
	w.Reader = interceptor.NewClient(c.(client.WithWatch), interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object,
			opts ...client.GetOption) error {
			*reads++
			return c.Get(ctx, key, o, opts...)
		},
	})
	w.Client = interceptor.NewClient(c.(client.WithWatch), interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object,
			opts ...client.GetOption) error {
			if cached == nil {
				return c.Get(ctx, key, o, opts...)
			}
			cached.DeepCopyInto(o.(*volumesv1alpha1.NodeVolumeState))
			return nil
		},
	})
	return w, c, reads
}

func stateOf(t *testing.T, c client.Client) *volumesv1alpha1.NodeVolumeState {
	t.Helper()
	nvs := &volumesv1alpha1.NodeVolumeState{}
	if err := c.Get(t.Context(), client.ObjectKey{Name: node}, nvs); err != nil {
		t.Fatal(err)
	}
	return nvs
}

// fenceElsewhere writes what the writer's cache does not show.
func fenceElsewhere(t *testing.T, c client.Client) {
	t.Helper()
	nvs := stateOf(t, c)
	nvs.Spec.Protocol.Fences = 7
	if err := c.Update(t.Context(), nvs); err != nil {
		t.Fatal(err)
	}
}

func TestAChangeIsWrittenOnTheKnownVersion(t *testing.T) {
	w, c, reads := behind(t, nil)
	if _, err := w.Apply(t.Context(), node, addEntry("a", "")); err != nil {
		t.Fatal(err)
	}
	if n := len(stateOf(t, c).Spec.Attachments); n != 1 || *reads != 0 {
		t.Errorf("node state %s: %d entries, %d live reads; want 1 and none", node, n, *reads)
	}
}

func TestTheNextChangeIsWrittenOnTheLastVersionAlsoWhileTheCacheLags(t *testing.T) {
	_, c, _ := behind(t, nil)
	w, c2, reads := behind(t, stateOf(t, c))
	for _, name := range []string{"a", "b"} {
		if _, err := w.Apply(t.Context(), node, addEntry(name, "")); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(stateOf(t, c2).Spec.Attachments); n != 2 || *reads != 0 {
		t.Errorf("node state %s: %d entries, %d live reads; want 2 and none", node, n, *reads)
	}
}

func TestWhatWasWrittenIsForgottenOnceTheCacheHasIt(t *testing.T) {
	_, c, _ := behind(t, nil)
	was := stateOf(t, c)
	w, c2, _ := behind(t, was)
	if _, err := w.Apply(t.Context(), node, addEntry("a", "")); err != nil {
		t.Fatal(err)
	}
	if w.Cached(was); len(w.written.last) != 1 {
		t.Errorf("%d states remembered while the cache lags, want 1", len(w.written.last))
	}
	if w.Cached(stateOf(t, c2)); len(w.written.last) != 0 {
		t.Errorf("%d states remembered once the cache has what was written, want none", len(w.written.last))
	}
}

func TestAChangeByAnotherClientIsDecidedAgainOnALiveRead(t *testing.T) {
	_, c, _ := behind(t, nil)
	w, c2, reads := behind(t, stateOf(t, c))
	fenceElsewhere(t, c2)
	var seen []int64
	nvs, err := w.Apply(t.Context(), node, func(_ context.Context, nvs *volumesv1alpha1.NodeVolumeState) (Change, error) {
		seen = append(seen, nvs.Spec.Protocol.Fences)
		return func(nvs *volumesv1alpha1.NodeVolumeState) { nvs.Spec.Protocol.Fences++ }, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(seen, []int64{0, 7}) || nvs.Spec.Protocol.Fences != 8 || *reads != 1 {
		t.Errorf("node state %s: decided on fences %d, wrote %d, %d live reads; want 0 and 7, 8, 1", node, seen,
			nvs.Spec.Protocol.Fences, *reads)
	}
}

func TestACallerThatChangesNothingReadsTheStateLive(t *testing.T) {
	_, c, _ := behind(t, nil)
	w, c2, reads := behind(t, stateOf(t, c))
	fenceElsewhere(t, c2)
	var seen []int64
	nvs, err := w.Apply(t.Context(), node, func(_ context.Context, nvs *volumesv1alpha1.NodeVolumeState) (Change, error) {
		seen = append(seen, nvs.Spec.Protocol.Fences)
		return nil, nil
	})
	if err != nil || nvs.Spec.Protocol.Fences != 7 || !slices.Equal(seen, []int64{0, 7}) {
		t.Errorf("node state %s: decided on fences %d, answered %+v, error %v; want 0 and 7, and 7 fences", node, seen, nvs,
			err)
	}
	if nvs, err = w.ReadState(t.Context(), node); err != nil || nvs.Spec.Protocol.Fences != 7 || *reads != 2 {
		t.Errorf("reading node state %s: %+v, error %v, %d live reads; want 7 fences and 2 reads", node, nvs, err, *reads)
	}
}

func TestNothingIsWrittenToADeletedNodeState(t *testing.T) {
	_, c, _ := behind(t, nil)
	w, c2, _ := behind(t, stateOf(t, c))
	if err := c2.Delete(t.Context(), stateOf(t, c2)); err != nil {
		t.Fatal(err)
	}
	missing := false
	_, err := w.Apply(t.Context(), node, func(_ context.Context, nvs *volumesv1alpha1.NodeVolumeState) (Change, error) {
		if missing = nvs == nil; missing {
			return nil, nil
		}
		return func(nvs *volumesv1alpha1.NodeVolumeState) { nvs.Spec.Protocol.Fences++ }, nil
	})
	if err != nil || !missing {
		t.Errorf("deleted node state %s: missing %t, error %v; want it missing", node, missing, err)
	}
}

// TestTheFunctionOfACallerDoesNotRunOnceTheCallerHasReturned: it reads what the caller has, and the caller goes on with
// that. The race detector is the judge.
func TestTheFunctionOfACallerDoesNotRunOnceTheCallerHasReturned(t *testing.T) {
	for _, when := range []string{"before it is asked", "when it is asked", "when it is asked again"} {
		t.Run(when, func(t *testing.T) {
			for range 50 {
				leaveWhile(t, when)
			}
		})
	}
}

func leaveWhile(t *testing.T, when string) {
	t.Helper()
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	writes := 0
	w, _ := writer(t, func(client.Client) error {
		if writes++; writes == 1 {
			return apierrors.NewConflict(schema.GroupResource{}, node, nil)
		}
		return nil
	})
	if when == "before it is asked" {
		leave()
	}
	asked, seen := 0, 0
	_, err := w.Apply(ctx, node, func(context.Context, *volumesv1alpha1.NodeVolumeState) (Change, error) {
		if asked++; asked == 1 == (when == "when it is asked") {
			leave()
		}
		return func(*volumesv1alpha1.NodeVolumeState) { seen++ }, nil
	})
	if seen++; err != nil && !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	// That commit is over when the next one is.
	if _, err := w.ReadState(t.Context(), node); err != nil {
		t.Error(err)
	}
}
