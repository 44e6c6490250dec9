/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package machine_test

import (
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/test/system"
)

// diskFault is a fault of one volume's disk.
type diskFault struct {
	class, size string
	// strike makes the fault happen, and repair ends it.
	strike, repair func(v *volume)
	// cause is what conditions name.
	cause string
}

func diskFaults() map[string]diskFault {
	return map[string]diskFault{
		"the disk of ext4 is pulled out":   {diskExt4, "64Mi", pullOut, plugInLater, "its block device is gone"},
		"the disk of xfs is pulled out":    {diskXFS, "400Mi", pullOut, plugIn, "input/output error"},
		"the disk of ext4 answers no more": {mappedExt4, "64Mi", answerErrors, answerAgain, "counted errors"},
		"the disk of xfs answers no more":  {mappedXFS, "400Mi", answerErrors, answerAgain, "input/output error"},
		"a directory of ext4 is damaged":   {diskExt4, "64Mi", damage, mend, "counted errors"},
		"the daemon of FUSE is killed": {byFUSE, "64Mi", killDaemon, func(*volume) {},
			"transport endpoint is not connected"},
	}
}

func pullOut(v *volume) {
	v.ok(v.Unplug(v.limited(), lab.disks.Disk(v.handle).ID))
	v.tryWrite()
}

func plugIn(v *volume) { v.ok(v.Plug(v.limited(), lab.disks.Disk(v.handle))) }

func answerErrors(v *volume) {
	v.refuseRequests()
	v.tryWrite()
}

// refuseRequests has the device mapper refuse each request to the disk.
func (v *volume) refuseRequests() {
	v.t.Helper()
	v.must(`h=%s; s=$(blockdev --getsz /dev/mapper/$h); dmsetup table $h >/run/$h.table
		dmsetup suspend --noflush --nolockfs $h; dmsetup load $h --table "0 $s error"; dmsetup resume $h`, v.handle)
}

func answerAgain(v *volume) {
	v.must("h=%s; dmsetup info $h >/dev/null 2>&1 || exit 0; "+
		"dmsetup suspend --noflush --nolockfs $h; dmsetup load $h /run/$h.table; dmsetup resume $h", v.handle)
}

// damage overwrites a directory on the disk, and reads it, which shows it as empty or fails.
func damage(v *volume) {
	v.t.Helper()
	v.must(`cd %s; mkdir d; touch d/file; sync -f d
		block=$(debugfs -R "blocks /d" %s 2>/dev/null | tr -d ' ')
		dd if=/dev/urandom of=%[2]s bs=$(stat -f -c %%S .) seek=$block count=1 oflag=direct conv=notrunc status=none
		echo 3 >/proc/sys/vm/drop_caches
		[ "$(ls d 2>/dev/null)" != file ]`, v.ready(), device(v.t, v.Machine, v.handle))
}

// notStaged waits until the driver's error is named with that text.
func (v *volume) notStaged(text string) {
	v.t.Helper()
	intent := v.await(func(i *volumesv1alpha1.VolumeAttachmentIntent) bool {
		c := meta.FindStatusCondition(i.Status.Conditions, volumesv1alpha1.ConditionStaged)
		return c != nil && c.Status == "False" && strings.Contains(c.Message, text)
	})
	v.t.Logf("a volume that cannot be staged:\n%s", shown(intent))
	v.explains(text)
}

// endUser ends the volume's user.
func (v *volume) endUser() {
	v.t.Helper()
	v.ok(v.Kill(v.limited(), "user-"+v.name))
}

// plugInLater does so once the agent has tried to stage the volume again without its disk.
func plugInLater(v *volume) {
	v.endUser()
	v.notStaged(v.handle)
	plugIn(v)
}

// mend waits until the driver's fsck refuses to decide, and decides. It has to wait for a try of the driver, which has
// the disk to itself.
func mend(v *volume) {
	v.t.Helper()
	v.endUser()
	v.notStaged("fsck")
	v.must("while e2fsck -fy %s >/var/log/e2fsck; r=$?; [ $r = 8 ]; do sleep 0.1; done; [ $r = 1 ]",
		device(v.t, v.Machine, v.handle))
}

func killDaemon(v *volume) {
	v.must("pkill -9 fuse2fs || true; while pidof fuse2fs; do sleep 0.05; done")
}

// tryWrite writes to the volume as its user would, until that fails, and once more. With the first failure ext4 ends
// its journal, which its counter of errors shows only with the next write.
func (v *volume) tryWrite() {
	v.t.Helper()
	answer, err := v.Try(v.limited(), 30*time.Second,
		"cd /var/lib/hawser/published/default/%s; echo more >more && sync -f .; echo again >again && sync -f .", v.name)
	v.ok(err)
	if answer.Exit == 0 || answer.TimedOut {
		v.t.Errorf("a write to volume %s, whose disk fails: %+v, want an error", v.name, answer)
	}
}

// user starts a process that has the volume as its directory, and returns its number.
func (v *volume) user() string {
	v.t.Helper()
	v.ok(v.Launch(v.limited(), "user-"+v.name, "sh -c 'cd "+v.ready()+" && exec sleep 10000'"))
	return v.must("cat /run/user-%s.pid", v.name)
}

// TestAFaultOfADiskIsNamedAndLeavesOtherVolumesAlone has all faults at once, because the agent examines its volumes
// only once a minute.
func TestAFaultOfADiskIsNamedAndLeavesOtherVolumesAlone(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	well := n.newVolume(diskExt4, "64Mi")
	volumes, unused, users := map[string]*volume{}, map[string]*volume{}, map[string]string{}
	for name, f := range diskFaults() {
		volumes[name], unused[name] = n.newVolume(f.class, f.size), n.newVolume(f.class, f.size)
	}
	for name, v := range volumes {
		v.fill()
		users[name] = v.user()
		unused[name].fill()
	}
	well.fill()
	n.writeAllTheTime(well)
	struck := map[string]time.Time{}
	for name, f := range diskFaults() {
		struck[name] = time.Now()
		f.strike(volumes[name])
		f.strike(unused[name])
	}
	for name, f := range diskFaults() {
		n.sub(t, name, func() {
			v := volumes[name]
			message := v.sick(struck[name], f.cause, fmt.Sprintf("process %s (sleep)", users[name]))
			t.Logf("%s: after %.0f s: %s", name, time.Since(struck[name]).Seconds(), message)
			n.sickNode(f.cause)
		})
	}
	for name, v := range unused {
		n.sub(t, name+", and a volume that nothing uses is released", func() {
			begin := time.Now()
			v.release()
			t.Logf("%s: released after %.1f s", name, time.Since(begin).Seconds())
		})
	}
	n.publishOthers("beside failing disks", diskExt4)
	n.ok(n.Kill(n.limited(), "agent"))
	n.startAgent()
	n.publishOthers("beside failing disks, with a new agent", diskExt4)
	for name, f := range diskFaults() {
		volumes[name].sick(struck[name], f.cause, fmt.Sprintf("process %s (sleep)", users[name]))
	}
	for name, f := range diskFaults() {
		n.sub(t, name+", and the volume works again once it is repaired and its user has ended", func() {
			v := volumes[name]
			f.repair(v)
			v.ok(v.Kill(v.limited(), "user-"+v.name))
			begin := time.Now()
			if got := n.must("cat %s/file", v.ready()); got != "kept" {
				n.t.Errorf("the repaired volume has %q, want what was synced before", got)
			}
			t.Logf("%s: Ready %.0f s after the last use", name, time.Since(begin).Seconds())
			v.release()
		})
	}
	n.longestWrite(well)
	well.release()
}

// sub runs a subtest on the node.
func (n *node) sub(t *testing.T, name string, test func()) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		n.t = t
		test()
	})
	n.t = t
}

// sickSince is the end of the cause in a message.
var sickSince = regexp.MustCompile(`, since ([0-9TZ:-]+)`)

// sick waits until the intent's conditions name the cause, since when, and the user, and returns the message. The time
// is not before the fault, as the clock of the machine has it. What kubectl hawser why prints has the cause too.
func (v *volume) sick(struck time.Time, wanted ...string) string {
	v.t.Helper()
	d := detection{t: v.t}
	defer d.end()
	intent := v.await(func(i *volumesv1alpha1.VolumeAttachmentIntent) bool {
		c := meta.FindStatusCondition(i.Status.Conditions, volumesv1alpha1.ConditionPublished)
		for _, text := range wanted {
			if c == nil || c.Reason != volumesv1alpha1.ReasonVolumeSick || !strings.Contains(c.Message, text) {
				return false
			}
		}
		return !system.Ready(i)
	})
	d.found()
	message := meta.FindStatusCondition(intent.Status.Conditions, volumesv1alpha1.ConditionPublished).Message
	found := sickSince.FindStringSubmatch(message)
	if found == nil {
		v.t.Fatalf("message of a sick volume: %q, want since when", message)
	}
	since, err := time.Parse(time.RFC3339, found[1])
	v.ok(err)
	if since.Before(struck.Add(-2*time.Second)) || since.After(time.Now().Add(2*time.Second)) {
		v.t.Errorf("a volume that is sick since %s, want a time between the fault at %s and now", since, struck)
	}
	v.explains("HWS333", wanted[0])
	return message
}

// explains checks that kubectl hawser why prints these texts of the intent, and what to do.
func (v *volume) explains(texts ...string) {
	v.t.Helper()
	printed := v.why()
	for _, text := range append(texts, "way out") {
		if !strings.Contains(printed, text) {
			v.t.Errorf("kubectl hawser why prints of the intent, want %q in it:\n%s", text, printed)
		}
	}
}

// sickNode waits until the node's conditions name the cause.
func (n *node) sickNode(cause string) {
	n.t.Helper()
	_, err := lab.sys.AwaitNode(n.limited(), n.Name, func(s *volumesv1alpha1.NodeVolumeState) bool {
		healthy := meta.FindStatusCondition(s.Status.Conditions, volumesv1alpha1.ConditionVolumesHealthy)
		consistent := meta.FindStatusCondition(s.Status.Conditions, volumesv1alpha1.ConditionMountsConsistent)
		// Of many volumes a message names some.
		return healthy != nil && healthy.Status == "False" && consistent != nil && consistent.Status == "False" &&
			(strings.Contains(consistent.Message, cause) || strings.Contains(consistent.Message, "more"))
	})
	n.ok(err)
}

// writeAllTheTime has a process write to a volume, and note how long each write took, in milliseconds.
func (n *node) writeAllTheTime(v *volume) {
	n.t.Helper()
	n.ok(n.Launch(n.limited(), "writer", fmt.Sprintf(`sh -c 'cd %s && while sleep 0.5; do a=$(date +%%s%%3N)
		echo $a >file.new && sync -f file.new && mv file.new beat || echo failed; echo $(($(date +%%s%%3N) - a)); done'`,
		v.ready())))
}

// longestWrite ends that process, and checks that no write failed.
func (n *node) longestWrite(v *volume) {
	n.t.Helper()
	n.ok(n.Kill(n.limited(), "writer"))
	if got := n.must("grep -c failed /var/log/writer.log; cat %s/file", v.ready()); got != "0\nkept" {
		n.t.Errorf("the volume that has to work: %s writes failed and its file, want none and what it was", got)
	}
	n.t.Logf("writes to the volume that has to work: %s", n.must(`sort -n /var/log/writer.log | awk '{ v[NR] = $1 }
		END { print NR, "writes, half of them within", v[int((NR + 1) / 2)], "ms, the longest", v[NR], "ms" }'`))
}

func TestAFullFilesystemIsShownAndStaysReady(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	for name, script := range map[string]string{
		"no space":  "cd %s; dd if=/dev/zero of=big bs=64K status=none; test -s big",
		"no inodes": `cd %s; mkdir d; i=0; while { : >d/$i; } 2>/dev/null; do i=$((i + 1)); done; test -e d/100`,
	} {
		n.sub(t, name, func() {
			v := n.newVolume(diskExt4, "32Mi")
			v.fill()
			answer, err := n.Try(n.limited(), 2*time.Minute, "("+script+") 2>/dev/null", v.ready())
			n.ok(err)
			if answer.TimedOut {
				n.t.Fatal("the filesystem is not full in time")
			}
			d := detection{t: n.t}
			defer d.end()
			_, err = lab.sys.AwaitNode(n.limited(), n.Name, func(s *volumesv1alpha1.NodeVolumeState) bool {
				for _, l := range s.Status.Volumes {
					if !strings.HasSuffix(l.VolumeName, v.handle) || l.Available == nil || l.Inodes == nil || l.InodesUsed == nil {
						continue
					}
					return name == "no space" && l.Available.Value() < 1<<16 || name == "no inodes" && *l.Inodes == *l.InodesUsed
				}
				return false
			})
			n.ok(err)
			d.found()
			if printed := v.why(); !strings.Contains(printed, "HWS425") {
				n.t.Errorf("kubectl hawser why prints of the full volume, want HWS425 in it:\n%s", printed)
			}
			if got := n.must("cat %s/file", v.ready()); got != "kept" {
				n.t.Errorf("the full volume has %q, want what was written before", got)
			}
			v.release()
		})
	}
}

// TestAnIdleVolumeWhoseDiskIsGivenUpIsNamed needs no write: the kernel has its disk as offline.
func TestAnIdleVolumeWhoseDiskIsGivenUpIsNamed(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	v := n.newVolume(diskExt4, "64Mi")
	v.fill()
	state := "/sys/class/block/" + filepath.Base(device(t, n.Machine, v.handle)) + "/device/state"
	struck := time.Now()
	n.must("echo offline >%s", state)
	v.sick(struck, "its block device does not answer", "offline")
	n.must("echo running >%s", state)
	if got := n.must("cat %s/file", v.ready()); got != "kept" {
		t.Errorf("the volume has %q once its disk runs again, want what was written before", got)
	}
	v.release()
}

// TestAnIdleVolumeWhoseDiskFailsIsNotNoticedBeforeItsNextWrite states a limit: nothing reads the disk of a filesystem
// that nothing uses, and its kernel shows nothing.
func TestAnIdleVolumeWhoseDiskFailsIsNotNoticedBeforeItsNextWrite(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	v := n.newVolume(mappedExt4, "64Mi")
	v.fill()
	path := v.ready()
	v.refuseRequests()
	n.must("stat %s >/dev/null && ls %[1]s >/dev/null && grep -q ' %[1]s ext4 rw' /proc/mounts", path)
	if got := n.must("cat /sys/fs/ext4/dm-*/errors_count"); got != "0" {
		t.Errorf("the kernel has counted %s errors of an idle volume, want none", got)
	}
	struck := time.Now()
	v.tryWrite()
	v.sick(struck, "counted errors")
	answerAgain(v)
	v.release()
}
