/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package nodestate

import (
	"context"
	"errors"
	"testing"

	"k8s.io/apimachinery/pkg/api/equality"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
)

// counted is a writer over a state whose generation the API server counts, and that server. answer, when it is not nil, says how the
// writer is answered.
func counted(t *testing.T, answer func(error) error) (*Writer, client.Client) {
	t.Helper()
	w, plain := writer(t, nil)
	server := interceptor.NewClient(plain.(client.WithWatch), interceptor.Funcs{
		Update: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
			nvs, standing := o.(*volumesv1alpha1.NodeVolumeState), &volumesv1alpha1.NodeVolumeState{}
			if err := c.Get(ctx, client.ObjectKeyFromObject(o), standing); err != nil {
				return err
			}
			sent := nvs.DeepCopy()
			sent.Generation = standing.Generation
			if !equality.Semantic.DeepEqual(sent.Spec, standing.Spec) {
				sent.Generation++
			}
			err := c.Update(ctx, sent, opts...)
			if err == nil {
				*nvs = *sent
			}
			return err
		},
	})
	w.Client = interceptor.NewClient(server, interceptor.Funcs{
		Update: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
			err := c.Update(ctx, o, opts...)
			if answer != nil {
				err = answer(err)
			}
			return err
		},
	})
	nvs := stateOf(t, plain)
	nvs.UID, nvs.Generation = "first", 1
	if err := plain.Update(t.Context(), nvs); err != nil {
		t.Fatal(err)
	}
	return w, server
}

// add an entry as the writer does.
func (w *Writer) add(t *testing.T, name string) {
	t.Helper()
	if _, err := w.Apply(t.Context(), node, addEntry(name, "")); err != nil {
		t.Fatal(err)
	}
}

// reports is what an agent writes.
func reports(t *testing.T, c client.Client) {
	t.Helper()
	nvs := stateOf(t, c)
	nvs.Status.Reports++
	if err := c.Update(t.Context(), nvs); err != nil {
		t.Fatal(err)
	}
}

func (w *Writer) unbroken(t *testing.T, since Point) bool {
	t.Helper()
	return w.Unbroken(w.Known(t.Context(), node), since)
}

func TestOwnWritesAreUnbrokenWhateverTheAgentReports(t *testing.T) {
	w, c := counted(t, nil)
	start := PointOf(w.Known(t.Context(), node))
	if !w.unbroken(t, start) {
		t.Error("broken before anything was written")
	}
	for _, name := range []string{"a", "b", "c"} {
		w.add(t, name)
		reports(t, c)
	}
	now := w.Known(t.Context(), node)
	if now.Generation != 4 || !w.Unbroken(now, start) || !w.Unbroken(now, PointOf(now)) {
		t.Errorf("broken at generation %d", now.Generation)
	}
}

func TestAWriteThatChangesNothingOfTheSpecIsNoNewGeneration(t *testing.T) {
	w, _ := counted(t, nil)
	w.add(t, "a")
	start := PointOf(w.Known(t.Context(), node))
	_, err := w.Apply(t.Context(), node, func(context.Context, *volumesv1alpha1.NodeVolumeState) (Change, error) {
		return func(nvs *volumesv1alpha1.NodeVolumeState) { nvs.Annotations = map[string]string{"declared": "x"} }, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	w.add(t, "b")
	if now := w.Known(t.Context(), node); now.Generation != 3 || !w.Unbroken(now, start) {
		t.Errorf("broken at generation %d", now.Generation)
	}
}

func TestWhatSomebodyElseWritesBreaksTheChain(t *testing.T) {
	w, c := counted(t, nil)
	w.add(t, "a")
	before := PointOf(w.Known(t.Context(), node))
	fenceElsewhere(t, c)
	if w.unbroken(t, before) {
		t.Error("unbroken after a foreign fence")
	}
	after := PointOf(w.Known(t.Context(), node))
	w.add(t, "b")
	if w.unbroken(t, before) {
		t.Error("the next own write mends the chain")
	}
	if !w.unbroken(t, after) {
		t.Error("no chain begins after the fence")
	}
	if nvs := stateOf(t, c); w.Unbroken(nvs, Point{UID: "second", Generation: after.Generation}) || w.Unbroken(nvs, Point{}) || w.Unbroken(nil, after) {
		t.Error("unbroken with a state of another UID, or with none")
	}
}

func TestAConflictWithAReportDoesNotBreakTheChain(t *testing.T) {
	w, c := counted(t, nil)
	start := PointOf(w.Known(t.Context(), node))
	w.add(t, "a")
	times := 0
	_, err := w.Apply(t.Context(), node, func(context.Context, *volumesv1alpha1.NodeVolumeState) (Change, error) {
		if times++; times == 1 {
			reports(t, c)
		}
		return func(nvs *volumesv1alpha1.NodeVolumeState) { nvs.Spec.Fences++ }, nil
	})
	if err != nil || times != 2 {
		t.Fatalf("decided %d times, %v", times, err)
	}
	if !w.unbroken(t, start) {
		t.Error("broken")
	}
}

func TestAWriteOfUnknownOutcomeEndsTheChain(t *testing.T) {
	lost := errors.New("the answer was lost")
	fail := false
	w, _ := counted(t, func(err error) error {
		if fail {
			return lost
		}
		return err
	})
	start := PointOf(w.Known(t.Context(), node))
	w.add(t, "a")
	fail = true
	if _, err := w.Apply(t.Context(), node, addEntry("b", "")); !errors.Is(err, lost) {
		t.Fatal(err)
	}
	if own := w.chains.of(node); own != (chain{}) {
		t.Errorf("the chain goes on: %+v", own)
	}
	fail = false
	w.add(t, "c")
	if now := w.Known(t.Context(), node); now.Generation != 4 || w.Unbroken(now, start) {
		t.Errorf("unbroken at generation %d", now.Generation)
	}
}

func TestNothingIsKeptOfAStateThatIsGone(t *testing.T) {
	w, c := counted(t, nil)
	w.add(t, "a")
	if err := c.Delete(t.Context(), stateOf(t, c)); err != nil {
		t.Fatal(err)
	}
	if w.Known(t.Context(), node) != nil || len(w.chains.last) != 0 {
		t.Errorf("left: %v", w.chains.last)
	}
}
