/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package agent

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/mount"
)

// lineIn is the report on the volume of a situation, which the change has altered.
func lineIn(change func(*facts, *volume)) report {
	f := situation()
	v := newVolume(planVolume)
	v.record = f.record
	if change != nil {
		change(f, v)
	}
	return lineOf(v.snapshot(), *f)
}

func TestWhatIsReportedOfAVolume(t *testing.T) {
	reference := volumesv1alpha1.IntentReference{Namespace: "ns", Name: "intent-1", UID: "intent-1"}
	publication := volumesv1alpha1.Publication{Intent: reference, Path: "/r/published/ns/intent-1", Type: volumesv1alpha1.PublicationMount}
	well := func() report {
		return report{staged: true, published: true, line: volumesv1alpha1.NodeVolume{
			VolumeName: planVolume, AttachmentUID: "uid", InUse: true, PublishedBy: volumesv1alpha1.PublisherAgent, StagedPath: "/k/stage",
			Publications: []volumesv1alpha1.Publication{publication},
		}}
	}
	quantity := ptr.To(resource.MustParse("2Gi"))
	for name, test := range map[string]struct {
		change func(*facts, *volume)
		want   func(*report)
	}{
		"all is well": {nil, func(*report) {}},
		"it is not in use yet": {func(f *facts, _ *volume) {
			f.record.InUse, f.record.Stage, f.record.Uses[0].Phase = false, Stage{Path: "/k/stage"}, PhaseNone
		}, func(r *report) { r.line.InUse, r.line.StagedPath, r.staged, r.published = false, "", false, false }},
		"the end of the calls is not known": {func(f *facts, _ *volume) {
			f.record.Stage.Phase, f.record.Uses[0].Phase = PhaseUncertain, PhaseUncertain
		}, func(r *report) { r.staged, r.published = false, false }},
		"a second one is not published yet": {func(f *facts, _ *volume) {
			second := f.record.Uses[0]
			second.Phase, second.ReadOnly, second.Path, second.Intent.UID = PhaseNone, true, "/second", "2"
			f.record.Uses = append(f.record.Uses, second)
			i := planIntent("2")
			f.intents = append(f.intents, i)
		}, func(r *report) {
			second := publication
			second.Path, second.ReadOnly, second.Intent.UID = "/second", true, "2"
			r.line.Publications = append(r.line.Publications, second)
		}},
		"it is wanted no further than staged": {func(f *facts, _ *volume) { f.record.Uses[0].Path, f.record.Uses[0].Phase = "", PhaseNone },
			func(r *report) { r.published, r.line.Publications = false, nil }},
		"its device": {func(f *facts, _ *volume) { f.record.Stage.Device = "/dev/a" }, func(r *report) { r.line.DevicePath = "/dev/a" }},
		"the device that is published": {func(f *facts, _ *volume) { f.record.Stage.Device, f.record.Uses[0].Device = "/dev/a", "/dev/b" },
			func(r *report) { r.line.DevicePath = "/dev/b" }},
		"its capacity":            {func(f *facts, _ *volume) { f.record.Capacity = quantity }, func(r *report) { r.line.Capacity = quantity }},
		"its intent is not there": {func(f *facts, _ *volume) { f.intents = nil }, func(r *report) { r.orphan, r.line.Publications[0].Orphan = true, true }},
		"it is not attached":      {func(f *facts, _ *volume) { f.entry = nil }, func(r *report) { r.orphan = true }},
		"it was seen in the mount table alone": {func(f *facts, _ *volume) { f.record.MountTableOnly = true },
			func(r *report) { r.line.MountTableOnly = true }},
		"and on a device": {func(f *facts, _ *volume) {
			f.record.MountTableOnly, f.record.Devices = true, []SeenDevice{{Device: mount.Device{Path: "/dev/a"}}}
		},
			func(*report) {}},
		"it could not be shut down": {func(_ *facts, v *volume) { v.unprotected = true }, func(r *report) { r.line.Unprotected = true }},
		"mounts are lost":           {func(_ *facts, v *volume) { v.setLost([]string{"/a", "/b"}) }, func(r *report) { r.differs = "not mounted any more: /a, /b" }},
		"how full it is": {func(_ *facts, v *volume) {
			v.setFigures(&figures{used: quantity, available: quantity, inodes: ptr.To(int64(5)), inodesUsed: ptr.To(int64(3)), abnormal: "scratched"})
		}, func(r *report) {
			r.line.Used, r.line.Available, r.line.Inodes, r.line.InodesUsed = quantity, quantity, ptr.To(int64(5)), ptr.To(int64(3))
			r.abnormal = "scratched"
		}},
		"what fails first": {func(f *facts, v *volume) {
			f.record.Stage.Phase, f.stage = PhaseUncertain, missing
			v.failures[act{verb: doStage}] = &failure{OperationError: volumesv1alpha1.OperationError{Operation: "stage"}}
			v.failures[act{verb: doClear}] = &failure{OperationError: volumesv1alpha1.OperationError{Operation: "unstage"}}
		}, func(r *report) { r.staged, r.line.Error = false, &volumesv1alpha1.OperationError{Operation: "stage"} }},
		"only the kubelet uses it still": {func(f *facts, _ *volume) {
			unused(f)
			f.reference, f.kubelet = missing, &kubeletUse{}
		}, func(r *report) {
			r.published, r.line.Publications, r.line.PublishedBy = false, nil, volumesv1alpha1.PublisherKubelet
		}},
	} {
		want := well()
		test.want(&want)
		if got := lineIn(test.change); !equality.Semantic.DeepEqual(got.line, want.line) || got.staged != want.staged || got.published != want.published ||
			got.orphan != want.orphan || got.differs != want.differs || got.abnormal != want.abnormal {
			t.Errorf("%s: %+v, want %+v", name, got, want)
		}
	}
	t.Run("is its own", func(t *testing.T) {
		f := situation()
		q := resource.MustParse("1Gi")
		f.record.Capacity = &q
		v := newVolume(planVolume)
		v.record = f.record
		failed := &failure{OperationError: volumesv1alpha1.OperationError{Operation: "stage", NextAttemptTime: &metav1.MicroTime{}}}
		f.record.Stage.Phase, f.stage, v.failures[act{verb: doStage}] = PhaseUncertain, missing, failed
		r := lineOf(v.snapshot(), *f)
		r.line.Capacity.Add(q)
		if f.record.Capacity.String() != "1Gi" || r.line.Error.NextAttemptTime == failed.NextAttemptTime {
			t.Errorf("the record's capacity became %s", f.record.Capacity)
		}
	})
}

func TestAReportIsNewsWhereAnythingInItDiffers(t *testing.T) {
	for name, change := range map[string]func(*report){
		"staged": func(r *report) { r.staged = !r.staged }, "published": func(r *report) { r.published = !r.published },
		"orphan": func(r *report) { r.orphan = true }, "differs": func(r *report) { r.differs = "x" }, "abnormal": func(r *report) { r.abnormal = "x" },
		"line": func(r *report) { r.line.InUse = !r.line.InUse }, "capacity": func(r *report) { r.line.Capacity = ptr.To(resource.MustParse("1")) },
	} {
		r := lineIn(nil)
		change(&r)
		if r.equal(lineIn(nil)) {
			t.Errorf("%s is no news", name)
		}
	}
	a, b := lineIn(nil), lineIn(nil)
	a.line.Capacity, b.line.Capacity = ptr.To(resource.MustParse("1024Mi")), ptr.To(resource.MustParse("1Gi"))
	if !a.equal(b) {
		t.Error("the same capacity in other words is news")
	}
}

func TestWhatIsReportedOfTheNode(t *testing.T) {
	b := newBench(t, filesystem)
	a := b.agent
	a.node.Version = "v1"
	s := b.state
	s.Generation = 7
	s.Status.BootID, s.Status.ObservedGeneration = "earlier", 5
	reports := map[string]report{
		"c": {line: volumesv1alpha1.NodeVolume{VolumeName: "c", InUse: true}, staged: true, published: true, abnormal: "scratched"},
		"a": {line: volumesv1alpha1.NodeVolume{VolumeName: "a", Error: &volumesv1alpha1.OperationError{}}, staged: true, orphan: true},
		"b": {line: volumesv1alpha1.NodeVolume{VolumeName: "b"}},
	}
	a.observer.last.uses = map[string]kubeletUse{"d": {AttachmentUID: "uid-d", published: true}, "b": {StagedPath: "/staged"}}
	a.node.renderNode(s, reports)
	var names []string
	for _, v := range s.Status.Volumes {
		names = append(names, v.VolumeName)
	}
	if !slices.Equal(names, []string{"a", "b", "c", "d"}) || s.Status.Volumes[3].PublishedBy != volumesv1alpha1.PublisherKubelet {
		t.Errorf("volumes: %v", names)
	}
	if want := (volumesv1alpha1.NodeVolumeSummary{Attached: 1, Staged: 3, Published: 2, Failing: 2, Orphaned: 1}); *s.Status.Summary != want {
		t.Errorf("summary: %+v", s.Status.Summary)
	}
	if s.Status.BootID != "boot" || s.Status.AgentVersion != "v1" || !reflect.DeepEqual(s.Status.Drivers, a.Registry.Drivers()) {
		t.Errorf("status: %+v", s.Status)
	}
	if len(s.Status.Conditions) != 5 || s.Status.ObservedGeneration != 0 {
		t.Errorf("conditions: %+v, observed generation %d", s.Status.Conditions, s.Status.ObservedGeneration)
	}
	for name, test := range map[string]struct {
		uid        string
		generation int64
		observed   int64
	}{
		"the last look counts":                   {"state", 7, 7},
		"an earlier one does, too":               {"state", 6, 6},
		"one at a later state does not":          {"state", 8, 0},
		"one at a state of another life neither": {"other", 6, 0},
	} {
		s.Status.ObservedGeneration, s.Status.ObservedUID = 0, ""
		a.observer.last.uid, a.observer.last.generation = uidOf(test.uid), test.generation
		a.node.renderNode(s, reports)
		if s.Status.ObservedGeneration != test.observed || (s.Status.ObservedUID == "state") != (test.observed > 0) {
			t.Errorf("%s: %d, %s", name, s.Status.ObservedGeneration, s.Status.ObservedUID)
		}
	}
	t.Run("of this boot it keeps", func(t *testing.T) {
		s.Status.ObservedGeneration = 3
		a.observer.last.uid = "other"
		a.node.renderNode(s, nil)
		if s.Status.ObservedGeneration != 3 || len(s.Status.Volumes) != 2 {
			t.Errorf("status: %+v", s.Status)
		}
	})
}

func TestWhatIsReleasedOnTheWordOfTheMountTableIsToldWhileItIsAttached(t *testing.T) {
	release := func(name, uid string) volumesv1alpha1.MountTableRelease {
		return volumesv1alpha1.MountTableRelease{VolumeName: name, AttachmentUID: uidOf(uid)}
	}
	entry := func(name, uid string) volumesv1alpha1.NodeAttachment {
		return volumesv1alpha1.NodeAttachment{VolumeName: name, AttachmentUID: uidOf(uid)}
	}
	for name, test := range map[string]struct {
		noted    map[string]string
		stands   []volumesv1alpha1.MountTableRelease
		attached []volumesv1alpha1.NodeAttachment
		inUse    map[string]report
		told     []volumesv1alpha1.MountTableRelease
		left     int
	}{
		"it is noted":                    {map[string]string{"v": "1"}, nil, []volumesv1alpha1.NodeAttachment{entry("v", "1")}, nil, []volumesv1alpha1.MountTableRelease{release("v", "1")}, 1},
		"it was noted of another life":   {map[string]string{"v": "0"}, nil, []volumesv1alpha1.NodeAttachment{entry("v", "1")}, nil, nil, 1},
		"the API has it":                 {nil, []volumesv1alpha1.MountTableRelease{release("v", "1")}, []volumesv1alpha1.NodeAttachment{entry("v", "1")}, nil, []volumesv1alpha1.MountTableRelease{release("v", "1")}, 0},
		"the API has it of another life": {nil, []volumesv1alpha1.MountTableRelease{release("v", "0")}, []volumesv1alpha1.NodeAttachment{entry("v", "1")}, nil, nil, 0},
		"it is in use again":             {map[string]string{"v": "1"}, nil, []volumesv1alpha1.NodeAttachment{entry("v", "1")}, map[string]report{"v": {}}, nil, 1},
		"it is not attached any more":    {map[string]string{"v": "1"}, []volumesv1alpha1.MountTableRelease{release("v", "1")}, nil, nil, nil, 0},
		"an attachment without a UID":    {nil, nil, []volumesv1alpha1.NodeAttachment{entry("v", "")}, nil, nil, 0},
		"another volume beside it":       {map[string]string{"v": "1"}, nil, []volumesv1alpha1.NodeAttachment{entry("w", "2"), entry("v", "1")}, nil, []volumesv1alpha1.MountTableRelease{release("v", "1")}, 1},
	} {
		b := newBench(t, filesystem)
		for name, uid := range test.noted {
			b.agent.node.restOnMountTable(name, uidOf(uid))
		}
		s := &volumesv1alpha1.NodeVolumeState{}
		s.Spec.Attachments, s.Status.MountTableReleases = test.attached, test.stands
		if got := b.agent.node.mountTableReleases(s, test.inUse); !slices.Equal(got, test.told) || len(b.agent.node.tableReleases) != test.left {
			t.Errorf("%s: told %v, noted %v", name, got, b.agent.node.tableReleases)
		}
	}
	b := newBench(t, filesystem)
	b.agent.node.restOnMountTable("v", "1")
	b.agent.node.restOnMountTable("v", "")
	if len(b.agent.node.tableReleases) > 0 {
		t.Errorf("noted %v", b.agent.node.tableReleases)
	}
}

func TestTheConditionsOfANode(t *testing.T) {
	type conditions map[string]string
	well := conditions{
		"Ready": "True Ready", "DriversReady": "True AsExpected", "VolumesHealthy": "True AsExpected", "MountsConsistent": "True AsExpected",
		"VolumesReleased": "False VolumesPresent",
	}
	for name, test := range map[string]struct {
		change func(*bench, map[string]report)
		differ conditions
		told   []string
	}{
		"all is well": {func(*bench, map[string]report) {}, nil, []string{"1 attached, 1 in use"}},
		"nothing is left": {func(b *bench, r map[string]report) { b.state.Spec.Attachments = nil; clear(r) },
			conditions{"VolumesReleased": "True Released"}, nil},
		"it is attached and not in use": {func(_ *bench, r map[string]report) { clear(r) }, nil, []string{"1 attached, 0 in use"}},
		"it is in use and not attached": {func(b *bench, _ map[string]report) { b.state.Spec.Attachments = nil }, nil, []string{"0 attached, 1 in use"}},
		"its driver is not registered": {func(b *bench, _ map[string]report) { b.state.Status.Drivers = nil },
			conditions{"Ready": "False DriversMissing", "DriversReady": "False DriversMissing"}, []string{"registered on the node: " + fakeDriverName}},
		"nobody knows which driver it needs": {func(b *bench, _ map[string]report) { b.state.Spec.Attachments[0].Driver = "" }, nil, nil},
		"it fails": {func(_ *bench, r map[string]report) {
			r["v"] = report{line: volumesv1alpha1.NodeVolume{Error: &volumesv1alpha1.OperationError{Operation: "stage", Code: "Internal"}}}
		}, conditions{"Ready": "False VolumesFailing", "VolumesHealthy": "False VolumesFailing"}, []string{"v: stage Internal"}},
		"it is abnormal": {func(_ *bench, r map[string]report) { r["v"] = report{abnormal: "scratched"} },
			conditions{"Ready": "False VolumesFailing", "VolumesHealthy": "False VolumesFailing"}, []string{"v: scratched"}},
		"its mounts differ": {func(_ *bench, r map[string]report) { r["v"] = report{differs: "gone"} },
			conditions{"Ready": "False MountsDiffer", "MountsConsistent": "False MountsDiffer"}, []string{"v: gone"}},
		"it is an orphan": {func(_ *bench, r map[string]report) { r["v"] = report{orphan: true} },
			conditions{"Ready": "False MountsDiffer", "MountsConsistent": "False MountsDiffer"}, []string{"v: in use, but its intent"}},
		"a record is unreadable": {func(b *bench, r map[string]report) {
			b.agent.node.broken = []string{"record x"}
			b.state.Spec.Attachments = nil
			clear(r)
		},
			conditions{"Ready": "False MountsDiffer", "MountsConsistent": "False MountsDiffer"}, []string{"record x", "0 attached, 0 in use, and 1 that"}},
		"the kubelet has something strange": {func(b *bench, _ map[string]report) { b.agent.observer.last.strange = []string{"mount y"} },
			conditions{"Ready": "False MountsDiffer", "MountsConsistent": "False MountsDiffer"}, []string{"mount y", "and 1 that"}},
		"the kubelet cannot be looked at": {func(b *bench, _ map[string]report) { b.agent.observer.trouble = "no table" },
			conditions{"Ready": "False MountsDiffer", "MountsConsistent": "False MountsDiffer"}, []string{"not known: no table"}},
		"everything at once: the drivers come first": {func(b *bench, r map[string]report) {
			b.state.Status.Drivers = nil
			r["v"] = report{differs: "gone", abnormal: "scratched"}
		}, conditions{"Ready": "False DriversMissing", "DriversReady": "False DriversMissing", "MountsConsistent": "False MountsDiffer",
			"VolumesHealthy": "False VolumesFailing"}, nil},
		"then the mounts": {func(_ *bench, r map[string]report) { r["v"] = report{differs: "gone", abnormal: "scratched"} },
			conditions{"Ready": "False MountsDiffer", "MountsConsistent": "False MountsDiffer", "VolumesHealthy": "False VolumesFailing"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, filesystem)
			b.state.Generation = 9
			b.state.Status.Drivers = b.agent.Registry.Drivers()
			reports := map[string]report{"v": {}}
			test.change(b, reports)
			b.agent.node.setConditions(b.state, reports, slices.Sorted(maps.Keys(reports)))
			var messages, order []string
			for _, c := range b.state.Status.Conditions {
				want := well[c.Type]
				if d, ok := test.differ[c.Type]; ok {
					want = d
				}
				if got := fmt.Sprintf("%s %s", c.Status, c.Reason); got != want || c.ObservedGeneration != 9 || c.Message == "" {
					t.Errorf("%s: %s of %d: %s, want %s", c.Type, got, c.ObservedGeneration, c.Message, want)
				}
				messages, order = append(messages, c.Message), append(order, c.Type)
			}
			if len(order) != len(well) || !slices.IsSorted(order) {
				t.Errorf("in order: %v", order)
			}
			if strings.Contains(strings.Join(messages, "\n"), "and 0 that") {
				t.Errorf("told %q", messages)
			}
			for _, told := range test.told {
				if !strings.Contains(strings.Join(messages, "\n"), told) {
					t.Errorf("%q is not told in %q", told, messages)
				}
			}
		})
	}
	t.Run("a driver that several need is named once", func(t *testing.T) {
		s := &volumesv1alpha1.NodeVolumeState{}
		for _, d := range []string{"a", "b", "a", "c"} {
			s.Spec.Attachments = append(s.Spec.Attachments, volumesv1alpha1.NodeAttachment{Driver: d})
		}
		s.Status.Drivers = []volumesv1alpha1.NodeDriver{{Name: "x"}, {Name: "b"}}
		if v := driversReady(s); v.ok || !strings.HasSuffix(v.message, ": a, c") {
			t.Errorf("%+v", v)
		}
	})
	t.Run("many are counted", func(t *testing.T) {
		for n, want := range map[int]string{3: "1; 2; 3", 4: "1; 2; 3; and 1 more", 5: "1; 2; 3; and 2 more"} {
			if got := enumerate(strings.Split("12345"[:n], "")); got != want {
				t.Errorf("%d: %s", n, got)
			}
		}
	})
	t.Run("an agent that was told to end", func(t *testing.T) {
		s := &volumesv1alpha1.NodeVolumeState{ObjectMeta: metav1.ObjectMeta{Generation: 4}}
		stopped(s)
		c := meta.FindStatusCondition(s.Status.Conditions, volumesv1alpha1.ConditionReady)
		if c == nil || c.Status != metav1.ConditionUnknown || c.Reason != volumesv1alpha1.ReasonAgentStopped || c.ObservedGeneration != 4 || c.Message == "" {
			t.Errorf("%+v", c)
		}
	})
}
