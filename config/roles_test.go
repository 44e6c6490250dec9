/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package config_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// permission is "verb resource.group/subresource", in a namespace or in all of them.
type permission struct {
	verbs     string
	group     string
	resource  string
	namespace string
}

func (in installation) testRoles(t *testing.T) {
	const volumes, storage, coordination = "volumes.hawser.io", "storage.k8s.io", "coordination.k8s.io"
	const reading, writing, every = "get list watch", "create update patch delete deletecollection",
		"get list watch create update patch delete deletecollection"
	in.expectPermissions(t, agentAccount, true, []permission{
		{reading, volumes, "volumeattachmentintents", ""},
		{reading, volumes, "nodevolumestates", ""},
		{"update", volumes, "volumeattachmentintents/status", ""},
		{"update", volumes, "nodevolumestates/status", ""},
		{"get create update", coordination, "leases", in.namespace},
		{"get", "", "nodes", ""},
		{"get", "", "pods", ""},
		{"create", "", "serviceaccounts/token", in.namespace},
		{"create", "events.k8s.io", "events", ""},
		{"create", "authentication.k8s.io", "tokenreviews", ""},
		{"create", "authorization.k8s.io", "subjectaccessreviews", ""},
	})
	in.expectPermissions(t, agentAccount, false, []permission{
		{writing, volumes, "volumeattachmentintents", ""},
		{writing + " declare", volumes, "nodevolumestates", ""},
		{every, storage, "volumeattachments", ""},
		{every, storage, "volumeattachments/status", ""},
		{"list watch create update patch delete", "", "nodes", ""},
		{"update patch", "", "nodes/status", ""},
		{every, "", "secrets", ""},
		{every, "", "secrets", in.namespace},
		{every, "", "persistentvolumes", ""},
		{every, "", "persistentvolumeclaims", ""},
		{"update patch", "", "persistentvolumeclaims/status", ""},
		{"list watch create update patch delete deletecollection", "", "pods", ""},
		{"get update patch", "", "pods/status", ""},
		{"create", "", "serviceaccounts/token", "default"},
		{every, "", "serviceaccounts", in.namespace},
		{"list delete deletecollection", coordination, "leases", in.namespace},
		{every, coordination, "leases", "kube-node-lease"},
		{"bind escalate", "rbac.authorization.k8s.io", "clusterroles", ""},
	})
	in.expectPermissions(t, managerAccount, true, []permission{
		{"get list watch create delete", volumes, "volumeattachmentintents", ""},
		{"get list watch create update delete", volumes, "nodevolumestates", ""},
		{"update", volumes, "volumeattachmentintents/status", ""},
		{"get list watch", volumes, "volumeattachmentintentsets", ""},
		{"update", volumes, "volumeattachmentintentsets/status", ""},
		{"update", volumes, "volumeattachmentintentsets/finalizers", ""},
		{"list watch", "", "namespaces", ""},
		{"create", "", "persistentvolumeclaims", ""},
		{"update", volumes, "nodevolumestates/status", ""},
		{"get list watch create delete", storage, "volumeattachments", ""},
		{"get list watch", coordination, "leases", in.namespace},
		{"get list watch create update", "", "configmaps", in.namespace},
		{reading, "", "persistentvolumes", ""},
		{reading, "", "persistentvolumeclaims", ""},
		{reading + " patch", "", "pods", ""},
		{"patch", "", "pods/status", ""},
		{reading, "", "nodes", ""},
		{reading, storage, "csidrivers", ""},
		{"list watch", storage, "csistoragecapacities", ""},
		{reading, storage, "storageclasses", ""},
		{"list watch", storage, "csinodes", ""},
		{"list watch", "admissionregistration.k8s.io", "validatingadmissionpolicies", ""},
		{"list watch", "admissionregistration.k8s.io", "validatingadmissionpolicybindings", ""},
		{"list watch", "admissionregistration.k8s.io", "mutatingadmissionpolicies", ""},
		{"list watch", "admissionregistration.k8s.io", "mutatingadmissionpolicybindings", ""},
		{"create", "authentication.k8s.io", "tokenreviews", ""},
		{"create", "authorization.k8s.io", "subjectaccessreviews", ""},
		{"create list watch", "", "serviceaccounts", in.namespace},
		{"list watch", rbacv1.GroupName, "roles", ""},
		{"list watch", rbacv1.GroupName, "rolebindings", ""},
	})
	in.expectPermissions(t, managerAccount, false, []permission{
		{"create", "", "serviceaccounts/token", in.namespace},
		{"get update patch delete deletecollection impersonate", "", "serviceaccounts", in.namespace},
		{every, "", "serviceaccounts", "default"},
		{writing + " escalate bind", rbacv1.GroupName, "roles", ""},
		{writing + " escalate bind", rbacv1.GroupName, "roles", in.namespace},
		{writing, rbacv1.GroupName, "rolebindings", in.namespace},
		{every + " escalate bind", rbacv1.GroupName, "clusterroles", ""},
		{every, rbacv1.GroupName, "clusterrolebindings", ""},
		{"declare", volumes, "nodevolumestates", ""},
		{every, "", "secrets", ""},
		{"deletecollection", volumes, "volumeattachmentintents", ""},
		{writing, volumes, "volumeattachmentintentsets", ""},
		{"update delete deletecollection", "", "persistentvolumeclaims", ""},
		{"get " + writing, "", "namespaces", ""},
		{every, storage, "volumeattachments/status", ""},
		{"create update patch delete", "", "persistentvolumes", ""},
		{"create update patch delete", "", "nodes", ""},
		{"update patch", "", "nodes/status", ""},
		{"create update delete deletecollection", "", "pods", ""},
		{"create update", "", "pods/status", ""},
		{"create", "", "pods/binding", ""},
		{"create", "", "pods/eviction", ""},
		{"create get", "", "pods/exec", ""},
		{"update patch", "", "pods/ephemeralcontainers", ""},
		{"get", storage, "csinodes", ""},
		{"get", storage, "csistoragecapacities", ""},
		{"create update delete", coordination, "leases", "kube-system"},
		{"update delete", coordination, "leases", in.namespace},
		{"delete", "", "configmaps", in.namespace},
		{every, "", "configmaps", "default"},
		{"create update patch delete", "admissionregistration.k8s.io", "validatingadmissionpolicies", ""},
		{"create update patch delete", "admissionregistration.k8s.io", "validatingadmissionpolicybindings", ""},
	})
}

func (in installation) expectPermissions(t *testing.T, account string, want bool, permissions []permission) {
	t.Helper()
	for _, p := range permissions {
		for verb := range strings.FieldsSeq(p.verbs) {
			if got := in.allowed(t, account, verb, p, ""); got != want {
				t.Errorf("%s may %s %s %s in namespace %q: %t, want %t", account, verb, p.resource, p.group, p.namespace, got, want)
			}
		}
	}
}

// allowed is the answer of the API server's authorizer.
func (in installation) allowed(t *testing.T, account, verb string, p permission, name string) bool {
	t.Helper()
	resource, subresource, _ := strings.Cut(p.resource, "/")
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User:   in.user(account),
		Groups: []string{"system:serviceaccounts", "system:serviceaccounts:" + in.namespace, "system:authenticated"},
		ResourceAttributes: &authorizationv1.ResourceAttributes{
			Verb: verb, Group: p.group, Version: "*", Resource: resource, Subresource: subresource,
			Namespace: p.namespace, Name: name,
		},
	}}
	if err := in.admin.Create(t.Context(), review); err != nil {
		t.Fatal(err)
	}
	return review.Status.Allowed
}

// renamed returns manifests for the names of config/standalone as manifests for those of this installation.
func (in installation) renamed(manifests string) string {
	manifests = strings.ReplaceAll(manifests, "namespace: hawser-system", "namespace: "+in.namespace)
	return strings.ReplaceAll(manifests, "name: hawser-", "name: "+in.name("hawser-"))
}

// grantEverything allows a service account everything on the kinds that Hawser uses. Only a policy then refuses it.
func (in installation) grantEverything(t *testing.T, account string) {
	t.Helper()
	in.grantRules(t, account, "everything",
		rbacv1.PolicyRule{APIGroups: []string{"volumes.hawser.io", "coordination.k8s.io", "storage.k8s.io"},
			Resources: []string{"*"}, Verbs: []string{"*"}},
		rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"*"}})
}

// grantClusterAdmin allows a service account everything.
func (in installation) grantClusterAdmin(t *testing.T, account string) {
	t.Helper()
	in.grantRules(t, account, "cluster-admin",
		rbacv1.PolicyRule{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"*"}})
}

// grantStorage allows a service account everything on attachments.
func (in installation) grantStorage(t *testing.T, account string) {
	t.Helper()
	in.grantRules(t, account, "storage",
		rbacv1.PolicyRule{APIGroups: []string{"storage.k8s.io"}, Resources: []string{"*"}, Verbs: []string{"*"}})
}

// grantRules allows a service account what the last of these rules covers, and returns once the grant is in force.
func (in installation) grantRules(t *testing.T, account, name string, rules ...rbacv1.PolicyRule) {
	t.Helper()
	role := &rbacv1.ClusterRole{Rules: rules}
	role.Name = "test-" + name
	binding := &rbacv1.ClusterRoleBinding{
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: in.namespace, Name: in.name(account)}},
	}
	binding.Name = fmt.Sprintf("test-%s-%s-%s", name, in.namespace, account)
	for _, object := range []client.Object{role, binding} {
		if err := in.admin.Create(t.Context(), object); err != nil && !apierrors.IsAlreadyExists(err) {
			t.Fatal(err)
		}
	}
	last := rules[len(rules)-1]
	covered := permission{group: last.APIGroups[0], resource: last.Resources[0]}
	eventually(t, "the grant is in force", func(context.Context) bool {
		return in.allowed(t, account, "delete", covered, "")
	})
}
