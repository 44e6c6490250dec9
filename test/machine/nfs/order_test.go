/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package nfs

import (
	"context"
	"os"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/mount-utils"

	"github.com/hawser-io/hawser/test/csiloop/ledger"
)

func call(number int64, method, target, code string) []ledger.Entry {
	entries := []ledger.Entry{{Seq: number, Call: number, Phase: ledger.Start, Method: method, Volume: "s#v",
		TargetPath: target}}
	if code != "" {
		entries = append(entries, ledger.Entry{Seq: number + 1, Call: number, Phase: ledger.Effect, Method: method,
			Volume: "s#v", TargetPath: target, Code: code})
	}
	return entries
}

func TestWhatIsPublishedFollowsFromTheLedger(t *testing.T) {
	publish, unpublish := "NodePublishVolume", "NodeUnpublishVolume"
	done := call(1, publish, "/a", "OK")
	tests := map[string]struct {
		calls [][]ledger.Entry
		want  []string
	}{
		"published":             {[][]ledger.Entry{call(3, publish, "/b", "OK"), done}, []string{"/a", "/b"}},
		"a publish failed":      {[][]ledger.Entry{call(1, publish, "/a", "Internal")}, []string{"/a"}},
		"a publish was refused": {[][]ledger.Entry{call(1, publish, "/a", "FailedPrecondition")}, nil},
		"another was refused":   {[][]ledger.Entry{done, call(3, publish, "/a", "AlreadyExists")}, []string{"/a"}},
		"a publish is running":  {[][]ledger.Entry{call(1, publish, "/a", "")}, []string{"/a"}},
		"unpublished":           {[][]ledger.Entry{done, call(3, unpublish, "/a", "OK")}, nil},
		"an unpublish failed":   {[][]ledger.Entry{done, call(3, unpublish, "/a", "Internal")}, []string{"/a"}},
		"an unpublish runs":     {[][]ledger.Entry{done, call(3, unpublish, "/a", "")}, []string{"/a"}},
		"rebooted":              {[][]ledger.Entry{done, {{Phase: ledger.Note, Method: ledger.Reboot}}}, nil},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var entries []ledger.Entry
			for _, c := range test.calls {
				entries = append(entries, c...)
			}
			if got := publishedOn(entries)["s#v"]; !reflect.DeepEqual(got, test.want) {
				t.Errorf("published at %v, want %v", got, test.want)
			}
		})
	}
}

func TestCallsOutOfOrderAreFoundInTheLedger(t *testing.T) {
	refused, done := call(1, "NodePublishVolume", "/a", "FailedPrecondition"), call(3, "NodePublishVolume", "/a", "OK")
	if got := OutOfOrder(slices.Concat(refused, done)); len(got) != 1 || got[0].Entry.Call != 1 {
		t.Errorf("calls out of order: %+v, want the first", got)
	}
}

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
	if err := os.MkdirAll(NodeDir(c.Dir, "node"), 0o755); err != nil {
		t.Fatal(err)
	}
	_, err := ledger.Append(NodeDir(c.Dir, "node"), ledger.Entry{Phase: ledger.Start, Method: "NodePublishVolume",
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
