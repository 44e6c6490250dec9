/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package machine_test

import (
	"fmt"
	"io"
	"net"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/test/machine/disk"
)

// kind is a driver by one of its storage classes, and what it can.
type kind struct {
	class, size, larger   string
	attaches, block, grow bool
}

// The tests of this file are the rows of a table in docs/internals/machines.md. Its columns are their subtests.
// The files of loop volumes are on the share, where a file that is open keeps its size.
func TestLoopVolumesLiveInAMachine(t *testing.T) {
	t.Parallel()
	newNode(t).live(kind{class: loopExt4, size: "64Mi", attaches: true, block: true})
}

func TestDiskVolumesLiveInAMachine(t *testing.T) {
	t.Parallel()
	newNode(t).live(kind{class: diskExt4, size: "64Mi", larger: "192Mi", attaches: true, block: true, grow: true})
}

func TestNFSVolumesLiveInAMachine(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	server := n.newServer("a", 1)
	n.rebooted = func() { n.ok(server.Create(n.limited())) }
	n.live(kind{class: server.Name, size: "1Gi"})
	n.inOrder()
}

func TestAzureVolumesLiveInAMachine(t *testing.T) {
	t.Parallel()
	newAzureNode(t).live(kind{class: azureExt4, size: "1Gi", larger: "2Gi", attaches: true, block: true, grow: true})
}

// TestTheDiskDriverConforms runs the suites in the machine of the node plugin. The controller is outside.
func TestTheDiskDriverConforms(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	runInside(t, n.Machine, "./test/machine/disk", ".", fmt.Sprintf("export %s='%s 10.0.2.2:%d'", disk.InsideVariable,
		n.Name, forward(t, filepath.Join(lab.dir, "disk.sock"))))
}

// forward serves a socket at a port of the loopback interface, which machines have as 10.0.2.2.
func forward(t *testing.T, socket string) (port int) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() }) // ends the loop
	go func() {
		for {
			from, err := listener.Accept()
			if err != nil {
				return
			}
			go join(from, socket)
		}
	}()
	return listener.Addr().(*net.TCPAddr).Port
}

// join copies both ways until one side ends.
func join(from net.Conn, socket string) {
	defer func() { _ = from.Close() }()
	to, err := net.Dial("unix", socket)
	if err != nil {
		return
	}
	defer func() { _ = to.Close() }()
	ended := make(chan struct{}, 2)
	for _, way := range [][2]net.Conn{{from, to}, {to, from}} {
		go func() {
			_, _ = io.Copy(way[0], way[1])
			ended <- struct{}{}
		}()
	}
	<-ended
}

// live leads volumes of a driver through what all drivers have in common.
func (n *node) live(k kind) {
	n.t.Helper()
	t := n.t
	v := n.newClaim(k.class, k.size)
	n.sub(t, "attach", func() { v.becomesReady(k) })
	n.sub(t, "fsGroup", v.belongsToAGroup)
	n.sub(t, "read-only", v.isReadOnly)
	if k.grow {
		n.sub(t, "expand", func() { v.expands(k.larger, "size of the filesystem", "df --output=size -B1 %s | tail -n 1") })
	}
	var device *volume
	if k.block {
		device = n.newClaim(k.class, k.size, func(c *corev1.PersistentVolumeClaim) {
			c.Spec.VolumeMode = ptr.To(corev1.PersistentVolumeBlock)
		})
		n.sub(t, "block", func() { device.isADevice(k) })
	}
	n.sub(t, "reboot", func() {
		n.ok(n.Reset(n.t.Context()))
		if n.rebooted != nil {
			n.rebooted()
		}
		begin := time.Now()
		n.startPrograms()
		if got := n.must("cat %s/file", v.mounted()); got != "kept" {
			n.t.Errorf("the volume has %q after the reset, want what was written before", got)
		}
		n.t.Logf("mounted again %.1f s after the programs began", time.Since(begin).Seconds())
	})
	v.release()
	if device != nil {
		device.hasContent()
		device.release()
	}
}

// becomesReady publishes the volume, writes to it, releases it and publishes it again.
func (v *volume) becomesReady(k kind) {
	v.t.Helper()
	begin := time.Now()
	v.want()
	v.fill()
	v.t.Logf("Ready and written after %.1f s", time.Since(begin).Seconds())
	attachments := &storagev1.VolumeAttachmentList{}
	v.ok(lab.sys.Client.List(v.limited(), attachments))
	attached := 0
	for _, a := range attachments.Items {
		if a.Spec.NodeName == v.Name && a.Status.Attached {
			attached++
		}
	}
	if attached == 1 != k.attaches {
		v.t.Errorf("%d volumes are attached to the node, want an attachment: %t", attached, k.attaches)
	}
	begin = time.Now()
	v.release()
	v.t.Logf("released after %.1f s", time.Since(begin).Seconds())
	v.want()
	if got := v.must("cat %s/file", v.ready()); got != "kept" {
		v.t.Errorf("the volume has %q, want what was written before", got)
	}
}

// belongsToAGroup publishes the volume again for a group.
func (v *volume) belongsToAGroup() {
	v.t.Helper()
	v.release()
	v.want(func(i *volumesv1alpha1.VolumeAttachmentIntent) {
		i.Spec.Mount = &volumesv1alpha1.MountSpec{FSGroup: ptr.To(int64(4242))}
	})
	path := v.ready()
	if got := v.must("stat -c '%%g %%A' %s %[1]s/file", path); got != "4242 drwxrwsr-x\n4242 -rw-rw-r--" {
		v.t.Errorf("groups and permissions of the volume's root and of a file in it: %s, want group 4242", got)
	}
}

// isReadOnly publishes the volume again, read-only.
func (v *volume) isReadOnly() {
	v.t.Helper()
	v.release()
	v.want(func(i *volumesv1alpha1.VolumeAttachmentIntent) { i.Spec.ReadOnly = true })
	got := v.must("cat %s/file; touch %[1]s/new 2>&1 || true", v.ready())
	if want := fmt.Sprintf("kept\ntouch: cannot touch '%s/new': Read-only file system", v.ready()); got != want {
		v.t.Errorf("a read and a write of a read-only volume: %q, want %q", got, want)
	}
	v.release()
	v.want()
	v.ready()
}

// expands grows the volume to a size that the script measures at the path.
func (v *volume) expands(size, what, script string) {
	v.t.Helper()
	begin := time.Now()
	v.grow(size)
	bytes := resource.MustParse(size)
	v.await(hasBytes(bytes.Value()))
	v.t.Logf("grown to %s after %.1f s", size, time.Since(begin).Seconds())
	if got := v.must("test $("+script+") -ge %d && echo enough || "+script, v.ready(), bytes.Value()*8/10,
		v.ready()); got != "enough" {
		v.t.Errorf("%s: %s, want that of %s", what, got, size)
	}
}

// isADevice publishes a volume of mode Block.
func (v *volume) isADevice(k kind) {
	v.t.Helper()
	begin := time.Now()
	v.want()
	v.must("test -b %s && echo kept | dd of=%[1]s conv=fsync,notrunc status=none", v.ready())
	v.t.Logf("a device is Ready and written after %.1f s", time.Since(begin).Seconds())
	v.hasContent()
	if k.grow {
		v.expands(k.larger, "size of the device", "blockdev --getsize64 %s")
	}
}

// hasContent checks what isADevice has written.
func (v *volume) hasContent() {
	v.t.Helper()
	if got := v.must("until [ -b %s ]; do sleep 0.1; done; head -c 4 %[1]s", v.ready()); got != "kept" {
		v.t.Errorf("the device has %q, want what was written before", got)
	}
}
