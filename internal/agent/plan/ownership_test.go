/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package plan

import (
	"testing"

	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/utils/ptr"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/agent/record"
)

func TestWhichPublicationsTheAgentGivesToAGroup(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*Facts, *record.Use)
		want   bool
	}{
		{"a directory with a group", func(*Facts, *record.Use) {}, true},
		{"a device", func(_ *Facts, u *record.Use) { u.Type = volumesv1alpha1.PublicationDevice }, false},
		{"without a group", func(_ *Facts, u *record.Use) { u.Mount.FSGroup = nil }, false},
		{"where the driver does it", func(f *Facts, _ *record.Use) { f.DriverSetsGroup = true }, false},
		{"read-only", func(_ *Facts, u *record.Use) { u.ReadOnly = true }, false},
	} {
		f := Facts{Entry: &volumesv1alpha1.NodeAttachment{VolumeName: "v", FSGroupPolicy: storagev1.FileFSGroupPolicy}}
		u := record.Use{
			Type:  volumesv1alpha1.PublicationMount,
			Mount: &volumesv1alpha1.MountSpec{FSGroup: ptr.To[int64](1000)},
		}
		c.change(&f, &u)
		if got := f.SetsGroup(u); got != c.want {
			t.Errorf("%s: the agent gives the files of volume %s to the group: %t, expected %t",
				c.name, f.Entry.VolumeName, got, c.want)
		}
	}
}
