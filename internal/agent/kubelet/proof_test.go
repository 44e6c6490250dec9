/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package kubelet

import (
	"testing"

	"k8s.io/apimachinery/pkg/types"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
)

func TestAReportProvesOnWhichAttachmentTheKubeletHasMountedAVolume(t *testing.T) {
	const name = "kubernetes.io/csi/d^h"
	seenWritten := func(written string, mounts ...string) TrackedUse {
		return TrackedUse{AttachmentUID: "uid-1", Life: []string{"record 1"}, StageWritten: written, Mounts: mounts}
	}
	for _, test := range []struct {
		name  string
		use   TrackedUse
		state volumesv1alpha1.AttachmentState
		uid   types.UID
		// later is what the kubelet did while the report was on its way.
		later *TrackedUse
		want  bool
	}{
		{name: "while the entry is Attached", use: seenWritten("1", "/stage"),
			state: volumesv1alpha1.AttachmentAttached, uid: "uid-1", want: true},
		{name: "not once it is Detaching", use: seenWritten("1", "/stage"), state: volumesv1alpha1.AttachmentDetaching,
			uid: "uid-1"},
		{name: "nor of another attachment", use: seenWritten("1", "/stage"), state: volumesv1alpha1.AttachmentAttached,
			uid: "uid-2"},
		{name: "nor where nothing was mounted", use: seenWritten("1"), state: volumesv1alpha1.AttachmentAttached,
			uid: "uid-1"},
		{name: "nor where the kubelet records no stage", use: seenWritten("", "/stage"),
			state: volumesv1alpha1.AttachmentAttached, uid: "uid-1"},
		{name: "nor what the kubelet has recorded since the look", use: seenWritten("1", "/stage"),
			state: volumesv1alpha1.AttachmentAttached, uid: "uid-1", later: &TrackedUse{
				AttachmentUID: "uid-1", Life: []string{"record 1"}, StageWritten: "2", Mounts: []string{"/stage"},
			}},
		{name: "nor what is of another attachment since", use: seenWritten("1", "/stage"),
			state: volumesv1alpha1.AttachmentAttached, uid: "uid-1", later: &TrackedUse{
				AttachmentUID: "uid-2", Life: []string{"record 1"}, StageWritten: "1", Mounts: []string{"/stage"},
			}},
	} {
		t.Run(test.name, func(t *testing.T) {
			o := NewObserver(ObserverOptions{})
			o.replace(Observation{Uses: map[string]TrackedUse{name: test.use}})
			o.BeginReport()
			if test.later != nil {
				o.replace(Observation{Uses: map[string]TrackedUse{name: *test.later}})
			}
			nvs := &volumesv1alpha1.NodeVolumeState{}
			nvs.Spec.Attachments = []volumesv1alpha1.NodeAttachment{{VolumeName: name, AttachmentUID: test.uid,
				State: test.state}}
			o.Reported(nvs)
			if u := o.Use(name); u.Proven() != test.want {
				t.Errorf("use of volume %s: proven %t, want %t", name, u.Proven(), test.want)
			}
		})
	}
}
