/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package agent

import (
	"errors"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/agent/plan"
	"github.com/hawser-io/hawser/internal/agent/record"
	"github.com/hawser-io/hawser/internal/agent/report"
)

// scenario is an act in a situation.
type scenario struct {
	volume testVolume
	// before the act these are done, with the changes.
	before []plan.Kind
	wanted func(*volumesv1alpha1.VolumeAttachmentIntent)
	change func(*bench)
	act    plan.Kind
	// informs are the operations that may fail without a report: they only inform or clean up.
	informs []string
	// ends checks what there is in the end.
	ends func(*bench)
}

var (
	filesystem = testVolume{handle: "vol"}
	block      = testVolume{handle: "raw", mode: corev1.PersistentVolumeBlock}
)

var rawSource = block.source()

func readOnlyUse(i *volumesv1alpha1.VolumeAttachmentIntent) { i.Spec.ReadOnly = true }

func subPath(i *volumesv1alpha1.VolumeAttachmentIntent) {
	i.Spec.Mount = &volumesv1alpha1.MountSpec{SubPath: "inner"}
}

// groupedPart is subPath whose files are given to a group.
func groupedPart(i *volumesv1alpha1.VolumeAttachmentIntent) {
	subPath(i)
	grouped(i)
}

func grouped(i *volumesv1alpha1.VolumeAttachmentIntent) {
	if i.Spec.Mount == nil {
		i.Spec.Mount = &volumesv1alpha1.MountSpec{}
	}
	i.Spec.Mount.FSGroup = ptr.To(int64(7))
}

func deletedIntents(b *bench) {
	for _, i := range b.intents {
		i.DeletionTimestamp = ptr.To(metav1.Now())
	}
}

var scenarios = map[string]scenario{
	"a volume is taken into use": {act: plan.MarkInUse, ends: func(b *bench) {
		r, line := b.disk(), b.api()
		if r == nil || r.AttachmentUID != "uid-1" || len(r.Uses) != 1 || !b.volume.Record.InUse {
			b.t.Errorf("volume vol: record on the disk %+v, want attachment uid-1 with one use, and in use", r)
		}
		if line == nil || !line.InUse || line.AttachmentUID != "uid-1" {
			b.t.Errorf("volume vol: reported is %+v, want it in use for uid-1", line)
		}
	}},
	"a filesystem is staged": {
		before:  []plan.Kind{plan.MarkInUse},
		act:     plan.Stage,
		informs: []string{"DeviceOf"},
		ends:    isStaged,
	},
	"a device is staged": {
		volume:  block,
		before:  []plan.Kind{plan.MarkInUse},
		act:     plan.Stage,
		informs: []string{"DeviceOf"},
		ends:    isStaged,
	},
	"a stage is shown to the kubelet": {
		before: []plan.Kind{plan.MarkInUse, plan.Stage},
		act:    plan.Reference,
		ends: func(b *bench) {
			if _, ok := b.kernel.at(b.agent.paths.Reference(b.volume.Name)); !ok {
				b.t.Errorf("volume %s: no bind mount of the stage at %s, want one", b.volume.Name,
					b.agent.paths.Reference(b.volume.Name))
			}
		},
	},
	"another stage was shown to the kubelet": {
		before: []plan.Kind{plan.MarkInUse, plan.Stage},
		act:    plan.Reference,
		change: func(b *bench) {
			b.kernel.mount(b.kernel.filesystemOf("other", "ext4", b.agent.paths.Reference(b.volume.Name)))
		},
		ends: func(b *bench) {
			if e, ok := b.kernel.at(b.agent.paths.Reference(b.volume.Name)); !ok ||
				record.SourceOf(e) != b.volume.Record.Stage.Source {
				b.t.Errorf("volume %s: %v is bound as its reference, want %s", b.volume.Name, e, b.volume.Record.Stage.Source)
			}
		},
	},
	"a device is shown to the kubelet": {
		volume: block,
		before: []plan.Kind{plan.MarkInUse},
		act:    plan.Reference,
		ends: func(b *bench) {
			if b.has("Unmount") > 0 {
				b.t.Errorf("device raw: operations %v, want no Unmount", b.operations())
			}
			if nodes := b.kernel.referred(); len(nodes) != 1 || !strings.HasSuffix(nodes[0], "/intent") {
				b.t.Errorf("device raw: device nodes %v, want one for intent intent", nodes)
			}
		},
	},
	"a filesystem is published": {before: []plan.Kind{plan.MarkInUse, plan.Stage}, act: plan.Publish, ends: isPublished},
	"a filesystem is published for a group": {before: []plan.Kind{plan.MarkInUse, plan.Stage}, act: plan.Publish,
		wanted: grouped, ends: isUnowned},
	"a part of a filesystem is published for a group": {before: []plan.Kind{plan.MarkInUse, plan.Stage},
		act: plan.Publish, wanted: groupedPart, ends: isUnowned},
	"a filesystem is given to a group": {before: []plan.Kind{plan.MarkInUse, plan.Stage, plan.Publish},
		act: plan.SetOwnership, wanted: grouped, ends: isOwned},
	"a part of a filesystem is given to a group": {before: []plan.Kind{plan.MarkInUse, plan.Stage, plan.Publish},
		act: plan.SetOwnership, wanted: groupedPart, ends: isOwned},
	"a publication without its group is undone": {before: []plan.Kind{plan.MarkInUse, plan.Stage, plan.Publish},
		wanted: groupedPart, change: deletedIntents, act: plan.Unpublish, ends: isUnpublished},
	"a group's publication is undone": {before: []plan.Kind{plan.MarkInUse, plan.Stage, plan.Publish,
		plan.SetOwnership}, wanted: groupedPart, change: deletedIntents, act: plan.Unpublish, ends: isUnpublished},
	"a part of a filesystem is published": {
		before: []plan.Kind{plan.MarkInUse, plan.Stage},
		act:    plan.Publish,
		wanted: subPath,
		ends:   isPublished,
	},
	"a filesystem is published read-only": {
		before: []plan.Kind{plan.MarkInUse, plan.Stage},
		wanted: readOnlyUse,
		act:    plan.Publish,
		ends: func(b *bench) {
			isPublished(b)
			if e, _ := b.kernel.at(b.agent.paths.Published("ns", "intent")); !e.ReadOnly() {
				b.t.Errorf("intent intent, which is read-only: mounted at its path is %+v, want it read-only", e)
			}
		},
	},
	"a device is published": {
		volume:  block,
		before:  []plan.Kind{plan.MarkInUse, plan.Reference, plan.Stage},
		act:     plan.Publish,
		informs: []string{"DeviceOf"},
		ends: func(b *bench) {
			isPublished(b)
			if b.has("SetReadOnly") > 0 {
				b.t.Errorf("device raw, published for writing: operations %v, want no SetReadOnly", b.operations())
			}
		},
	},
	"a device is published read-only": {
		volume:  block,
		before:  []plan.Kind{plan.MarkInUse, plan.Reference, plan.Stage},
		wanted:  readOnlyUse,
		act:     plan.Publish,
		informs: []string{"DeviceOf"},
		ends: func(b *bench) {
			isPublished(b)
			if b.has("SetReadOnly") == 0 || !b.disk().RefusesWrites("boot") {
				b.t.Errorf("device raw, published read-only: operations %v, want SetReadOnly and a record of it", b.operations())
			}
		},
	},
	"a publication is undone": {
		before: []plan.Kind{plan.MarkInUse, plan.Stage, plan.Publish},
		change: deletedIntents,
		act:    plan.Unpublish,
		ends:   isUnpublished,
	},
	"a read-only publication is undone": {
		before: []plan.Kind{plan.MarkInUse, plan.Stage, plan.Publish},
		wanted: readOnlyUse,
		change: deletedIntents,
		act:    plan.Unpublish,
		ends:   isUnpublished,
	},
	"a part's publication is undone": {
		before: []plan.Kind{plan.MarkInUse, plan.Stage, plan.Publish},
		wanted: subPath,
		change: deletedIntents,
		act:    plan.Unpublish,
		ends:   isUnpublished,
	},
	"a device's publication is undone": {
		volume: block,
		before: []plan.Kind{plan.MarkInUse, plan.Reference, plan.Stage, plan.Publish},
		change: deletedIntents,
		act:    plan.Unpublish,
		ends:   isUnpublished,
	},
	"a device's read-only publication is undone": {
		volume: block,
		before: []plan.Kind{plan.MarkInUse, plan.Reference, plan.Stage, plan.Publish},
		wanted: readOnlyUse,
		change: deletedIntents,
		act:    plan.Unpublish,
		ends: func(b *bench) {
			isUnpublished(b)
			if b.volume.Record.RefusesWrites("boot") {
				b.t.Errorf("device of volume %s still refuses writes, want it to take them", b.volume.Name)
			}
		},
	},
	"a stage is undone": {
		before: []plan.Kind{plan.MarkInUse, plan.Stage, plan.Reference, plan.Publish},
		change: nobodyWants,
		act:    plan.Unstage,
		ends:   isUnstaged,
	},
	"a device's stage is undone": {
		volume:  block,
		before:  []plan.Kind{plan.MarkInUse, plan.Reference, plan.Stage, plan.Publish},
		change:  nobodyWants,
		act:     plan.Unstage,
		informs: []string{"RemoveMountPoint of the kubelet"},
		ends:    isUnstaged,
	},
	"a stage is not shown any more": {
		before: []plan.Kind{plan.MarkInUse, plan.Stage, plan.Reference},
		act:    plan.Dereference,
		ends: func(b *bench) {
			if _, ok := b.kernel.at(b.agent.paths.Reference(b.volume.Name)); ok {
				b.t.Errorf("volume %s: the bind mount of the stage is there, want none", b.volume.Name)
			}
		},
	},
	"what was taken away is shut down": {
		before: []plan.Kind{plan.MarkInUse, plan.Stage, plan.Reference, plan.Publish},
		change: takenAway,
		act:    plan.Shutdown,
		ends: func(b *bench) {
			if b.kernel.shutDown() == 0 || !b.disk().ShutDown {
				b.t.Errorf("volume vol: %d filesystems shut down and record %+v, want one and ShutDown", b.kernel.shutDown(),
					b.disk())
			}
		},
	},
	"a volume is let go of": {
		before: []plan.Kind{plan.MarkInUse, plan.Stage, plan.Reference, plan.Publish},
		change: func(b *bench) {
			nobodyWants(b)
			b.done(plan.Unstage)
		},
		act:     plan.ClearInUse,
		informs: []string{"RemoveMountPoint of the kubelet"},
		ends:    isCleared,
	},
	"a device is let go of": {volume: block, before: []plan.Kind{plan.MarkInUse, plan.Reference, plan.Stage, plan.Publish},
		change: func(b *bench) {
			nobodyWants(b)
			b.done(plan.Unstage)
		}, act: plan.ClearInUse, informs: []string{"RemoveMountPoint of the kubelet"}, ends: isCleared},
}

// nobodyWants: no intent wants the volume any more, and what was published is undone.
func nobodyWants(b *bench) {
	deletedIntents(b)
	b.done(plan.Unpublish)
}

// takenAway: the attachment was forced away.
func takenAway(b *bench) {
	b.entry(func(e *volumesv1alpha1.NodeAttachment) {
		e.State = volumesv1alpha1.AttachmentDetaching
		e.Evidence = &volumesv1alpha1.DetachEvidence{Type: volumesv1alpha1.EvidenceOutOfServiceTaint}
	})
}

func isStaged(b *bench) {
	s := b.volume.Record.Stage
	if s.Phase != record.PhaseDone || s.BootID != "boot" {
		b.t.Errorf("volume %s: stage %+v, want phase %q of this boot", b.volume.Name, s, record.PhaseDone)
	}
	if e, ok := b.kernel.at(s.Path); b.volume.Record.Block() == ok || ok && record.SourceOf(e) != s.Source {
		b.t.Errorf("volume %s: mounted at its stage is %v, want what the record knows: %+v", b.volume.Name, e, s)
	}
	if r := b.onDisk["stage"]; r == nil || r.InFlight == nil || r.Stage.Phase != record.PhaseUncertain ||
		r.InFlight.Operation != "stage" {
		b.t.Errorf("volume %s: when the driver was called the disk had %+v, want an uncertain stage and the call",
			b.volume.Name, r)
	}
	if !b.inUse["stage"] {
		b.t.Errorf("volume %s: when the driver was called the API did not have it in use, want that", b.volume.Name)
	}
}

func isPublished(b *bench) {
	u := b.volume.Record.UseOf("intent")
	if u.Phase != record.PhaseDone || u.BootID != "boot" {
		b.t.Errorf("intent %s: publication %+v, want phase %q of this boot", u.Intent.Name, u, record.PhaseDone)
	}
	if e, ok := b.kernel.at(u.Path); !ok || record.SourceOf(e) != u.Source {
		b.t.Errorf("intent %s: mounted at its path is %v, want what the record knows: %+v", u.Intent.Name, e, u)
	}
	r := b.onDisk["publish"]
	if r == nil || r.InFlight == nil || r.UseOf("intent").Phase != record.PhaseUncertain ||
		r.InFlight.Operation != "publish" {
		b.t.Errorf("intent %s: when the driver was called the disk had %+v, want an uncertain publication and the call",
			u.Intent.Name, r)
	}
	if !b.inUse["publish"] {
		b.t.Errorf("intent %s: when the driver was called the API did not have its volume in use, want that", u.Intent.Name)
	}
}

// isUnowned: users may not rely on the publication yet, and the record says so.
func isUnowned(b *bench) {
	u := b.volume.Record.UseOf("intent")
	if u.Phase != record.PhaseUnowned || u.BootID != "boot" {
		b.t.Errorf("intent %s: phase %q of boot %q, want %q of boot %q", u.Intent.Name, u.Phase, u.BootID,
			record.PhaseUnowned, "boot")
	}
	e, ok := b.kernel.at(u.Target)
	if !ok {
		b.t.Errorf("intent %s: nothing is mounted at %s, want the volume", u.Intent.Name, u.Target)
	}
	source := ""
	if u.Target == u.Path {
		source = record.SourceOf(e)
	}
	if u.Source != source {
		b.t.Errorf("intent %s: its path has source %q, want %q of what is mounted at %s", u.Intent.Name, u.Source, source,
			u.Path)
	}
	if _, ok := b.kernel.at(u.Path); ok && u.Target != u.Path {
		b.t.Errorf("intent %s: users see the volume at %s before its files have their group, want nothing there",
			u.Intent.Name, u.Path)
	}
	if b.has("SetOwnership") > 0 {
		b.t.Errorf("intent %s: operations of publishing it %v, want no SetOwnership", u.Intent.Name, b.operations())
	}
	if next := plan.Of(b.facts()); !slices.Contains(next, plan.Step{Kind: plan.SetOwnership, Intent: "intent"}) ||
		slices.Contains(next, plan.Step{Kind: plan.Publish, Intent: "intent"}) {
		b.t.Errorf("intent %s: the plan is %v, want %s and not %s", u.Intent.Name, next, plan.SetOwnership, plan.Publish)
	}
}

func isOwned(b *bench) {
	isPublished(b)
	u := b.volume.Record.UseOf("intent")
	if g := b.kernel.groupOf(u.Target); g != 7 {
		b.t.Errorf("intent %s: files at %s have group %d, want 7", u.Intent.Name, u.Target, g)
	}
}

func isUnpublished(b *bench) {
	for _, path := range b.kernel.mounted() {
		if strings.Contains(path, "/publish") {
			b.t.Errorf("intent intent: still mounted at %s, want nothing there", path)
		}
	}
	if u := b.volume.Record.UseOf("intent"); u != nil {
		b.t.Errorf("intent intent: its use is %+v, want none", u)
	}
	if r := b.onDisk["unpublish"]; r == nil || r.UseOf("intent") == nil ||
		r.UseOf("intent").Phase != record.PhaseUncertain {
		b.t.Errorf("intent intent: when the driver was called the disk had %+v, want an uncertain publication", r)
	}
}

func isUnstaged(b *bench) {
	if paths := append(b.kernel.mounted(), b.kernel.referred()...); len(paths) > 0 {
		b.t.Errorf("volume %s: left are mounts and device nodes %v, want none", b.volume.Name, paths)
	}
	if s := b.volume.Record.Stage; s != (record.Stage{Path: s.Path}) {
		b.t.Errorf("volume %s: stage %+v, want no more than its path", b.volume.Name, s)
	}
	if r := b.onDisk["unstage"]; r == nil || r.Stage.Phase != record.PhaseUncertain {
		b.t.Errorf("volume %s: when the driver was called the disk had %+v, want an uncertain stage", b.volume.Name, r)
	}
}

func isCleared(b *bench) {
	if b.volume.Record != nil || b.disk() != nil || b.api() != nil {
		b.t.Errorf("volume %s: left are record %+v, on the disk %+v and in the API %+v, want none", b.volume.Name,
			b.volume.Record, b.disk(), b.api())
	}
}

// play brings the scenario to its act.
func (s scenario) play(t *testing.T) *bench {
	t.Helper()
	if s.volume.handle == "" {
		s.volume = filesystem
	}
	b := newBench(t, s.volume)
	if i := b.want("intent"); s.wanted != nil {
		s.wanted(i)
	}
	if u := b.intents[0].Spec.Mount; u != nil {
		b.driver.inner = u.SubPath
	}
	b.done(s.before...)
	if s.change != nil {
		s.change(b)
	}
	b.mu.Lock()
	b.asked = nil
	b.mu.Unlock()
	return b
}

func TestActs(t *testing.T) {
	for name, s := range scenarios {
		t.Run(name, func(t *testing.T) {
			b := s.play(t)
			b.done(s.act)
			s.ends(b)
		})
	}
}

// TestActsPassThePointsAtWhichTheCrashTestsKillAnAgent: a point that is missing would not be tested.
func TestActsPassThePointsAtWhichTheCrashTestsKillAnAgent(t *testing.T) {
	for name, want := range map[string]string{
		"a volume is taken into use":       "before record, after record, before inUse, after inUse",
		"a stage is shown to the kubelet":  "after reference",
		"a device is shown to the kubelet": "before record, after record, after reference",
		"a stage is not shown any more":    "after dereference",
		"a part of a filesystem is published": "before record, after record, before publish, after publish, " +
			"after publication bind",
		"a filesystem is given to a group": "before record, after record, after ownership",
		"a device's stage is undone": "after dereference, before record, after record, before unstage, " +
			"after unstage",
		"a volume is let go of": "before forget, before clear, after clear",
		"a device is let go of": "after dereference, before forget, before clear, after clear",
	} {
		t.Run(name, func(t *testing.T) {
			s := scenarios[name]
			b := s.play(t)
			b.steps = nil
			b.done(s.act)
			if got := strings.Join(b.steps, ", "); got != want {
				t.Errorf("%s of volume %s: points %q, want %q", s.act, b.volume.Name, got, want)
			}
		})
	}
}

func TestWhateverFailsInStagingIsToldAndMended(t *testing.T) {
	mended(t, plan.MarkInUse, plan.Stage, plan.Reference, plan.Dereference)
}

func TestWhateverFailsInPublishingIsToldAndMended(t *testing.T) {
	mended(t, plan.Publish, plan.SetOwnership)
}

func TestWhateverFailsInUnpublishingIsToldAndMended(t *testing.T) { mended(t, plan.Unpublish) }

func TestWhateverFailsInReleasingIsToldAndMended(t *testing.T) {
	mended(t, plan.Unstage, plan.Shutdown, plan.ClearInUse)
}

// mended: each operation in the acts fails once, the act says so, and the next attempt comes to the same end.
func mended(t *testing.T, acts ...plan.Kind) {
	for name, s := range scenarios {
		if !slices.Contains(acts, s.act) {
			continue
		}
		t.Run(name, func(t *testing.T) {
			b := s.play(t)
			b.done(s.act)
			for k, what := range b.operations() {
				b := s.play(t)
				b.failing = k + 1
				err := b.act(s.act)
				if err == nil && !slices.Contains(s.informs, what) {
					t.Errorf("after %s (operation %d of %v) failed: no error, want one", what, k+1, b.operations())
				}
				b.failing = 0
				for range 3 {
					if err == nil {
						break
					}
					err = b.act(s.act)
				}
				if err != nil {
					t.Errorf("after %s (operation %d) failed once: error %v, want success in the end", what, k+1, err)
					continue
				}
				s.ends(b)
			}
		})
	}
}

func TestAVolumeStaysStagedForAnIntentOnlyIfItWasThereWhenTheVolumeWasInUse(t *testing.T) {
	stagedOnly := func(i *volumesv1alpha1.VolumeAttachmentIntent) { i.Spec.DesiredState = volumesv1alpha1.DesiredStaged }
	for name, test := range map[string]struct {
		change func(*bench)
		stays  bool
	}{
		"it is there":         {func(*bench) {}, true},
		"it is being deleted": {deletedIntents, true}, // it waits for the agent's answer
		"it is gone":          {func(b *bench) { b.intents = nil }, false},
		"another one has its name": {func(b *bench) {
			b.intents = nil
			b.want("2", func(i *volumesv1alpha1.VolumeAttachmentIntent) { i.Name = "intent" })
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, filesystem)
			b.known = []*volumesv1alpha1.VolumeAttachmentIntent{b.want("intent", stagedOnly).DeepCopy()}
			b.done(plan.MarkInUse)
			test.change(b)
			if f := b.facts(); !slices.Contains(plan.Of(f), plan.Step{Kind: plan.Join}) {
				t.Errorf("intent %s: the plan is %v, want it to have %s", name, plan.Of(f), plan.Join)
			}
			b.failures["get intent"] = errInjected
			var unwritten *report.UnwrittenError
			if err := b.act(plan.Join); !errors.As(err, &unwritten) || !errors.Is(err, errInjected) {
				t.Errorf("intent intent cannot be read: error %v, want one that says that it is not written, of %v", err,
					errInjected)
			}
			delete(b.failures, "get intent")
			b.done(plan.Join, plan.Stage)
			if f := b.facts(); slices.Contains(plan.Of(f), plan.Step{Kind: plan.Join}) == test.stays {
				t.Errorf("%s: the plan is %v, want it to have %s: %t", name, plan.Of(f), plan.Join, !test.stays)
			}
			reads := b.has("get intent")
			b.done(plan.Join)
			if more := b.has("get intent") - reads; more > 0 == test.stays {
				t.Errorf("%s: the intent was read %d times more, want more than none: %t", name, more, !test.stays)
			}
			b.known = []*volumesv1alpha1.VolumeAttachmentIntent{}
			if ends := slices.Contains(plan.Of(b.facts()),
				plan.Step{Kind: plan.Unpublish, Intent: "intent"}); ends == test.stays {
				t.Errorf("%s: the plan is %v, want the use to end: %t", name, plan.Of(b.facts()), !test.stays)
			}
		})
	}
}

// TestWhatWasReportedToAnEarlierStateIsNotLookedForInANewOne: the answer to the first report to it was lost.
func TestWhatWasReportedToAnEarlierStateIsNotLookedForInANewOne(t *testing.T) {
	b := newBench(t, filesystem)
	b.agent.session.Persisted = record.LastReport{Schema: record.Schema, UID: "new"}
	b.state.UID, b.state.Status.Protocol.ObservedUID, b.state.Status.Protocol.Reports = "new", "new", 1
	if err := b.agent.session.CheckRestored(t.Context()); err != nil || b.agent.session.RestoreID != "" {
		t.Errorf("node state new, to which nothing was acknowledged: error %v, restored %t, want none and false", err,
			b.agent.session.RestoreID != "")
	}
	if last, err := b.agent.session.PersistLastReport(); err != nil || last.UID != "new" || last.Restored {
		t.Errorf("last report %+v, error %v, want one to node state new that was not restored", last, err)
	}
}
