/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package machine_test

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hawser-io/hawser/test/csiloop/ledger"
	"github.com/hawser-io/hawser/test/machine"
	"github.com/hawser-io/hawser/test/machine/iscsi"
	"github.com/hawser-io/hawser/test/machine/plugin"
)

// targetIn starts an iSCSI target in the machine, to which that many networks lead.
func targetIn(t *testing.T, m *machine.Machine, paths int) *iscsi.Server {
	t.Helper()
	s := &iscsi.Server{Name: m.Name + "-t1", Number: 1, Paths: paths, Node: m.Name,
		Run: func(ctx context.Context, script string) (string, error) { return m.Run(ctx, "%s", script) }}
	if err := s.Create(t.Context()); err != nil {
		t.Fatal(err)
	}
	return s
}

// newISCSINode is a node with an iSCSI target, and the driver of its volumes. Their storage class has the name of the
// server.
func newISCSINode(t *testing.T, paths int) (*node, *iscsi.Server) {
	t.Helper()
	n := &node{t: t, Machine: restored(t), agent: "agent"}
	s := targetIn(t, n.Machine, paths)
	lab.iscsi.Use(s)
	dir := plugin.NodeDir(lab.iscsi.Dir, n.Name)
	n.ok(os.MkdirAll(dir, 0o755))
	n.others = append(n.others, func() {
		n.ok(n.Launch(n.limited(), "csi-iscsi", fmt.Sprintf("/run/bin/csi-iscsi --node-id=%s --dir=%s", n.Name, dir)))
	})
	n.begin()
	n.list(storagev1.CSINodeDriver{Name: iscsi.DriverName, NodeID: n.Name})
	n.ok(lab.sys.Client.Create(n.limited(), &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: s.Name},
		Provisioner: iscsi.DriverName, Parameters: map[string]string{iscsi.ParameterServer: s.Name,
			"csi.storage.k8s.io/fstype": "ext4"}}))
	return n, s
}

// loggedOut checks in the ledger that no call of iSCSI was out of order, and that nothing is logged in any more.
func (n *node) loggedOut() {
	n.t.Helper()
	entries, err := ledger.Read(plugin.NodeDir(lab.iscsi.Dir, n.Name))
	n.ok(err)
	for _, call := range plugin.OutOfOrder(entries) {
		n.t.Errorf("call out of order, want none: %+v", call)
	}
	if left := n.must("ls /sys/class/iscsi_session"); left != "" {
		n.t.Errorf("sessions of iSCSI are left, want none: %s", left)
	}
}

func TestTheISCSIDriverConforms(t *testing.T) {
	t.Parallel()
	m := restored(t)
	runInside(t, m, "./test/machine/iscsi", ".", "export "+iscsi.InsideVariable+"="+targetIn(t, m, 1).Name)
}

func TestISCSIVolumesLiveInAMachine(t *testing.T) {
	t.Parallel()
	n, s := newISCSINode(t, 1)
	n.rebooted = func() { n.ok(s.Create(n.limited())) }
	n.live(kind{class: s.Name, size: "64Mi", attaches: true, block: true})
	n.loggedOut()
}

// lose writes to a volume until its target is lost, and waits until that is named.
func (v *volume) lose(strike func() error) {
	v.t.Helper()
	v.user()
	struck := time.Now()
	v.ok(strike())
	v.tryWrite()
	v.t.Logf("a write failed after %.0f s", time.Since(struck).Seconds())
	message := v.sick(struck, "its block device does not answer")
	v.t.Logf("sick after %.0f s: %s", time.Since(struck).Seconds(), message)
}

// regain checks that the volume, whose target is back, is sick until its user has ended, because of the failed write.
func (v *volume) regain() {
	v.t.Helper()
	begin := time.Now()
	user := fmt.Sprintf("process %s (sleep)", v.must("cat /run/user-%s.pid", v.name))
	message := v.sick(time.Time{}, "counted errors", user)
	v.t.Logf("%.0f s after its target is back: %s", time.Since(begin).Seconds(), message)
	begin = time.Now()
	v.ok(v.Kill(v.limited(), "user-"+v.name))
	if got := v.must("cat %s/file", v.ready()); got != "kept" {
		v.t.Errorf("the volume has %q, want what was synced before", got)
	}
	v.t.Logf("Ready %.0f s after its user has ended", time.Since(begin).Seconds())
	v.release()
}

func TestAnISCSITargetThatIsLostIsNamed(t *testing.T) {
	t.Parallel()
	n, s := newISCSINode(t, 1)
	well, lost, leaving := n.newVolume(diskExt4, "64Mi"), n.newVolume(s.Name, "64Mi"), n.newVolume(s.Name, "64Mi")
	well.fill()
	lost.fill()
	leaving.fill()
	n.writeAllTheTime(well)
	lost.lose(func() error { return s.Stop(n.limited()) })
	leaving.unwant()
	n.publishOthers("while the target is lost", diskExt4)
	n.ok(s.Continue(n.limited()))
	begin := time.Now()
	leaving.released()
	t.Logf("a volume that was released meanwhile is gone %.0f s after the target is back", time.Since(begin).Seconds())
	lost.regain()
	n.longestWrite(well)
	well.release()
}

func TestAnISCSIExportThatIsGoneIsNamed(t *testing.T) {
	t.Parallel()
	n, s := newISCSINode(t, 1)
	kept, gone := n.newVolume(s.Name, "64Mi"), n.newVolume(s.Name, "64Mi")
	kept.fill()
	gone.fill()
	gone.lose(func() error { return s.Withdraw(n.limited(), gone.handle) })
	if got := n.must("cat %s/file; touch %[1]s/new && sync -f %[1]s/new && echo written", kept.ready()); got !=
		"kept\nwritten" {
		t.Errorf("the other volume of the server: %q, want that it can be read and written", got)
	}
	n.ok(s.Restore(n.limited(), gone.handle))
	gone.regain()
	kept.release()
	n.loggedOut()
}
