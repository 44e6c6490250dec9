/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package nfs

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/mount-utils"

	"github.com/hawser-io/hawser/test/csiloop/ledger"
	"github.com/hawser-io/hawser/test/machine/plugin"
)

func request(change func(*csi.NodePublishVolumeRequest)) *csi.NodePublishVolumeRequest {
	r := &csi.NodePublishVolumeRequest{VolumeId: "s#v1", TargetPath: "/nowhere/target",
		VolumeContext: map[string]string{addressKey: "10.0.0.1", directoryKey: "/srv/v1"},
		VolumeCapability: &csi.VolumeCapability{
			AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER},
			AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{}}}}
	change(r)
	return r
}

// forced never unmounts: the calls of the tests are refused before that.
type forced struct{ *mount.FakeMounter }

func (forced) UnmountWithForce(string, time.Duration) error { return nil }

func TestThePluginRefusesWhatIsOutOfOrder(t *testing.T) {
	const elsewhere = "/elsewhere"
	mounter := mount.NewFakeMounter([]mount.MountPoint{{Device: "10.0.0.1:/srv/v2", Path: "/other"},
		{Device: "10.0.0.1:/srv/v1", Path: elsewhere, Opts: []string{"rw"}}})
	n := &nodeServer{mounter: forced{mounter}}
	for name, test := range map[string]struct {
		change func(*csi.NodePublishVolumeRequest)
		code   codes.Code
	}{
		"the same again": {func(r *csi.NodePublishVolumeRequest) { r.TargetPath = elsewhere }, codes.OK},
		"otherwise": {func(r *csi.NodePublishVolumeRequest) { r.TargetPath, r.Readonly = elsewhere, true },
			codes.AlreadyExists},
		"over another": {func(r *csi.NodePublishVolumeRequest) { r.TargetPath = "/other" },
			codes.FailedPrecondition},
		"a second writer":   {func(*csi.NodePublishVolumeRequest) {}, codes.FailedPrecondition},
		"without directory": {func(r *csi.NodePublishVolumeRequest) { r.VolumeContext = nil }, codes.InvalidArgument},
		"of another volume": {func(r *csi.NodePublishVolumeRequest) { r.VolumeId = "s#v2" }, codes.InvalidArgument},
		"with a stage": {func(r *csi.NodePublishVolumeRequest) { r.StagingTargetPath = "/stage" },
			codes.InvalidArgument},
		"attached": {func(r *csi.NodePublishVolumeRequest) { r.PublishContext = map[string]string{"a": "b"} },
			codes.InvalidArgument},
		"as a device": {func(r *csi.NodePublishVolumeRequest) {
			r.VolumeCapability.AccessType = &csi.VolumeCapability_Block{}
		}, codes.InvalidArgument},
		"in no directory": {func(r *csi.NodePublishVolumeRequest) {
			r.VolumeCapability.AccessMode.Mode = csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER
		}, codes.FailedPrecondition},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := n.NodePublishVolume(t.Context(), request(test.change)); status.Code(err) != test.code {
				t.Errorf("publish: error %v, want %s", err, test.code)
			}
		})
	}
	_, err := n.NodeUnpublishVolume(t.Context(), &csi.NodeUnpublishVolumeRequest{VolumeId: "s#v1", TargetPath: "/other"})
	if status.Code(err) != codes.FailedPrecondition {
		t.Errorf("unpublish of a target that another volume has: error %v, want %s", err, codes.FailedPrecondition)
	}
	if log := mounter.GetLog(); len(log) > 0 {
		t.Errorf("refused calls did %v, want nothing", log)
	}
}

func TestAPublishedVolumeIsNotDeleted(t *testing.T) {
	c := &Controller{Dir: t.TempDir()}
	var scripts []string
	c.Use(&Server{Name: "s", Run: func(_ context.Context, script string) (string, error) {
		scripts = append(scripts, script)
		return "", nil
	}})
	if err := os.MkdirAll(plugin.NodeDir(c.Dir, "node"), 0o755); err != nil {
		t.Fatal(err)
	}
	_, err := ledger.Append(plugin.NodeDir(c.Dir, "node"), ledger.Entry{Phase: ledger.Start, Method: "NodePublishVolume",
		Volume: "s#v", TargetPath: "/a"})
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.DeleteVolume(t.Context(), &csi.DeleteVolumeRequest{VolumeId: "s#v"})
	if status.Code(err) != codes.FailedPrecondition || len(scripts) > 0 {
		t.Errorf("deleting a volume that is published: error %v, scripts %q, want %s and none", err, scripts,
			codes.FailedPrecondition)
	}
	if _, err := c.DeleteVolume(t.Context(), &csi.DeleteVolumeRequest{VolumeId: "s#w"}); err != nil || len(scripts) != 1 {
		t.Errorf("deleting another volume: error %v, scripts %q, want one", err, scripts)
	}
}
