/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package machine_test

import (
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

func TestMultipathVolumesLiveInAMachine(t *testing.T) {
	t.Parallel()
	n, s := newISCSINode(t, 2)
	n.rebooted = func() { n.ok(s.Create(n.limited())) }
	n.live(kind{class: s.Name, size: "64Mi", attaches: true, block: true})
	n.loggedOut()
}

// awaitPaths waits until multipathd finds that many paths of all volumes in that state.
func (n *node) awaitPaths(state string, wanted int) {
	n.t.Helper()
	n.must("until [ $(multipathd show paths raw format %%t | grep -c %s) = %d ]; do sleep 0.1; done", state, wanted)
}

func TestAVolumeThatLosesOneOfTwoPathsIsWell(t *testing.T) {
	t.Parallel()
	n, s := newISCSINode(t, 2)
	v := n.newVolume(s.Name, "64Mi")
	v.fill()
	begin := time.Now()
	n.writeAllTheTime(v)
	for path := range 2 {
		struck := time.Now()
		n.ok(s.Cut(n.limited(), path))
		n.awaitPaths("failed", 1)
		n.must("until [ $(grep -lx transport-offline /sys/block/sd*/device/state | wc -l) = 1 ]; do sleep 0.1; done")
		t.Logf("path %d failed for multipathd after %.0f s:\n%s", path, time.Since(struck).Seconds(),
			n.must("multipath -ll"))
		if path == 0 {
			n.ok(s.Connect(n.limited(), path))
			n.awaitPaths("active", 2)
		}
	}
	n.awaitExamination()
	v.isWell(begin)
	n.longestWrite(v)
	v.release()
	n.loggedOut()
}

// With this, requests to a volume without a path wait until there is one. It is the default of many disk arrays.
func TestAVolumeThatWaitsForAPathIsNamed(t *testing.T) {
	t.Parallel()
	n, s := newISCSINode(t, 2)
	n.must("sed -i 's/no_path_retry fail/no_path_retry queue/' /etc/multipath.conf; multipathd reconfigure")
	v := n.newVolume(s.Name, "64Mi")
	v.fill()
	user := v.user()
	struck := time.Now()
	n.ok(errors.Join(s.Cut(n.limited(), 0), s.Cut(n.limited(), 1)))
	n.awaitPaths("failed", 2)
	n.ok(n.Launch(n.limited(), "write", "sh -c 'cd "+v.ready()+" && echo more >more && sync -f . && echo done'"))
	message := v.sick(struck, "its block device does not answer")
	t.Logf("sick: %s", message)
	n.publishOthers("while a volume waits for a path", diskExt4)
	n.must("! [ -s /var/log/write.log ]")
	n.ok(errors.Join(s.Connect(n.limited(), 0), s.Connect(n.limited(), 1)))
	n.must("while [ -e /proc/$(cat /run/write.pid) ]; do sleep 0.1; done")
	if got := n.must("cat /var/log/write.log; cat %s/file %[1]s/more", v.ready()); got != "done\nkept\nmore" {
		t.Errorf("the write that waited, and the files: %q, want that it was done and nothing is lost", got)
	}
	if got := n.must("ls -d /proc/%s", user); got != "/proc/"+user {
		t.Errorf("the process that used the volume all the time: %q, want that it goes on", got)
	}
	n.ok(n.Kill(n.limited(), "user-"+v.name))
	v.release()
	n.loggedOut()
}

func TestAVolumeThatLosesAllPathsIsNamed(t *testing.T) {
	t.Parallel()
	n, s := newISCSINode(t, 2)
	well, lost := n.newVolume(diskExt4, "64Mi"), n.newVolume(s.Name, "64Mi")
	well.fill()
	lost.fill()
	raw := n.newClaim(s.Name, "64Mi", func(c *corev1.PersistentVolumeClaim) {
		c.Spec.VolumeMode = ptr.To(corev1.PersistentVolumeBlock)
	})
	raw.want()
	raw.ready()
	n.writeAllTheTime(well)
	lost.lose(func() error { return errors.Join(s.Cut(n.limited(), 0), s.Cut(n.limited(), 1)) })
	raw.sick(time.Time{}, "its block device does not answer")
	n.ok(n.Kill(n.limited(), "agent"))
	n.startAgent()
	n.publishOthers("while all paths are lost, with a new agent", diskExt4)
	lost.sick(time.Time{}, "its block device does not answer")
	n.ok(errors.Join(s.Connect(n.limited(), 0), s.Connect(n.limited(), 1)))
	n.awaitPaths("active", 4)
	lost.regain()
	raw.ready()
	raw.release()
	n.longestWrite(well)
	well.release()
	n.loggedOut()
}
