/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package agent

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/agent/failure"
	"github.com/hawser-io/hawser/internal/agent/kubelet"
	"github.com/hawser-io/hawser/internal/agent/operation"
	"github.com/hawser-io/hawser/internal/agent/plan"
	"github.com/hawser-io/hawser/internal/agent/record"
	"github.com/hawser-io/hawser/internal/driver"
	"github.com/hawser-io/hawser/internal/mount"
	"github.com/hawser-io/hawser/internal/status"
)

func notFound() error {
	return &driver.Error{Outcome: driver.NotFound, Code: "NotFound", Message: "the volume is not known"}
}

// isPublished brings a volume to its path.
func (b *bench) publish() {
	b.t.Helper()
	b.want("intent")
	b.stage()
	b.done(plan.Publish)
}

// unused has a volume that is staged and not published any more.
func (b *bench) unused() {
	b.t.Helper()
	b.publish()
	nobodyWants(b)
}

func (b *bench) use() record.Use { return b.volume.Record.Uses[0] }

// kubeletRecords has the kubelet write that it has the volume staged.
func (b *bench) kubeletRecords() {
	b.t.Helper()
	r := b.volume.Record
	path := b.agent.paths.KubeletData(r.VolumeSource())
	b.must(os.MkdirAll(filepath.Dir(path), 0o750))
	b.must(os.WriteFile(path, nil, 0o600))
}

// mountsUntil has an earlier call that may still mount something for so long.
func (b *bench) mountsUntil(d time.Duration) {
	b.volume.Record.Unfinished = &record.Call{Operation: "stage", BootID: "boot", Mounts: true, Uptime: b.uptime + d,
		Deadline: b.clock.Now().Add(d)}
}

// waitsForCall checks that the act waits until that call has ended.
func (b *bench) waitsForCall(err error, d time.Duration) {
	b.t.Helper()
	b.refused(err, volumesv1alpha1.ReasonCallInFlight)
	var p *failure.Problem
	if errors.As(err, &p) && (!p.RetryAt.Equal(b.clock.Now().Add(d)) || !strings.Contains(p.Message, "stage") ||
		!strings.Contains(p.Message, b.clock.Now().Add(d).UTC().Format(time.TimeOnly))) {
		b.t.Errorf("a call that is still running: problem %+v, want a retry at its deadline, which the message names", p)
	}
}

func (b *bench) signalled() bool {
	select {
	case <-b.agent.observer.Wake:
		return true
	default:
		return false
	}
}

func TestAPublicationIsUndone(t *testing.T) {
	t.Run("and forgotten with an intent that ends", func(t *testing.T) {
		for name, change := range map[string]func(*bench){
			"it is deleted":             deletedIntents,
			"it is gone":                func(b *bench) { b.intents = nil },
			"it wants no more":          func(b *bench) { b.intents[0].Spec.DesiredState = volumesv1alpha1.DesiredAttached },
			"its volume was taken away": takenAway,
		} {
			b := newBench(t, filesystem)
			b.publish()
			change(b)
			b.volume.Unsaved = false
			if err := b.agent.steps.Unpublish(t.Context(), b.volume, b.facts(), "intent"); err != nil ||
				len(b.volume.Record.Uses) > 0 || !b.volume.Unsaved {
				t.Errorf("%s: error %v, uses %+v, unsaved %t, want success, no use, and the disk to be written", name, err,
					b.volume.Record.Uses, b.volume.Unsaved)
			}
		}
	})
	t.Run("of which a wish for the stage is left", func(t *testing.T) {
		b := newBench(t, filesystem)
		b.publish()
		b.intents[0].Spec.DesiredState = volumesv1alpha1.DesiredStaged
		reference := b.use().Intent
		b.done(plan.Unpublish)
		if b.use() != (record.Use{Intent: reference, Want: volumesv1alpha1.DesiredStaged}) {
			t.Errorf("intent intent, lowered to Staged: uses %+v, want one that asks for no more than that",
				b.volume.Record.Uses)
		}
	})
	t.Run("without the driver where it was never asked to publish", func(t *testing.T) {
		b := newBench(t, filesystem)
		b.want("intent")
		b.stage()
		deletedIntents(b)
		b.done(plan.Unpublish)
		if slices.Contains(b.operations(), "unpublish") || len(b.volume.Record.Uses) > 0 {
			t.Errorf("intent intent, for which nothing was published: operations %v, want no unpublish, and no use",
				b.operations())
		}
	})
	t.Run("by the driver, under the volume's own name", func(t *testing.T) {
		for _, v := range []testVolume{filesystem, block} {
			b := newBench(t, v)
			b.publish()
			path := b.use().Path
			deletedIntents(b)
			b.done(plan.Unpublish)
			want := driver.UnpublishRequest{Handle: v.handle, Mode: b.volume.Record.Mode, TargetPath: path}
			if got := b.driver.unpublished; got != want {
				t.Errorf("driver was asked to unpublish %+v, want %+v", got, want)
			}
		}
	})
	t.Run("not where another mount is at the path", func(t *testing.T) {
		for name, change := range map[string]func(*bench){
			"another volume": func(b *bench) {
				b.kernel.umount(b.use().Path)
				b.kernel.mount(b.kernel.filesystemOf("other", "ext4", b.use().Path))
			},
			"one of this boot for a publication of an earlier one": func(b *bench) {
				b.volume.Record.Uses[0].BootID = "earlier"
			},
		} {
			b := newBench(t, filesystem)
			b.publish()
			change(b)
			deletedIntents(b)
			err := b.act(plan.Unpublish)
			b.refused(err, volumesv1alpha1.ReasonPathOccupied)
			if slices.Contains(b.operations(), "unpublish") || !strings.Contains(err.Error(), b.use().Path) {
				t.Errorf("%s: error %v and operations %v, want one that names %s, and no unpublish", name, err, b.operations(),
					b.use().Path)
			}
		}
	})
	t.Run("not over what a program wrote while the mount was lost, which is named", func(t *testing.T) {
		b := newBench(t, filesystem)
		b.publish()
		path := b.use().Path
		b.kernel.umount(path)
		file := filepath.Join(path, "file")
		b.must(os.WriteFile(file, nil, 0o600))
		deletedIntents(b)
		err := b.act(plan.Unpublish)
		b.refused(err, volumesv1alpha1.ReasonPathOccupied)
		if !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), `"file"`) {
			t.Errorf("intent intent, whose path has a file: error %v, want one that names path and file", err)
		}
		b.must(os.Remove(file))
		b.done(plan.Unpublish)
	})
	t.Run("after a reboot, where nothing is mounted", func(t *testing.T) {
		b := newBench(t, filesystem)
		b.publish()
		b.kernel.reboot()
		b.volume.Record.Uses[0].BootID = "earlier"
		deletedIntents(b)
		looked := b.has("DeviceUnder")
		b.done(plan.Unpublish)
		if b.has("DeviceUnder") != looked || b.has("unpublish") != 1 {
			t.Errorf("intent intent, at whose path nothing is: operations %v, want one unpublish and no question for the "+
				"device", b.operations())
		}
	})
	t.Run("not without its driver", func(t *testing.T) {
		b := newBench(t, filesystem)
		b.publish()
		deletedIntents(b)
		b.agent.steps.Registry = newFakeRegistry(nil)
		b.refused(b.act(plan.Unpublish), volumesv1alpha1.ReasonDriverNotFound)
		if b.use().Phase != record.PhaseDone {
			t.Errorf("intent intent: publication %+v, want it done as before", b.use())
		}
	})
	t.Run("once its device is known", func(t *testing.T) {
		b := newBench(t, filesystem)
		b.publish()
		b.volume.Record.Devices = nil
		deletedIntents(b)
		b.failures["DeviceUnder"] = errInjected
		if err := b.act(plan.Unpublish); !errors.Is(err, errInjected) || b.use().Phase != record.PhaseDone {
			t.Errorf("intent intent: error %v and publication %+v, want the injected one, and it done as before", err, b.use())
		}
		delete(b.failures, "DeviceUnder")
		b.done(plan.Unpublish)
		if len(b.volume.Record.Devices) != 1 {
			t.Errorf("volume vol: devices %+v, want one", b.volume.Record.Devices)
		}
	})
	t.Run("with the device of a part whose driver stages nothing", func(t *testing.T) {
		b := newBench(t, filesystem)
		b.driver.stageless = true
		i := b.want("intent", subPath)
		b.driver.inner = i.Spec.Mount.SubPath
		b.stage()
		b.done(plan.Publish)
		e, _ := b.kernel.at(b.use().Target)
		noted := func() bool {
			d := b.volume.Record.Devices
			return len(d) == 1 && int(d[0].Major) == e.Major && int(d[0].Minor) == e.Minor
		}
		if !noted() {
			t.Errorf("volume vol, published: devices %+v, want that of %s", b.volume.Record.Devices, b.use().Target)
		}
		b.volume.Record.Devices = nil // as after a crash
		deletedIntents(b)
		b.done(plan.Unpublish)
		if !noted() {
			t.Errorf("volume vol, unpublished: devices %+v, want that of the driver's mount", b.volume.Record.Devices)
		}
	})
	t.Run("as the driver's answer has it", func(t *testing.T) {
		for name, test := range map[string]struct {
			answer error
			done   bool
		}{
			"a failure": {transient("Internal"), false}, "no answer": {uncertain(), false},
		} {
			b := newBench(t, filesystem)
			b.publish()
			deletedIntents(b)
			b.driver.fail("unpublish", test.answer)
			if err := b.act(plan.Unpublish); driver.CodeOf(err) != driver.CodeOf(test.answer) ||
				b.use().Phase != record.PhaseUncertain {
				t.Errorf("%s: error %v and publication %+v, want code %q and an uncertain publication", name, err, b.use(),
					driver.CodeOf(test.answer))
			}
		}
		b := newBench(t, filesystem)
		b.publish()
		b.kernel.umount(b.use().Path)
		deletedIntents(b)
		b.driver.fail("unpublish", notFound())
		b.done(plan.Unpublish)
	})
	t.Run("not where it is still mounted", func(t *testing.T) {
		b := newBench(t, filesystem)
		b.publish()
		b.kernel.mount(b.kernel.filesystemOf("vol", "ext4", b.use().Path))
		deletedIntents(b)
		b.driver.before = func(method, _ string) error {
			if method == "unpublish" {
				b.must(os.RemoveAll(b.use().Path))
				b.must(os.MkdirAll(b.use().Path, 0o750))
			}
			return nil
		}
		err := b.act(plan.Unpublish)
		b.refused(err, volumesv1alpha1.ReasonUnpublishFailed)
		if b.use().Phase != record.PhaseUncertain || !strings.Contains(err.Error(), b.use().Path) {
			t.Errorf("intent intent, still mounted: error %v and publication %+v, want one that names the path, and it "+
				"uncertain", err, b.use())
		}
	})
	t.Run("also where the driver leaves files at the path", func(t *testing.T) {
		b := newBench(t, filesystem)
		b.publish()
		deletedIntents(b)
		b.failures["RemoveMountPoint"] = mount.ErrOccupied
		b.done(plan.Unpublish)
	})
	t.Run("again, once an earlier call cannot mount it any more", func(t *testing.T) {
		b := newBench(t, filesystem)
		b.publish()
		deletedIntents(b)
		b.mountsUntil(time.Minute)
		b.waitsForCall(b.act(plan.Unpublish), time.Minute)
		if b.use().Phase != record.PhaseUncertain {
			t.Errorf("intent intent: publication %+v, want it uncertain", b.use())
		}
		b.uptime += time.Minute
		b.done(plan.Unpublish)
		if b.has("unpublish") != 2 {
			t.Errorf("intent intent: operations %v, want two unpublish", b.operations())
		}
	})
	t.Run("with what an earlier agent bound", func(t *testing.T) {
		for _, occupied := range []bool{false, true} {
			b := newBench(t, block)
			b.publish()
			bound := b.agent.paths.Bound(rawSource, "intent")
			b.volume.Record.Uses[0].Bound = bound
			b.must(os.MkdirAll(filepath.Dir(bound), 0o750))
			b.must(os.WriteFile(bound, nil, 0o600))
			b.kernel.mount(b.kernel.filesystemOf("raw", "", bound))
			deletedIntents(b)
			b.failures["Unmount"] = errInjected
			if err := b.act(plan.Unpublish); !errors.Is(err, errInjected) || b.use().Bound == "" ||
				slices.Contains(b.operations(), "unpublish") {
				t.Errorf("intent intent: error %v and publication %+v, want the injected one, it still bound, and no unpublish",
					err, b.use())
			}
			if r := b.disk(); r.Uses[0].Phase != record.PhaseUncertain {
				t.Errorf("intent intent: on the disk is %+v, want it uncertain", r.Uses[0])
			}
			delete(b.failures, "Unmount")
			b.driver.before = func(string, string) error {
				if _, ok := b.kernel.at(b.use().Path); !ok {
					t.Errorf("nothing is mounted at %s, want the driver's publication there until the driver undoes it", b.use().Path)
				}
				return nil
			}
			if occupied { // a device node is there by now
				b.failures["RemoveMountPoint of the kubelet"] = mount.ErrOccupied
			}
			b.done(plan.Unpublish)
			if _, ok := b.kernel.at(bound); ok || len(b.volume.Record.Uses) > 0 {
				t.Errorf("device raw: mounted %v and uses %+v, want nothing bound and no use", b.kernel.mounted(),
					b.volume.Record.Uses)
			}
		}
	})
	t.Run("with both of a device that is read-only", func(t *testing.T) {
		b := newBench(t, block)
		b.want("intent", readOnlyUse)
		b.stage()
		b.done(plan.Publish)
		bound := b.agent.paths.Bound(rawSource, "intent")
		b.volume.Record.Uses[0].Bound = bound
		deletedIntents(b)
		path := b.use().Path
		b.failures["RemoveMountPoint of the kubelet"] = errInjected
		if err := b.act(plan.Unpublish); !errors.Is(err, errInjected) || b.has("unpublish") > 0 {
			t.Errorf("intent intent: error %v and operations %v, want the injected one and no unpublish", err, b.operations())
		}
		delete(b.failures, "RemoveMountPoint of the kubelet")
		b.done(plan.Unpublish)
		if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("published path %s: error %v, want it gone", path, err)
		}
	})
}

func TestAStageIsUndone(t *testing.T) {
	t.Run("by the driver, under the volume's own name", func(t *testing.T) {
		for _, v := range []testVolume{filesystem, block} {
			b := newBench(t, v)
			b.unused()
			path := b.volume.Record.Stage.Path
			b.done(plan.Unstage)
			if got := b.driver.unstaged; got != (driver.UnstageRequest{Handle: v.handle, Mode: b.volume.Record.Mode,
				StagingPath: path}) {
				t.Errorf("volume %s: asked to unstage %+v, want its handle, mode and path", v.handle, got)
			}
			if b.volume.Record.Stage != (record.Stage{Path: path}) {
				t.Errorf("volume %s: stage %+v, want no more than its path", v.handle, b.volume.Record.Stage)
			}
		}
	})
	t.Run("without the driver where it was never asked to stage", func(t *testing.T) {
		b := newBench(t, block)
		b.want("intent")
		b.done(plan.MarkInUse, plan.Reference)
		b.failures["SetDeviceNodes"] = errInjected
		if err := b.act(plan.Unstage); !errors.Is(err, errInjected) {
			t.Errorf("unstaging volume raw: error %v, want %v", err, errInjected)
		}
		delete(b.failures, "SetDeviceNodes")
		b.done(plan.Unstage)
		if len(b.kernel.referred()) > 0 || len(b.driver.made()) > 0 {
			t.Errorf("volume raw: device nodes %v and calls %v, want none", b.kernel.referred(), b.driver.made())
		}
		if _, err := os.Lstat(filepath.Dir(b.agent.paths.GlobalMap(rawSource))); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the kubelet's directory of volume raw: error %v, want it gone", err)
		}
	})
	t.Run("also while a pod waits for a volume that is another user's", func(t *testing.T) {
		for mode, refused := range map[corev1.PersistentVolumeAccessMode]bool{
			corev1.ReadWriteOncePod: false, corev1.ReadWriteOnce: true,
		} {
			b := newBench(t, filesystem)
			b.unused()
			b.entry(func(e *volumesv1alpha1.NodeAttachment) {
				e.AccessModes = []corev1.PersistentVolumeAccessMode{mode}
			})
			b.node.Status.VolumesInUse = []corev1.UniqueVolumeName{corev1.UniqueVolumeName(b.of.name())}
			b.node.Status.VolumesAttached = []corev1.AttachedVolume{{Name: "another"}}
			if err := b.act(plan.Unstage); (err != nil) != refused {
				t.Errorf("unstaging a volume of access mode %s: %v, want refused %t", mode, err, refused)
			}
		}
	})
	t.Run("not while the driver cannot remove its path, of which the file is named", func(t *testing.T) {
		for name, test := range map[string]struct {
			err   error
			named bool
		}{
			"because of the file": {unix.ENOTEMPTY, true},
			"for another reason":  {unix.EIO, false},
		} {
			b := newBench(t, filesystem)
			b.unused()
			path := b.volume.Record.Stage.Path
			b.kernel.umount(path)
			b.must(os.WriteFile(filepath.Join(path, "file"), nil, 0o600))
			b.failures["unstage"] = &driver.Error{Outcome: driver.Transient, Code: "Internal", Message: test.err.Error(),
				Err: test.err}
			err := b.act(plan.Unstage)
			if named := strings.Contains(fmt.Sprint(err), `"file"`); !errors.Is(err, test.err) || named != test.named {
				t.Errorf("unstaging fails %s: error %v, want %v, with the file named %t", name, err, test.err, test.named)
			}
		}
	})
	t.Run("not while anybody else uses it", func(t *testing.T) {
		for name, test := range map[string]struct {
			volume testVolume
			change func(*bench)
			reason string
			told   string
			wakes  bool
		}{
			"it is mounted elsewhere": {filesystem,
				func(b *bench) { b.kernel.mount(b.kernel.filesystemOf("vol", "ext4", "/elsewhere")) },
				volumesv1alpha1.ReasonSharedByKubelet, "/elsewhere", false},
			"it is mounted elsewhere, and somebody unmounted the stage": {filesystem, func(b *bench) {
				b.kernel.umount(b.volume.Record.Stage.Path)
				b.kernel.mount(b.kernel.filesystemOf("vol", "ext4", "/elsewhere"))
			}, volumesv1alpha1.ReasonSharedByKubelet, "/elsewhere", false},
			"the kubelet has recorded it": {filesystem, (*bench).kubeletRecords, volumesv1alpha1.ReasonSharedByKubelet,
				"kubelet", true},
			"the kubelet has recorded a device": {block, (*bench).kubeletRecords, volumesv1alpha1.ReasonSharedByKubelet,
				"kubelet", true},
			"the kubelet lists it": {filesystem, func(b *bench) {
				b.node.Status.VolumesInUse = []corev1.UniqueVolumeName{corev1.UniqueVolumeName(b.of.name())}
				b.node.Status.VolumesAttached = []corev1.AttachedVolume{{Name: corev1.UniqueVolumeName(b.of.name())}}
			}, volumesv1alpha1.ReasonSharedByKubelet, "volumesInUse", false},
			"the Node cannot be read": {filesystem, func(b *bench) { b.failures["get node"] = errInjected },
				volumesv1alpha1.ReasonUnstageFailed, "Node cannot be read", false},
			"another filesystem is at the path": {filesystem, func(b *bench) {
				b.kernel.umount(b.volume.Record.Stage.Path)
				b.kernel.mount(b.kernel.filesystemOf("other", "ext4", b.volume.Record.Stage.Path))
			}, volumesv1alpha1.ReasonMountLost, "left alone", false},
			"its driver is not there": {filesystem, func(b *bench) { b.agent.steps.Registry = newFakeRegistry(nil) },
				volumesv1alpha1.ReasonDriverNotFound, fakeDriverName, false},
		} {
			t.Run(name, func(t *testing.T) {
				b := newBench(t, test.volume)
				b.unused()
				test.change(b)
				err := b.act(plan.Unstage)
				b.refused(err, test.reason)
				if !strings.Contains(err.Error(), test.told) || slices.Contains(b.operations(), "unstage") ||
					b.signalled() != test.wakes {
					t.Errorf("volume %s: error %v and operations %v, want one that says %q, and no unstage", b.volume.Name, err,
						b.operations(), test.told)
				}
				if test.reason == volumesv1alpha1.ReasonUnstageFailed && !errors.Is(err, errInjected) {
					t.Errorf("volume %s: error %v, want %v", b.volume.Name, err, errInjected)
				}
			})
		}
	})
	t.Run("also where it is mounted elsewhere as a device", func(t *testing.T) {
		b := newBench(t, block)
		b.unused()
		b.kernel.mount(b.kernel.filesystemOf("raw", "ext4", b.volume.Record.Stage.Path))
		b.volume.Record.Stage.Source = "7:1/"
		f := b.facts()
		f.Stage = record.Present
		b.kernel.mount(b.kernel.filesystemOf("raw", "ext4", "/elsewhere"))
		b.must(b.agent.steps.CheckOtherUses(t.Context(), b.volume, f))
	})
	t.Run("where its Node is gone", func(t *testing.T) {
		b := newBench(t, filesystem)
		b.unused()
		b.node = nil
		b.done(plan.Unstage)
	})
	t.Run("where a stage that cannot be told apart was unmounted", func(t *testing.T) {
		for name, source := range map[string]string{"nothing was seen": "", "it has no device of its own": "0:1/"} {
			b := newBench(t, filesystem)
			b.unused()
			b.kernel.umount(b.volume.Record.Stage.Path)
			b.kernel.umount(b.agent.paths.Reference(b.of.name()))
			b.volume.Record.Stage.Source = source
			e := b.kernel.filesystemOf("vol", "ext4", "/elsewhere")
			e.Major, e.Minor = 0, 1
			b.kernel.mount(e)
			if source == "" {
				e.Minor = 0
				e.Path = "/more"
				b.kernel.mount(e)
			}
			if err := b.act(plan.Unstage); err != nil {
				t.Errorf("%s: error %v, want success", name, err)
			}
		}
	})
	t.Run("once its device is known", func(t *testing.T) {
		b := newBench(t, filesystem)
		b.unused()
		b.volume.Record.Devices = nil
		b.done(plan.Unstage)
		if len(b.volume.Record.Devices) != 1 {
			t.Errorf("volume vol: devices %+v, want one", b.volume.Record.Devices)
		}
		b = newBench(t, filesystem)
		b.unused()
		b.kernel.umount(b.volume.Record.Stage.Path)
		b.failures["DeviceUnder"] = errInjected
		b.done(plan.Unstage)
	})
	t.Run("as the driver's answer has it", func(t *testing.T) {
		for _, answer := range []error{transient("Internal"), uncertain()} {
			b := newBench(t, filesystem)
			b.unused()
			b.driver.fail("unstage", answer)
			if err := b.act(plan.Unstage); driver.CodeOf(err) != driver.CodeOf(answer) ||
				b.volume.Record.Stage.Phase != record.PhaseUncertain {
				t.Errorf("volume vol: error %v and stage %+v, want code %q and an uncertain stage", err, b.volume.Record.Stage,
					driver.CodeOf(answer))
			}
		}
		b := newBench(t, filesystem)
		b.unused()
		b.kernel.umount(b.volume.Record.Stage.Path)
		b.driver.fail("unstage", notFound())
		b.done(plan.Unstage)
	})
	t.Run("not where it is still mounted", func(t *testing.T) {
		b := newBench(t, filesystem)
		b.unused()
		b.after["unstage"] = func() { b.kernel.mount(b.kernel.filesystemOf("vol", "ext4", b.volume.Record.Stage.Path)) }
		err := b.act(plan.Unstage)
		b.refused(err, volumesv1alpha1.ReasonUnstageFailed)
		if b.volume.Record.Stage.Phase != record.PhaseUncertain ||
			!strings.Contains(err.Error(), b.volume.Record.Stage.Path) {
			t.Errorf("volume vol, still mounted: error %v and stage %+v, want one that names the path, and it uncertain", err,
				b.volume.Record.Stage)
		}
	})
	t.Run("and staged again, where the kubelet came meanwhile", func(t *testing.T) {
		b := newBench(t, filesystem)
		b.unused()
		path := b.volume.Record.Stage.Path
		b.after["unstage"] = b.kubeletRecords
		err := b.act(plan.Unstage)
		b.refused(err, volumesv1alpha1.ReasonSharedByKubelet)
		if strings.Contains(err.Error(), "staging again") {
			t.Errorf("volume vol, staged again: error %v, want only why", err)
		}
		if _, ok := b.kernel.at(path); !ok || b.volume.Record.Stage.Phase != record.PhaseDone || b.has("stage") != 2 {
			t.Errorf("volume vol, which the kubelet began to use: stage %+v and mounted %v, want it staged again",
				b.volume.Record.Stage, b.kernel.mounted())
		}
	})
	t.Run("and not staged again on an attachment that is going", func(t *testing.T) {
		b := newBench(t, filesystem)
		b.unused()
		f := b.facts()
		old := *f.Entry
		old.State = volumesv1alpha1.AttachmentDetaching
		f.Entry = &old
		b.refused(b.agent.steps.StageAgain(t.Context(), b.volume, f,
			operation.SharedByKubelet("the kubelet")), volumesv1alpha1.ReasonSharedByKubelet)
		if b.has("stage") != 1 {
			t.Errorf("volume vol: operations %v, want one stage", b.operations())
		}
	})
	t.Run("and may come back under another device number", func(t *testing.T) {
		b := newBench(t, filesystem)
		b.unused()
		b.after["unstage"] = func() { b.kubeletRecords(); b.driver.fail("stage", uncertain()) }
		if err := b.act(plan.Unstage); err == nil || b.volume.Record.Stage.Source != "" {
			t.Errorf("volume vol, which cannot be staged again: error %v and stage %+v, want one, and no source", err,
				b.volume.Record.Stage)
		}
	})
	t.Run("not while nobody can tell whether the kubelet uses it", func(t *testing.T) {
		b := newBench(t, filesystem)
		b.unused()
		r := b.volume.Record
		b.kernel.umount(r.Stage.Path)
		dir := filepath.Dir(b.agent.paths.KubeletData(r.VolumeSource()))
		b.must(os.RemoveAll(dir))
		b.must(os.WriteFile(dir, nil, 0o600)) // no directory
		if err := b.act(plan.Unstage); err == nil || b.has("unstage") > 0 {
			t.Errorf("volume vol: error %v and operations %v, want one, and no unstage", err, b.operations())
		}
	})
	t.Run("and what fails in staging again is told", func(t *testing.T) {
		b := newBench(t, filesystem)
		b.unused()
		b.after["unstage"] = func() { b.kubeletRecords(); b.driver.fail("stage", transient("Internal")) }
		err := b.act(plan.Unstage)
		b.refused(err, volumesv1alpha1.ReasonStageFailed)
		if !strings.Contains(err.Error(), "it failed") || !strings.Contains(err.Error(), "its record of the stage") {
			t.Errorf("volume vol, which cannot be staged again: error %v, want the driver's in it, and why", err)
		}
	})
	t.Run("and staged again until that succeeds", func(t *testing.T) {
		b := newBench(t, filesystem)
		b.unused()
		b.after["unstage"] = func() { b.kubeletRecords(); b.driver.fail("stage", transient("Internal")) }
		if err := b.act(plan.Unstage); err == nil {
			t.Error("volume vol, which cannot be staged again: no error, want one")
		}
		b.kubelet = &kubelet.TrackedUse{AttachmentUID: "uid-1"}
		b.must(b.agent.steps.WriteRecord(b.volume))
		f := b.facts()
		if next, ok := b.volume.Next(f, nil, b.clock.Now()); !ok || next.Kind != plan.Stage || f.Released() {
			t.Fatalf("volume vol, bare while the kubelet uses it: the next step is %v, released %t, want stage and not", next,
				f.Released())
		}
		b.done(plan.Stage)
		if f := b.facts(); !f.Released() || f.Stage != record.Present {
			t.Errorf("volume vol, staged again: released %t, the stage is %v, want it left to the kubelet", f.Released(),
				f.Stage)
		}
	})
	t.Run("again, once an earlier call cannot mount it any more", func(t *testing.T) {
		b := newBench(t, filesystem)
		b.unused()
		b.mountsUntil(time.Minute)
		b.waitsForCall(b.act(plan.Unstage), time.Minute)
		if b.volume.Record.Stage.Phase != record.PhaseUncertain {
			t.Errorf("volume vol: stage %+v, want it uncertain", b.volume.Record.Stage)
		}
		b.uptime += time.Minute
		b.done(plan.Unstage)
		if b.has("unstage") != 2 {
			t.Errorf("volume vol: operations %v, want two unstage", b.operations())
		}
	})
}

func TestAStageOfAnAttachmentThatWasTakenAway(t *testing.T) {
	play := func(t *testing.T, change func(*bench)) (*bench, error) {
		b := newBench(t, filesystem)
		b.publish()
		takenAway(b)
		b.done(plan.Unpublish)
		change(b)
		return b, b.act(plan.Unstage)
	}
	t.Run("is undone although a pod waits for the volume", func(t *testing.T) {
		b, err := play(t, func(b *bench) {
			b.node.Status.VolumesInUse = []corev1.UniqueVolumeName{corev1.UniqueVolumeName(b.of.name())}
		})
		if err != nil || b.has("unstage") != 1 {
			t.Errorf("volume vol: error %v and operations %v, want success and one unstage", err, b.operations())
		}
	})
	t.Run("is not undone while it is mounted elsewhere", func(t *testing.T) {
		b, err := play(t, func(b *bench) { b.kernel.mount(b.kernel.filesystemOf("vol", "ext4", "/elsewhere")) })
		b.refused(err, volumesv1alpha1.ReasonSharedByKubelet)
	})
	for name, change := range map[string]func(*bench){
		"is left to the kubelet, which has recorded that it stages there": (*bench).kubeletRecords,
		"is left where it was mounted after a reboot": func(b *bench) {
			b.volume.Record.Stage.BootID = "earlier"
		},
	} {
		t.Run(name, func(t *testing.T) {
			b, err := play(t, change)
			if s := b.volume.Record.Stage; err != nil || b.has("unstage") > 0 || s.Phase != record.PhaseNone ||
				s.Path == "" || !b.signalled() {
				t.Errorf("volume vol, whose stage is another's: error %v, stage %+v and operations %v, want it forgotten, and "+
					"no unstage", err, s, b.operations())
			}
			if _, ok := b.kernel.at(b.agent.paths.Reference(b.of.name())); ok {
				t.Errorf("volume %s: the agent's own mount of its stage is there, want none", b.of.name())
			}
			b, err = play(t, func(b *bench) {
				change(b)
				b.failures["Unmount"] = errInjected
			})
			if b.volume.Record.Stage.Phase == record.PhaseNone || !errors.Is(err, errInjected) {
				t.Errorf("volume vol, whose reference cannot be undone: error %v, want the injected one, and the stage still "+
					"known", err)
			}
		})
	}
	t.Run("is undone after a reboot where nothing is mounted", func(t *testing.T) {
		b, err := play(t, func(b *bench) {
			b.volume.Record.Stage.BootID = "earlier"
			b.kernel.reboot()
		})
		if err != nil || b.has("unstage") != 1 {
			t.Errorf("volume vol: error %v and operations %v, want success and one unstage", err, b.operations())
		}
	})
	t.Run("is not undone while nobody can tell whether the kubelet uses it", func(t *testing.T) {
		b, err := play(t, func(b *bench) {
			r := b.volume.Record
			dir := filepath.Dir(b.agent.paths.KubeletData(r.VolumeSource()))
			b.must(os.RemoveAll(dir))
			b.must(os.WriteFile(dir, nil, 0o600)) // no directory
		})
		if err == nil || b.has("unstage") > 0 || b.volume.Record.Stage.Phase == record.PhaseNone {
			t.Errorf("volume vol: error %v and operations %v, want one, no unstage, and the stage still known", err,
				b.operations())
		}
	})
}

func TestTheFilesystemOfAnAttachmentThatWasTakenAwayIsShutDown(t *testing.T) {
	play := func(t *testing.T, change func(*bench)) (*bench, error) {
		b := newBench(t, filesystem)
		b.publish()
		takenAway(b)
		change(b)
		return b, b.act(plan.Shutdown)
	}
	onlyStage := func(b *bench) { // and the mount of the stage is all that there is
		b.kernel.umount(b.agent.paths.Reference(b.of.name()))
		b.kernel.umount(b.use().Path)
	}
	t.Run("by a mount of the agent's own", func(t *testing.T) {
		b, err := play(t, (*bench).kubeletRecords)
		if err != nil || !slices.Equal(b.kernel.shutdowns, []string{b.agent.paths.Reference(b.of.name())}) {
			t.Errorf("volume vol, taken away: error %v and shut down %v, want success and its reference", err,
				b.kernel.shutdowns)
		}
	})
	t.Run("by the stage, while the kubelet has not staged there", func(t *testing.T) {
		b, err := play(t, onlyStage)
		if err != nil || b.kernel.shutDown() != 1 || b.volume.Unprotected {
			t.Errorf("volume vol, shut down by another program: error %v and shut down %v, want success and one", err,
				b.kernel.shutdowns)
		}
		b, err = play(t, func(b *bench) { onlyStage(b); b.kubeletRecords() })
		if !errors.Is(err, failure.ErrChanged) || b.kernel.shutDown() > 0 || !b.signalled() ||
			b.volume.Record.ShutDown || b.volume.Unprotected {
			t.Errorf("volume vol, whose mount is another by now: error %v and shut down %v, want changed facts and none", err,
				b.kernel.shutdowns)
		}
	})
	t.Run("or everybody is told", func(t *testing.T) {
		b, err := play(t, func(b *bench) { b.kernel.setUnsupported(true) })
		b.refused(err, volumesv1alpha1.ReasonForcedAway)
		if !b.volume.Unprotected || b.volume.Record.ShutDown || !errors.Is(err, mount.ErrShutdownUnsupported) ||
			!strings.Contains(err.Error(), b.agent.paths.Reference(b.of.name())) {
			t.Errorf("volume vol, which cannot be shut down: error %v, want %v and the path, and the volume unprotected", err,
				mount.ErrShutdownUnsupported)
		}
		b.kernel.setUnsupported(false)
		b.done(plan.Shutdown)
		if b.volume.Unprotected {
			t.Errorf("volume %s is unprotected after it was shut down, want it protected", b.of.name())
		}
	})
	t.Run("where nothing is mounted any more there is nothing to shut down", func(t *testing.T) {
		b, err := play(t, func(b *bench) { b.failures["ShutdownFilesystem"] = mount.ErrNotMounted })
		if err != nil || !b.disk().ShutDown {
			t.Errorf("volume vol: error %v and record %+v, want success and ShutDown on the disk", err, b.disk())
		}
	})
}

func TestAVolumeIsLetGoOf(t *testing.T) {
	undone := func(b *bench) {
		b.unused()
		b.done(plan.Unstage)
	}
	t.Run("with its directories, and what was known of it", func(t *testing.T) {
		for _, v := range []testVolume{filesystem, block} {
			b := newBench(t, v)
			undone(b)
			stage := b.volume.Record.Stage.Path
			b.must(os.MkdirAll(stage, 0o750))
			if v.mode == corev1.PersistentVolumeBlock {
				b.must(b.kernel.SetDeviceNodes(t.Context(), b.agent.paths.GlobalMap(rawSource), []string{"intent"}))
			}
			b.volume.Failures[plan.Step{Kind: plan.Unstage}], b.volume.Unprotected, b.volume.Unsaved = &failure.Failure{},
				true, true
			b.done(plan.ClearInUse)
			if len(b.volume.Failures) > 0 || b.volume.Unprotected || b.volume.Unsaved || len(b.kernel.referred()) > 0 {
				t.Errorf("left are %+v and device nodes %v, want neither failures nor device nodes", b.volume, b.kernel.referred())
			}
			_, err := os.Lstat(stage)
			_, above := os.Lstat(filepath.Dir(stage))
			if !errors.Is(err, os.ErrNotExist) || errors.Is(above,
				os.ErrNotExist) == (v.mode == corev1.PersistentVolumeBlock) {
				t.Errorf("what is left of the staging path: error %v, of its parent %v, want it gone, and the parent of a "+
					"device's there", err, above)
			}
		}
	})
	t.Run("not before a call has ended", func(t *testing.T) {
		b := newBench(t, filesystem)
		undone(b)
		b.mountsUntil(time.Minute)
		b.waitsForCall(b.act(plan.ClearInUse), time.Minute)
		if line := b.api(); line == nil || !line.InUse {
			t.Errorf("volume vol: reported is %+v, want it in use", line)
		}
	})
	t.Run("by the clock of the boot, to whatever time the wall clock is set", func(t *testing.T) {
		b := newBench(t, filesystem)
		undone(b)
		b.mountsUntil(time.Minute)
		for _, jump := range []time.Duration{48 * time.Hour, -96 * time.Hour} {
			b.clock.SetTime(b.clock.Now().Add(jump))
			b.refused(b.act(plan.ClearInUse), volumesv1alpha1.ReasonCallInFlight)
		}
		b.uptime += time.Minute
		b.done(plan.ClearInUse)
	})
	t.Run("not while it is held, or may be mounted", func(t *testing.T) {
		for name, test := range map[string]struct {
			change func(*bench)
			reason string
		}{
			"the kernel says that its device is held": {func(b *bench) { b.failures["CheckFree"] = &mount.HeldError{} },
				volumesv1alpha1.ReasonDeviceHeld},
			"the driver was asked to stage it": {func(b *bench) { b.volume.Record.Stage.Phase = record.PhaseUncertain },
				volumesv1alpha1.ReasonUnstageFailed},
			"it is mounted": {func(b *bench) {
				b.kernel.mount(b.kernel.filesystemOf("vol", "ext4", b.volume.Record.Stage.Path))
			}, volumesv1alpha1.ReasonUnstageFailed},
			"the kernel is about to mount it at its stage": {func(b *bench) {
				b.failures["Busy "+b.volume.Record.Stage.Path] = errInjected
			}, volumesv1alpha1.ReasonUnstageFailed},
			"the kernel is about to bind it": {func(b *bench) {
				b.failures["Busy "+b.agent.paths.Reference(b.of.name())] = errInjected
			}, volumesv1alpha1.ReasonUnstageFailed},
		} {
			t.Run(name, func(t *testing.T) {
				b := newBench(t, filesystem)
				undone(b)
				test.change(b)
				b.refused(b.act(plan.ClearInUse), test.reason)
				if line := b.api(); line == nil || !line.InUse || b.volume.Record == nil || !b.volume.Record.InUse {
					t.Errorf("volume vol: reported is %+v, want it in use, and so in the record", line)
				}
			})
		}
	})
	t.Run("also while the kubelet has its device mounted, whose own use asks for that", func(t *testing.T) {
		for name, use := range map[string]kubelet.TrackedUse{
			"":                                 {Mounts: []string{"/kubelet"}, Devices: []mount.Device{{Minor: 1}}},
			"but not once it has unmounted it": {Devices: []mount.Device{{Minor: 1}}},
			"but not of another one":           {Mounts: []string{"/kubelet"}, Devices: []mount.Device{{Minor: 2}}},
		} {
			b := newBench(t, filesystem)
			undone(b)
			b.volume.Record.Devices = []record.SeenDevice{{Device: mount.Device{Minor: 1}, BootID: b.agent.bootID, Held: true}}
			b.failures["CheckFree"] = &mount.HeldError{}
			b.agent.observer.SetKnown(map[string]kubelet.TrackedUse{b.of.name(): use})
			if err := b.act(plan.ClearInUse); (err == nil) != (name == "") {
				t.Errorf("a place where a call still runs, %q: error %v, want one unless there is none", name, err)
			}
		}
	})
	t.Run("and not where the kubelet's use ends while the record goes, and leaves the question to it", func(t *testing.T) {
		device := mount.Device{Minor: 1}
		for name, end := range map[string]func(b *bench){
			"seen by the observer": func(b *bench) { b.agent.observer.SetKnown(nil) },
			"left to this release": func(b *bench) {
				b.volume.Inherit([]mount.Device{device})
				b.agent.observer.SetKnown(nil)
			},
			"seen, and another one": func(b *bench) { b.agent.observer.SetKnown(map[string]kubelet.TrackedUse{"other": {}}) },
		} {
			b := newBench(t, filesystem)
			undone(b)
			if name != "left to this release" {
				b.volume.Record.Devices = []record.SeenDevice{{Device: device, BootID: b.agent.bootID}}
			}
			b.failures["CheckFree"] = &mount.HeldError{}
			b.agent.observer.SetKnown(map[string]kubelet.TrackedUse{b.of.name(): {Mounts: []string{"/kubelet"},
				Devices: []mount.Device{device}}})
			b.agent.steps.Step = func(step string) {
				if step == "before forget" {
					end(b)
				}
			}
			b.refused(b.act(plan.ClearInUse), volumesv1alpha1.ReasonDeviceHeld)
			if line := b.api(); line == nil || !line.InUse || b.disk() == nil || !b.agent.store.Knows(b.of.name()) {
				t.Errorf("%s: volume vol: reported is %+v and the record %+v, want it in use, with a record", name, line, b.disk())
			}
		}
	})
	t.Run("from the moment on at which it is tried", func(t *testing.T) {
		b := newBench(t, filesystem)
		undone(b)
		b.failures["report"] = errInjected
		if err := b.act(plan.ClearInUse); err == nil || b.volume.Record == nil || b.volume.Record.InUse {
			t.Errorf("volume vol, whose report failed: error %v and record %+v, want one, and it not in use any more", err,
				b.volume.Record)
		}
	})
	t.Run("and whether that rests on the mount table alone is noted", func(t *testing.T) {
		for _, alone := range []bool{true, false} {
			b := newBench(t, filesystem)
			undone(b)
			b.volume.Record.MountTableOnly = true
			if alone {
				b.volume.Record.Devices = nil
			}
			b.done(plan.ClearInUse)
			if noted := b.agent.node.TableReleases[b.of.name()] == "uid-1"; noted != alone {
				t.Errorf("seen without a device alone: %t; volumes whose end the mount table alone showed are %v, want it "+
					"noted for vol: %t", alone, b.agent.node.TableReleases, alone)
			}
		}
		b := newBench(t, filesystem)
		undone(b)
		b.volume.Record.Devices = nil
		b.done(plan.ClearInUse)
		if len(b.agent.node.TableReleases) > 0 {
			t.Errorf("volume vol, never seen mounted: noted is %v, want nothing", b.agent.node.TableReleases)
		}
	})
	t.Run("not before the record is removed", func(t *testing.T) {
		b := newBench(t, filesystem)
		undone(b)
		path := b.agent.store.Path(b.of.name())
		b.must(os.Remove(path))
		b.must(os.MkdirAll(path+"/x", 0o700))
		err := b.act(plan.ClearInUse)
		b.refused(err, volumesv1alpha1.ReasonRecordFailed)
		if line := b.api(); line == nil || !line.InUse || err == nil || !strings.Contains(err.Error(), "not empty") ||
			!strings.Contains(err.Error(), "cannot be removed") {
			t.Errorf("volume vol, whose record cannot be removed: error %v and reported %+v, want one that says so, and the "+
				"volume in use: the next agent would report it", err, line)
		}
		b.must(os.Remove(path + "/x"))
		b.must(b.act(plan.ClearInUse))
		if line := b.api(); line != nil || b.volume.Record != nil {
			t.Errorf("volume vol, whose record is removed: reported %+v, want no line", line)
		}
	})
}

func TestAPodThatCameSinceTheFactsWereGatheredIsNotAwaited(t *testing.T) {
	bind := func(b *bench, target string) record.PodBind {
		return record.PodBind{Target: target, VolumeName: b.of.name(), Intent: b.use().Intent,
			Pod: record.PodReference{Namespace: "default", Name: target}}
	}
	place := func(b *bench) record.PodBind {
		p := bind(b, "place")
		p.Directory = "directory"
		return p
	}
	for name, test := range map[string]struct {
		pods  func(*bench) []record.PodBind
		again bool
	}{
		"the facts have no pod":           {func(*bench) []record.PodBind { return nil }, true},
		"the facts have only a directory": {func(b *bench) []record.PodBind { return []record.PodBind{place(b)} }, true},
		"the facts have the pod": {func(b *bench) []record.PodBind {
			return []record.PodBind{bind(b, "pod")}
		}, false},
	} {
		for _, earlier := range []bool{false, true} {
			b := newBench(t, filesystem)
			b.publish()
			deletedIntents(b)
			step := plan.Step{Kind: plan.Unpublish, Intent: "intent"}
			tried := map[plan.Step]bool{step: true}
			b.must(os.MkdirAll(b.agent.paths.PodBinds(), 0o700))
			b.must(b.agent.pods.Add(bind(b, "pod"), false))
			if earlier { // it has waited for a pod that is gone
				f := b.facts()
				f.Pods = []record.PodBind{bind(b, "earlier")}
				b.must(b.agent.steps.Finish(b.volume, f, step, &failure.Problem{
					Reason: volumesv1alpha1.ReasonUsedByPods, AwaitsEvent: true}))
			}
			f := b.facts()
			f.Pods = test.pods(b)
			err := b.agent.steps.Run(t.Context(), b.volume, f, step)
			var p *failure.Problem
			if errors.Is(err, failure.ErrChanged) != test.again || errors.As(err, &p) == test.again {
				t.Errorf("%s: error %v, want that the facts have changed %t, or else a problem", name, err, test.again)
			}
			b.must(b.agent.steps.Finish(b.volume, f, step, err))
			if after := b.volume.RequeueAfter(f, tried, b.clock.Now()); (after == status.FirstBackoff) != test.again {
				t.Errorf("%s, waited for another pod before %t: tried again after %s, want after the first backoff %t", name,
					earlier, after, test.again)
			}
		}
	}
}
