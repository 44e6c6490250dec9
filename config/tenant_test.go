/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package config_test

import (
	"context"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
)

const tenantNamespace = "tenant"

func forced(intent *volumesv1alpha1.VolumeAttachmentIntent) *volumesv1alpha1.VolumeAttachmentIntent {
	intent.Spec.DetachPolicy = &volumesv1alpha1.DetachPolicy{ForceAfter: metav1.Duration{Duration: time.Hour}}
	return intent
}

func byKubelet(intent *volumesv1alpha1.VolumeAttachmentIntent) *volumesv1alpha1.VolumeAttachmentIntent {
	intent.Spec.Publisher, intent.Spec.DesiredState = volumesv1alpha1.PublisherKubelet, volumesv1alpha1.DesiredAttached
	return intent
}

func tenantIntent(name, node string) *volumesv1alpha1.VolumeAttachmentIntent {
	intent := newIntent(name, node)
	intent.Namespace = tenantNamespace
	return intent
}

// tenant returns a client of a user who edits the namespace of tenants. No controller aggregates roles here, so the
// binding is to the role itself.
func (in installation) tenant(t *testing.T) client.Client {
	t.Helper()
	namespace := &corev1.Namespace{}
	namespace.Name = tenantNamespace
	binding := &rbacv1.RoleBinding{
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole",
			Name: in.name("hawser-intent-editor")},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: "tenant"}},
	}
	binding.Namespace, binding.Name = tenantNamespace, "tenant"
	expectAllowed(t, in.admin.Create(t.Context(), namespace))
	expectAllowed(t, in.admin.Create(t.Context(), binding))
	tenant := in.person(t, "tenant")
	eventually(t, "the tenant may create an intent", func(ctx context.Context) bool {
		return tenant.Create(ctx, tenantIntent("probe", "node-a"), client.DryRunAll) == nil
	})
	return tenant
}

func (in installation) testTenant(t *testing.T) {
	tenant := in.tenant(t)
	own := tenantIntent("own", "node-a")
	expectAllowed(t, tenant.Create(t.Context(), own))
	expectForbidden(t, tenant.Create(t.Context(), newIntent("elsewhere", "node-a")), "cannot create resource")
	expectForbidden(t, tenant.Status().Update(t.Context(), own.DeepCopy()), "cannot update resource")
	in.expectForeignClaimRefused(t, tenant)
	in.expectNamespaceIsTheAdministrators(t, tenant)

	// By default any node, but neither a forced detach nor the kubelet. This holds for administrators too.
	const force, kubelet = "volumes.hawser.io/allow-force-detach=true", "volumes.hawser.io/allow-publisher-kubelet=true"
	for who, c := range map[string]client.Client{"a tenant": tenant, "an administrator": in.admin} {
		t.Run(who, func(t *testing.T) {
			expectForbidden(t, c.Create(t.Context(), forced(tenantIntent("forced", "node-a"))), force)
			expectForbidden(t, c.Create(t.Context(), byKubelet(tenantIntent("kubelet", "node-a"))), kubelet)
			expectForbidden(t, patched(t, c, own, `{"spec":{"detachPolicy":{"forceAfter":"1h"}}}`), force)
		})
	}
	// A label that marks the intent of a pod exempts only the manager.
	ofPod := byKubelet(tenantIntent("of-a-pod", "node-a"))
	ofPod.Labels = map[string]string{volumesv1alpha1.PodUIDLabel: "1"}
	expectForbidden(t, tenant.Create(t.Context(), ofPod.DeepCopy()), kubelet)
	expectAllowed(t, in.as(t, managerAccount).Create(t.Context(), ofPod.DeepCopy()))
	expectAllowed(t, in.as(t, managerAccount).Create(t.Context(), forced(renamed(ofPod, "of-a-pod-forced"))))

	in.kubectl(t, "label", "namespace", tenantNamespace, "volumes.hawser.io/allow-force-detach=true")
	in.eventuallyAllowed(t, tenant, forced(tenantIntent("forced", "node-a")))
	expectForbidden(t, tenant.Create(t.Context(), byKubelet(tenantIntent("kubelet", "node-a"))), kubelet)
	in.kubectl(t, "label", "namespace", tenantNamespace, "volumes.hawser.io/allow-publisher-kubelet=true")
	in.eventuallyAllowed(t, tenant, byKubelet(tenantIntent("kubelet", "node-a")))

	// What an intent has already it keeps, and its owner can always change it otherwise and delete it.
	in.kubectl(t, "label", "namespace", tenantNamespace, "volumes.hawser.io/allow-force-detach-")
	in.eventuallyForbidden(t, tenant, forced(tenantIntent("forced-late", "node-a")), force)
	kept := forced(tenantIntent("forced", "node-a"))
	expectAllowed(t, patched(t, tenant, kept, `{"spec":{"desiredState":"Staged"}}`))
	expectForbidden(t, patched(t, tenant, kept, `{"spec":{"detachPolicy":{"forceAfter":"1m"}}}`), force)
	expectAllowed(t, patched(t, tenant, kept, `{"spec":{"detachPolicy":null}}`))
	expectAllowed(t, tenant.Delete(t.Context(), kept))
	in.testTenantNodes(t, tenant)
}

func renamed(intent *volumesv1alpha1.VolumeAttachmentIntent, name string) *volumesv1alpha1.VolumeAttachmentIntent {
	other := intent.DeepCopy()
	other.Name = name
	return other
}

// testTenantNodes checks the nodes that the namespace's annotation allows.
func (in installation) testTenantNodes(t *testing.T, tenant client.Client) {
	t.Helper()
	const key = "volumes.hawser.io/allowed-nodes"
	for _, c := range []struct {
		allowed             string
		permitted, refused  []string
		messageOfTheRefused string
	}{
		{"node-a, pool-1-*", []string{"node-a", "pool-1-x"}, []string{"node-b", "node-a2", "pool-10", "pool-2-x"},
			"allows: node-a, pool-1-*"},
		{"node-b", []string{"node-b"}, []string{"node-a"}, "allows: node-b"},
		{"", nil, []string{"node-a"}, "may not use node node-a"},
		{"*", []string{"node-a", "anything"}, nil, ""},
	} {
		in.kubectl(t, "annotate", "--overwrite", "namespace", tenantNamespace, key+"="+c.allowed)
		for _, node := range c.refused {
			in.eventuallyForbidden(t, tenant, tenantIntent("on-"+node, node), c.messageOfTheRefused)
		}
		for _, node := range c.permitted {
			in.eventuallyAllowed(t, tenant, tenantIntent("on-"+node, node))
		}
	}
	// The manager's intents of pods go where the scheduler has put the pod.
	in.kubectl(t, "annotate", "--overwrite", "namespace", tenantNamespace, key+"=node-b")
	in.eventuallyForbidden(t, tenant, tenantIntent("on-a", "node-a"), "may not use node node-a")
	ofPod := byKubelet(tenantIntent("of-a-pod-elsewhere", "node-a"))
	ofPod.Labels = map[string]string{volumesv1alpha1.PodUIDLabel: "1"}
	expectAllowed(t, in.as(t, managerAccount).Create(t.Context(), ofPod))
}

// eventuallyAllowed creates an object once the API server has seen a change of the namespace.
func (in installation) eventuallyAllowed(t *testing.T, c client.Client, object client.Object) {
	t.Helper()
	eventually(t, object.GetName()+" is allowed", func(ctx context.Context) bool {
		err := c.Create(ctx, object.DeepCopyObject().(client.Object))
		return err == nil || apierrors.IsAlreadyExists(err)
	})
}

func (in installation) eventuallyForbidden(t *testing.T, c client.Client, object client.Object, message string) {
	t.Helper()
	eventually(t, object.GetName()+" is refused", func(ctx context.Context) bool {
		err := c.Create(ctx, object.DeepCopyObject().(client.Object), client.DryRunAll)
		return apierrors.IsForbidden(err) && strings.Contains(err.Error(), message)
	})
}

// expectForeignClaimRefused checks that an intent has no field for a claim of another namespace.
func (in installation) expectForeignClaimRefused(t *testing.T, tenant client.Client) {
	t.Helper()
	intent := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": volumesv1alpha1.GroupVersion.String(), "kind": "VolumeAttachmentIntent",
		"metadata": map[string]any{"namespace": tenantNamespace, "name": "foreign"},
		"spec": map[string]any{"nodeName": "node-a", "volume": map[string]any{
			"persistentVolumeClaim": map[string]any{"claimName": "data", "namespace": "default"}}},
	}}
	err := client.WithFieldValidation(tenant, client.FieldValidation(metav1.FieldValidationStrict)).
		Create(t.Context(), intent.DeepCopy())
	if !apierrors.IsBadRequest(err) || !strings.Contains(err.Error(), "unknown field") {
		t.Errorf("an intent that names a claim of another namespace: %v", err)
	}
	ignoring := client.WithFieldValidation(tenant, client.FieldValidation(metav1.FieldValidationIgnore))
	expectAllowed(t, ignoring.Create(t.Context(), intent))
	_, found, err := unstructured.NestedString(intent.Object, "spec", "volume", "persistentVolumeClaim", "namespace")
	if err != nil || found {
		t.Errorf("the API server keeps the namespace of a claim: %v, error %v", intent.Object["spec"], err)
	}
}

// expectNamespaceIsTheAdministrators checks that a tenant cannot allow itself more, or change what Hawser writes.
func (in installation) expectNamespaceIsTheAdministrators(t *testing.T, tenant client.Client) {
	t.Helper()
	namespace := &corev1.Namespace{}
	namespace.Name = tenantNamespace
	expectForbidden(t, patched(t, tenant, namespace,
		`{"metadata":{"labels":{"volumes.hawser.io/allow-force-detach":"true"}}}`))
	expectForbidden(t, tenant.Create(t.Context(), newNodeState("by-a-tenant")))
	expectForbidden(t, tenant.Create(t.Context(), newAttachment("by-a-tenant", "")))
}

// testAggregation checks the labels by which a controller adds the roles to Kubernetes' own.
func (in installation) testAggregation(t *testing.T) {
	for name, into := range map[string][]string{
		"hawser-intent-viewer": {"view"}, "hawser-intent-editor": {"edit", "admin"}, "hawser-node-volume-viewer": nil,
		"hawser-manager": nil, "hawser-agent": nil,
	} {
		role := &rbacv1.ClusterRole{}
		expectAllowed(t, in.admin.Get(t.Context(), client.ObjectKey{Name: in.name(name)}, role))
		for _, of := range []string{"view", "edit", "admin"} {
			want := strings.Contains(" "+strings.Join(into, " ")+" ", " "+of+" ")
			if got := role.Labels["rbac.authorization.k8s.io/aggregate-to-"+of] == "true"; got != want {
				t.Errorf("role %s is part of %s: %t, want %t", role.Name, of, got, want)
			}
		}
	}
}
