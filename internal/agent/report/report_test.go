/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package report_test

import (
	"testing"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/hawser-io/hawser/internal/agent/failure"
	"github.com/hawser-io/hawser/internal/agent/kubelet"
	"github.com/hawser-io/hawser/internal/agent/operation"
	"github.com/hawser-io/hawser/internal/agent/plan"
	"github.com/hawser-io/hawser/internal/agent/plan/plantest"
	"github.com/hawser-io/hawser/internal/agent/record"
	"github.com/hawser-io/hawser/internal/agent/report"
	"github.com/hawser-io/hawser/internal/mount"
)

// lineIn is the report on the volume of a plantest.Situation, which the change has altered.
func lineIn(change func(*plan.Facts, *operation.Volume)) report.VolumeReport {
	f := plantest.Situation()
	v := operation.NewVolume(plantest.Volume)
	v.Record = f.Record
	if change != nil {
		change(f, v)
	}
	return report.NewVolumeReport(v.Snapshot(), *f)
}

func TestWhatIsReportedOfAVolume(t *testing.T) {
	reference := volumesv1alpha1.IntentReference{Namespace: "ns", Name: "intent-1", UID: "intent-1"}
	publication := volumesv1alpha1.Publication{Intent: reference, Path: "/r/published/ns/intent-1",
		Type: volumesv1alpha1.PublicationMount}
	well := func() report.VolumeReport {
		return report.VolumeReport{Staged: true, Published: true, Line: volumesv1alpha1.NodeVolume{
			VolumeName: plantest.Volume, AttachmentUID: "uid", InUse: true, PublishedBy: volumesv1alpha1.PublisherAgent,
			StagedPath:   "/k/stage",
			Publications: []volumesv1alpha1.Publication{publication},
		}}
	}
	quantity := ptr.To(resource.MustParse("2Gi"))
	for name, test := range map[string]struct {
		change func(*plan.Facts, *operation.Volume)
		want   func(*report.VolumeReport)
	}{
		"all is well": {nil, func(*report.VolumeReport) {}},
		"it is not in use yet": {func(f *plan.Facts, _ *operation.Volume) {
			f.Record.InUse, f.Record.Stage, f.Record.Uses[0].Phase = false, record.Stage{Path: "/k/stage"}, record.PhaseNone
		}, func(r *report.VolumeReport) {
			r.Line.InUse, r.Line.StagedPath, r.Staged, r.Published = false, "", false, false
		}},
		"the end of the calls is not known": {func(f *plan.Facts, _ *operation.Volume) {
			f.Record.Stage.Phase, f.Record.Uses[0].Phase = record.PhaseUncertain, record.PhaseUncertain
		}, func(r *report.VolumeReport) { r.Staged, r.Published = false, false }},
		"a second one is not published yet": {func(f *plan.Facts, _ *operation.Volume) {
			second := f.Record.Uses[0]
			second.Phase, second.ReadOnly, second.Path, second.Intent.UID = record.PhaseNone, true, "/second", "2"
			f.Record.Uses = append(f.Record.Uses, second)
			i := plantest.Intent("2")
			f.Intents = append(f.Intents, i)
		}, func(r *report.VolumeReport) {
			second := publication
			second.Path, second.ReadOnly, second.Intent.UID = "/second", true, "2"
			r.Line.Publications = append(r.Line.Publications, second)
		}},
		"it is wanted no further than staged": {func(f *plan.Facts, _ *operation.Volume) {
			f.Record.Uses[0].Path, f.Record.Uses[0].Phase = "", record.PhaseNone
		},
			func(r *report.VolumeReport) { r.Published, r.Line.Publications = false, nil }},
		"its device": {func(f *plan.Facts, _ *operation.Volume) { f.Record.Stage.Device = "/dev/a" },
			func(r *report.VolumeReport) { r.Line.DevicePath = "/dev/a" }},
		"the device that is published": {func(f *plan.Facts, _ *operation.Volume) {
			f.Record.Stage.Device, f.Record.Uses[0].Device = "/dev/a", "/dev/b"
		},
			func(r *report.VolumeReport) { r.Line.DevicePath = "/dev/b" }},
		"its capacity": {func(f *plan.Facts, _ *operation.Volume) { f.Record.Capacity = quantity },
			func(r *report.VolumeReport) { r.Line.Capacity = quantity }},
		"its intent is not there": {func(f *plan.Facts, _ *operation.Volume) { f.Intents = nil },
			func(r *report.VolumeReport) { r.Orphan, r.Line.Publications[0].Orphan = true, true }},
		"it is not attached": {func(f *plan.Facts, _ *operation.Volume) { f.Entry = nil },
			func(r *report.VolumeReport) { r.Orphan = true }},
		"it was seen in the mount table alone": {func(f *plan.Facts, _ *operation.Volume) { f.Record.MountTableOnly = true },
			func(r *report.VolumeReport) { r.Line.MountTableOnly = true }},
		"and on a device": {func(f *plan.Facts, _ *operation.Volume) {
			f.Record.MountTableOnly, f.Record.Devices = true, []record.SeenDevice{{Device: mount.Device{Path: "/dev/a"}}}
		},
			func(*report.VolumeReport) {}},
		"it could not be shut down": {func(_ *plan.Facts, v *operation.Volume) { v.Unprotected = true },
			func(r *report.VolumeReport) { r.Line.Unprotected = true }},
		"mounts are lost": {func(_ *plan.Facts, v *operation.Volume) { v.SetLost([]string{"/a", "/b"}) },
			func(r *report.VolumeReport) { r.Differs = "not mounted any more: /a, /b" }},
		"how full it is": {func(_ *plan.Facts, v *operation.Volume) {
			v.SetFigures(&report.Figures{Used: quantity, Available: quantity, Inodes: ptr.To(int64(5)),
				InodesUsed: ptr.To(int64(3))})
		}, func(r *report.VolumeReport) {
			r.Line.Used, r.Line.Available, r.Line.Inodes, r.Line.InodesUsed = quantity, quantity, ptr.To(int64(5)),
				ptr.To(int64(3))
		}},
		"the driver reports a problem": {func(f *plan.Facts, _ *operation.Volume) { f.Record.Health = plantest.Scratched() },
			func(r *report.VolumeReport) { r.Line.Health = plantest.Scratched() }},
		"what fails first": {func(f *plan.Facts, v *operation.Volume) {
			f.Record.Stage.Phase, f.Stage = record.PhaseUncertain, record.Missing
			v.Failures[plan.Step{Kind: plan.Stage}] = operationFailed("stage")
			v.Failures[plan.Step{Kind: plan.ClearInUse}] = operationFailed("unstage")
		}, func(r *report.VolumeReport) {
			r.Staged, r.Line.Error = false, &volumesv1alpha1.OperationError{Operation: "stage"}
		}},
		"only the kubelet uses it still": {func(f *plan.Facts, _ *operation.Volume) {
			plantest.Unused(f)
			f.Reference, f.Kubelet = record.Missing, &kubelet.TrackedUse{}
		}, func(r *report.VolumeReport) {
			r.Published, r.Line.Publications, r.Line.PublishedBy = false, nil, volumesv1alpha1.PublisherKubelet
		}},
	} {
		want := well()
		test.want(&want)
		if got := lineIn(test.change); !equality.Semantic.DeepEqual(got.Line, want.Line) || got.Staged != want.Staged ||
			got.Published != want.Published ||
			got.Orphan != want.Orphan || got.Differs != want.Differs {
			t.Errorf("report of volume %s where %s: %+v, want %+v", plantest.Volume, name, got, want)
		}
	}
	t.Run("is its own", func(t *testing.T) {
		f := plantest.Situation()
		q := resource.MustParse("1Gi")
		f.Record.Capacity = &q
		v := operation.NewVolume(plantest.Volume)
		v.Record = f.Record
		failed := &failure.Failure{OperationError: volumesv1alpha1.OperationError{Operation: "stage",
			NextAttemptTime: &metav1.MicroTime{}}}
		f.Record.Stage.Phase, f.Stage, v.Failures[plan.Step{Kind: plan.Stage}] = record.PhaseUncertain, record.Missing, failed
		r := report.NewVolumeReport(v.Snapshot(), *f)
		r.Line.Capacity.Add(q)
		if f.Record.Capacity.String() != "1Gi" || r.Line.Error.NextAttemptTime == failed.NextAttemptTime {
			t.Errorf("the record's capacity became %s, want 1Gi, and the time of the failure unchanged", f.Record.Capacity)
		}
	})
}

func TestAReportIsNewsWhereAnythingInItDiffers(t *testing.T) {
	for name, change := range map[string]func(*report.VolumeReport){
		"staged":    func(r *report.VolumeReport) { r.Staged = !r.Staged },
		"published": func(r *report.VolumeReport) { r.Published = !r.Published },
		"orphan":    func(r *report.VolumeReport) { r.Orphan = true },
		"differs":   func(r *report.VolumeReport) { r.Differs = "x" },
		"health":    func(r *report.VolumeReport) { r.Line.Health = plantest.Scratched() },
		"line":      func(r *report.VolumeReport) { r.Line.InUse = !r.Line.InUse },
		"capacity":  func(r *report.VolumeReport) { r.Line.Capacity = ptr.To(resource.MustParse("1")) },
	} {
		r := lineIn(nil)
		change(&r)
		if r.Equal(lineIn(nil)) {
			t.Errorf("another value of %s is equal, want that it is news", name)
		}
	}
	a, b := lineIn(nil), lineIn(nil)
	a.Line.Capacity, b.Line.Capacity = ptr.To(resource.MustParse("1024Mi")), ptr.To(resource.MustParse("1Gi"))
	if !a.Equal(b) {
		t.Errorf("line %+v with the same capacity in other words is news, want that it equals %+v", a, b)
	}
}

func operationFailed(operation string) *failure.Failure {
	return &failure.Failure{OperationError: volumesv1alpha1.OperationError{Operation: operation}}
}
