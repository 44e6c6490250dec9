/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package agent

import (
	"context"
	"errors"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/ptr"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/agent/failure"
	"github.com/hawser-io/hawser/internal/agent/operation"
	"github.com/hawser-io/hawser/internal/agent/plan"
	"github.com/hawser-io/hawser/internal/agent/record"
	"github.com/hawser-io/hawser/internal/agent/report"
	"github.com/hawser-io/hawser/internal/driver"
	"github.com/hawser-io/hawser/internal/mount"
)

func transient(code string) error {
	return &driver.Error{Outcome: driver.Transient, Code: code, Message: "it failed"}
}

func refusal() error {
	return &driver.Error{Outcome: driver.Transient, Code: "FailedPrecondition", Message: "not so", NoEffect: true}
}

func uncertain() error {
	return &driver.Error{Outcome: driver.Uncertain, Code: "Unavailable", Message: "no answer"}
}

func TestWhatTheDriverIsAskedToStage(t *testing.T) {
	secret := func(b *bench) {
		b.entry(func(e *volumesv1alpha1.NodeAttachment) {
			e.NodeStageSecretRef = &corev1.SecretReference{Namespace: "ns", Name: "stage"}
			e.NodePublishSecretRef = &corev1.SecretReference{Namespace: "ns", Name: "publish"}
		})
		for _, name := range []string{"stage", "publish"} {
			b.secrets["ns/"+name] = &corev1.Secret{Data: map[string][]byte{"password": []byte(name)}}
		}
	}
	group := func(i *volumesv1alpha1.VolumeAttachmentIntent) {
		i.Spec.Mount = &volumesv1alpha1.MountSpec{FSGroup: ptr.To(int64(7)), Options: []string{"nodev"}}
	}
	for _, v := range []testVolume{filesystem, block} {
		b := newBench(t, v)
		b.want("intent", group)
		secret(b)
		b.stage()
		b.done(plan.Publish)
		volume := driver.Volume{
			Handle: v.handle, PersistentVolume: "pv-" + v.handle, Mode: b.volume.Record.Mode, FSType: "ext4",
			AccessMode: corev1.ReadWriteOnce,
			Attributes: map[string]string{"attribute": "1"}, PublishContext: map[string]string{"context": "2"},
		}
		path, target := b.volume.Record.Stage.Path, b.agent.paths.Published("ns", "intent")
		stage := driver.StageRequest{
			Volume: volume, StagingPath: path, MountOptions: []string{"noatime"}, FSGroup: ptr.To(int64(7)),
			Secrets: map[string]string{"password": "stage"},
		}
		publish := driver.PublishRequest{
			Volume: volume, StagingPath: path, TargetPath: target, MountOptions: []string{"noatime", "nodev"},
			FSGroup: ptr.To(int64(7)),
			Secrets: map[string]string{"password": "publish"},
		}
		if v.mode == corev1.PersistentVolumeBlock {
			stage.MountOptions, publish.MountOptions = nil, nil
		}
		if got := b.driver.staged(v.handle); !reflect.DeepEqual(got, stage) {
			t.Errorf("volume %s: asked to stage %+v, want %+v", v.handle, got, stage)
		}
		if got := b.driver.published(target); !reflect.DeepEqual(got, publish) {
			t.Errorf("volume %s: asked to publish %+v, want %+v", v.handle, got, publish)
		}
		if b.state.Spec.Attachments[0].MountOptions[0] != "noatime" || len(b.facts().Entry.MountOptions) != 1 {
			t.Errorf("volume vol: mount options of the entry are %v, want them unchanged: noatime", b.facts().Entry.MountOptions)
		}
	}
	t.Run("little is known of the volume", func(t *testing.T) {
		b := newBench(t, testVolume{handle: "vol", change: func(e *volumesv1alpha1.NodeAttachment) {
			e.AccessModes,
				e.VolumeMode = nil, ""
		}})
		b.want("intent", readOnlyUse)
		b.done(plan.MarkInUse, plan.Stage, plan.Publish)
		if got := b.driver.staged("vol"); got.AccessMode != "" || got.Mode != corev1.PersistentVolumeFilesystem {
			t.Errorf("volume vol of no access mode: asked to stage %+v, want no access mode and a filesystem", got)
		}
		if got := b.driver.published(b.agent.paths.Hidden("intent")); !got.ReadOnly {
			t.Errorf("intent intent: asked to publish %+v, want it read-only", got)
		}
	})
	t.Run("a secret that cannot be read keeps the driver from being called", func(t *testing.T) {
		for _, verb := range []plan.Kind{plan.Stage, plan.Publish} {
			b := newBench(t, filesystem)
			b.want("intent")
			secret(b)
			b.done(plan.MarkInUse)
			if verb == plan.Publish {
				b.done(plan.Stage)
			}
			delete(b.secrets, "ns/"+string(verb))
			calls := len(b.driver.made())
			err := b.act(verb)
			b.refused(err, volumesv1alpha1.ReasonSecretNotReadable)
			if !strings.Contains(err.Error(), "ns/"+string(verb)) || !strings.Contains(err.Error(), "not found") ||
				len(b.driver.made()) != calls {
				t.Errorf("%s with a missing secret: error %v and calls %v, want one that names ns/%s, and no call", verb, err,
					b.driver.made(), verb)
			}
		}
	})
}

func TestWhatTheDriverAnswersToAStage(t *testing.T) {
	unstagedRecord := func(b *bench) bool { return b.volume.Record.Stage.Phase == record.PhaseNone }
	doubtful := func(b *bench) bool { return b.volume.Record.Stage.Phase == record.PhaseUncertain }
	for name, test := range map[string]struct {
		before func(*bench)
		answer error
		is     func(*bench) bool
	}{
		"a refusal of the first call: nothing was done":           {func(*bench) {}, refusal(), unstagedRecord},
		"a final error of the first call may have left something": {func(*bench) {}, transient("Internal"), doubtful},
		"an uncertain one may have done it":                       {func(*bench) {}, uncertain(), doubtful},
		"a refusal after an uncertain one": {func(b *bench) {
			b.driver.fail("stage", uncertain())
			if b.act(plan.Stage) == nil {
				b.t.Errorf("staging volume %s: no error, want one", b.volume.Name)
			}
		}, refusal(), doubtful},
		"a refusal where somebody has unmounted what was staged": {func(b *bench) {
			b.done(plan.Stage)
			b.kernel.umount(b.volume.Record.Stage.Path)
		}, refusal(), doubtful},
		"a refusal, and yet it is mounted": {func(b *bench) {
			b.after["stage"] = func() {
				b.kernel.mount(b.kernel.filesystemOf("vol", "ext4", b.volume.Record.Stage.Path))
			}
			b.driver.before = func(string, string) error { b.after["stage"](); return nil }
		}, refusal(), doubtful},
		"a final error, and the kubelet's stage was there before": {func(b *bench) {
			b.must(os.MkdirAll(b.volume.Record.Stage.Path, 0o750))
			b.kernel.mount(b.kernel.filesystemOf("vol", "ext4", b.volume.Record.Stage.Path))
		}, transient("Internal"), unstagedRecord},
		"a refusal, and the mount table cannot be read": {func(b *bench) {
			b.driver.before = func(string, string) error { b.failures["Table"] = errInjected; return nil }
		}, refusal(), doubtful},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, filesystem)
			b.want("intent")
			b.done(plan.MarkInUse)
			test.before(b)
			b.driver.fail("stage", test.answer)
			err := b.act(plan.Stage)
			if driver.CodeOf(err) != driver.CodeOf(test.answer) || !test.is(b) {
				t.Errorf("staging volume %s, answered %v: error %v and stage %+v, want that code", b.volume.Name, test.answer,
					err, b.volume.Record.Stage)
			}
		})
	}
	t.Run("the agent ends before the driver answers", func(t *testing.T) {
		b := newBench(t, filesystem)
		b.want("intent")
		b.done(plan.MarkInUse)
		lifetime, kill := context.WithCancelCause(t.Context())
		b.agent.steps.Lifetime = lifetime
		release := b.driver.hang("stage", "vol")
		b.driver.before = func(string, string) error { kill(operation.ErrStopped); return nil }
		err := b.act(plan.Stage)
		release()
		if !errors.Is(err, operation.ErrStopped) || !doubtful(b) {
			t.Errorf("volume vol while the agent stops: error %v and stage %+v, want ErrStopped and an uncertain stage", err,
				b.volume.Record.Stage)
		}
	})
}

func TestAStageIsWhatTheDriverMounted(t *testing.T) {
	t.Run("by a driver that is there", func(t *testing.T) {
		b := newBench(t, filesystem)
		b.want("intent")
		b.done(plan.MarkInUse)
		b.agent.steps.Registry = newFakeRegistry(nil)
		b.refused(b.act(plan.Stage), volumesv1alpha1.ReasonDriverNotFound)
	})
	t.Run("nothing, as with a driver that stages nothing", func(t *testing.T) {
		b := newBench(t, filesystem)
		b.want("intent")
		b.driver.stageless = true
		b.done(plan.MarkInUse, plan.Stage)
		if s := b.volume.Record.Stage; s.Phase != record.PhaseDone || s.Source != "" || s.Device != "" {
			t.Errorf("volume vol, for which nothing is mounted: stage %+v, want it done without a source", s)
		}
	})
	t.Run("its device is known", func(t *testing.T) {
		b := newBench(t, filesystem)
		b.want("intent")
		b.done(plan.MarkInUse, plan.Stage, plan.Publish)
		if r := b.volume.Record; r.Stage.Device != device("vol") || r.Uses[0].Device != device("vol") {
			t.Errorf("volume vol: record %+v, want its device at the stage and at the use", r)
		}
	})
	t.Run("something else was mounted there before", func(t *testing.T) {
		b := newBench(t, filesystem)
		b.want("intent")
		b.done(plan.MarkInUse, plan.Stage)
		b.kernel.umount(b.volume.Record.Stage.Path)
		b.kernel.mount(b.kernel.filesystemOf("other", "ext4", b.volume.Record.Stage.Path))
		b.refused(b.act(plan.Stage), volumesv1alpha1.ReasonMountLost)
		if n := len(b.driver.made()); n != 1 {
			t.Errorf("volume vol: calls %v, want one", b.driver.made())
		}
	})
	t.Run("somebody unmounted it over the call", func(t *testing.T) {
		for name, change := range map[string]func(*bench){
			"it was staged before":    func(b *bench) { b.done(plan.Stage) },
			"it was unmounted before": func(b *bench) { b.done(plan.Stage); b.kernel.umount(b.volume.Record.Stage.Path) },
			"the kubelet had staged": func(b *bench) {
				b.kernel.mount(b.kernel.filesystemOf("vol", "ext4", b.volume.Record.Stage.Path))
			},
		} {
			b := newBench(t, filesystem)
			b.want("intent")
			b.done(plan.MarkInUse)
			change(b)
			b.driver.stageless = true
			b.driver.before = func(string, string) error { b.kernel.umount(b.volume.Record.Stage.Path); return nil }
			if err := b.act(plan.Stage); !driver.IsUncertain(err) ||
				driver.CodeOf(err) != volumesv1alpha1.ReasonMountLost ||
				!strings.Contains(err.Error(), b.volume.Record.Stage.Path) ||
				b.volume.Record.Stage.Phase != record.PhaseUncertain {
				t.Errorf("%s: error %v and stage %+v, want an uncertain one of a lost mount that names the path", name, err,
					b.volume.Record.Stage)
			}
		}
	})
	t.Run("what was known of an earlier one is forgotten", func(t *testing.T) {
		b := newBench(t, filesystem)
		b.want("intent")
		b.done(plan.MarkInUse, plan.Stage)
		b.kernel.umount(b.volume.Record.Stage.Path)
		b.volume.Record.Stage.Source = ""
		b.driver.stageless = true
		b.done(plan.Stage)
		if s := b.volume.Record.Stage; s.Device != "" || s.Source != "" {
			t.Errorf("volume raw: stage %+v, want neither device nor source", s)
		}
	})
	t.Run("the node's own disk is not the volume", func(t *testing.T) {
		b := newBench(t, filesystem)
		b.want("intent")
		b.done(plan.MarkInUse)
		b.driver.stageless = true
		b.driver.before = func(string, string) error {
			b.kernel.mount(b.kernel.bindOf(b.agent.paths.Kubelet, b.volume.Record.Stage.Path))
			return nil
		}
		err := b.act(plan.Stage)
		b.refused(err, volumesv1alpha1.ReasonStageFailed)
		if !errors.Is(err, operation.ErrOwnDisk) || !strings.Contains(err.Error(), "not the volume") {
			t.Errorf("volume vol: error %v, want one that says that the node's own disk is not the volume", err)
		}
	})
	t.Run("another filesystem than the one asked for", func(t *testing.T) {
		for _, test := range []struct {
			asked, carries string
			noDevice, ok   bool
		}{
			{"ext4", "ext4", false, true}, {"ext4", "xfs", false, false}, {"xfs", "xfs", false, true},
			{"ext4", "ext3", false, true}, {"ext2", "ext4", false, true},
			{"xfs", "ext4", false, false}, {"btrfs", "ext4", false, false}, {"ext4", "nfs", true, true},
			{"", "xfs", false, true},
		} {
			b := newBench(t, testVolume{handle: "vol",
				change: func(e *volumesv1alpha1.NodeAttachment) { e.FSType = test.asked }})
			b.want("intent")
			b.driver.stageless = true
			b.done(plan.MarkInUse)
			b.driver.before = func(string, string) error {
				e := b.kernel.filesystemOf("vol", test.carries, b.volume.Record.Stage.Path)
				if test.noDevice {
					e.Source = "server:/export"
				}
				b.kernel.mount(e)
				return nil
			}
			err := b.act(plan.Stage)
			if test.ok != (err == nil) {
				t.Errorf("%+v: error %v, want none: %t", test, err, test.ok)
			}
			var p *failure.Problem
			if err != nil && (!errors.As(err, &p) || p.Reason != volumesv1alpha1.ReasonFilesystemMismatch ||
				!p.Stalled ||
				!strings.Contains(p.Message, test.asked) || !strings.Contains(p.Message, test.carries)) {
				t.Errorf("%+v: error %+v, want a stalled mismatch that names both filesystems", test, err)
			}
		}
	})
	t.Run("a raw device may show any filesystem at its staging path", func(t *testing.T) {
		b := newBench(t, block)
		b.want("intent")
		b.done(plan.MarkInUse)
		b.driver.before = func(string, string) error {
			b.kernel.mount(b.kernel.filesystemOf("raw", "xfs", b.volume.Record.Stage.Path))
			return nil
		}
		b.done(plan.Stage)
	})
}

// knows are the filesystems that the node knows.
type knows []string

func (k knows) Known(fsType string) bool { return slices.Contains(k, fsType) }

func TestAStageThatFailedIsExplainedWhereTheNodeKnowsBetter(t *testing.T) {
	for name, test := range map[string]struct {
		volume testVolume
		fsType string
		known  operation.FilesystemKnower
		answer error
		code   string
	}{
		"a filesystem that nobody knows": {filesystem, "strange", knows{"ext4"}, transient("Internal"),
			volumesv1alpha1.ReasonUnknownFSType},
		"one whose programs are missing": {filesystem, "xfs", knows{"ext4"}, transient("Internal"),
			volumesv1alpha1.ReasonFormatToolMissing},
		"one that is known":                {filesystem, "ext4", knows{"ext4"}, transient("Internal"), "Internal"},
		"none was asked for":               {filesystem, "", knows{}, transient("Internal"), "Internal"},
		"nobody can be asked":              {filesystem, "strange", nil, transient("Internal"), "Internal"},
		"a device":                         {block, "strange", knows{}, transient("Internal"), "Internal"},
		"the end of the call is not known": {filesystem, "strange", knows{}, uncertain(), "Unavailable"},
		"the driver knows it precisely": {filesystem, "strange", knows{}, transient(volumesv1alpha1.ReasonMountOptions),
			volumesv1alpha1.ReasonMountOptions},
	} {
		t.Run(name, func(t *testing.T) {
			v := test.volume
			v.change = func(e *volumesv1alpha1.NodeAttachment) { e.FSType = test.fsType }
			b := newBench(t, v)
			b.want("intent")
			b.done(plan.MarkInUse)
			b.agent.steps.Filesystems = test.known
			b.driver.fail("stage", test.answer)
			err := b.act(plan.Stage)
			if driver.CodeOf(err) != test.code || driver.OutcomeOf(err) != driver.OutcomeOf(test.answer) {
				t.Errorf("answer %v of the driver: explained as %v, want code %s", test.answer, err, test.code)
			}
			if test.code != driver.CodeOf(test.answer) &&
				(!strings.Contains(err.Error(), test.fsType) || !strings.Contains(err.Error(), "node node") ||
					!strings.Contains(err.Error(), "it failed") || strings.Contains(err.Error(),
					"programs") != (test.code == volumesv1alpha1.ReasonFormatToolMissing)) {
				t.Errorf("answer %v of the driver: explained as %v, want the filesystem %s, the node and the answer in it",
					test.answer, err, test.fsType)
			}
			if strings.Contains(test.answer.Error(), "strange") {
				t.Errorf("the driver's own error became %v, want it unchanged", test.answer)
			}
		})
	}
	t.Run("an error that is not the driver's", func(t *testing.T) {
		b := newBench(t, filesystem)
		b.agent.steps.Filesystems = knows{}
		b.want("intent")
		b.done(plan.MarkInUse)
		if err := b.agent.steps.ExplainStage(b.facts(), errInjected); !errors.Is(err, errInjected) {
			t.Errorf("explaining an error that is not the driver's: %v, want %v", err, errInjected)
		}
	})
}

func TestTheKubeletIsShownThatAStageIsUsed(t *testing.T) {
	t.Run("once", func(t *testing.T) {
		b := newBench(t, filesystem)
		b.want("intent")
		b.done(plan.MarkInUse, plan.Stage, plan.Reference)
		binds, unmounts := b.has("Bind"), b.has("Unmount")
		b.done(plan.Reference)
		if b.has("Bind") != binds+1 || b.has("Unmount") != unmounts ||
			b.perms[b.agent.paths.Reference(b.volume.Name)] != operation.OwnDirMode {
			t.Errorf("volume vol: operations %v and modes %v, want one more Bind, no Unmount, and the agent's own mode",
				b.operations(), b.perms)
		}
	})
	t.Run("where it cannot be, the reason is told", func(t *testing.T) {
		b := newBench(t, block)
		b.want("intent")
		b.done(plan.MarkInUse)
		b.failures["SetDeviceNodes"] = errInjected
		err := b.act(plan.Reference)
		b.refused(err, volumesv1alpha1.ReasonStageFailed)
		if !errors.Is(err, errInjected) || !strings.Contains(err.Error(), "kubelet") {
			t.Errorf("showing device raw to the kubelet: error %v, want %v and what it means for the kubelet", err, errInjected)
		}
	})
	t.Run("what an earlier agent bound goes first", func(t *testing.T) {
		b := newBench(t, block)
		b.want("intent")
		b.done(plan.MarkInUse)
		bound := b.agent.paths.Bound(rawSource, "intent")
		b.must(os.MkdirAll(b.agent.paths.GlobalMap(rawSource), 0o750))
		b.must(os.WriteFile(bound, nil, 0o600))
		b.volume.Record.Uses[0].Bound = bound
		b.kernel.mount(b.kernel.filesystemOf("raw", "", bound))
		for _, what := range []string{"Unmount", "write volumes"} {
			b.failures[what] = errInjected
			if err := b.act(plan.Reference); !errors.Is(err, errInjected) || len(b.kernel.referred()) > 0 {
				t.Errorf("%s of device raw failed: error %v and device nodes %v, want %v and none", what, err,
					b.kernel.referred(), errInjected)
			}
			delete(b.failures, what)
		}
		b.done(plan.Reference)
		if _, ok := b.kernel.at(bound); ok || b.disk().Uses[0].Bound != "" {
			t.Errorf("device raw: it is still bound, or on the disk is %+v, want it bound nowhere", b.disk().Uses[0])
		}
	})
}

func TestAnIntentIsReadLiveBeforeItsVolumeIsPublished(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*bench)
		again  bool
	}{
		"it is gone":               {func(b *bench) { b.intents = nil }, true},
		"another one has its name": {func(b *bench) { b.intents[0] = b.intents[0].DeepCopy(); b.intents[0].UID = "2" }, true},
		"it is being deleted": {func(b *bench) {
			b.intents[0] = b.intents[0].DeepCopy()
			deletedIntents(b)
		}, true},
		"it has lost its finalizer": {func(b *bench) {
			b.intents[0] = b.intents[0].DeepCopy()
			b.intents[0].Finalizers = nil
		}, true},
		"it cannot be read": {func(b *bench) { b.failures["get intent"] = errInjected }, false},
		"the API does not say that the volume is in use": {func(b *bench) { b.agent.state.EndSession() }, true},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, filesystem)
			b.known = []*volumesv1alpha1.VolumeAttachmentIntent{b.want("intent")}
			b.done(plan.MarkInUse, plan.Stage)
			test.change(b)
			b.intents = append(
				b.intents,
				&volumesv1alpha1.VolumeAttachmentIntent{ObjectMeta: metav1.ObjectMeta{Name: "unrelated", UID: "unrelated"}},
			)
			err := b.agent.steps.Publish(t.Context(), b.volume, b.facts(), "intent")
			var unwritten *report.UnwrittenError
			if errors.Is(err, failure.ErrChanged) != test.again || errors.As(err, &unwritten) == test.again ||
				errors.Is(err, errInjected) == test.again {
				t.Errorf("publishing for an intent where %s: error %v, want it tried again at once: %t", name, err, test.again)
			}
			if slices.Contains(b.driver.made(), "publish vol") {
				t.Errorf("publishing for an intent where %s: the driver was called, want no call", name)
			}
		})
	}
}

func TestNothingIsPublishedOverWhatIsAtThePath(t *testing.T) {
	mkdir := func(b *bench) { b.must(os.MkdirAll(b.volume.Record.Uses[0].Path, 0o755)) }
	for name, test := range map[string]struct {
		volume testVolume
		change func(*bench)
		told   string
	}{
		"nothing":            {filesystem, func(*bench) {}, ""},
		"an empty directory": {filesystem, mkdir, ""},
		"a directory that is not empty": {filesystem, func(b *bench) {
			mkdir(b)
			b.must(os.WriteFile(b.volume.Record.Uses[0].Path+"/file", nil, 0o600))
		}, `"file"`},
		"a directory with files that a program wrote while the mount was lost": {filesystem, func(b *bench) {
			b.done(plan.Publish)
			b.kernel.umount(b.volume.Record.Uses[0].Path)
			for _, file := range []string{"a", "b", "c", "d"} {
				b.must(os.WriteFile(b.volume.Record.Uses[0].Path+"/"+file, nil, 0o600))
			}
		}, `["a" "b" "c"] and more`},
		"a file with contents where a device was lost": {block, func(b *bench) {
			b.done(plan.Publish)
			b.kernel.umount(b.volume.Record.Uses[0].Path)
			b.must(os.WriteFile(b.volume.Record.Uses[0].Path, []byte("data"), 0o600))
		}, "a file"},
		"an empty file where a device was lost": {block, func(b *bench) {
			b.done(plan.Publish)
			b.kernel.umount(b.volume.Record.Uses[0].Path)
		}, ""},
		"a file": {filesystem, func(b *bench) {
			b.must(os.MkdirAll(b.agent.paths.Published("ns", ""), 0o755))
			b.must(os.WriteFile(b.volume.Record.Uses[0].Path, nil, 0o600))
		}, "a file"},
		"a directory where a device is to be": {block, mkdir, "a directory"},
		"a mount": {filesystem, func(b *bench) {
			b.kernel.mount(b.kernel.filesystemOf("other", "ext4", b.volume.Record.Uses[0].Path))
		}, "a mount"},
		"another mount than what was published": {filesystem, func(b *bench) {
			b.done(plan.Publish)
			b.kernel.umount(b.volume.Record.Uses[0].Path)
			b.kernel.mount(b.kernel.filesystemOf("other", "ext4", b.volume.Record.Uses[0].Path))
		}, "another mount"},
		"what was published before": {filesystem, func(b *bench) {
			b.done(plan.Publish)
			b.must(os.WriteFile(b.volume.Record.Uses[0].Path+"/file", nil, 0o600))
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, test.volume)
			b.want("intent")
			b.stage()
			test.change(b)
			before := len(b.driver.made())
			err := b.act(plan.Publish)
			if test.told == "" {
				if err != nil || len(b.driver.made()) != before+1 {
					t.Errorf("intent intent, whose path is free: error %v and calls %v, want success and one more call", err,
						b.driver.made())
				}
				return
			}
			b.refused(err, volumesv1alpha1.ReasonPathOccupied)
			if err == nil || !strings.Contains(err.Error(), test.told) ||
				!strings.Contains(err.Error(), b.volume.Record.Uses[0].Path) || len(b.driver.made()) != before {
				t.Errorf("intent intent, whose path is in use: error %v and calls %v, want one that says %q and the path, and "+
					"no call", err, b.driver.made(), test.told)
			}
		})
	}
	t.Run("what cannot be looked at", func(t *testing.T) {
		b := newBench(t, filesystem)
		b.want("intent")
		b.done(plan.MarkInUse, plan.Stage)
		b.must(os.MkdirAll(b.agent.paths.Root+"/published", 0o755))
		b.must(os.WriteFile(b.agent.paths.Root+"/published/ns", nil, 0o600)) // then its path is no directory's
		if err := b.act(plan.Publish); err == nil || len(b.driver.made()) != 1 ||
			!strings.Contains(err.Error(), "reading published path") {
			t.Errorf("intent intent, whose path cannot be read: error %v and calls %v, want one that says so, and no call",
				err, b.driver.made())
		}
	})
}

func TestWhatTheDriverAnswersToAPublication(t *testing.T) {
	for name, test := range map[string]struct {
		before func(*bench)
		answer error
		phase  record.Phase
	}{
		"a refusal of the first call: nothing was done": {func(*bench) {}, refusal(), record.PhaseNone},
		"a final error of the first call may have left something": {func(*bench) {}, transient("Internal"),
			record.PhaseUncertain},
		"an uncertain one may have done it": {func(*bench) {}, uncertain(), record.PhaseUncertain},
		"a refusal after an uncertain one": {func(b *bench) {
			b.driver.fail("publish", uncertain())
			if b.act(plan.Publish) == nil {
				b.t.Errorf("publishing volume %s: no error, want one", b.volume.Name)
			}
		}, refusal(), record.PhaseUncertain},
		"a refusal where somebody has unmounted what was published": {func(b *bench) {
			b.done(plan.Publish)
			b.kernel.umount(b.volume.Record.Uses[0].Path)
		}, refusal(), record.PhaseUncertain},
		"a refusal, and yet it is mounted": {func(b *bench) {
			b.driver.before = func(string, string) error {
				b.kernel.mount(b.kernel.filesystemOf("vol", "ext4", b.volume.Record.Uses[0].Path))
				return nil
			}
		}, refusal(), record.PhaseUncertain},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, filesystem)
			b.want("intent")
			b.done(plan.MarkInUse, plan.Stage)
			test.before(b)
			b.driver.fail("publish", test.answer)
			err := b.act(plan.Publish)
			if u := b.volume.Record.Uses[0]; driver.CodeOf(err) != driver.CodeOf(test.answer) ||
				u.Phase != test.phase || u.Path == "" {
				t.Errorf("publishing, answered %v: error %v and publication %+v, want that code and phase %q", test.answer, err,
					u, test.phase)
			}
		})
	}
	t.Run("the agent ends before the driver answers", func(t *testing.T) {
		b := newBench(t, filesystem)
		b.want("intent")
		b.done(plan.MarkInUse, plan.Stage)
		lifetime, kill := context.WithCancelCause(t.Context())
		b.agent.steps.Lifetime = lifetime
		release := b.driver.hang("publish", "vol")
		b.driver.before = func(string, string) error { kill(operation.ErrStopped); return nil }
		err := b.act(plan.Publish)
		release()
		if !errors.Is(err, operation.ErrStopped) || b.volume.Record.Uses[0].Phase != record.PhaseUncertain {
			t.Errorf("intent intent while the agent stops: error %v and publication %+v, want ErrStopped and an uncertain one",
				err, b.volume.Record.Uses[0])
		}
	})
}

func TestWhatKeepsAVolumeFromBeingPublished(t *testing.T) {
	for name, test := range map[string]struct {
		volume testVolume
		change func(*bench)
		reason string
	}{
		"an option that is not allowed": {filesystem, func(b *bench) {
			b.volume.Record.Uses[0].Mount = &volumesv1alpha1.MountSpec{Options: []string{"suid"}}
		}, volumesv1alpha1.ReasonMountNotAllowed},
		"another group": {filesystem, func(b *bench) {
			b.volume.Record.Uses[0].Mount = &volumesv1alpha1.MountSpec{FSGroup: ptr.To(int64(1))}
			other := b.volume.Record.Uses[0]
			other.Intent.UID, other.Phase, other.Mount = "other", record.PhaseDone,
				&volumesv1alpha1.MountSpec{FSGroup: ptr.To(int64(2))}
			b.volume.Record.Uses = append(b.volume.Record.Uses, other)
		}, volumesv1alpha1.ReasonFSGroupConflict},
		"its driver is not there": {filesystem, func(b *bench) { b.agent.steps.Registry = newFakeRegistry(nil) },
			volumesv1alpha1.ReasonDriverNotFound},
		"the device is read-only for another intent": {block, func(b *bench) {
			other := b.volume.Record.Uses[0]
			other.Intent.UID, other.Phase, other.ReadOnly = "other", record.PhaseDone, true
			b.volume.Record.Uses = append(b.volume.Record.Uses, other)
			b.volume.Record.Devices = []record.SeenDevice{{BootID: "boot", ReadOnly: true}}
		}, volumesv1alpha1.ReasonDeviceReadOnly},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, test.volume)
			b.want("intent")
			b.stage()
			test.change(b)
			err := b.act(plan.Publish)
			b.refused(err, test.reason)
			var p *failure.Problem
			if test.reason == volumesv1alpha1.ReasonDriverNotFound && errors.As(err, &p) && !p.AwaitsEvent {
				t.Errorf("publishing without a driver: error %v, want one that waits until the driver has registered", err)
			}
			if slices.Contains(b.operations(), "publish") {
				t.Errorf("publishing a use that is refused: operations %v, want no call", b.operations())
			}
		})
	}
	t.Run("a second one may have the device read-only too", func(t *testing.T) {
		b := newBench(t, block)
		b.want("intent", readOnlyUse)
		b.done(plan.MarkInUse, plan.Reference, plan.Stage)
		other := b.volume.Record.Uses[0]
		other.Intent.UID, other.Phase = "other", record.PhaseDone
		b.volume.Record.Uses = append(b.volume.Record.Uses, other)
		b.volume.Record.Devices = []record.SeenDevice{{BootID: "boot", ReadOnly: true}}
		b.done(plan.Publish)
	})
	t.Run("a filesystem has no device to be refused", func(t *testing.T) {
		b := newBench(t, filesystem)
		b.want("intent")
		b.done(plan.MarkInUse, plan.Stage)
		other := b.volume.Record.Uses[0]
		other.Intent.UID, other.Phase, other.ReadOnly = "other", record.PhaseDone, true
		b.volume.Record.Uses = append(b.volume.Record.Uses, other)
		b.volume.Record.Devices = []record.SeenDevice{{BootID: "boot", ReadOnly: true}}
		b.done(plan.Publish)
	})
}

func TestAPublicationIsMade(t *testing.T) {
	t.Run("and told", func(t *testing.T) {
		b := newBench(t, filesystem)
		b.publish()
		select {
		case e := <-b.agent.Recorder.(*events.FakeRecorder).Events:
			if !strings.Contains(e, operation.EventMounted) {
				t.Errorf("event %q of intent intent, want %s", e, operation.EventMounted)
			}
		default:
			t.Errorf("no event of intent intent, want %s", operation.EventMounted)
		}
	})
	t.Run("and undone where it is not the volume", func(t *testing.T) {
		b := newBench(t, filesystem)
		b.want("intent")
		b.stage()
		b.driver.directory = b.agent.paths.Kubelet
		b.refused(b.act(plan.Publish), volumesv1alpha1.ReasonPublishFailed)
		if u := b.use(); u.Phase != record.PhaseNone || u.Source != "" || u.Device != "" || u.Path == "" ||
			b.has("unpublish") != 1 {
			t.Errorf("intent intent, whose publication is another volume: publication %+v and operations %v, want it undone",
				u, b.operations())
		}
	})
	t.Run("where everybody may pass, and a part of it where only the agent may", func(t *testing.T) {
		for _, sub := range []string{"", "inner"} {
			b := newBench(t, filesystem)
			b.driver.inner = sub
			b.want("intent", func(i *volumesv1alpha1.VolumeAttachmentIntent) {
				i.Spec.Mount = &volumesv1alpha1.MountSpec{SubPath: sub}
			})
			b.done(plan.MarkInUse, plan.Stage, plan.Publish)
			if sub == "" && (b.perms[b.agent.paths.Published("ns", "")] != operation.PublishedDirMode ||
				b.has("OpenBeneath") > 0) {
				t.Errorf("intent intent without a sub path: modes %v and operations %v, want the published one, and no "+
					"OpenBeneath", b.perms, b.operations())
			}
			if sub != "" && (b.perms[b.agent.paths.Root+"/publish"] != operation.OwnDirMode ||
				b.perms[b.agent.paths.Published("ns", "intent")] != operation.PublishedDirMode) {
				t.Errorf("intent intent with a sub path: modes %v, want the agent's own, and the published one at its path",
					b.perms)
			}
			if sub != "" && !errors.Is(b.opened.Close(), os.ErrClosed) {
				t.Error("intent intent with a sub path: what was opened is still open, want it closed")
			}
			if u := b.volume.Record.Uses[0]; u.Device != device("vol") {
				t.Errorf("intent intent: publication %+v, want the volume's device", u)
			}
		}
	})
	t.Run("a device is known by its name", func(t *testing.T) {
		b := newBench(t, block)
		b.want("intent")
		b.done(plan.MarkInUse, plan.Reference, plan.Stage, plan.Publish)
		if u := b.volume.Record.Uses[0]; u.Device != device("raw") {
			t.Errorf("intent intent: publication %+v, want the name of device raw", u)
		}
	})
	t.Run("the files are given to the group as the driver has it", func(t *testing.T) {
		for name, test := range map[string]struct {
			entry  func(*volumesv1alpha1.NodeAttachment)
			policy *corev1.PodFSGroupChangePolicy
			driver bool
			owned  []string
		}{
			"always": {func(*volumesv1alpha1.NodeAttachment) {}, nil, false, []string{"7 Always"}},
			"where the root differs": {func(*volumesv1alpha1.NodeAttachment) {}, ptr.To(corev1.FSGroupChangeOnRootMismatch),
				false,
				[]string{"7 OnRootMismatch"}},
			"the driver does it": {func(*volumesv1alpha1.NodeAttachment) {}, nil, true, nil},
			"never": {func(e *volumesv1alpha1.NodeAttachment) { e.FSGroupPolicy = storagev1.NoneFSGroupPolicy }, nil, false,
				nil},
			"also what several nodes have": {func(e *volumesv1alpha1.NodeAttachment) {
				e.FSGroupPolicy, e.AccessModes = storagev1.FileFSGroupPolicy, nil
			}, nil, false, []string{"7 Always"}},
			"not what several nodes have": {func(e *volumesv1alpha1.NodeAttachment) {
				e.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}
			}, nil, false, nil},
			"what a single user has": {func(e *volumesv1alpha1.NodeAttachment) {
				e.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOncePod}
			}, nil, false, []string{"7 Always"}},
			"not without a filesystem": {func(e *volumesv1alpha1.NodeAttachment) { e.FSType = "" }, nil, false, nil},
		} {
			b := newBench(t, testVolume{handle: "vol", change: test.entry})
			b.want("intent", func(i *volumesv1alpha1.VolumeAttachmentIntent) {
				i.Spec.Mount = &volumesv1alpha1.MountSpec{FSGroup: ptr.To(int64(7)), FSGroupChangePolicy: test.policy}
			})
			b.done(plan.MarkInUse, plan.Stage)
			f := b.facts()
			f.DriverSetsGroup = test.driver
			b.must(b.agent.steps.Publish(t.Context(), b.volume, f, "intent"))
			if owned := len(b.owned); owned > 0 {
				t.Errorf("%s: publishing has given files to a group %d times, want 0", name, owned)
			}
			if len(test.owned) > 0 {
				b.done(plan.SetOwnership)
			}
			if u := b.volume.Record.Uses[0]; !slices.Equal(b.owned, test.owned) || u.Phase != record.PhaseDone {
				t.Errorf("%s: the files of intent %s were given to %v, want %v; its phase is %q, want %q", name,
					u.Intent.Name, b.owned, test.owned, u.Phase, record.PhaseDone)
			}
		}
	})
	t.Run("a part that cannot be shown is not published", func(t *testing.T) {
		for name, change := range map[string]func(*bench){
			"it is not there": func(b *bench) { b.driver.inner = "other" },
			"it is a file": func(b *bench) {
				b.driver.inner = ""
				b.driver.before = func(string, string) error {
					target := b.volume.Record.Uses[0].Target
					b.must(os.MkdirAll(target, 0o700))
					return os.WriteFile(target+"/inner", nil, 0o600)
				}
			},
		} {
			b := newBench(t, filesystem)
			b.want("intent", subPath)
			b.done(plan.MarkInUse, plan.Stage)
			change(b)
			err := b.act(plan.Publish)
			if err == nil || !strings.Contains(err.Error(), "inner") ||
				b.volume.Record.Uses[0].Phase != record.PhaseUncertain {
				t.Errorf("%s: error %v and publication %+v, want one about the sub path, and an uncertain publication", name, err,
					b.volume.Record.Uses[0])
			}
			if name == "it is a file" && !(errors.Is(err, mount.ErrSubPath) && errors.Is(err, unix.ENOTDIR)) {
				t.Errorf("%s: error %v, want %v, and that it is no directory", name, err, mount.ErrSubPath)
			}
		}
	})
	t.Run("what fails in it is told", func(t *testing.T) {
		for _, what := range []string{"OpenBeneath", "BindFile"} {
			b := newBench(t, filesystem)
			b.driver.inner = "inner"
			b.want("intent", subPath)
			b.done(plan.MarkInUse, plan.Stage)
			b.failures[what] = errInjected
			if err := b.act(plan.Publish); !errors.Is(err, errInjected) {
				t.Errorf("publishing while %s fails: error %v, want %v", what, err, errInjected)
			}
		}
		for _, what := range []string{"DeviceNode", "Bind"} {
			b := newBench(t, block)
			b.want("intent", readOnlyUse)
			b.stage()
			b.failures[what] = errInjected
			if err := b.act(plan.Publish); !errors.Is(err, errInjected) {
				t.Errorf("publishing a device read-only while %s fails: error %v, want %v", what, err, errInjected)
			}
		}
		for _, what := range []string{"OpenBeneath", "BindFile", "SetOwnership"} {
			b := newBench(t, filesystem)
			b.driver.inner = "inner"
			b.want("intent", groupedPart)
			b.done(plan.MarkInUse, plan.Stage, plan.Publish)
			b.failures[what] = errInjected
			err := b.act(plan.SetOwnership)
			if !errors.Is(err, errInjected) || b.use().Phase != record.PhaseUnowned {
				t.Errorf("giving the files to a group while %s fails: error %v and phase %q, want %v and %q", what, err,
					b.use().Phase, errInjected, record.PhaseUnowned)
			}
			if what == "SetOwnership" {
				b.refused(err, volumesv1alpha1.ReasonPublishFailed)
				if !strings.HasPrefix(err.Error(), "setting fsGroup: ") {
					t.Errorf("giving the files to a group fails: error %v, want one that begins with what failed", err)
				}
			}
		}
	})
}
