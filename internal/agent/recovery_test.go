/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package agent

import (
	"errors"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/agent/kubelet"
	"github.com/hawser-io/hawser/internal/agent/plan"
	"github.com/hawser-io/hawser/internal/agent/record"
	"github.com/hawser-io/hawser/internal/agent/report"
	"github.com/hawser-io/hawser/internal/mount"
)

// restart is the same node with an agent that knows nothing yet; its boot is another one where it says so.
func (b *bench) restart(rebooted bool) *bench {
	b.t.Helper()
	n := newBench(b.t, b.of)
	n.state, n.kernel.entries = b.state, b.kernel.entries
	n.agent.Options.RootDir = b.agent.RootDir
	n.agent.paths, n.agent.store.Dir = b.agent.paths, b.agent.store.Dir
	n.agent.session.Persisted = record.LastReport{
		Schema: record.Schema, UID: "state", Reports: b.state.Status.Protocol.Reports,
	}
	if rebooted {
		n.agent.bootID, n.agent.observer.BootID, n.agent.bootID, n.agent.node.BootID = "later", "later", "later",
			"later"
	}
	return n
}

// line has the API say that the volume is in use.
func (b *bench) line(change ...func(*volumesv1alpha1.NodeVolume)) {
	l := volumesv1alpha1.NodeVolume{VolumeName: b.of.name(), AttachmentUID: "uid-1", InUse: true,
		PublishedBy: volumesv1alpha1.PublisherAgent}
	for _, f := range change {
		f(&l)
	}
	b.state.Status.Volumes = []volumesv1alpha1.NodeVolume{l}
}

func (b *bench) recovered() *record.Record {
	b.t.Helper()
	b.must(b.agent.recoverRecords(b.t.Context()))
	return b.volume.Record
}

// toReport is what the agent will report of the volume.
func (b *bench) toReport() (report.VolumeReport, bool) {
	r, ok := b.agent.state.ReportOf(b.of.name())
	return r, ok
}

func TestAnAgentTakesUpWhatAnEarlierOneLeft(t *testing.T) {
	t.Run("as it is on the disk", func(t *testing.T) {
		b := newBench(t, filesystem)
		b.publish()
		before := b.disk()
		b.must(b.agent.steps.Persist(b.volume))
		n := b.restart(false)
		r := n.recovered()
		if !r.InUse || r.Stage != b.volume.Record.Stage || len(r.Uses) != 1 ||
			!reflect.DeepEqual(r.Uses, b.volume.Record.Uses) || before == nil {
			t.Errorf("volume vol: record %+v, want it in use, with the stage and the use of before the restart", r)
		}
		reported, ok := n.toReport()
		if !ok || !reported.Line.InUse || reported.Orphan || len(reported.Line.Publications) != 1 ||
			reported.Line.Publications[0].Orphan {
			t.Errorf("volume vol: to be reported is %+v, want it in use, with one publication and no orphan", reported)
		}
		if view, ok := n.agent.views.Load(b.of.name()); !ok || view.(*record.Record) == r ||
			!reflect.DeepEqual(view, r) {
			t.Error("volume vol: what the mount table is compared with is not a copy of its record, want one")
		}
		if _, ok := n.agent.store.Known()[b.of.name()]; !ok || n.agent.queue.queue.Len() != 1 {
			t.Errorf("volume vol: volumes with a record are %v and %d are queued, want it among them and 1 queued",
				n.agent.store.Known(), n.agent.queue.queue.Len())
		}
	})
	t.Run("without what the API does not show", func(t *testing.T) {
		for name, change := range map[string]func(*bench){
			"no line":                 func(b *bench) { b.state.Status.Volumes = nil },
			"one that was taken back": func(b *bench) { b.line(func(l *volumesv1alpha1.NodeVolume) { l.InUse = false }) },
			"one of another attachment": func(b *bench) {
				b.line(func(l *volumesv1alpha1.NodeVolume) { l.AttachmentUID = "uid-2" })
			},
		} {
			b := newBench(t, filesystem)
			b.publish()
			b.must(b.agent.steps.Persist(b.volume))
			change(b)
			n := b.restart(false)
			if r := n.recovered(); r.InUse {
				t.Errorf("%s: volume vol: record %+v, want it not in use", name, r)
			}
		}
		b := newBench(t, filesystem)
		b.publish()
		b.volume.Record.InUse = false
		b.must(b.agent.steps.Persist(b.volume))
		if r := b.restart(false).recovered(); r.InUse {
			t.Errorf("volume vol, which the disk does not have in use: record %+v, want it not in use", r)
		}
	})
	t.Run("and has not begun", func(t *testing.T) {
		b := newBench(t, filesystem)
		b.want("intent")
		b.done(plan.MarkInUse)
		b.volume.Record.InUse = false
		b.must(b.agent.steps.Persist(b.volume))
		b.state.Status.Volumes = nil
		n := b.restart(false)
		n.recovered()
		if r, ok := n.toReport(); ok {
			t.Errorf("volume vol: to be reported is %+v, want nothing", r)
		}
	})
	t.Run("with the call that was going on as one of unknown end", func(t *testing.T) {
		b := newBench(t, filesystem)
		b.want("intent")
		b.done(plan.MarkInUse)
		b.volume.Record.Begin(b.agent.steps.NewCall("stage", "path"))
		b.must(b.agent.steps.Persist(b.volume))
		if r := b.restart(false).recovered(); r.InFlight != nil || r.Unfinished == nil || !r.Unfinished.Mounts {
			t.Errorf("volume vol, whose call was going on: record %+v, want no call in flight and one unfinished that may "+
				"mount", r)
		}
	})
	t.Run("without device numbers of an earlier boot", func(t *testing.T) {
		b := newBench(t, filesystem)
		b.publish()
		b.must(b.agent.steps.Persist(b.volume))
		if r := b.restart(true).recovered(); r.Stage.Source != "" || r.Stage.Phase != record.PhaseDone {
			t.Errorf("volume vol after a reboot: stage %+v, want it done and no source", r.Stage)
		}
	})
	t.Run("without sequence numbers of an earlier boot", func(t *testing.T) {
		b := stagedNode(t)
		b.done(plan.Publish)
		b.must(b.agent.steps.Persist(b.volume))
		r := b.restart(true).recovered()
		if stage, use := r.Stage.Seq, r.Uses[0].Seq; b.volume.Record.Uses[0].Seq != 10 || stage != 0 || use != 0 {
			t.Errorf("raw device after a reboot: sequence number %d of the stage, %d of the publication, want none", stage, use)
		}
	})
	t.Run("in use where the kernel alone holds its device", func(t *testing.T) {
		b := newBench(t, filesystem)
		b.want("intent")
		b.done(plan.MarkInUse)
		b.volume.Record.InUse = false
		b.volume.Record.Devices = []record.SeenDevice{{Device: mount.Device{Path: "/dev/loop7", Major: 7, Minor: 7},
			BootID: b.agent.bootID, Held: true}}
		b.must(b.agent.steps.Persist(b.volume))
		n := b.restart(false)
		n.recovered()
		if r, ok := n.toReport(); !ok || !r.Line.InUse {
			t.Errorf("volume vol: to be reported: %t, %+v, want it to be, and in use", ok, r)
		}
	})
	t.Run("also before there is a state of the node", func(t *testing.T) {
		b := newBench(t, filesystem)
		b.publish()
		b.must(b.agent.steps.Persist(b.volume))
		n := b.restart(false)
		n.failures["get state"] = apierrors.NewNotFound(schema.GroupResource{}, "node")
		if r := n.recovered(); r == nil || r.InUse {
			t.Errorf("volume vol: record %+v, want one that is not in use", r)
		}
	})
	t.Run("not where the disk or the API cannot be read", func(t *testing.T) {
		b := newBench(t, filesystem)
		b.failures["get state"] = errInjected
		if err := b.agent.recoverRecords(t.Context()); !errors.Is(err, errInjected) {
			t.Errorf("records of a node whose state cannot be read: error %v, want %v", err, errInjected)
		}
		b = newBench(t, filesystem)
		b.must(os.RemoveAll(b.agent.store.Dir))
		if err := b.agent.recoverRecords(t.Context()); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("records in a directory that is gone: error %v, want %v", err, os.ErrNotExist)
		}
	})
}

func TestARecordThatWasLostIsRebuiltFromTheAPI(t *testing.T) {
	publication := func(kind volumesv1alpha1.PublicationType, readOnly bool) func(*volumesv1alpha1.NodeVolume) {
		return func(l *volumesv1alpha1.NodeVolume) {
			l.Publications = []volumesv1alpha1.Publication{{
				Intent: volumesv1alpha1.IntentReference{Namespace: "ns", Name: "intent", UID: "intent"}, Path: "/path",
				Type: kind, ReadOnly: readOnly,
			}}
		}
	}
	t.Run("with everything that may be", func(t *testing.T) {
		for name, test := range map[string]struct {
			volume   testVolume
			kind     volumesv1alpha1.PublicationType
			readOnly bool
			// part: the volume is mounted at the hidden path, and a part of it at the path.
			part bool
		}{
			"a filesystem":           {volume: filesystem, kind: volumesv1alpha1.PublicationMount},
			"a device":               {volume: block, kind: volumesv1alpha1.PublicationDevice},
			"a read-only device":     {volume: block, kind: volumesv1alpha1.PublicationDevice, readOnly: true},
			"a read-only mount":      {volume: filesystem, kind: volumesv1alpha1.PublicationMount, readOnly: true},
			"a part of a filesystem": {volume: filesystem, kind: volumesv1alpha1.PublicationMount, part: true},
		} {
			b := newBench(t, test.volume)
			if test.part {
				b.kernel.mount(mount.Entry{Path: b.agent.paths.Hidden("intent")})
			}
			b.line(publication(test.kind, test.readOnly))
			r := b.recovered()
			mode, use := corev1.PersistentVolumeFilesystem, record.Use{
				Intent: volumesv1alpha1.IntentReference{Namespace: "ns", Name: "intent", UID: "intent"},
				Want:   volumesv1alpha1.DesiredPublished,
				Phase:  record.PhaseUncertain, Path: "/path", Target: "/path", Type: test.kind, ReadOnly: test.readOnly,
				BootID: "boot",
			}
			if test.kind == volumesv1alpha1.PublicationDevice {
				mode, use.Bound = corev1.PersistentVolumeBlock, b.agent.paths.Bound(rawSource, "intent")
			}
			if test.part || test.readOnly && test.kind == volumesv1alpha1.PublicationDevice {
				use.Target = b.agent.paths.Hidden("intent")
			}
			path := b.agent.paths.Staging(test.volume.source())
			want := &record.Record{
				Schema: record.Schema, VolumeName: b.of.name(), AttachmentUID: "uid-1", Driver: fakeDriverName,
				Handle:           test.volume.handle,
				PersistentVolume: "pv-" + test.volume.handle, Mode: mode, Rebuilt: true, Uses: []record.Use{use},
				Stage: record.Stage{Phase: record.PhaseUncertain, Path: path, BootID: "boot"}, Unfinished: r.Unfinished,
			}
			if !reflect.DeepEqual(r, want) {
				t.Errorf("%s: rebuilt record %+v, want %+v", name, r, want)
			}
			if _, ok := b.agent.store.Known()[b.of.name()]; !ok {
				t.Errorf("%s: volume %s is not among those with a record, want it there", name, b.of.name())
			}
			if c := r.Unfinished; c == nil || !c.Mounts || c.BootID != "boot" || c.Uptime < b.uptime+time.Minute ||
				c.Operation != "unknown" || c.Target != path {
				t.Errorf("%s: unfinished call %+v, want an unknown one that may mount at %s until after a minute", name, c, path)
			}
		}
	})
	t.Run("as a device where nothing is attached", func(t *testing.T) {
		b := newBench(t, block)
		b.line(publication(volumesv1alpha1.PublicationDevice, false))
		b.state.Spec.Attachments = nil
		if r := b.recovered(); r.Mode != corev1.PersistentVolumeBlock {
			t.Errorf("volume raw: rebuilt record %+v, want mode Block", r)
		}
	})
	t.Run("not where another record is broken", func(t *testing.T) {
		b := newBench(t, filesystem)
		b.must(os.WriteFile(b.agent.store.Path("unknown"), []byte("{"), 0o600))
		if r := b.recovered(); r != nil {
			t.Errorf("volume vol, which the API does not have in use: record %+v, want none", r)
		}
	})
	t.Run("by the name alone where nothing is attached", func(t *testing.T) {
		b := newBench(t, filesystem)
		b.line(func(l *volumesv1alpha1.NodeVolume) { l.AttachmentUID = "uid-0" })
		b.state.Spec.Attachments = nil
		if r := b.recovered(); r.Driver != fakeDriverName || r.Handle != "vol" || r.AttachmentUID != "uid-0" ||
			r.PersistentVolume != "" {
			t.Errorf("volume vol without an entry: rebuilt record %+v, want driver and handle of its name and attachment "+
				"uid-0", r)
		}
	})
	t.Run("under the attachment of which the API says that it is in use", func(t *testing.T) {
		b := newBench(t, filesystem)
		b.line(func(l *volumesv1alpha1.NodeVolume) { l.AttachmentUID = "uid-0" })
		b.state.Spec.Attachments[0].VolumeMode = corev1.PersistentVolumeBlock
		b.state.Spec.Attachments[0].Driver, b.state.Spec.Attachments[0].VolumeHandle = "other", "handle"
		if r := b.recovered(); r.AttachmentUID != "uid-0" || r.Mode != corev1.PersistentVolumeBlock ||
			r.Driver != "other" || r.Handle != "handle" {
			t.Errorf("volume vol with an entry: rebuilt record %+v, want mode Block and driver and handle of its entry", r)
		}
		b = newBench(t, filesystem)
		b.line()
		b.state.Spec.Attachments[0].VolumeMode = ""
		if r := b.recovered(); r.Mode != corev1.PersistentVolumeFilesystem {
			t.Errorf("volume vol with an entry without a mode: rebuilt record %+v, want mode Filesystem", r)
		}
	})
	t.Run("not where it is the kubelet's", func(t *testing.T) {
		b := newBench(t, filesystem)
		b.line(func(l *volumesv1alpha1.NodeVolume) {
			l.PublishedBy, l.StagedPath, l.DevicePath = volumesv1alpha1.PublisherKubelet, "/staged", "/dev/x"
		})
		if r := b.recovered(); r != nil {
			t.Errorf("volume vol, which only the kubelet uses: record %+v, want none", r)
		}
		want := map[string]kubelet.TrackedUse{b.of.name(): {AttachmentUID: "uid-1", StagedPath: "/staged",
			DevicePath: "/dev/x"}}
		if got := b.agent.observer.Last.Uses; !reflect.DeepEqual(got, want) {
			t.Errorf("uses of the kubelet: %+v, want %+v", got, want)
		}
	})
	t.Run("and what the kubelet uses is not the agent's", func(t *testing.T) {
		b := newBench(t, filesystem)
		b.line()
		b.recovered()
		if got := b.agent.observer.Last.Uses; len(got) > 0 {
			t.Errorf("uses of the kubelet: %+v, want none", got)
		}
	})
	t.Run("not where the disk has it", func(t *testing.T) {
		b := newBench(t, filesystem)
		b.publish()
		b.must(b.agent.steps.Persist(b.volume))
		if r := b.restart(false).recovered(); r.Rebuilt {
			t.Errorf("volume vol, whose record is readable: %+v, want it not rebuilt", r)
		}
	})
	t.Run("not where the API server was restored and knows less than the disk", func(t *testing.T) {
		b := newBench(t, filesystem)
		b.line()
		b.agent.session.Persisted = record.LastReport{Schema: record.Schema, UID: "state", Reports: 100}
		if r := b.recovered(); r != nil {
			t.Errorf("volume vol, which the API server has forgotten: record %+v, want none", r)
		}
	})
	t.Run("also where it cannot be read", func(t *testing.T) {
		b := newBench(t, filesystem)
		b.must(os.WriteFile(b.agent.store.Path(b.of.name()), []byte("{"), 0o600))
		b.must(os.WriteFile(b.agent.store.Path("unknown"), []byte("{"), 0o600))
		r := b.recovered()
		if r == nil || !r.Rebuilt || r.AttachmentUID != "uid-1" || len(r.Uses) > 0 ||
			r.Stage.Phase != record.PhaseUncertain {
			t.Errorf("volume vol, whose record is broken: %+v, want it rebuilt for uid-1, with an uncertain stage and no use", r)
		}
		if broken := b.agent.node.BrokenRecords(); len(broken) != 1 ||
			!strings.Contains(broken[0], record.Hash("unknown")) {
			t.Errorf("records of no known volume: %v, want the one of volume unknown", broken)
		}
		if report, ok := b.toReport(); !ok || !report.Line.InUse {
			t.Errorf("volume vol, whose record is broken: to be reported is %+v, want it in use", report)
		}
	})
	t.Run("once, where it cannot be read and the API says that it is in use", func(t *testing.T) {
		b := newBench(t, filesystem)
		b.must(os.WriteFile(b.agent.store.Path(b.of.name()), []byte("{"), 0o600))
		b.line(publication(volumesv1alpha1.PublicationMount, false))
		if r := b.recovered(); len(r.Uses) != 1 || b.agent.queue.queue.Len() != 1 {
			t.Errorf("volume vol: record %+v, want one use, and the volume queued once", r)
		}
	})
	t.Run("not only because it is attached", func(t *testing.T) {
		b := newBench(t, filesystem)
		if r := b.recovered(); r != nil {
			t.Errorf("volume vol: record %+v, want none", r)
		}
	})
	t.Run("one by one", func(t *testing.T) {
		b := newBench(t, filesystem)
		b.publish()
		b.must(b.agent.steps.Persist(b.volume))
		b.state.Status.Volumes = append(b.state.Status.Volumes,
			volumesv1alpha1.NodeVolume{VolumeName: "kubernetes.io/csi/d^2", AttachmentUID: "uid-2", InUse: true})
		n := b.restart(false)
		n.recovered()
		if other := n.agent.volume("kubernetes.io/csi/d^2").Record; n.volume.Record.Rebuilt || other == nil ||
			!other.Rebuilt {
			t.Errorf("record of volume vol %+v and of volume d^2 %+v, want only the second one rebuilt", n.volume.Record, other)
		}
	})
}

func TestARecordIsRebuiltWithThePublicationsThatTheAPIDoesNotList(t *testing.T) {
	for name, volume := range map[string]testVolume{"a filesystem": filesystem, "a device": block} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, volume)
			for _, uid := range []types.UID{"listed", "unlisted", "deleted"} {
				b.want(uid)
			}
			b.intents[2].DeletionTimestamp = ptr.To(metav1.Now())
			kind := volumesv1alpha1.PublicationMount
			if volume.mode == corev1.PersistentVolumeBlock {
				kind = volumesv1alpha1.PublicationDevice
			}
			b.line(func(l *volumesv1alpha1.NodeVolume) {
				l.Publications = []volumesv1alpha1.Publication{{Path: b.agent.paths.Published("ns", "listed"), Type: kind,
					Intent: volumesv1alpha1.IntentReference{Namespace: "ns", Name: "listed", UID: "listed"}}}
				l.PublicationCount = 4 // the intent of the fourth does not exist
			})
			b.recovered()
			b.facts()
			if r := b.volume.Record; len(r.Uses) != 3 || r.Incomplete || r.UseOf("deleted") == nil {
				t.Fatalf("the rebuilt record has the uses %+v, want one of each of the three intents", r.Uses)
			}
			for _, u := range b.volume.Record.Uses {
				if u.Phase != record.PhaseUncertain || u.Type != kind || u.BootID != "boot" ||
					u.Path != b.agent.paths.Published("ns", u.Intent.Name) {
					t.Errorf("use %+v, want an uncertain one of type %s at the path of its intent", u, kind)
				}
			}
			b.done(plan.MarkInUse)
			steps := plan.Of(b.facts())
			if !slices.Contains(steps, plan.Step{Kind: plan.Unpublish, Intent: "deleted"}) {
				t.Errorf("the plan is %v, want that the deleted intent's publication is undone", steps)
			}
		})
	}
}

func TestWhatTheKubeletUsesIsTakenUpFromTheDisk(t *testing.T) {
	b := newBench(t, filesystem)
	b.line(func(l *volumesv1alpha1.NodeVolume) { l.PublishedBy = volumesv1alpha1.PublisherKubelet })
	b.agent.observer.SetKnown(map[string]kubelet.TrackedUse{"of-the-disk": {AttachmentUID: "uid-9"}})
	b.must(b.agent.observer.Save())
	b.recovered()
	if got := b.agent.observer.Last.Uses; len(got) != 1 || got["of-the-disk"].AttachmentUID != "uid-9" {
		t.Errorf("uses of the kubelet after a restore: %v, want the one on the disk, of attachment uid-9", got)
	}
	b.must(os.WriteFile(b.agent.observer.File().Path, []byte("{"), 0o600))
	b.recovered()
	if got := b.agent.observer.Last.Uses; len(got) != 1 || got[b.of.name()].AttachmentUID != "uid-1" {
		t.Errorf("uses of the kubelet where the disk cannot be read: %v, want the one of the API, of attachment uid-1", got)
	}
}
