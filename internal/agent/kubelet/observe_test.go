/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package kubelet

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fsnotify/fsnotify"
	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/agent/record"
	"github.com/hawser-io/hawser/internal/mount"
)

// devices are those of a node that hangs until it is released, with what the kernel reports of each device.
type devices struct {
	ObserverMounts
	released chan struct{}
	busy     map[string]error
	asked    []string
}

func (d *devices) Table() (*mount.Table, error) {
	<-d.released
	return mount.NewTable(nil), nil
}

func (d *devices) TableWithin(time.Duration) (*mount.Table, error) { return d.Table() }

func (d *devices) CheckFree(_ context.Context, device mount.Device, _ bool) error {
	d.asked = append(d.asked, device.Path)
	return d.busy[device.Path]
}

// volumes count what they are told.
type volumes struct {
	Volumes
	awaited, changed int
	inherited        []mount.Device
}

func (v *volumes) Inherit(_ string, devices []mount.Device) {
	v.inherited = append(v.inherited, devices...)
}

func (v *volumes) AwaitHolder(string, *mount.HeldError) { v.awaited++ }

func (*volumes) NoteMountTableRelease(string, types.UID) {}

func (v *volumes) Changed(string) { v.changed++ }

// writer is that of a state, or of none, and notes the reports.
type writer struct {
	nvs     *volumesv1alpha1.NodeVolumeState
	reports []string
}

func (w *writer) Newest() *volumesv1alpha1.NodeVolumeState { return w.nvs }

func (w *writer) ReportSoon() { w.reports = append(w.reports, "soon") }

func (w *writer) ReportNow() { w.reports = append(w.reports, "now") }

func (w *writer) ReportAnyway() { w.reports = append(w.reports, "anyway") }

// noWatcher watches nothing.
type noWatcher struct{ Watcher }

func (noWatcher) WatchList() []string { return nil }

func (noWatcher) Changes() <-chan fsnotify.Event { return nil }

func (noWatcher) Failures() <-chan error { return nil }

func (noWatcher) Close() error { return nil }

func TestAnObservationThatOutlastsItsAgentIsNeitherTakenInNorWritten(t *testing.T) {
	f, dir := newFiled(t), t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		node, v, state := &devices{released: make(chan struct{})}, &volumes{}, &writer{}
		f.Observer = NewObserver(ObserverOptions{Paths: record.Paths{Kubelet: dir}, BootID: "boot", Store: f.Store,
			Mounts: node, Reports: state, Volumes: v, Clock: clock.RealClock{}, Log: logr.Discard()})
		f.Watcher, f.Lifetime = noWatcher{}, t.Context()
		f.SetKnown(map[string]TrackedUse{"vol": {AttachmentUID: "uid-1"}})
		ctx, end := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			f.Run(ctx)
			close(ended)
		}()
		synctest.Wait()
		end()
		<-ended
		f.writes, v.changed, state.reports = 0, 0, nil
		close(node.released)
		synctest.Wait()
		if _, there := f.Last.Uses["vol"]; !there || f.writes > 0 || v.changed > 0 || len(state.reports) > 0 {
			t.Errorf("after the end: volume vol known %t, %d writes, %d changes, reports %v; want the volume and none", there,
				f.writes, v.changed, state.reports)
		}
	})
}

func TestAVolumeWithTwoDevicesIsFreeOnceBothAre(t *testing.T) {
	u := TrackedUse{Devices: []mount.Device{{Path: "/dev/a"}, {Path: "/dev/b"}}}
	for name, busy := range map[string]map[string]error{
		"the first is held":      {"/dev/a": &mount.HeldError{}},
		"the second is held":     {"/dev/b": &mount.HeldError{}},
		"the second is not read": {"/dev/b": errors.New("not known")},
		"both are free":          nil,
	} {
		node, v := &devices{busy: busy}, &volumes{}
		o := NewObserver(ObserverOptions{Mounts: node, Volumes: v, Log: logr.Discard()})
		err := o.checkFree("vol", u)
		if (err == nil) != (busy == nil) || busy == nil && len(node.asked) != 2 {
			t.Errorf("volume of which %s: error %v after asking for %v, want an error: %t", name, err, node.asked, busy != nil)
		}
	}
}

// changing is a node where the manager changes the state, and the agent its records, as the mount table is read.
type changing struct {
	ObserverMounts
	entries []mount.Entry
	err     error
	change  func()
}

func (c changing) Table() (*mount.Table, error) {
	if c.change != nil {
		c.change()
	}
	return mount.NewTable(c.entries), c.err
}

func (c changing) TableWithin(time.Duration) (*mount.Table, error) { return c.Table() }

func TestAnObservationHasTheVersionThatWasReadBeforeTheMountTable(t *testing.T) {
	f, state := newFiled(t), &writer{nvs: &volumesv1alpha1.NodeVolumeState{}}
	state.nvs.UID, state.nvs.Generation, state.nvs.Spec.Protocol.Fences = "state", 1, 1
	f.Reports, f.Watcher, f.Paths = state, noWatcher{}, record.Paths{Kubelet: t.TempDir()}
	f.Mounts = changing{change: func() {
		later := state.nvs.DeepCopy()
		later.Generation, later.Spec.Protocol.Fences = 2, 2
		state.nvs = later
	}}
	if found := f.scan(); found.err != nil || found.now.Generation != 1 || found.now.fences != 1 {
		t.Errorf("observation of a state that changes meanwhile: generation %d, fences %d, error %v; want the earlier ones, "+
			"which are 1", found.now.Generation, found.now.fences, found.err)
	}
}

func TestAnObservationIsOnTheDisk(t *testing.T) {
	f := newFiled(t)
	f.Reports, f.Volumes = &writer{}, &volumes{}
	found := Observation{Uses: map[string]TrackedUse{"vol": {AttachmentUID: "uid-1", Block: true}}}
	if err := f.accept(Observation{}, found); err != nil {
		t.Fatal(err)
	}
	if uses, err := f.load(); err != nil || uses["vol"].AttachmentUID != "uid-1" {
		t.Errorf("uses on the disk: %v, error %v; want volume vol", uses, err)
	}
	f.err = errors.New("the disk is full")
	if err := f.accept(found, Observation{}); !errors.Is(err, f.err) {
		t.Errorf("observation that cannot be saved: error %v, want %v, so that it is repeated", err, f.err)
	}
}

func TestWhatAnotherProgramWaitsForIsReportedAtOnce(t *testing.T) {
	use := TrackedUse{AttachmentUID: "uid-1", StagedPath: "/stage"}
	with := func(change func(*Observation)) Observation {
		o := Observation{UID: "state", fences: 1, Uses: map[string]TrackedUse{"vol": use}}
		change(&o)
		return o
	}
	changed := func(change func(*TrackedUse)) Observation {
		u := use
		change(&u)
		return with(func(o *Observation) { o.Uses = map[string]TrackedUse{"vol": u} })
	}
	nothing := with(func(*Observation) {})
	state := &volumesv1alpha1.NodeVolumeState{}
	state.Spec.Attachments = []volumesv1alpha1.NodeAttachment{{VolumeName: "vol", AttachmentUID: "uid-1",
		State: volumesv1alpha1.AttachmentAttached}}
	for name, c := range map[string]struct {
		last, now Observation
		want      string
	}{
		"nothing":                       {nothing, nothing, ""},
		"the first observation":         {Observation{}, nothing, "soon"},
		"a state that is created again": {nothing, with(func(o *Observation) { o.UID = "later" }), "now"},
		"a fence":                       {nothing, with(func(o *Observation) { o.fences++ }), "now"},
		"the end of a use":              {nothing, with(func(o *Observation) { o.Uses = nil }), "now"},
		"another attachment":            {nothing, changed(func(u *TrackedUse) { u.AttachmentUID = "uid-2" }), "now"},
		"a kubelet that only waits":     {nothing, changed(func(u *TrackedUse) { u.Waiting = true }), "now"},
		"a stage that a report proves": {nothing, changed(func(u *TrackedUse) {
			u.StageWritten, u.Mounts = "1", []string{"/stage"}
		}), "anyway"},
		"a use that begins": {with(func(o *Observation) { o.Uses = nil }), nothing, "soon"},
		"a volume that is not known": {
			nothing, with(func(o *Observation) { o.Unattributed = []string{"/mnt"} }), "soon"},
	} {
		w := &writer{nvs: state}
		f := newFiled(t)
		f.Reports, f.Volumes = w, &volumes{}
		if err := f.accept(c.last, c.now); err != nil || strings.Join(w.reports, " ") != c.want {
			t.Errorf("%s: reports %q, error %v; want %q", name, w.reports, err, c.want)
		}
	}
}

func TestAVolumeThatTheAgentHadOrGotDuringAnObservationIsNotTheKubelets(t *testing.T) {
	r := &record.Record{Schema: record.Schema, VolumeName: volumeName("a"), Driver: driverName, Handle: "a"}
	for name, c := range map[string]struct {
		before bool
		change func(*record.Store) error
	}{
		"had": {true, func(s *record.Store) error { return s.Remove(r.VolumeName) }},
		"got": {false, func(s *record.Store) error { return s.Save(r) }},
	} {
		f, h := newFiled(t), newHost(t)
		if c.before {
			f.Store.Note(r)
		}
		h.mount(h.stage("a", "globalmount"), 1)
		state := &volumesv1alpha1.NodeVolumeState{}
		state.Spec.Attachments = []volumesv1alpha1.NodeAttachment{{VolumeName: r.VolumeName, Driver: driverName,
			VolumeHandle: "a", AttachmentUID: "uid-1", State: volumesv1alpha1.AttachmentAttached}}
		f.Reports, f.Watcher, f.Paths = &writer{nvs: state}, noWatcher{}, record.Paths{Kubelet: h.dir}
		f.Mounts = changing{entries: h.entries, change: func() {
			if err := c.change(f.Store); err != nil {
				t.Error(err)
			}
		}}
		if found := f.scan(); found.err != nil || len(found.now.Uses) > 0 {
			t.Errorf("stage of a volume that the agent %s meanwhile: uses of the kubelet %v, error %v; want none", name,
				found.now.Uses, found.err)
		}
	}
}

func TestAUseThatIsLeftToAReleaseEndsOnlyBeforeTheRelease(t *testing.T) {
	r := &record.Record{Schema: record.Schema, VolumeName: volumeName("a"), Driver: driverName, Handle: "a"}
	for _, released := range []bool{false, true} {
		f, v := newFiled(t), &volumes{}
		f.Store.Note(r)
		f.Reports, f.Volumes, f.Watcher, f.Mounts = &writer{}, v, noWatcher{}, changing{}
		f.Paths = record.Paths{Kubelet: t.TempDir()}
		f.SetKnown(map[string]TrackedUse{r.VolumeName: {Mounts: []string{"/mnt"}, Devices: []mount.Device{{Minor: 1}}}})
		found := f.scan()
		if found.err != nil || !slices.Equal(found.left, []string{r.VolumeName}) {
			t.Fatalf("uses that are left to the agent: %v, error %v; want that of %s", found.left, found.err, r.VolumeName)
		}
		if released {
			if err := f.Store.Remove(r.VolumeName); err != nil {
				t.Fatal(err)
			}
		}
		err := f.accept(found.last, found.now, found.left...)
		if stays := f.Use(r.VolumeName) != nil; stays != released || errors.Is(err, errReleased) != released {
			t.Errorf("use that has ended, of a volume that was released before that was noted (%t): it stays %t, error %v; "+
				"want that it stays only then", released, stays, err)
		}
	}
}

func TestAMountTableThatCannotBeReadMayHaveOtherMounts(t *testing.T) {
	f := newFiled(t)
	f.Mounts = changing{err: errors.New("not known")}
	if !f.otherMounts() {
		t.Error("mount table that cannot be read: no other mounts, want an observation, which reports the error")
	}
	f.Mounts = changing{}
	if f.otherMounts() {
		t.Error("mount table without mounts of the kubelet, as before: other mounts, want none")
	}
}

func TestAUseThatHasEndedIsKeptWhileItsDeviceIsHeld(t *testing.T) {
	device := mount.Device{Path: "/dev/a"}
	before := map[string]TrackedUse{"vol": {AttachmentUID: "uid-1", Mounts: []string{"/stage"},
		Devices: []mount.Device{device}}}
	for name, c := range map[string]struct {
		own  map[string]record.Identity
		busy error
		// kept: the kubelet's use stays; inherited: the agent's release asks about the device.
		kept, inherited bool
	}{
		"free":                      {nil, nil, false, false},
		"held":                      {nil, &mount.HeldError{}, true, false},
		"not known":                 {nil, errors.New("not known"), true, false},
		"held, and the agent's too": {map[string]record.Identity{"vol": {}}, &mount.HeldError{}, false, true},
		"held, and not the agent's": {map[string]record.Identity{"other": {}}, &mount.HeldError{}, true, false},
	} {
		v, now := &volumes{}, map[string]TrackedUse{}
		o := NewObserver(ObserverOptions{Mounts: &devices{busy: map[string]error{device.Path: c.busy}}, Volumes: v,
			Clock: clock.RealClock{}, Log: logr.Discard()})
		o.keepHeld(before, now, c.own)
		u, kept := now["vol"]
		if kept != c.kept || kept && (u.Held == nil || u.AttachmentUID != "uid-1") || len(v.inherited) > 0 != c.inherited {
			t.Errorf("end of a use whose device is %s: use %+v, inherited %v; want it kept: %t, inherited: %t", name, u,
				v.inherited, c.kept, c.inherited)
		}
	}
}

func TestADirectoryThatCannotBeWatchedIsReported(t *testing.T) {
	h := newHost(t)
	h.record(h.stage("a"), "a")
	signs := FindSigns(h.dir, mount.NewTable(nil), nil, func(string) error { return errors.New("too many watches") })
	uses, rest := Attribute(signs, nil)
	if len(uses) != 1 || len(rest) != 1 || rest[0].Err == nil {
		t.Errorf("record in a directory that cannot be watched: uses %v, other signs %+v; want both, the latter with the "+
			"error", uses, rest)
	}
}
