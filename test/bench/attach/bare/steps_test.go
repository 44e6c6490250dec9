/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package bare

import (
	"context"
	"encoding/json"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/inflight"
	"github.com/hawser-io/hawser/test/bench/attach/stage"
)

func TestAClaimGetsItsFinalizerTheFirstTimeOnly(t *testing.T) {
	const other = "kubernetes.io/pvc-protection"
	var sent []metav1.ObjectMeta
	c := &Client{slots: inflight.New(1), api: interceptor.NewClient(nil, interceptor.Funcs{
		Patch: func(_ context.Context, _ client.WithWatch, o client.Object, p client.Patch, _ ...client.PatchOption) error {
			data, err := p.Data(o)
			if err != nil {
				return err
			}
			object := corev1.PersistentVolumeClaim{}
			err = json.Unmarshal(data, &object)
			sent = append(sent, object.ObjectMeta)
			return err
		},
	})}
	v := &volume{Volume: &stage.Volume{Name: "data"}, claim: newLatest[corev1.PersistentVolumeClaim]()}
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{ResourceVersion: "7", Finalizers: []string{other}}}
	v.claim.set(claim)
	if err := c.protectClaim(t.Context(), v); err != nil {
		t.Fatal(err)
	}
	if len(sent) != 1 || sent[0].ResourceVersion != "7" || !slices.Equal(sent[0].Finalizers, []string{other, volumesv1alpha1.ClaimFinalizer}) {
		t.Errorf("sent %+v", sent)
	}
	v.claim.set(&corev1.PersistentVolumeClaim{ObjectMeta: sent[0]})
	if err := c.protectClaim(t.Context(), v); err != nil {
		t.Fatal(err)
	}
	if len(sent) != 1 {
		t.Errorf("a claim that has it is written again: %+v", sent)
	}
}
