/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package plan_test

import (
	"maps"
	"testing"
	"time"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hawser-io/hawser/internal/agent/plan"
	"github.com/hawser-io/hawser/internal/agent/record"
	"github.com/hawser-io/hawser/internal/metrics/metricstest"
)

// measured are the seconds that were observed of each phase of the driver.
func measured(t *testing.T, driver string) map[string]float64 {
	t.Helper()
	seconds := map[string]float64{}
	for _, sample := range metricstest.Observed(t, "hawser_phase_duration_seconds", "driver", driver) {
		seconds[sample.Labels["phase"]] = sample.Sum
	}
	return seconds
}

func attachedAs(uid types.UID, intents ...types.UID) plan.Facts {
	f := plan.Facts{
		Name: "v",
		Entry: &volumesv1alpha1.NodeAttachment{State: volumesv1alpha1.AttachmentAttached, AttachmentUID: uid,
			PersistentVolumeName: "pv"},
		Record: &record.Record{},
	}
	for _, i := range intents {
		f.Intents = append(f.Intents, &volumesv1alpha1.VolumeAttachmentIntent{
			ObjectMeta: metav1.ObjectMeta{UID: i, Generation: 1,
				Finalizers: []string{volumesv1alpha1.ReleaseFinalizer}},
			Spec:   volumesv1alpha1.VolumeAttachmentIntentSpec{DesiredState: volumesv1alpha1.DesiredPublished},
			Status: volumesv1alpha1.VolumeAttachmentIntentStatus{UniqueVolumeName: "v", VolumeName: "pv"},
		})
	}
	return f
}

func TestPhasesAreMeasuredOnce(t *testing.T) {
	start := time.Unix(1000, 0)
	second := func(n int) time.Time { return start.Add(time.Duration(n) * time.Second) }
	var p plan.Phases
	expect := func(when string, want map[string]float64) {
		t.Helper()
		if got := measured(t, "phases.test"); !maps.Equal(got, want) {
			t.Errorf("%s: measured %v, want %v", when, got, want)
		}
	}
	p.Observe(attachedAs("1"), second(0)) // attached and not wanted: no intent waits
	p.Observe(attachedAs("1", "i"), second(10))
	p.Observe(attachedAs("1", "i"), second(12))
	p.Done("phases.test", plan.Step{Kind: plan.Stage}, second(13))
	expect("staged", map[string]float64{"stage": 3})
	p.Done("phases.test", plan.Step{Kind: plan.Publish, Intent: "i"}, second(14))
	expect("published", map[string]float64{"stage": 3, "publish": 1})

	p.Observe(attachedAs("1", "i", "j"), second(100))
	p.Done("phases.test", plan.Step{Kind: plan.Publish, Intent: "j"}, second(102))
	expect("published for somebody who came later", map[string]float64{"stage": 3, "publish": 3})

	p.Done("phases.test", plan.Step{Kind: plan.Stage}, second(200))
	p.Done("phases.test", plan.Step{Kind: plan.Publish, Intent: "i"}, second(201))
	expect("mended", map[string]float64{"stage": 3, "publish": 3})

	raised := attachedAs("1", "i")
	raised.Intents[0].Generation = 2
	p.Observe(raised, second(300))
	p.Done("phases.test", plan.Step{Kind: plan.Publish, Intent: "i"}, second(304))
	expect("published anew under another spec", map[string]float64{"stage": 3, "publish": 7})

	p.Observe(attachedAs("2", "i"), second(400))
	p.Done("phases.test", plan.Step{Kind: plan.Stage}, second(405))
	expect("staged in its next life", map[string]float64{"stage": 8, "publish": 7})
}

func TestWhatAnEarlierProcessBeganIsNotMeasured(t *testing.T) {
	var p plan.Phases
	f := attachedAs("1", "i")
	f.Now.BootID, f.Record.Stage = "boot", record.Stage{Phase: record.PhaseDone, BootID: "boot"}
	p.Observe(f, time.Unix(0, 0))
	p.Done("restarted.test", plan.Step{Kind: plan.Stage}, time.Unix(9, 0))
	if got := measured(t, "restarted.test"); len(got) > 0 {
		t.Errorf("phases of driver restarted.test: %v, want none measured", got)
	}
}
