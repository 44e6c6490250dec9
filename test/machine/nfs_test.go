/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package machine_test

import (
	"context"
	"strings"
	"testing"
	"time"

	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hawser-io/hawser/test/csiloop/ledger"
	"github.com/hawser-io/hawser/test/machine"
	"github.com/hawser-io/hawser/test/machine/nfs"
	"github.com/hawser-io/hawser/test/machine/plugin"
)

// serverIn starts an NFS server in the machine.
func serverIn(t *testing.T, m *machine.Machine, letter string, number int) *nfs.Server {
	t.Helper()
	s := &nfs.Server{Name: m.Name + "-" + letter, Number: number,
		Run: func(ctx context.Context, script string) (string, error) { return m.Run(ctx, "%s", script) }}
	if err := s.Create(t.Context()); err != nil {
		t.Fatal(err)
	}
	return s
}

// newServer starts an NFS server in the node's machine, and creates a storage class of its name.
func (n *node) newServer(letter string, number int) *nfs.Server {
	n.t.Helper()
	s := serverIn(n.t, n.Machine, letter, number)
	lab.nfs.Use(s)
	n.ok(lab.sys.Client.Create(n.limited(), &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: s.Name},
		Provisioner: nfs.DriverName, Parameters: map[string]string{nfs.ParameterServer: s.Name},
		MountOptions: []string{"nfsvers=4.2", "hard"}}))
	return s
}

// inOrder checks in the ledger that nothing of NFS is published on the node any more, and that no call was refused
// because it was out of order.
func (n *node) inOrder() {
	n.t.Helper()
	published, err := plugin.Published(lab.nfs.Dir)
	n.ok(err)
	for volume, targets := range published {
		if strings.HasPrefix(volume, n.Name+"-") {
			n.t.Errorf("volume %s is published at %v in the end, want nowhere", volume, targets)
		}
	}
	entries, err := ledger.Read(plugin.NodeDir(lab.nfs.Dir, n.Name))
	n.ok(err)
	for _, call := range plugin.OutOfOrder(entries) {
		n.t.Errorf("call out of order, want none: %+v", call)
	}
	if left := n.must("grep -e ' nfs' /proc/mounts | grep -v ' /proc/fs/nfsd ' || true"); left != "" {
		n.t.Errorf("mounts of NFS are left, want none: %s", left)
	}
}

func TestAnIntentForNFSBecomesReadyAndIsReleased(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.newServer("a", 1)
	begin := time.Now()
	v := n.newVolume(n.Name+"-a", "1Gi")
	path := v.ready()
	t.Logf("Ready after %.1f s: %s", time.Since(begin).Seconds(), n.must("grep ' %s ' /proc/mounts", path))
	v.fill()
	// By this the agent distinguishes parts of a volume from other volumes (internal/mount).
	bound := n.must(`mkdir -p %[1]s/sub /mnt/sub && mount --bind %[1]s/sub /mnt/sub
		findmnt --noheadings --output FSROOT,SOURCE /mnt/sub; umount /mnt/sub; rmdir %[1]s/sub`, path)
	if fields := strings.Fields(bound); len(fields) != 2 || fields[0] != "/" || !strings.HasSuffix(fields[1], "/sub") {
		t.Errorf("a bind mount of a part of an NFS volume: %s, want the part in its name and none in its root", bound)
	}
	begin = time.Now()
	v.release()
	t.Logf("released after %.1f s", time.Since(begin).Seconds())
	v.want()
	if got := n.must("cat %s/file", v.ready()); got != "kept" {
		t.Errorf("volume of NFS has %q, want what was written before", got)
	}
	v.release()
	n.inOrder()
}

func TestTheNFSDriverConforms(t *testing.T) {
	t.Parallel()
	m := restored(t)
	runInside(t, m, "./test/machine/nfs", ".", "export "+nfs.InsideVariable+"="+serverIn(t, m, "a", 1).Name)
}
