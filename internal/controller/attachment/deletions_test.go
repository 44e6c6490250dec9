/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package attachment

import (
	"context"
	"testing"

	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
)

func TestAnAttachmentThatTheWatchSawGoingIsNotReadAgain(t *testing.T) {
	named := func(uid types.UID) *storagev1.VolumeAttachment {
		return &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: "csi-1", UID: uid}}
	}
	for _, tc := range []struct {
		name          string
		before, after *storagev1.VolumeAttachment
		again         *storagev1.VolumeAttachment
		read          bool
	}{
		{name: "nothing was seen", read: true},
		{name: "it is only changed", before: named("1"), after: named("1"), read: true},
		{name: "it is deleted", before: named("1")},
		{name: "it is made anew", before: named("1"), after: named("2")},
		{name: "it comes back out of a backup", before: named("1"), again: named("1"), read: true},
		{name: "another one is deleted", before: named("2"), read: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c, _ := over(t)
			reads := 0
			c.Reader = interceptor.NewClient(c.Reader.(client.WithWatch), interceptor.Funcs{
				Get: func(ctx context.Context, w client.WithWatch, key client.ObjectKey, o client.Object,
					opts ...client.GetOption) error {
					reads++
					return w.Get(ctx, key, o, opts...)
				},
			})
			var before, after client.Object
			if tc.before != nil {
				before = tc.before
			}
			if tc.after != nil {
				after = tc.after
			}
			c.deletions.observe(before, after)
			if tc.again != nil {
				c.deletions.observe(nil, tc.again)
			}
			va, err := c.readEntryAttachment(t.Context(),
				&volumesv1alpha1.NodeAttachment{AttachmentName: "csi-1", AttachmentUID: "1"})
			if va != nil || err != nil {
				t.Errorf("attachment csi-1 with UID 1: %v, error %v; want none", va, err)
			}
			if (reads > 0) != tc.read {
				t.Errorf("live reads of attachment csi-1: %d, want some: %t", reads, tc.read)
			}
		})
	}
}
