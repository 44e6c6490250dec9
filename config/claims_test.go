/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package config_test

import (
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
)

func newClaim(name, holder string) *coordinationv1.Lease {
	claim := newLease(name)
	claim.Labels = map[string]string{volumesv1alpha1.ExclusiveClaimLabel: "true"}
	claim.Spec.HolderIdentity = ptr.To(holder)
	return claim
}

func (in installation) testExclusiveClaims(t *testing.T) {
	const message = "the claim of an exclusive volume"
	in.grantEverything(t, managerAccount)
	manager, agent := in.as(t, managerAccount), in.as(t, agentAccount, "node-a")
	claim := newClaim("hawser-volume-1", "node-a")

	for name, other := range map[string]client.Client{"an administrator": in.admin, "an agent": agent} {
		t.Run(name+" cannot create one", func(t *testing.T) {
			expectForbidden(t, other.Create(t.Context(), claim.DeepCopy()), "hawser-volume-1")
			expectForbidden(t, other.Create(t.Context(), newLease("hawser-volume-2")), "hawser-volume-2")
			expectForbidden(t, other.Create(t.Context(), newClaim("named-otherwise", "node-a")), "named-otherwise")
		})
	}
	expectAllowed(t, manager.Create(t.Context(), claim))

	for name, other := range map[string]client.Client{"an administrator": in.admin, "an agent": agent} {
		t.Run(name+" cannot change one", func(t *testing.T) {
			moved := claim.DeepCopy()
			moved.Spec.HolderIdentity = ptr.To("node-b")
			expectForbidden(t, other.Update(t.Context(), moved), "hawser-volume-1")
			unmarked := claim.DeepCopy()
			unmarked.Labels = nil
			expectForbidden(t, other.Update(t.Context(), unmarked), "hawser-volume-1")
			expectForbidden(t, other.Delete(t.Context(), claim.DeepCopy()), "hawser-volume-1")
		})
	}
	ordinary := newLease("ordinary")
	expectAllowed(t, in.admin.Create(t.Context(), ordinary))
	ordinary.Labels = claim.Labels
	expectForbidden(t, in.admin.Update(t.Context(), ordinary), message)
	expectAllowed(t, in.admin.Delete(t.Context(), ordinary))

	set := kubernetes.NewForConfigOrDie(in.config)
	err := set.CoordinationV1().Leases(volumesv1alpha1.InstallNamespace).DeleteCollection(t.Context(), metav1.DeleteOptions{},
		metav1.ListOptions{LabelSelector: volumesv1alpha1.ExclusiveClaimLabel})
	expectForbidden(t, err, message)

	elsewhere := newClaim("hawser-volume-1", "node-a")
	elsewhere.Namespace = "default"
	expectAllowed(t, in.admin.Create(t.Context(), elsewhere))

	claim.Spec.HolderIdentity = ptr.To("node-b")
	expectAllowed(t, manager.Update(t.Context(), claim))
	expectAllowed(t, manager.Delete(t.Context(), claim))
}
