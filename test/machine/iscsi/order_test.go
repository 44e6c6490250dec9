/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package iscsi

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/mount-utils"
	utilexec "k8s.io/utils/exec"
)

// table has volume s.v1, the disk sda, staged and published, and volume s.v2, the disk sdb, staged.
const table = `20 1 8:0 / /stage1 rw - ext4 /dev/sda rw
21 1 8:0 / /published rw - ext4 /dev/sda rw
22 1 8:16 / /stage2 rw - ext4 /dev/sdb rw
23 1 0:5 /sdc /device rw - devtmpfs udev rw
`

func newTestServer(t *testing.T) *nodeServer {
	t.Helper()
	file := filepath.Join(t.TempDir(), "mountinfo")
	if err := os.WriteFile(file, []byte(table), 0o600); err != nil {
		t.Fatal(err)
	}
	disks := map[string]string{target("s.v1"): "/dev/sda", target("s.v2"): "/dev/sdb", target("s.v3"): "/dev/sdc"}
	return &nodeServer{mounter: mount.NewSafeFormatAndMount(mount.NewFakeMounter(nil), utilexec.New()), mountInfo: file,
		deviceOf: func(target string) (string, error) { return disks[target], nil }}
}

func request(change func(*csi.NodePublishVolumeRequest)) *csi.NodePublishVolumeRequest {
	r := &csi.NodePublishVolumeRequest{VolumeId: "s.v1", StagingTargetPath: "/stage1", TargetPath: "/nowhere/target",
		PublishContext: map[string]string{portalsKey: "10.0.0.1:3260", targetKey: target("s.v1")},
		VolumeCapability: &csi.VolumeCapability{
			AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER},
			AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{}}}}
	change(r)
	return r
}

func TestThePluginRefusesWhatIsOutOfOrder(t *testing.T) {
	n := newTestServer(t)
	for name, test := range map[string]struct {
		change func(*csi.NodePublishVolumeRequest)
		code   codes.Code
	}{
		"the same again": {func(r *csi.NodePublishVolumeRequest) { r.TargetPath = "/published" }, codes.OK},
		"otherwise": {func(r *csi.NodePublishVolumeRequest) { r.TargetPath, r.Readonly = "/published", true },
			codes.AlreadyExists},
		"over another":     {func(r *csi.NodePublishVolumeRequest) { r.TargetPath = "/stage2" }, codes.FailedPrecondition},
		"a second writer":  {func(*csi.NodePublishVolumeRequest) {}, codes.FailedPrecondition},
		"without a target": {func(r *csi.NodePublishVolumeRequest) { r.PublishContext = nil }, codes.InvalidArgument},
		"of another one":   {func(r *csi.NodePublishVolumeRequest) { r.VolumeId = "s.v2" }, codes.NotFound},
		"from another's stage": {func(r *csi.NodePublishVolumeRequest) {
			r.TargetPath, r.StagingTargetPath = "/published", "/stage2"
		}, codes.FailedPrecondition},
		"without a session": {func(r *csi.NodePublishVolumeRequest) {
			r.VolumeId, r.PublishContext[targetKey] = "s.v4", target("s.v4")
		}, codes.FailedPrecondition},
		"in no directory": {func(r *csi.NodePublishVolumeRequest) {
			r.VolumeCapability.AccessMode.Mode = csi.VolumeCapability_AccessMode_SINGLE_NODE_MULTI_WRITER
		}, codes.FailedPrecondition},
		"for many nodes": {func(r *csi.NodePublishVolumeRequest) {
			r.VolumeCapability.AccessMode.Mode = csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER
		}, codes.InvalidArgument},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := n.NodePublishVolume(t.Context(), request(test.change)); status.Code(err) != test.code {
				t.Errorf("publish: error %v, want %s", err, test.code)
			}
		})
	}
	for volume, path := range map[string]string{"s.v1": "/stage2", "s.v2": "/published"} {
		_, err := n.NodeUnpublishVolume(t.Context(), &csi.NodeUnpublishVolumeRequest{VolumeId: volume, TargetPath: path})
		if status.Code(err) != codes.FailedPrecondition {
			t.Errorf("unpublish of %s at a path that another volume has: error %v, want %s", volume, err,
				codes.FailedPrecondition)
		}
	}
}

func TestAVolumeIsNotUnstagedWhileItIsPublished(t *testing.T) {
	n := newTestServer(t)
	for volume, staging := range map[string]string{"s.v1": "/stage1", "s.v3": "/stage3"} {
		_, err := n.NodeUnstageVolume(t.Context(), &csi.NodeUnstageVolumeRequest{VolumeId: volume,
			StagingTargetPath: staging})
		if status.Code(err) != codes.FailedPrecondition {
			t.Errorf("unstage of published volume %s: error %v, want %s", volume, err, codes.FailedPrecondition)
		}
	}
}

func TestAnAttachedVolumeIsNeitherDeletedNorDetachedUnderASession(t *testing.T) {
	c := &Controller{Dir: t.TempDir()}
	var scripts []string
	c.Use(&Server{Name: "s", Node: "node", Run: func(_ context.Context, script string) (string, error) {
		if strings.Contains(script, "echo none") {
			return "to node, read-only false\n", nil
		}
		scripts = append(scripts, script)
		return "busy\n", nil
	}})
	_, err := c.DeleteVolume(t.Context(), &csi.DeleteVolumeRequest{VolumeId: "s.v"})
	if status.Code(err) != codes.FailedPrecondition || len(scripts) > 0 {
		t.Errorf("deleting an attached volume: error %v, scripts %q, want %s and none", err, scripts,
			codes.FailedPrecondition)
	}
	_, err = c.ControllerUnpublishVolume(t.Context(), &csi.ControllerUnpublishVolumeRequest{VolumeId: "s.v",
		NodeId: "node"})
	if status.Code(err) != codes.FailedPrecondition {
		t.Errorf("detaching a volume under a session: error %v, want %s", err, codes.FailedPrecondition)
	}
	for node, code := range map[string]codes.Code{"other": codes.NotFound, "node": codes.OK} {
		_, err := c.ControllerPublishVolume(t.Context(), &csi.ControllerPublishVolumeRequest{VolumeId: "s.v", NodeId: node,
			VolumeCapability: request(func(*csi.NodePublishVolumeRequest) {}).GetVolumeCapability()})
		if status.Code(err) != code {
			t.Errorf("attaching to node %s: error %v, want %s", node, err, code)
		}
	}
}
