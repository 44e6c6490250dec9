/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

// Package raw measures the write rate of the API server alone. No implementation can be faster.
package raw

import (
	"context"
	"fmt"
	"time"

	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/test/bench/attach/stage"
)

// Rates are writes per second by stage.Writers writers.
type Rates struct {
	Creates       float64 `json:"createsPerSecond"`
	StatusPatches float64 `json:"statusPatchesPerSecond"`
	Deletes       float64 `json:"deletesPerSecond"`
}

// VolumeAttachments are built into the API server.
func VolumeAttachments(ctx context.Context, c client.Client, count int) (Rates, error) {
	volume := "none"
	return measure(ctx, c, count, []byte(`{"status":{"attached":true}}`), func(name string) client.Object {
		return &storagev1.VolumeAttachment{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: storagev1.VolumeAttachmentSpec{
				Attacher: "raw." + stage.DriverName, NodeName: "none",
				Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &volume},
			},
		}
	})
}

// NodeVolumeStates are custom resources; each lists one volume.
func NodeVolumeStates(ctx context.Context, c client.Client, count int) (Rates, error) {
	status := []byte(`{"status":{"bootID":"boot","protocol":{"reports":1}}}`)
	return measure(ctx, c, count, status, func(name string) client.Object {
		return &volumesv1alpha1.NodeVolumeState{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: volumesv1alpha1.NodeVolumeStateSpec{Attachments: []volumesv1alpha1.NodeAttachment{{
				VolumeName: "kubernetes.io/csi/" + stage.DriverName + "^" + name, State: volumesv1alpha1.AttachmentAttached,
				AttachmentUID: types.UID(name), AttachmentName: name, Driver: stage.DriverName, VolumeHandle: name,
			}}},
		}
	})
}

func measure(ctx context.Context, c client.Client, count int, status []byte,
	object func(name string) client.Object) (Rates, error) {
	names := make([]string, count)
	for i := range names {
		names[i] = fmt.Sprintf("raw-%05d", i)
	}
	var rates Rates
	for _, write := range []struct {
		rate *float64
		do   func(context.Context, client.Object) error
	}{
		{&rates.Creates, func(ctx context.Context, o client.Object) error { return c.Create(ctx, o) }},
		{&rates.StatusPatches, func(ctx context.Context, o client.Object) error {
			return c.Status().Patch(ctx, o, client.RawPatch(types.MergePatchType, status))
		}},
		{&rates.Deletes, func(ctx context.Context, o client.Object) error { return c.Delete(ctx, o) }},
	} {
		begin := time.Now()
		if err := stage.Each(ctx, names,
			func(ctx context.Context, name string) error { return write.do(ctx, object(name)) }); err != nil {
			return rates, fmt.Errorf("measuring the write rate: %w", err)
		}
		*write.rate = float64(count) / time.Since(begin).Seconds()
	}
	return rates, nil
}
