/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package operation

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/agent/failure"
	"github.com/hawser-io/hawser/internal/agent/kubelet"
	"github.com/hawser-io/hawser/internal/agent/plan"
	"github.com/hawser-io/hawser/internal/agent/record"
	"github.com/hawser-io/hawser/internal/agent/report"
)

// statuses takes the status of intents, as an API server does.
type statuses struct {
	client.Client
	writer statusWriter
}

// Status returns what writes the status of intents.
func (s *statuses) Status() client.SubResourceWriter { return &s.writer }

type statusWriter struct {
	client.SubResourceWriter
	// written are the names of the intents, and failing what the writes of some fail with.
	written []string
	failing map[string]error
}

// Update writes the status of an intent.
func (w *statusWriter) Update(_ context.Context, o client.Object, _ ...client.SubResourceUpdateOption) error {
	w.written = append(w.written, o.GetName())
	return w.failing[o.GetName()]
}

func TestTheStatusOfEachIntentIsWrittenWhateverBecomesOfTheOthers(t *testing.T) {
	errA, errB := errors.New("a is too long"), errors.New("b is too long")
	for name, failing := range map[string]map[string]error{
		"none fails":       nil,
		"the first fails":  {"a": errA},
		"the second fails": {"b": errB},
		"both fail":        {"a": errA, "b": errB},
	} {
		t.Run(name, func(t *testing.T) {
			api := &statuses{writer: statusWriter{failing: failing}}
			env := &Environment{Options: Options{Intents: report.NewIntentWriter(api, clock.RealClock{}, func(string) {})}}
			f := plan.Facts{Name: "vol"}
			for _, n := range []string{"a", "of-the-kubelet", "b"} {
				i := &volumesv1alpha1.VolumeAttachmentIntent{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: n}}
				meta.SetStatusCondition(&i.Status.Conditions, metav1.Condition{Type: volumesv1alpha1.ConditionStaged,
					Status: metav1.ConditionTrue, Reason: volumesv1alpha1.ReasonStaged})
				if n == "of-the-kubelet" {
					i.Spec.Publisher = volumesv1alpha1.PublisherKubelet
				}
				f.Intents = append(f.Intents, i)
			}
			err := env.ReportIntents(t.Context(), NewVolume("vol"), f)
			if want := []string{"a", "b"}; !slices.Equal(api.writer.written, want) {
				t.Errorf("the status of intents %v was written, want that of %v", api.writer.written, want)
			}
			if errors.Is(err, errA) != (failing["a"] != nil) || errors.Is(err, errB) != (failing["b"] != nil) {
				t.Errorf("reporting intents ns/a and ns/b, whose writes fail with %v: error %v, want all of these in it",
					failing, err)
			}
		})
	}
}

func TestTheNodesLineIsOfWhatTheRecordIsNow(t *testing.T) {
	w := newWorks()
	env, v, f := w.environment(), w.volume, half()
	f.Kubelet, f.Reference = &kubelet.TrackedUse{AttachmentUID: "uid"}, record.Missing
	v.Record = f.Record.Copy()
	f.Record.Uses = nil // the intents have joined since the facts were gathered
	env.Inform(v, f)
	if r, _ := w.state.ReportOf(v.Name); r.Line.PublishedBy != volumesv1alpha1.PublisherAgent ||
		len(r.Line.Publications) != 2 {
		t.Errorf("volume %s, which intents have joined: to be reported is %+v, want two publications by the agent", v.Name,
			r.Line)
	}
}

func TestAVolumeThatIsNotInUseHasNoLine(t *testing.T) {
	w := newWorks()
	w.volume.Record.InUse = false
	w.environment().Inform(w.volume, plan.Facts{Record: w.volume.Record})
	if r, known := w.state.ReportOf(w.volume.Name); known {
		t.Errorf("volume %s, which is not in use: to be reported is %+v, want nothing", w.volume.Name, r.Line)
	}
}

func TestARecordThatCannotBeWrittenStaysUnsaved(t *testing.T) {
	full := errors.New("the disk is full")
	w := newWorks()
	env, v := w.environment(), w.volume
	env.Step = func(string) {}
	var err error
	if env.Store, err = record.OpenStore(t.TempDir()); err != nil {
		t.Fatal(err)
	}
	env.Store.Replace = func(string, []byte) error { return full }
	v.Unsaved = true
	err = env.Persist(v)
	var p *failure.Problem
	if !errors.As(err, &p) || p.Reason != volumesv1alpha1.ReasonRecordFailed || !errors.Is(err, full) ||
		!strings.Contains(p.Message, "so nothing is done") || !v.Unsaved {
		t.Errorf("writing the record of %s: error %v, unsaved %t, want %s for %v, which says that nothing is done, and "+
			"the record unsaved", v.Name, err, v.Unsaved, volumesv1alpha1.ReasonRecordFailed, full)
	}
	env.Store.Replace = record.ReplaceFile
	if err := env.Persist(v); err != nil || v.Unsaved {
		t.Errorf("writing the record of %s again: error %v, unsaved %t, want it saved", v.Name, err, v.Unsaved)
	}
}
