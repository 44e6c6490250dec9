/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package machine_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/handshake"
)

// TestNothingOfAMachineThatWasTakenForDeadReachesItsVolume pauses a machine in the middle of its writes, moves the
// volume by force, and lets the machine go on. Both drivers pull the disk out. Of one of them this is not declared.
func TestNothingOfAMachineThatWasTakenForDeadReachesItsVolume(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		newNode     func(*testing.T) *node
		class, size string
		unprotected bool
	}{
		"a driver that promises to cut the access": {newNode, diskExt4, "64Mi", false},
		"a driver that promises nothing":           {newAzureNode, azureExt4, "1Gi", true},
	} {
		t.Run(name, func(t *testing.T) {
			lost, heir := c.newNode(t), c.newNode(t)
			v := lost.newVolume(c.class, c.size)
			v.fill()
			v.writeOn()
			lost.fallSilent()
			later := &volume{node: heir, name: v.name + "-later", claim: v.name, handle: v.handle}
			later.want()
			v.unwant()
			lost.ok(lab.sys.SetOutOfService(lost.limited(), lost.Name, true))
			forced := time.Now()
			later.changes()
			t.Logf("the other machine has the volume %.1f s after the taint", time.Since(forced).Seconds())
			if e := lost.evidenceOf(v); e == nil || e.Type != volumesv1alpha1.EvidenceOutOfServiceTaint ||
				e.Unprotected != c.unprotected {
				t.Errorf("evidence of the detach: %+v, want the taint, unprotected: %t", e, c.unprotected)
			}
			before := later.content()
			v.comesBack()
			if after := later.content(); after != before {
				t.Errorf("content of the disk after the first machine went on: %s, want %s", after, before)
			}
			later.must("fsfreeze -u %s", later.ready())
			if got := later.must("cat %s/file %[1]s/later", later.ready()); got != "kept\nlater" {
				t.Errorf("the volume has %q, want what both machines wrote in their time", got)
			}
			v.await(isGone)
			later.release()
		})
	}
}

// writeOn has a process write to the volume without end, part of which stays in memory.
func (v *volume) writeOn() {
	v.t.Helper()
	v.ok(v.Launch(v.limited(), "writer", "sh -c 'cd "+v.ready()+` && i=0 && while i=$((i + 1)); do
		echo $i >>unsynced; echo $i >synced && sync synced || { echo failed; exec sleep 10000; }; done'`))
	v.must("until [ -s %s/synced ]; do sleep 0.1; done", v.ready())
}

// fallSilent pauses the machine, and waits until the manager has noticed.
func (n *node) fallSilent() {
	n.t.Helper()
	n.ok(n.Pause(n.limited()))
	n.ok(lab.sys.SetSilent(n.Name, true))
	_, err := lab.sys.AwaitNode(n.limited(), n.Name, handshake.Silent)
	n.ok(err)
}

// changes writes on the machine that has the volume now, and freezes the filesystem, so that nothing of this machine
// changes the disk.
func (v *volume) changes() {
	v.t.Helper()
	v.must("while pgrep -x ext4lazyinit; do sleep 0.1; done; echo later >%s/later && sync -f %[1]s && fsfreeze -f %[1]s",
		v.ready())
}

// content is a checksum of the disk, read around the caches.
func (v *volume) content() string {
	v.t.Helper()
	return v.must("d=$(findmnt --noheadings --output SOURCE --mountpoint %s); dd if=$d iflag=direct bs=1M status=none | "+
		"sha256sum", v.ready())
}

// evidenceOf is what the volume was taken away from the node for.
func (n *node) evidenceOf(v *volume) *volumesv1alpha1.DetachEvidence {
	n.t.Helper()
	state, err := lab.sys.AwaitNode(n.limited(), n.Name, func(*volumesv1alpha1.NodeVolumeState) bool { return true })
	n.ok(err)
	for _, a := range state.Spec.Attachments {
		if a.VolumeHandle == v.handle {
			return a.Evidence
		}
	}
	return nil
}

// comesBack lets the machine go on. Its writes fail, and its agent, which finds a mount of an attachment that was taken
// away, shuts the filesystem down. Once the process that wrote has ended, nothing of the attachment is left there.
func (v *volume) comesBack() {
	v.t.Helper()
	v.ok(v.Resume(v.limited()))
	begin := time.Now()
	v.ok(lab.sys.SetSilent(v.Name, false))
	v.must("until grep -q failed /var/log/writer.log; do sleep 0.1; done")
	v.t.Logf("the first write failed %.1f s after the machine went on", time.Since(begin).Seconds())
	d := detection{t: v.t}
	defer d.end()
	v.must("until grep -q shutDown /var/lib/hawser/volumes/*.json; do sleep 0.1; done")
	d.found()
	v.t.Logf("its filesystem is shut down %.1f s after the machine went on", time.Since(begin).Seconds())
	v.ok(v.Kill(v.limited(), "writer"))
	_, err := lab.sys.AwaitNode(v.limited(), v.Name, func(s *volumesv1alpha1.NodeVolumeState) bool {
		held := slices.ContainsFunc(s.Spec.Attachments,
			func(a volumesv1alpha1.NodeAttachment) bool { return a.VolumeHandle == v.handle })
		used := slices.ContainsFunc(s.Status.Volumes,
			func(l volumesv1alpha1.NodeVolume) bool { return strings.HasSuffix(l.VolumeName, v.handle) && l.InUse })
		return !handshake.Silent(s) && !held && !used
	})
	v.ok(err)
	v.t.Logf("nothing of it is left %.1f s after the machine went on", time.Since(begin).Seconds())
	v.ok(lab.sys.SetOutOfService(v.limited(), v.Name, false))
}
