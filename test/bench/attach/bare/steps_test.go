/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package bare

import (
	"context"
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/test/bench/attach/stage"
)

func TestDetachingNeedsThreeWritesAndNoneToTheIntent(t *testing.T) {
	s := stage.New(nil, 1)
	s.Plan(1, 1)
	s.Volumes[0].PersistentVolume = &corev1.PersistentVolume{}
	s.Volumes[0].PersistentVolume.Spec.CSI = &corev1.CSIPersistentVolumeSource{}
	var made []string
	var v *volume
	api := interceptor.NewClient(nil, interceptor.Funcs{
		Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
			return nil
		},
		List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error { return nil },
		Update: func(_ context.Context, _ client.WithWatch, o client.Object, _ ...client.UpdateOption) error {
			made = append(made, fmt.Sprintf("update %T", o))
			return nil
		},
		Patch: func(_ context.Context, _ client.WithWatch, o client.Object, _ client.Patch, _ ...client.PatchOption) error {
			made = append(made, fmt.Sprintf("patch %T", o))
			return nil
		},
		Delete: func(_ context.Context, _ client.WithWatch, o client.Object, _ ...client.DeleteOption) error {
			made = append(made, fmt.Sprintf("delete %T", o))
			v.attachment.set(nil)
			return nil
		},
	})
	c := New(api, s, func(err error) { t.Errorf("bare client: error %v, want none", err) })
	v = c.volumes[s.Volumes[0].Name]
	v.node.state.set(&volumesv1alpha1.NodeVolumeState{})
	v.attachment.set(&storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: v.Attachment, UID: "va"}})
	if err := c.detachIntent(t.Context(), v); err != nil {
		t.Fatal(err)
	}
	want := []string{"update *v1alpha1.NodeVolumeState", "delete *v1.VolumeAttachment", "update *v1alpha1.NodeVolumeState"}
	if !slices.Equal(made, want) {
		t.Errorf("writes to detach volume %s: %q, want %q", v.Name, made, want)
	}
}
