/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/util/version"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/agent/plan"
	"github.com/hawser-io/hawser/internal/agent/record"
	"github.com/hawser-io/hawser/internal/driver"
	"github.com/hawser-io/hawser/internal/mount"
	"github.com/hawser-io/hawser/internal/mount/scsi"
	"github.com/hawser-io/hawser/test/csiloop/harness/harnesstest"
)

// soon is between two examinations of the tests that do not wait for the usual time.
const soon = 200 * time.Millisecond

// examineSoon has the node's agents examine volumes all the time.
func (n *realNode) examineSoon() {
	earlier := n.drive
	n.drive = func(o *Options) {
		earlier(o)
		o.ExaminationPeriod = soon
	}
}

// fails has the filesystem at the path fail.
type fails func(t *testing.T, n *realNode, path, device string)

func command(t *testing.T, program string, arguments ...string) {
	t.Helper()
	if out, err := exec.Command(program, arguments...).CombinedOutput(); err != nil {
		t.Fatalf("%s %v: error %v, want success: %s", program, arguments, err, out)
	}
}

func readOnlyAfterError(t *testing.T, n *realNode, path, device string) {
	t.Helper()
	command(t, "mount", "-o", "remount,errors=remount-ro", path)
	n.must(os.WriteFile(filepath.Join("/sys/fs/ext4", filepath.Base(device), "trigger_fs_error"), []byte("test"), 0o200))
}

func shutDown(t *testing.T, _ *realNode, path, _ string) {
	t.Helper()
	command(t, "xfs_io", "-x", "-c", "shutdown", path)
}

func TestRealVolumesFallSick(t *testing.T) {
	harnesstest.NeedRoot(t)
	c, shows := newCluster(t), showsFailures(t)
	afterError := "no more writes since an error"
	if !shows {
		afterError = "counted errors"
	}
	for name, test := range map[string]struct {
		fsType string
		mib    int64
		fails  fails
		cause  string
	}{
		"ext4 after an error":               {"ext4", 64, readOnlyAfterError, afterError},
		"ext4 that is shut down":            {"ext4", 64, shutDown, "no more writes since an error (shutdown)"},
		"xfs with an input or output error": {"xfs", 320, shutDown, "input/output error"},
	} {
		t.Run(name, func(t *testing.T) {
			harnesstest.NeedProgram(t, "mkfs."+test.fsType)
			harnesstest.NeedProgram(t, "xfs_io")
			if test.fsType == "ext4" && test.cause != afterError && !shows {
				t.Skip("LEFT OUT (needs Linux 6.15: an earlier one does not show that an ext4 was shut down)")
			}
			n := c.realNode(t)
			n.examineSoon()
			testRealSick(t, n, test.fsType, test.mib, test.fails, test.cause)
		})
	}
}

// showsFailures reports whether the kernel shows in the mount table that an ext4 has failed, as since Linux 6.15.
func showsFailures(t *testing.T) bool {
	t.Helper()
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		t.Fatal(err)
	}
	release, err := version.ParseGeneric(unix.ByteSliceToString(name.Release[:]))
	if err != nil {
		t.Fatal(err)
	}
	return release.AtLeast(version.MajorMinor(6, 15))
}

// testRealSick has a volume fall sick while a pod uses it. Nothing new gets it, also after a restart of the agent,
// until the pod has ended. Then it works again.
func testRealSick(t *testing.T, n *realNode, fsType string, mib int64, fail fails, cause string) {
	v := n.volume(corev1.PersistentVolumeFilesystem, fsType, mib)
	a := n.start()
	n.attach(v, "uid-1")
	first := n.want(v, "first")
	ready := n.ready(first)
	p := n.pod("early", first)
	n.must(p.answer(p.publish(a)))
	fail(t, n, ready.Status.Path, ready.Status.DevicePath)

	n.condition(first, volumesv1alpha1.ConditionReady, volumesv1alpha1.ReasonVolumeSick)
	// An examination may come between the error and what the kernel then does, and find another cause first.
	n.intent(first, fmt.Sprintf("Published with %q, since when and default/early", cause),
		func(i *volumesv1alpha1.VolumeAttachmentIntent) bool {
			message := meta.FindStatusCondition(i.Status.Conditions, volumesv1alpha1.ConditionPublished).Message
			return strings.Contains(message, cause) && strings.Contains(message, "since 20") &&
				strings.Contains(message, "default/early")
		})
	n.state("the sick volume", func(s *volumesv1alpha1.NodeVolumeState) bool {
		for _, c := range []string{volumesv1alpha1.ConditionVolumesHealthy, volumesv1alpha1.ConditionMountsConsistent} {
			if found := meta.FindStatusCondition(s.Status.Conditions, c); found == nil || found.Status != "False" ||
				!strings.Contains(found.Message, cause) {
				return false
			}
		}
		return true
	})
	a.kill()
	a = n.start()
	late := n.pod("late", first)
	answer := late.publish(a)
	second := n.want(v, "second")
	n.condition(second, volumesv1alpha1.ConditionPublished, volumesv1alpha1.ReasonVolumeSick)
	select {
	case err := <-answer:
		t.Errorf("pod late has been given volume %s, which is sick: error %v, want that it waits", v.handle, err)
	default:
	}
	n.must(p.answer(p.unpublish(a)))
	n.ready(first)
	n.must(late.answer(answer))
	n.must(os.WriteFile(filepath.Join(n.ready(second).Status.Path, "file"), nil, 0o600))
	n.must(late.answer(late.unpublish(a)))
	n.end(v, first, second)
}

func TestAProcessKeepsARealSickVolumeFromBeingUnmounted(t *testing.T) {
	harnesstest.NeedRoot(t)
	harnesstest.NeedProgram(t, "mkfs.ext4")
	n := newCluster(t).realNode(t)
	n.examineSoon()
	v := n.volume(corev1.PersistentVolumeFilesystem, "ext4", 64)
	n.start()
	n.attach(v, "uid-1")
	i := n.want(v, "data")
	ready := n.ready(i)
	holder := exec.Command("sleep", "1000")
	holder.Dir = ready.Status.Path
	n.must(holder.Start())
	readOnlyAfterError(t, n, ready.Status.Path, ready.Status.DevicePath)
	named := fmt.Sprintf("process %d (sleep)", holder.Process.Pid)
	n.intent(i, "the process named", func(i *volumesv1alpha1.VolumeAttachmentIntent) bool {
		c := meta.FindStatusCondition(i.Status.Conditions, volumesv1alpha1.ConditionReady)
		return c != nil && c.Reason == volumesv1alpha1.ReasonVolumeSick && strings.Contains(c.Message, named)
	})
	n.must(holder.Process.Kill())
	if err := holder.Wait(); err == nil {
		t.Error("the process ended by itself, want that it was killed")
	}
	n.ready(i)
	n.end(v, i)
}

func TestASickVolumeIsDiagnosed(t *testing.T) {
	count := func(n int64) *int64 { return &n }
	for name, test := range map[string]struct {
		health mount.Health
		access error
		// earlier are the errors that the filesystem had counted when it was staged.
		earlier *int64
		cause   string
		remount bool
	}{
		"works":                           {},
		"had errors before it was staged": {health: mount.Health{Errors: count(3)}, earlier: count(3)},
		"has had errors since":            {mount.Health{Errors: count(4)}, nil, count(3), "counted errors", true},
		"takes no more writes":            {mount.Health{Failed: "emergency_ro"}, nil, nil, "emergency_ro", true},
		"has lost its device":             {mount.Health{DeviceGone: true}, nil, nil, "device is gone", true},
		"has lost its disk": {mount.Health{Errors: count(4), DeadDisks: []scsi.DeadDisk{{Name: "sda", State: "offline"}}},
			unix.EIO, count(3), "does not answer: [sda offline]", false},
		"has lost the disk below its device": {mount.Health{DeadDisks: []scsi.DeadDisk{{Name: "sda", State: "gone"}}},
			nil, nil, "[sda gone]", true},
		"has lost its paths": {mount.Health{DeadDisks: []scsi.DeadDisk{{Name: "sda", State: "offline"},
			{Name: "sdb", State: "transport-offline"}}}, nil, nil, "[sda offline sdb transport-offline]", false},
		"has lost its daemon":               {mount.Health{}, unix.ENOTCONN, nil, "not connected", true},
		"has lost its server's file handle": {mount.Health{}, unix.ESTALE, nil, "stale", true},
		"has input and output errors":       {mount.Health{}, unix.EIO, nil, "input/output error", true},
		"refuses root":                      {access: unix.EACCES},
		"cannot be examined":                {access: errors.New("the mount table cannot be read")},
		"does not answer": {mount.Health{}, &mount.PendingError{Call: mount.Call{Since: time.Unix(0, 0)}}, nil,
			"does not answer: an access to it runs since 1970", false},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, filesystem)
			b.want("intent")
			b.stage()
			b.volume.Record.Stage.Errors = test.earlier
			b.kernel.health, b.kernel.access = test.health, test.access
			err := b.act(plan.Publish)
			b.volume.RecordExamination()
			r := b.volume.Record
			if test.cause == "" {
				if r.Sick != nil || err != nil {
					t.Errorf("volume that %s: sick %v, error %v, want it published", name, r.Sick, err)
				}
				return
			}
			if r.Sick == nil || !strings.Contains(r.Sick.Cause, test.cause) || r.Sick.Remountable != test.remount ||
				!r.Sick.Since.Equal(b.clock.Now()) {
				t.Fatalf("volume that %s: sick %v, want that it names %q, since now, to be mounted again %t", name, r.Sick,
					test.cause, test.remount)
			}
			if r.Uses[0].Phase != record.PhaseNone {
				t.Errorf("volume that %s is published: %+v, want that it is not", name, r.Uses[0])
			}
			if next := plan.Of(b.facts()); (len(next) == 1 && next[0].Kind == plan.Remount) != test.remount ||
				len(next) > 1 {
				t.Errorf("volume that %s: plan %v, want no more than to mount it again, %t", name, next, test.remount)
			}
		})
	}
}

func TestAVolumeThatCannotBeReleasedIsExamined(t *testing.T) {
	for verb, call := range map[plan.Kind]string{plan.Unpublish: "unpublish", plan.Unstage: "unstage"} {
		t.Run(string(verb), func(t *testing.T) {
			b := newBench(t, filesystem)
			b.publish()
			deletedIntents(b)
			if verb == plan.Unstage {
				b.done(plan.Unpublish)
			}
			b.kernel.access = &mount.PendingError{Call: mount.Call{Since: b.clock.Now()}}
			b.driver.fail(call, &driver.Error{Outcome: driver.Uncertain, Code: "DeadlineExceeded"})
			if err := b.act(verb); !driver.IsUncertain(err) {
				t.Errorf("%s of a volume that does not answer: error %v, want the driver's", verb, err)
			}
			b.volume.RecordExamination()
			for _, after := range []string{"the call", "the next examination"} {
				if !b.volume.Record.Hangs() {
					t.Errorf("volume that cannot be released: sick %v after %s, want that it does not answer", b.volume.Record.Sick,
						after)
				}
				b.agent.examine(t.Context(), b.volume.Record)
				b.volume.RecordExamination()
			}
			b.kernel.access = nil
			b.done(verb)
		})
	}
}

func TestAVolumeIsExaminedAgainOnceItAnswers(t *testing.T) {
	b := newBench(t, filesystem)
	b.publish()
	ended := make(chan struct{})
	b.kernel.access = &mount.PendingError{Call: mount.Call{Since: b.clock.Now()}, Err: context.DeadlineExceeded,
		Ended: ended}
	next := func() {
		t.Helper()
		k, _ := b.agent.queue.queue.Get() // blocks until the volume is requeued
		b.agent.queue.queue.Done(k)
		b.volume.RecordExamination()
		b.agent.views.Store(b.volume.Name, b.volume.Record.Copy())
	}
	b.agent.examine(t.Context(), b.volume.Record)
	next()
	if !b.volume.Record.Hangs() {
		t.Fatalf("volume that does not answer: sick %v, want that it does not answer", b.volume.Record.Sick)
	}
	uncertain, other := plan.Step{Kind: plan.Unpublish}, plan.Step{Kind: plan.Unstage}
	b.volume.Failures = plan.Failures{uncertain: {Reason: volumesv1alpha1.ReasonOutcomeUncertain},
		other: {Reason: volumesv1alpha1.ReasonUnstageFailed}}
	b.kernel.mu.Lock()
	b.kernel.access = nil
	b.kernel.mu.Unlock()
	close(ended)
	next()
	if b.volume.Record.Sick != nil {
		t.Errorf("volume that answers again: sick %v, want that it is not", b.volume.Record.Sick)
	}
	if f := b.volume.Failures; f[uncertain] != nil || f[other] == nil {
		t.Errorf("failures of a volume that answers again: %v, want that the call that hung is retried, and nothing else", f)
	}
}

func TestAVolumeWithDeadDisksIsExaminedAgainSoon(t *testing.T) {
	b := newBench(t, filesystem)
	b.publish()
	find := func(disks ...scsi.DeadDisk) {
		b.kernel.mu.Lock()
		defer b.kernel.mu.Unlock()
		b.kernel.health.DeadDisks = disks
	}
	reported := func(cause string) {
		t.Helper()
		k, _ := b.agent.queue.queue.Get() // blocks until the volume is requeued
		b.agent.queue.queue.Done(k)
		b.volume.RecordExamination()
		b.agent.views.Store(b.volume.Name, b.volume.Record.Copy())
		if s := b.volume.Record.Sick; (s == nil) != (cause == "") || s != nil && !strings.Contains(s.Cause, cause) {
			t.Fatalf("volume is sick: %v, want %q", s, cause)
		}
	}
	one, two := scsi.DeadDisk{Name: "sda", State: "transport-offline"}, scsi.DeadDisk{Name: "sdb", State: "offline"}
	find(one)
	b.agent.examine(t.Context(), b.volume.Record)
	reported("[sda transport-offline]")
	find(one, two)
	b.clock.Step(10 * time.Second)
	reported("[sda transport-offline sdb offline]")
	find()
	b.clock.Step(10 * time.Second)
	reported("")
}

// A driver may mount again at its own path, where the agent's bind still has the mount of before.
func TestAReadOnlyBindOfAMountThatHasDiedIsSick(t *testing.T) {
	b := newBench(t, filesystem)
	b.want("intent", readOnly)
	b.stage()
	b.done(plan.Publish)
	u := b.volume.Record.Uses[0]
	b.kernel.access, b.kernel.sickAt = unix.ENOTCONN, u.Path
	b.agent.examine(t.Context(), b.volume.Record)
	b.volume.RecordExamination()
	if b.volume.Record.Sick == nil || u.Path == u.Target {
		t.Errorf("volume whose bind %s of %s has lost its daemon: not sick, want it sick", u.Path, u.Target)
	}
}

func TestASickVolumeIsStagedAgain(t *testing.T) {
	sick := func(t *testing.T) *bench {
		b := newBench(t, filesystem)
		b.publish()
		b.kernel.health.Failed = "shutdown"
		b.agent.examine(t.Context(), b.volume.Record)
		b.volume.RecordExamination()
		return b
	}
	t.Run("where nothing uses it", func(t *testing.T) {
		b := sick(t)
		b.done(plan.Remount)
		if r := b.volume.Record; r.Sick != nil || r.Stage.Phase != record.PhaseNone || len(b.kernel.mounted()) > 0 {
			t.Errorf("volume that was sick: record %+v, mounted %v, want nothing staged", r, b.kernel.mounted())
		}
		b.kernel.health.Failed = ""
		b.done(plan.Stage, plan.Reference, plan.Publish)
	})
	t.Run("where the stage was made again, and works", func(t *testing.T) {
		b := newBench(t, filesystem)
		b.publish()
		b.kernel.health.Failed, b.kernel.sickAt = "shutdown", b.volume.Record.Uses[0].Target
		if !b.agent.examine(t.Context(), b.volume.Record) {
			t.Error("volume of which a publication works no more, but the stage does: not sick, want it sick")
		}
		b.volume.RecordExamination()
		b.done(plan.Remount)
	})
	t.Run("not while a process uses it", func(t *testing.T) {
		b := sick(t)
		b.kernel.users = []mount.Holder{{PID: os.Getpid(), Command: "db", Use: "has a file open"}}
		err := b.act(plan.Remount)
		b.refused(err, volumesv1alpha1.ReasonVolumeSick)
		if !strings.Contains(fmt.Sprint(err), "(db)") || len(b.kernel.mounted()) != 3 {
			t.Errorf("volume with a user: error %v, mounted %v, want one that names it, and everything as it was", err,
				b.kernel.mounted())
		}
	})
	t.Run("not while its device cannot be read, and so may seem empty to a driver", func(t *testing.T) {
		b := sick(t)
		b.failures["CheckReadable"] = unix.EIO
		b.refused(b.act(plan.Remount), volumesv1alpha1.ReasonVolumeSick)
		if r := b.volume.Record; len(b.kernel.mounted()) != 3 || r.Stage.Phase != record.PhaseDone || b.has("unstage") > 0 {
			t.Errorf("volume whose device cannot be read: record %+v, mounted %v, operations %v; want everything as it was", r,
				b.kernel.mounted(), b.operations())
		}
		delete(b.failures, "CheckReadable")
		b.done(plan.Remount)
	})
	t.Run("not again and again", func(t *testing.T) {
		b := sick(t)
		b.done(plan.Remount, plan.Stage, plan.Reference)
		b.agent.examine(t.Context(), b.volume.Record)
		b.volume.RecordExamination()
		b.refused(b.act(plan.Remount), volumesv1alpha1.ReasonVolumeSick)
		b.clock.Step(time.Hour)
		b.done(plan.Remount)
	})
	t.Run("not while a pod or the kubelet uses it", func(t *testing.T) {
		b := sick(t)
		f := b.facts()
		f.Pods = []record.PodBind{{VolumeName: b.of.name()}}
		if next := plan.Of(f); len(next) > 0 {
			t.Errorf("sick volume that a pod uses: plan %v, want none", next)
		}
	})
	t.Run("not what was found of an earlier stage", func(t *testing.T) {
		b := sick(t)
		b.done(plan.Remount)
		b.volume.RecordExamination()
		if b.volume.Record.Sick != nil {
			t.Errorf("volume that is not staged: sick %v, want that it is not", b.volume.Record.Sick)
		}
	})
}

func TestARawDeviceWhoseNumberHasGoneToAnotherDiskIsSick(t *testing.T) {
	t.Run("where it is published", func(t *testing.T) {
		b := newBench(t, block)
		b.kernel.reuse(device("raw"), 10)
		b.publish()
		if b.agent.examine(t.Context(), b.volume.Record) {
			t.Fatalf("raw device of the disk that was published: sick, want that it is not")
		}
		b.kernel.reuse(device("raw"), 12)
		b.want("second")
		b.done(plan.Join)
		second := plan.Step{Kind: plan.Publish, Intent: "second"}
		err := b.agent.steps.Run(t.Context(), b.volume, b.facts(), second)
		if err == nil || b.has("publish") != 1 {
			t.Errorf("publishing it for intent second: error %v, operations %v; want an error before the driver is called", err,
				b.operations())
		}
		b.volume.RecordExamination()
		if s := b.volume.Record.Sick; s == nil || !s.Remountable || !strings.Contains(s.Cause, "another disk") {
			t.Fatalf("raw device whose number has gone to another disk: sick %v, want that it names that, to be mounted again",
				s)
		}
		b.kernel.users = []mount.Holder{{PID: os.Getpid(), Command: "db", Use: "has a file open"}}
		b.refused(b.act(plan.Remount), volumesv1alpha1.ReasonVolumeSick)
		b.kernel.users = nil
		b.done(plan.Remount, plan.Reference, plan.Stage, plan.Publish)
		if b.agent.examine(t.Context(), b.volume.Record) {
			t.Error("raw device that was staged again on the same number: sick, want that it is not")
		}
	})
	t.Run("where its node is staged", func(t *testing.T) {
		b := stagedNode(t)
		b.kernel.reuse(device("raw"), 12)
		if !b.agent.examine(t.Context(), b.volume.Record) {
			t.Error("raw device that is staged only, whose number has gone to another disk: not sick, want that it is")
		}
	})
	t.Run("and is not published", func(t *testing.T) {
		b := stagedNode(t)
		before := b.driver.before
		b.driver.before = func(method, handle string) error {
			b.kernel.reuse(device("raw"), 12)
			return before(method, handle)
		}
		b.refused(b.act(plan.Publish), volumesv1alpha1.ReasonPublishFailed)
		if u := b.use(); u.Phase != record.PhaseNone || b.has("unpublish") != 1 {
			t.Errorf("another disk that the driver has published: use %+v, operations %v, want it taken away", u, b.operations())
		}
	})
	t.Run("and is not made read-only", func(t *testing.T) {
		b := newBench(t, block)
		b.kernel.reuse(device("raw"), 10)
		b.want("intent", readOnlyUse)
		b.stage()
		b.failures["CheckFree"] = &mount.HeldError{Claimed: true}
		b.refused(b.act(plan.Publish), volumesv1alpha1.ReasonReadOnlyNotEnforced)
		delete(b.failures, "CheckFree")
		b.kernel.reuse(device("raw"), 12)
		b.refused(b.act(plan.Publish), volumesv1alpha1.ReasonPublishFailed)
		if b.has("SetReadOnly") > 0 {
			t.Errorf("operations %v, want that no other disk is made read-only", b.operations())
		}
		b.done(plan.Stage, plan.Publish)
	})
}

func TestAnotherDiskWithTheNumberOfARawDeviceIsNotADeviceOfTheVolume(t *testing.T) {
	for name, reused := range map[string]func(*bench){
		"published before": func(b *bench) {
			b.done(plan.Publish)
			b.kernel.reuse(device("raw"), 12)
		},
		"that is refused": func(b *bench) {
			before := b.driver.before
			b.driver.before = func(method, handle string) error {
				b.kernel.reuse(device("raw"), 12)
				return before(method, handle)
			}
			b.refused(b.act(plan.Publish), volumesv1alpha1.ReasonPublishFailed)
		},
	} {
		b := stagedNode(t)
		reused(b)
		deletedIntents(b)
		b.done(plan.Unpublish, plan.Unstage)
		devices := b.volume.Record.Devices
		if len(devices) != 1 || devices[0].Seq != 10 {
			t.Errorf("%s: raw device whose number has gone to another disk: noted are %+v, want the first disk only", name,
				devices)
		}
		b.done(plan.ClearInUse)
	}
}

// stagedNode is a bench whose driver has bound the device node at the staging path, of a disk with sequence number 10.
func stagedNode(t *testing.T) *bench {
	b := newBench(t, block)
	b.kernel.reuse(device("raw"), 10)
	b.want("intent")
	before := b.driver.before
	b.driver.before = func(method, handle string) error {
		if method == "stage" {
			e := b.kernel.filesystemOf("raw", "devtmpfs", b.volume.Record.Stage.Path)
			e.Root, e.Major = "/loop", 0
			b.kernel.mount(e)
		}
		return before(method, handle)
	}
	b.stage()
	return b
}

func TestARealDeviceWhoseNumberIsGivenAwayIsPublishedAgain(t *testing.T) {
	harnesstest.NeedRoot(t)
	harnesstest.NeedProgram(t, "losetup")
	for name, vanish := range map[string]func(device string){
		"its node stays": func(string) {}, "its node is another one": func(device string) { renewNode(t, device) },
	} {
		t.Run(name, func(t *testing.T) {
			n := newCluster(t).realNode(t)
			v := n.volume(corev1.PersistentVolumeBlock, "", 64)
			a := n.start()
			n.attach(v, "uid-1")
			first := n.want(v, "first")
			ready := n.ready(first)
			n.must(writeTo(ready.Status.Path))
			command(t, "losetup", "--detach", ready.Status.DevicePath)
			vanish(ready.Status.DevicePath)
			other := takeNumber(t, ready.Status.DevicePath)
			second := n.want(v, "second")
			path := n.ready(second).Status.Path
			n.ready(first)
			for _, p := range []string{ready.Status.Path, path} {
				if got := firstBytes(t, p); got != "written" {
					t.Errorf("volume %s at %s: %q, want what was written to it", v.handle, p, got)
				}
			}
			n.must(writeTo(path))
			if got := firstBytes(t, other); got == "written" {
				t.Errorf("disk %s, which has got the number: %q, want nothing of volume %s", other, got, v.handle)
			}
			if e := a.recorded(); len(about(e, volumesv1alpha1.ReasonVolumeSick)) == 0 {
				t.Errorf("events: %v, want that the volume is sick", e)
			}
			n.end(v, first, second)
		})
	}
}

func TestARealDeviceWhoseNodeIsGoneIsReleased(t *testing.T) {
	harnesstest.NeedRoot(t)
	n := newCluster(t).realNode(t)
	v := n.volume(corev1.PersistentVolumeBlock, "", 64)
	n.start()
	n.attach(v, "uid-1")
	i := n.want(v, "intent")
	renewNode(t, n.ready(i).Status.DevicePath)
	n.end(v, i)
}

// renewNode removes the node of a device, as the kernel does with the device, and makes another one.
func renewNode(t *testing.T, device string) {
	t.Helper()
	var stat unix.Stat_t
	err := unix.Stat(device, &stat)
	if err = errors.Join(err, unix.Unlink(device), unix.Mknod(device, stat.Mode, int(stat.Rdev))); err != nil {
		t.Fatal(err)
	}
}

// takeNumber gives the number of a loop device that was detached to another disk, and returns the file of that. Another
// process may have taken the number, which comes to the same.
func takeNumber(t *testing.T, device string) (file string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "other")
	if err := os.WriteFile(file, make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("losetup", device, file).CombinedOutput(); err != nil {
		t.Logf("another process has taken %s: %v: %s", device, err, out)
		return file
	}
	t.Cleanup(func() { command(t, "losetup", "--detach", device) })
	return file
}

func firstBytes(t *testing.T, path string) string {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close() //nolint:errcheck // only read
	data := make([]byte, len("written"))
	if _, err := f.Read(data); err != nil {
		t.Fatal(err)
	}
	return string(data)
}
