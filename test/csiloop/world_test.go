/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package csiloop_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/hawser-io/hawser/test/csiloop/driver"
	"github.com/hawser-io/hawser/test/csiloop/harness"
	"github.com/hawser-io/hawser/test/csiloop/harness/harnesstest"
)

// mib is enough for the filesystems: btrfs needs 109 MiB, xfs 300.
const mib = int64(1) << 20

// world is a controller and nodes with one backing store.
type world struct {
	t          *testing.T
	ctx        context.Context
	dir        string
	backing    string
	controller csi.ControllerClient
	process    *harness.Process
	nodes      []*pseudoNode
}

// pseudoNode is one node plugin and the paths of its kubelet.
type pseudoNode struct {
	csi.NodeClient
	w       *world
	id      string
	options harness.Options
	process *harness.Process
}

func newWorld(t *testing.T, options harness.Options, nodes ...string) *world {
	t.Helper()
	harnesstest.NeedRoot(t)
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	t.Cleanup(cancel)
	dir := harnesstest.Dir(t)
	w := &world{t: t, ctx: ctx, dir: dir, backing: filepath.Join(dir, "backing")}
	w.process = harnesstest.Start(t, dir, harness.Options{Mode: driver.ModeController, Capacity: options.Capacity})
	w.controller = csi.NewControllerClient(w.dial(w.process))
	for _, id := range nodes {
		node := &pseudoNode{w: w, id: id, options: options}
		node.options.Mode, node.options.NodeID = driver.ModeNode, id
		node.start()
		w.nodes = append(w.nodes, node)
	}
	return w
}

func (w *world) dial(process *harness.Process) *grpc.ClientConn {
	w.t.Helper()
	conn, err := process.Dial()
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// start runs the node's plugin, also again after a kill.
func (n *pseudoNode) start() {
	n.w.t.Helper()
	n.process = harnesstest.Start(n.w.t, n.w.dir, n.options)
	n.NodeClient = csi.NewNodeClient(n.w.dial(n.process))
}

func (n *pseudoNode) kill() {
	n.w.t.Helper()
	n.w.must(n.process.Kill())
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// want fails the test unless the call ended with the code. It returns the message.
func (w *world) want(code codes.Code, err error) string {
	w.t.Helper()
	if status.Code(err) != code {
		w.t.Fatalf("call of the driver: error %v, want code %s", err, code)
	}
	return status.Convert(err).Message()
}

// volume is a volume with helpers for tests.
type volume struct {
	w          *world
	id         string
	capability *csi.VolumeCapability
	readOnly   bool
}

func filesystem(fsType string, options ...string) *csi.VolumeCapability {
	return &csi.VolumeCapability{
		AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER},
		AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{FsType: fsType,
			MountFlags: options}},
	}
}

func block(mode csi.VolumeCapability_AccessMode_Mode) *csi.VolumeCapability {
	return &csi.VolumeCapability{
		AccessMode: &csi.VolumeCapability_AccessMode{Mode: mode},
		AccessType: &csi.VolumeCapability_Block{Block: &csi.VolumeCapability_BlockVolume{}},
	}
}

const writer = csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER

func (w *world) create(name string, size int64, capability *csi.VolumeCapability) *volume {
	w.t.Helper()
	answer, err := w.controller.CreateVolume(w.ctx, &csi.CreateVolumeRequest{
		Name: name, CapacityRange: &csi.CapacityRange{RequiredBytes: size},
		VolumeCapabilities: []*csi.VolumeCapability{capability},
	})
	w.must(err)
	return &volume{w: w, id: answer.GetVolume().GetVolumeId(), capability: capability}
}

func (v *volume) delete() {
	v.w.t.Helper()
	_, err := v.w.controller.DeleteVolume(v.w.ctx, &csi.DeleteVolumeRequest{VolumeId: v.id})
	v.w.must(err)
}

func (v *volume) attach(n *pseudoNode) error {
	_, err := v.w.controller.ControllerPublishVolume(v.w.ctx, &csi.ControllerPublishVolumeRequest{
		VolumeId: v.id, NodeId: n.id, VolumeCapability: v.capability, Readonly: v.readOnly,
	})
	return err
}

func (v *volume) detach(n *pseudoNode) error {
	_, err := v.w.controller.ControllerUnpublishVolume(v.w.ctx,
		&csi.ControllerUnpublishVolumeRequest{VolumeId: v.id, NodeId: n.id})
	return err
}

func (v *volume) link(n *pseudoNode) string {
	return filepath.Join(v.w.backing, "nodes", n.id, "attached", v.id+".img")
}

func (v *volume) data() string { return filepath.Join(v.w.backing, "volumes", v.id+".img") }

func (v *volume) staging(n *pseudoNode) string {
	dir := filepath.Join(v.w.dir, n.id, "staging", v.id)
	if _, err := os.Lstat(dir); os.IsNotExist(err) { // a filesystem that was cut off returns another error
		v.w.must(os.MkdirAll(dir, 0o750))
	}
	return dir
}

func (v *volume) target(n *pseudoNode, name string) string {
	dir := filepath.Join(v.w.dir, n.id, "published", v.id)
	v.w.must(os.MkdirAll(dir, 0o750))
	return filepath.Join(dir, name)
}

func (v *volume) stage(n *pseudoNode) error { return v.stageContext(v.w.ctx, n) }

func (v *volume) stageContext(ctx context.Context, n *pseudoNode) error {
	_, err := n.NodeStageVolume(ctx, &csi.NodeStageVolumeRequest{
		VolumeId: v.id, StagingTargetPath: v.staging(n), VolumeCapability: v.capability,
		PublishContext: map[string]string{"link": v.link(n)},
	})
	return err
}

func (v *volume) unstage(n *pseudoNode) error {
	_, err := n.NodeUnstageVolume(v.w.ctx, &csi.NodeUnstageVolumeRequest{VolumeId: v.id, StagingTargetPath: v.staging(n)})
	return err
}

func (v *volume) publish(n *pseudoNode, name string, readOnly bool) error {
	_, err := n.NodePublishVolume(v.w.ctx, &csi.NodePublishVolumeRequest{
		VolumeId: v.id, StagingTargetPath: v.staging(n), TargetPath: v.target(n, name),
		VolumeCapability: v.capability, Readonly: readOnly,
	})
	return err
}

func (v *volume) unpublish(n *pseudoNode, name string) error {
	_,
		err := n.NodeUnpublishVolume(v.w.ctx, &csi.NodeUnpublishVolumeRequest{VolumeId: v.id, TargetPath: v.target(n, name)})
	return err
}

// up brings the volume from created to published at target "a".
func (v *volume) up(n *pseudoNode) {
	v.w.t.Helper()
	v.w.must(v.attach(n))
	v.w.must(v.stage(n))
	v.w.must(v.publish(n, "a", false))
}

// down undoes up.
func (v *volume) down(n *pseudoNode) {
	v.w.t.Helper()
	v.w.must(v.unpublish(n, "a"))
	v.w.must(v.unstage(n))
	v.w.must(v.detach(n))
}

func (w *world) write(path, text string) {
	w.t.Helper()
	file, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o644)
	w.must(err)
	_, err = file.WriteString(text)
	w.must(err)
	w.must(file.Sync())
	w.must(file.Close())
}

// read returns the first bytes of a file or device.
func (w *world) read(path string, length int) string {
	w.t.Helper()
	file, err := os.Open(path)
	w.must(err)
	defer func() { _ = file.Close() }()
	data := make([]byte, length)
	_, err = file.Read(data)
	w.must(err)
	return string(data)
}
