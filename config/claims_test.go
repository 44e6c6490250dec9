/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package config_test

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/test/apiserver"
)

func newClaim(namespace, name string, used, asks bool) *corev1.PersistentVolumeClaim {
	claim := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources: corev1.VolumeResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}}}}
	if used {
		claim.Annotations = map[string]string{volumesv1alpha1.InUseAnnotation: "true"}
	}
	if asks {
		claim.Labels = map[string]string{volumesv1alpha1.RefuseDeletionLabel: "true"}
	}
	return claim
}

func (in installation) testClaimDeletion(t *testing.T) {
	namespaces := map[string]bool{in.namespace + "-asks": true, in.namespace + "-does-not": false}
	for name, asks := range namespaces {
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if asks {
			namespace.Labels = map[string]string{volumesv1alpha1.RefuseDeletionLabel: "true"}
		}
		expectAllowed(t, in.admin.Create(t.Context(), namespace))
	}
	asking, other := in.namespace+"-asks", in.namespace+"-does-not"
	probe := newClaim(asking, "probe", true, true)
	expectAllowed(t, in.admin.Create(t.Context(), probe))
	eventually(t, "policy hawser-claim-deletion acts", func(ctx context.Context) bool {
		return apierrors.IsForbidden(in.admin.Delete(ctx, probe.DeepCopy(), client.DryRunAll))
	})

	controllers := func(account string) client.Client {
		c, err := client.New(apiserver.ServiceAccount(in.config, "kube-system", account),
			client.Options{Scheme: apiserver.Scheme()})
		expectAllowed(t, err)
		return c
	}
	for name, c := range map[string]struct {
		claim   *corev1.PersistentVolumeClaim
		by      client.Client
		refused bool
	}{
		"its namespace asks, and it is used":   {newClaim(asking, "used", true, false), in.admin, true},
		"its namespace asks, and it is unused": {newClaim(asking, "unused", false, false), in.admin, false},
		"it asks itself, and it is used":       {newClaim(other, "asks", true, true), in.admin, true},
		"it asks itself, and it is unused":     {newClaim(other, "asks-unused", false, true), in.admin, false},
		"nothing asks, and it is used":         {newClaim(other, "silent", true, false), in.admin, false},
		"garbage collection deletes what is used": {newClaim(asking, "owned", true, true),
			controllers("generic-garbage-collector"), false},
		"a namespace is emptied of what is used": {newClaim(asking, "emptied", true, true),
			controllers("namespace-controller"), false},
	} {
		t.Run(name, func(t *testing.T) {
			expectAllowed(t, in.admin.Create(t.Context(), c.claim))
			err := c.by.Delete(t.Context(), c.claim)
			if !c.refused {
				expectAllowed(t, err)
				return
			}
			expectForbidden(t, err, "VolumeAttachmentIntents use the claim "+c.claim.Name,
				"kubectl hawser why pvc "+c.claim.Name+" -n "+c.claim.Namespace, volumesv1alpha1.RefuseDeletionLabel)
		})
	}
	// A namespace that is being deleted needs no order.
	expectAllowed(t, in.admin.Delete(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: asking}}))
	eventually(t, "a claim of a namespace that is being deleted can be deleted", func(ctx context.Context) bool {
		return in.admin.Delete(ctx, probe.DeepCopy()) == nil
	})
}
