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

// role has the rights of one sidecar in the whole cluster: those of its project's manifest, without snapshots.
type role struct {
	account string
	rules   []rbacv1.PolicyRule
}

func rule(group string, resources []string, verbs ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{APIGroups: []string{group}, Resources: resources, Verbs: verbs}
}

func roles() []role {
	const core, storage = "", "storage.k8s.io"
	events := rule(core, []string{"events"}, "list", "watch", "create", "update", "patch")
	secrets := rule(core, []string{"secrets"}, "get")
	return []role{{
		account: AttacherAccount,
		rules: []rbacv1.PolicyRule{
			rule(core, []string{"persistentvolumes"}, "get", "list", "watch", "patch"),
			rule(core, []string{"nodes"}, "get", "list", "watch"),
			rule(storage, []string{"csinodes"}, "get", "list", "watch"),
			rule(storage, []string{"volumeattachments"}, "get", "list", "watch", "patch"),
			rule(storage, []string{"volumeattachments/status"}, "patch"),
			secrets,
		},
	}, {
		account: ProvisionerAccount,
		rules: []rbacv1.PolicyRule{
			rule(core, []string{"persistentvolumes"}, "get", "list", "watch", "create", "patch", "delete"),
			rule(core, []string{"persistentvolumeclaims"}, "get", "list", "watch", "update"),
			rule(core, []string{"nodes"}, "get", "list", "watch"),
			rule(storage, []string{"storageclasses", "csinodes", "volumeattachments"}, "get", "list", "watch"),
			events, secrets,
		},
	}, {
		account: ResizerAccount,
		rules: []rbacv1.PolicyRule{
			rule(core, []string{"persistentvolumes"}, "get", "list", "watch", "patch"),
			rule(core, []string{"persistentvolumeclaims", "pods"}, "get", "list", "watch"),
			rule(core, []string{"persistentvolumeclaims/status"}, "patch"),
			events, secrets,
		},
	}}
}

// grant creates the roles and their bindings.
func grant(ctx context.Context, client kubernetes.Interface) error {
	for _, r := range roles() {
		meta := metav1.ObjectMeta{Name: "localcluster:" + r.account}
		clusterRole := &rbacv1.ClusterRole{ObjectMeta: meta, Rules: r.rules}
		_, err := client.RbacV1().ClusterRoles().Create(ctx, clusterRole, metav1.CreateOptions{})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("creating the role %s: %w", meta.Name, err)
		}
		binding := &rbacv1.ClusterRoleBinding{
			ObjectMeta: meta,
			Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: Namespace, Name: r.account}},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: meta.Name},
		}
		_, err = client.RbacV1().ClusterRoleBindings().Create(ctx, binding, metav1.CreateOptions{})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("creating the role binding %s: %w", meta.Name, err)
		}
	}
	return nil
}
