/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package operation_test

import (
	"reflect"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/agent/failure"
	"github.com/hawser-io/hawser/internal/agent/kubelet"
	"github.com/hawser-io/hawser/internal/agent/operation"
	"github.com/hawser-io/hawser/internal/agent/plan"
	"github.com/hawser-io/hawser/internal/agent/plan/plantest"
	"github.com/hawser-io/hawser/internal/agent/record"
	"github.com/hawser-io/hawser/internal/agent/report"
)

func TestNothingIsStagedOrPublishedBeforeTheSessionIsConfirmed(t *testing.T) {
	for verb, change := range map[plan.Kind]func(*plan.Facts){
		plan.Stage:   func(f *plan.Facts) { f.Record.Stage, f.Stage = record.Stage{}, record.Missing },
		plan.Publish: func(f *plan.Facts) { f.Uses["intent-1"] = record.Missing },
	} {
		f := plantest.Situation()
		change(f)
		v := &operation.Volume{Name: plantest.Volume, Record: f.Record}
		if a, ok := v.Next(*f, nil, time.Now()); !ok || a.Kind != verb {
			t.Errorf("session confirmed: the next step is %v, want %v", a, verb)
		}
		f.Unconfirmed = true
		if a, ok := v.Next(*f, nil, time.Now()); ok {
			t.Errorf("session not confirmed: the next step is %v, want none", a)
		}
		if d := v.RequeueAfter(*f, nil, time.Now()); d != 0 {
			t.Errorf("session not confirmed: requeued after %s, want no time", d)
		}
	}
}

func TestAttemptsAreForgottenOnlyOfWhatWillNotBeTried(t *testing.T) {
	unstaged := func(f *plan.Facts) { f.Record.Stage, f.Stage = record.Stage{}, record.Missing }
	for name, test := range map[string]struct {
		change            func(*plan.Facts)
		stages, publishes bool
	}{
		"all is well":          {func(*plan.Facts) {}, false, false},
		"the stage is planned": {unstaged, true, true},
		"a call hangs":         {func(f *plan.Facts) { f.CallHangs = true }, true, true},
		"the session waits to be confirmed": {func(f *plan.Facts) { f.Record.InUse, f.Unconfirmed = false, true }, true,
			true},
		"the volume is to be taken into use":   {func(f *plan.Facts) { f.Record.InUse = false }, true, true},
		"the intent does not want it any more": {func(f *plan.Facts) { unstaged(f); plantest.Deleting(f) }, false, false},
	} {
		f := plantest.Situation()
		test.change(f)
		v := &operation.Volume{Name: plantest.Volume, Record: f.Record, Failures: map[plan.Step]*failure.Failure{
			{Kind: plan.Stage}: {}, {Kind: plan.Publish, Intent: "intent-1"}: {},
		}}
		v.Prune(*f)
		stages := v.Failures[plan.Step{Kind: plan.Stage}] != nil
		publishes := v.Failures[plan.Step{Kind: plan.Publish, Intent: "intent-1"}] != nil
		if stages != test.stages || publishes != test.publishes {
			t.Errorf("%s: the failed stage is remembered: %t, the failed publication: %t, want %t and %t", name, stages,
				publishes, test.stages, test.publishes)
		}
	}
}

func TestAnEndThatTheDiskDoesNotKnowIsNotReported(t *testing.T) {
	f := plantest.Situation()
	plantest.Unused(f)
	f.Kubelet, f.Reference = &kubelet.TrackedUse{}, record.Missing
	v := volumeWith(f.Record)
	for _, f.Unsaved = range []bool{true, false} {
		reported := report.NewIntentReport(v.Snapshot(), *f, f.Intents[0]).Published != nil
		if left := report.NewVolumeReport(v.Snapshot(),
			*f).Line.PublishedBy == volumesv1alpha1.PublisherKubelet; reported == f.Unsaved || left == f.Unsaved {
			t.Errorf("unsaved: %t; the intent's end is reported: %t, the line is the kubelet's: %t, want both only if it is "+
				"saved", f.Unsaved, reported, left)
		}
	}
}

func TestTheEntrysCapacityIsOnlyRead(t *testing.T) {
	f, shared := plantest.Situation(), resource.MustParse("2Gi")
	seen := resource.MustParse("1.5Gi") // a fraction has another form inside, into which a comparison brings both
	f.Expands, f.Entry.Capacity, f.Record.Capacity = true, &shared, &seen
	f.Intents[0].Status.Capacity = &seen
	if !f.Grows() || volumeWith(f.Record).Snapshot().ExpandedVerdict(*f, f.Intents[0]) == nil {
		t.Errorf("volume %s of %s, with %s on the node: it does not grow, want that it does", f.Name, shared.String(),
			seen.String())
	}
	f.Record.Capacity = &shared
	volumeWith(f.Record).Snapshot().ExpandedVerdict(*f, f.Intents[0])
	if !reflect.DeepEqual(shared, resource.MustParse("2Gi")) {
		t.Errorf("the entry's capacity became %#v, want 2Gi unchanged", shared)
	}
}

func volumeWith(r *record.Record) *operation.Volume {
	v := operation.NewVolume(plantest.Volume)
	v.Record = r
	return v
}
func TestWhatIsHeldBackUntilTheSessionIsConfirmed(t *testing.T) {
	for _, unconfirmed := range []bool{false, true} {
		f := plantest.Situation()
		f.Unconfirmed = unconfirmed
		var held []plan.Kind
		for _, kind := range []plan.Kind{plan.MarkInUse, plan.Join, plan.Stage, plan.Publish, plan.Expand,
			plan.Unpublish, plan.Unstage, plan.Reference, plan.ClearInUse} {
			if operation.AwaitsConfirmation(*f, plan.Step{Kind: kind}) {
				held = append(held, kind)
			}
		}
		want := []plan.Kind(nil)
		if unconfirmed {
			want = []plan.Kind{plan.Stage, plan.Publish, plan.Expand}
		}
		if !slices.Equal(held, want) {
			t.Errorf("session not confirmed %t: %v held back, want %v", unconfirmed, held, want)
		}
	}
}
