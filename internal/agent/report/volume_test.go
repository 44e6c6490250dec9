/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package report

import (
	"reflect"
	"testing"

	"k8s.io/utils/ptr"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/agent/kubelet"
)

func TestWhatIsReportedOfAVolumeThatTheKubeletUses(t *testing.T) {
	held := &volumesv1alpha1.OperationError{Operation: "unstage", Code: "DeviceHeld"}
	failed := &volumesv1alpha1.OperationError{Operation: "shutdown", Code: "Unsupported"}
	const doubted = "counts as in use, because pods cannot be read"
	line := func(change func(*VolumeReport)) VolumeReport {
		r := VolumeReport{Line: volumesv1alpha1.NodeVolume{VolumeName: "v", AttachmentUID: "uid-1", InUse: true,
			PublishedBy: volumesv1alpha1.PublisherKubelet}}
		change(&r)
		return r
	}
	own := func(change func(*VolumeReport)) VolumeReport {
		r := VolumeReport{Line: volumesv1alpha1.NodeVolume{VolumeName: "v", AttachmentUID: "uid-0", InUse: true,
			PublishedBy: volumesv1alpha1.PublisherAgent}}
		change(&r)
		return r
	}
	nothing := func(*VolumeReport) {}
	lost := func(r *VolumeReport) { r.Differs = "not mounted any more: /a" }
	for name, test := range map[string]struct {
		use kubelet.TrackedUse
		// own is what is reported of the agent's own use; nil where it has none.
		own  *VolumeReport
		want VolumeReport
	}{
		"no more than that it is used": {kubelet.TrackedUse{AttachmentUID: "uid-1"}, nil, line(nothing)},
		"it only waits": {kubelet.TrackedUse{AttachmentUID: "uid-1", Waiting: true}, nil,
			line(func(r *VolumeReport) { r.Line.Waiting = true })},
		"its stage": {kubelet.TrackedUse{AttachmentUID: "uid-1", StagedPath: "/stage"}, nil,
			line(func(r *VolumeReport) { r.Line.StagedPath, r.Staged = "/stage", true })},
		"its publication": {kubelet.TrackedUse{AttachmentUID: "uid-1", Published: true}, nil,
			line(func(r *VolumeReport) { r.Published = true })},
		"its device": {kubelet.TrackedUse{AttachmentUID: "uid-1", DevicePath: "/dev/loop1"}, nil,
			line(func(r *VolumeReport) { r.Line.DevicePath = "/dev/loop1" })},
		"that no device is known": {kubelet.TrackedUse{AttachmentUID: "uid-1", Mounts: []string{"/stage"}}, nil,
			line(func(r *VolumeReport) { r.Line.MountTableOnly = true })},
		"that it is only assumed": {kubelet.TrackedUse{AttachmentUID: "uid-1", Doubt: "pods"}, nil,
			line(func(r *VolumeReport) { r.Differs = doubted })},
		"what holds its device": {kubelet.TrackedUse{AttachmentUID: "uid-1", Held: held}, nil,
			line(func(r *VolumeReport) { r.Line.Error = held })},
		"that it cannot be shut down": {kubelet.TrackedUse{AttachmentUID: "uid-1", Failure: failed, Held: held}, nil,
			line(func(r *VolumeReport) { r.Line.Unprotected, r.Line.Error = true, failed })},
		"beside the agent's own use": {kubelet.TrackedUse{AttachmentUID: "uid-1", StagedPath: "/stage", Published: true,
			Doubt: "pods", Held: held}, ptr.To(own(nothing)), own(func(r *VolumeReport) {
			r.Staged, r.Published, r.Differs, r.Line.Error = true, true, doubted, held
		})},
		"the agent's own mounts that are lost": {kubelet.TrackedUse{AttachmentUID: "uid-1", Doubt: "pods"},
			ptr.To(own(lost)), own(lost)},
	} {
		t.Run(name, func(t *testing.T) {
			reports := map[string]VolumeReport{}
			if test.own != nil {
				reports["v"] = *test.own
			}
			all := withKubelet(reports, map[string]kubelet.TrackedUse{"v": test.use})
			if got := all["v"]; len(all) != 1 || !reflect.DeepEqual(got, test.want) {
				t.Errorf("volume v, of which the kubelet has %+v: reported is %+v, want %+v", test.use, got, test.want)
			}
		})
	}
}
