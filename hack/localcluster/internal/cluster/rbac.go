/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package cluster

import (
	"context"
	"fmt"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// role is what one of the storage programs beside Hawser may do in the whole cluster.
type role struct {
	name    string
	subject rbacv1.Subject
	rules   []rbacv1.PolicyRule
}

func user(name string) rbacv1.Subject {
	return rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: name}
}

func rule(group string, resources []string, verbs ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{APIGroups: []string{group}, Resources: resources, Verbs: verbs}
}

func roles() []role {
	const core, storage = "", "storage.k8s.io"
	events := rule(core, []string{"events"}, "create", "patch", "update")
	secrets := rule(core, []string{"secrets"}, "get")
	return []role{{
		name:    "localcluster:attacher",
		subject: rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: Namespace, Name: AttacherAccount},
		rules: []rbacv1.PolicyRule{
			rule(core, []string{"persistentvolumes"}, "get", "list", "watch", "patch"),
			rule(core, []string{"nodes"}, "get", "list", "watch"),
			rule(storage, []string{"csinodes"}, "get", "list", "watch"),
			rule(storage, []string{"volumeattachments"}, "get", "list", "watch", "patch"),
			rule(storage, []string{"volumeattachments/status"}, "patch"),
			secrets,
		},
	}, {
		name:    ProvisionerUser,
		subject: user(ProvisionerUser),
		rules: []rbacv1.PolicyRule{
			rule(core, []string{"persistentvolumes"}, "get", "list", "watch", "create", "update", "delete"),
			rule(core, []string{"persistentvolumeclaims", "nodes"}, "get", "list", "watch"),
			rule(storage, []string{"storageclasses", "csinodes", "volumeattachments"}, "get", "list", "watch"),
			events, secrets,
		},
	}, {
		name:    ResizerUser,
		subject: user(ResizerUser),
		rules: []rbacv1.PolicyRule{
			rule(core, []string{"persistentvolumes"}, "get", "list", "watch", "patch"),
			rule(core, []string{"persistentvolumeclaims"}, "get", "list", "watch"),
			rule(core, []string{"persistentvolumeclaims/status"}, "update", "patch"),
			events, secrets,
		},
	}}
}

// grant makes the roles and their bindings.
func grant(ctx context.Context, client kubernetes.Interface) error {
	for _, r := range roles() {
		meta := metav1.ObjectMeta{Name: r.name}
		clusterRole := &rbacv1.ClusterRole{ObjectMeta: meta, Rules: r.rules}
		_, err := client.RbacV1().ClusterRoles().Create(ctx, clusterRole, metav1.CreateOptions{})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("creating the role %s: %w", r.name, err)
		}
		binding := &rbacv1.ClusterRoleBinding{
			ObjectMeta: meta,
			Subjects:   []rbacv1.Subject{r.subject},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: r.name},
		}
		_, err = client.RbacV1().ClusterRoleBindings().Create(ctx, binding, metav1.CreateOptions{})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("creating the role binding %s: %w", r.name, err)
		}
	}
	return nil
}
