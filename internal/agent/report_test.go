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

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hawser-io/hawser/internal/agent/kubelet"
	"github.com/hawser-io/hawser/internal/agent/plan/plantest"
	"github.com/hawser-io/hawser/internal/agent/report"
	"github.com/hawser-io/hawser/internal/machine"
)

func TestAVolumeOfTheKubeletWhoseNameIsTooLongCostsNoOtherItsLine(t *testing.T) {
	b := newBench(t, filesystem)
	long := strings.Repeat("x", volumesv1alpha1.MaxVolumeNameLength+1)
	b.agent.observer.Last.Uses = map[string]kubelet.TrackedUse{
		"a": {Published: true}, long: {Published: true}, long[1:]: {Published: true},
	}
	b.agent.node.Render(b.state, nil)
	if v := b.state.Status.Volumes; len(v) != 2 || v[0].VolumeName != "a" || v[1].VolumeName != long[1:] {
		t.Errorf("%d volumes are listed, want a and the one with the longest name that fits", len(v))
	}
	released := meta.FindStatusCondition(b.state.Status.Conditions, volumesv1alpha1.ConditionVolumesReleased)
	if released.Status != metav1.ConditionFalse || !strings.Contains(released.Message, "3 in use (1 of them not listed") {
		t.Errorf("VolumesReleased is %s: %s; want that it names the one that is not listed", released.Status,
			released.Message)
	}
}

func TestWhatTheManagerObservedOfTheNodeWakesNoVolume(t *testing.T) {
	b := newBench(t, filesystem)
	after := b.state.DeepCopy()
	after.ResourceVersion = "2"
	after.Status.Node.Unready = &volumesv1alpha1.UnreadyObservation{}
	b.agent.stateChanged(b.state, after)
	if len(b.agent.observer.Wake) > 0 || b.agent.queue.queue.Len() > 0 {
		t.Errorf("the agent observes its node (%d) and reconciles %d volumes; want neither",
			len(b.agent.observer.Wake), b.agent.queue.queue.Len())
	}
	after = after.DeepCopy()
	after.ResourceVersion, after.Generation = "3", 2
	if b.agent.stateChanged(b.state, after); len(b.agent.observer.Wake) != 1 {
		t.Error("another generation has the agent not observe its node")
	}
}

func TestWhatIsReportedOfTheNode(t *testing.T) {
	b := newBench(t, filesystem)
	a := b.agent
	s := b.state
	s.Generation = 7
	s.Status.BootID, s.Status.ObservedGeneration = "earlier", 5
	s.Status.Node.Unready = &volumesv1alpha1.UnreadyObservation{}
	reports := map[string]report.VolumeReport{
		"c": {Line: volumesv1alpha1.NodeVolume{VolumeName: "c", InUse: true, Health: plantest.Scratched()}, Staged: true,
			Published: true},
		"a": {Line: volumesv1alpha1.NodeVolume{VolumeName: "a", Error: &volumesv1alpha1.OperationError{}}, Staged: true,
			Orphan: true},
		"b": {Line: volumesv1alpha1.NodeVolume{VolumeName: "b"}},
	}
	a.observer.Last.Uses = map[string]kubelet.TrackedUse{"d": {AttachmentUID: "uid-d", Published: true},
		"b": {StagedPath: "/staged"}}
	a.node.Render(s, reports)
	var names []string
	for _, v := range s.Status.Volumes {
		names = append(names, v.VolumeName)
	}
	if !slices.Equal(names, []string{"a", "b", "c", "d"}) ||
		s.Status.Volumes[3].PublishedBy != volumesv1alpha1.PublisherKubelet {
		t.Errorf("volumes of the node state: %v, want a, b, c and d, the last one of the kubelet", names)
	}
	if want := (volumesv1alpha1.NodeVolumeSummary{Attached: 1, Staged: 3, Published: 2, Failing: 2,
		Orphaned: 1}); *s.Status.Summary != want {
		t.Errorf("summary %+v, want %+v", s.Status.Summary, want)
	}
	if s.Status.BootID != "boot" || s.Status.AgentVersion != "v1" ||
		!reflect.DeepEqual(s.Status.Drivers, a.Registry.Drivers()) {
		t.Errorf("node state %+v, want the boot, the version and the drivers of the agent", s.Status)
	}
	if len(s.Status.Conditions) != 6 || s.Status.ObservedGeneration != 0 {
		t.Errorf("conditions %+v, observed generation %d, want 6 and 0", s.Status.Conditions, s.Status.ObservedGeneration)
	}
	if s.Status.Node.Unready == nil {
		t.Error("the report drops status.node, which the manager wrote")
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
		s.Status.ObservedGeneration, s.Status.Protocol.ObservedUID = 0, ""
		a.observer.Last.UID, a.observer.Last.Generation = uidOf(test.uid), test.generation
		a.node.Render(s, reports)
		if s.Status.ObservedGeneration != test.observed || (s.Status.Protocol.ObservedUID == "state") != (test.observed > 0) {
			t.Errorf("%s: observed generation %d of %q, want %d", name, s.Status.ObservedGeneration,
				s.Status.Protocol.ObservedUID, test.observed)
		}
	}
	t.Run("of this boot it keeps", func(t *testing.T) {
		s.Status.ObservedGeneration = 3
		a.observer.Last.UID = "other"
		a.node.Render(s, nil)
		if s.Status.ObservedGeneration != 3 || len(s.Status.Volumes) != 2 {
			t.Errorf("node state %+v, want generation 3 observed and two volumes", s.Status)
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
		inUse    map[string]report.VolumeReport
		told     []volumesv1alpha1.MountTableRelease
		left     int
	}{
		"it is noted": {map[string]string{"v": "1"}, nil, []volumesv1alpha1.NodeAttachment{entry("v", "1")}, nil,
			[]volumesv1alpha1.MountTableRelease{release("v", "1")}, 1},
		"it was noted of another life": {map[string]string{"v": "0"}, nil,
			[]volumesv1alpha1.NodeAttachment{entry("v", "1")}, nil, nil, 1},
		"the API has it": {nil, []volumesv1alpha1.MountTableRelease{release("v", "1")},
			[]volumesv1alpha1.NodeAttachment{entry("v", "1")}, nil,
			[]volumesv1alpha1.MountTableRelease{release("v", "1")}, 0},
		"the API has it of another life": {nil, []volumesv1alpha1.MountTableRelease{release("v", "0")},
			[]volumesv1alpha1.NodeAttachment{entry("v", "1")}, nil, nil, 0},
		"it is in use again": {map[string]string{"v": "1"}, nil, []volumesv1alpha1.NodeAttachment{entry("v", "1")},
			map[string]report.VolumeReport{"v": {}}, nil, 1},
		"it is not attached any more": {map[string]string{"v": "1"}, []volumesv1alpha1.MountTableRelease{release("v", "1")},
			nil, nil, nil, 0},
		"an attachment without a UID": {nil, nil, []volumesv1alpha1.NodeAttachment{entry("v", "")}, nil, nil, 0},
		"another volume beside it": {map[string]string{"v": "1"}, nil,
			[]volumesv1alpha1.NodeAttachment{entry("w", "2"), entry("v", "1")}, nil,
			[]volumesv1alpha1.MountTableRelease{release("v", "1")}, 1},
	} {
		b := newBench(t, filesystem)
		for name, uid := range test.noted {
			b.agent.node.NoteMountTableRelease(name, uidOf(uid))
		}
		s := &volumesv1alpha1.NodeVolumeState{}
		s.Spec.Attachments, s.Status.MountTableReleases = test.attached, test.stands
		if got := b.agent.node.MountTableReleases(s, test.inUse); !slices.Equal(got, test.told) ||
			len(b.agent.node.TableReleases) != test.left {
			t.Errorf("%s: reported %v, noted %v, want %v and %d", name, got, b.agent.node.TableReleases, test.told, test.left)
		}
	}
	b := newBench(t, filesystem)
	b.agent.node.NoteMountTableRelease("v", "1")
	b.agent.node.NoteMountTableRelease("v", "")
	if len(b.agent.node.TableReleases) > 0 {
		t.Errorf("mount table releases of the node: %v, want none", b.agent.node.TableReleases)
	}
}

func TestTheConditionsOfANode(t *testing.T) {
	type conditions map[string]string
	well := conditions{"SameMachine": "True AsExpected",
		"Ready": "True Ready", "DriversReady": "True AsExpected", "VolumesHealthy": "True AsExpected",
		"MountsConsistent": "True AsExpected",
		"VolumesReleased":  "False VolumesPresent",
	}
	for name, test := range map[string]struct {
		change func(*bench, map[string]report.VolumeReport)
		differ conditions
		told   []string
	}{
		"all is well": {func(*bench, map[string]report.VolumeReport) {}, nil, []string{"1 attached, 1 in use"}},
		"nothing is left": {func(b *bench, r map[string]report.VolumeReport) { b.state.Spec.Attachments = nil; clear(r) },
			conditions{"VolumesReleased": "True Released"}, nil},
		"it is attached and not in use": {func(_ *bench, r map[string]report.VolumeReport) { clear(r) }, nil,
			[]string{"1 attached, 0 in use"}},
		"it is in use and not attached": {func(b *bench, _ map[string]report.VolumeReport) {
			b.state.Spec.Attachments = nil
		}, nil,
			[]string{"0 attached, 1 in use"}},
		"its driver is not registered": {func(b *bench, _ map[string]report.VolumeReport) { b.state.Status.Drivers = nil },
			conditions{"Ready": "False DriversMissing", "DriversReady": "False DriversMissing"},
			[]string{"registered on the node: " + fakeDriverName}},
		"nobody knows which driver it needs": {func(b *bench, _ map[string]report.VolumeReport) {
			b.state.Spec.Attachments[0].Driver = ""
		}, nil, nil},
		"it fails": {func(_ *bench, r map[string]report.VolumeReport) {
			failed := &volumesv1alpha1.OperationError{Operation: "stage", Code: "Internal"}
			r["v"] = report.VolumeReport{Line: volumesv1alpha1.NodeVolume{Error: failed}}
		}, conditions{"VolumesHealthy": "False VolumesFailing"}, []string{"v: stage Internal"}},
		"it is abnormal": {func(_ *bench, r map[string]report.VolumeReport) {
			r["v"] = report.VolumeReport{Line: volumesv1alpha1.NodeVolume{Health: plantest.Scratched()}}
		},
			conditions{"VolumesHealthy": "False VolumesFailing"},
			[]string{"v: Degraded Scratched: one platter, since 2026-01-02T03:04:05Z"}},
		"its mounts differ": {func(_ *bench, r map[string]report.VolumeReport) {
			r["v"] = report.VolumeReport{Differs: "gone"}
		},
			conditions{"Ready": "False MountsDiffer", "MountsConsistent": "False MountsDiffer"}, []string{"v: gone"}},
		"it is an orphan": {func(_ *bench, r map[string]report.VolumeReport) { r["v"] = report.VolumeReport{Orphan: true} },
			conditions{"Ready": "False MountsDiffer", "MountsConsistent": "False MountsDiffer"},
			[]string{"v: in use, but its intent"}},
		"a record is unreadable": {func(b *bench, r map[string]report.VolumeReport) {
			b.agent.node.Broken = []string{"record x"}
			b.state.Spec.Attachments = nil
			clear(r)
		},
			conditions{"Ready": "False MountsDiffer", "MountsConsistent": "False MountsDiffer"},
			[]string{"record x", "0 attached, 0 in use, and 1 of no known volume"}},
		"the kubelet has something strange": {func(b *bench, _ map[string]report.VolumeReport) {
			b.agent.observer.Last.Unattributed = []string{"mount y"}
		},
			conditions{"Ready": "False MountsDiffer", "MountsConsistent": "False MountsDiffer"},
			[]string{"mount y", "and 1 of no known volume"}},
		"the kubelet cannot be looked at": {func(b *bench, _ map[string]report.VolumeReport) {
			b.agent.observer.Trouble = "no table"
		},
			conditions{"Ready": "False MountsDiffer", "MountsConsistent": "False MountsDiffer"},
			[]string{"not known: no table"}},
		"the driver cannot detach a volume that the agent has released": {func(b *bench, r map[string]report.VolumeReport) {
			clear(r)
			b.state.Spec.Attachments[0].State = volumesv1alpha1.AttachmentDetaching
			b.state.Spec.Attachments[0].DetachError = "the array is locked"
		},
			conditions{"VolumesHealthy": "False VolumesFailing"},
			[]string{"^vol: detach: the array is locked", "1 attached, 0 in use"}},
		"everything at once: the drivers come first": {func(b *bench, r map[string]report.VolumeReport) {
			b.state.Status.Drivers = nil
			r["v"] = report.VolumeReport{Differs: "gone", Line: volumesv1alpha1.NodeVolume{Health: plantest.Scratched()}}
		}, conditions{"Ready": "False DriversMissing", "DriversReady": "False DriversMissing",
			"MountsConsistent": "False MountsDiffer",
			"VolumesHealthy":   "False VolumesFailing"}, nil},
		"then the mounts": {func(_ *bench, r map[string]report.VolumeReport) {
			r["v"] = report.VolumeReport{Differs: "gone", Line: volumesv1alpha1.NodeVolume{Health: plantest.Scratched()}}
		},
			conditions{"Ready": "False MountsDiffer", "MountsConsistent": "False MountsDiffer",
				"VolumesHealthy": "False VolumesFailing"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, filesystem)
			b.state.Generation = 9
			b.state.Status.Drivers = b.agent.Registry.Drivers()
			reports := map[string]report.VolumeReport{"v": {}}
			test.change(b, reports)
			b.agent.node.Machine = machine.New(firstUUID, firstID)
			b.agent.node.SetConditions(b.state, reports, slices.Sorted(maps.Keys(reports)), nil)
			var messages, order []string
			for _, c := range b.state.Status.Conditions {
				want := well[c.Type]
				if d, ok := test.differ[c.Type]; ok {
					want = d
				}
				if got := fmt.Sprintf("%s %s", c.Status, c.Reason); got != want || c.ObservedGeneration != 9 ||
					c.Message == "" {
					t.Errorf("%s: %s of %d: %s, want %s", c.Type, got, c.ObservedGeneration, c.Message, want)
				}
				messages, order = append(messages, c.Message), append(order, c.Type)
			}
			if len(order) != len(well) || !slices.IsSorted(order) {
				t.Errorf("conditions in the order %v, want it sorted, and %d of them", order, len(well))
			}
			if strings.Contains(strings.Join(messages, "\n"), "and 0 of") {
				t.Errorf("messages %q, want none that counts 0 more", messages)
			}
			for _, told := range test.told {
				if !strings.Contains(strings.Join(messages, "\n"), told) {
					t.Errorf("%q is not in the messages %q, want it there", told, messages)
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
		if v := report.DriversReady(s); v.OK || !strings.HasSuffix(v.Message, ": a, c") {
			t.Errorf("DriversReady %+v, want False for a and c", v)
		}
	})
	t.Run("many are counted", func(t *testing.T) {
		for n, want := range map[int]string{3: "1; 2; 3", 4: "1; 2; 3; and 1 more", 5: "1; 2; 3; and 2 more"} {
			if got := report.Enumerate(strings.Split("12345"[:n], "")); got != want {
				t.Errorf("enumerating %d: %s, want %s", n, got, want)
			}
		}
	})
	t.Run("an agent that was told to end", func(t *testing.T) {
		s := &volumesv1alpha1.NodeVolumeState{ObjectMeta: metav1.ObjectMeta{Generation: 4}}
		report.SetStopped(s)
		c := meta.FindStatusCondition(s.Status.Conditions, volumesv1alpha1.ConditionReady)
		if c == nil || c.Status != metav1.ConditionUnknown || c.Reason != volumesv1alpha1.ReasonAgentStopped ||
			c.ObservedGeneration != 4 || c.Message == "" {
			t.Errorf("Ready of a stopped agent: %+v, want Unknown for AgentStopped at generation 4", c)
		}
	})
}
