/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package secretaccess

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/install"
	"github.com/hawser-io/hawser/internal/status"
)

// Outside Hawser's namespace the manager writes only where an administrator has bound the ClusterRole
// hawser-secret-granter to it.
// +kubebuilder:rbac:groups="",resources=serviceaccounts,namespace=hawser-system,verbs=create;list;watch
// +kubebuilder:rbac:groups=rbac.authorization.k8s.io,resources=roles;rolebindings,verbs=list;watch

// EventSecretAccessRefused is the reason of an event on a node state: the manager may not give the access.
const EventSecretAccessRefused = "SecretAccessRefused"

// access writes the objects of one node.
type access struct {
	*Controller
	account string
	nvs     *volumesv1alpha1.NodeVolumeState
	given   map[string]objects
}

// give creates what is missing. A node whose state does not exist, or is about to go, gets nothing. It returns when to
// try again what a person has to end.
func (a access) give(ctx context.Context, wanted map[string][]string) (again time.Duration, err error) {
	if len(wanted) == 0 || a.nvs.Name == "" || !a.nvs.DeletionTimestamp.IsZero() {
		return 0, nil
	}
	if err := a.createAccount(ctx); err != nil {
		return a.refused("any namespace", err)
	}
	var failed []error
	for _, namespace := range sortedKeys(wanted) {
		wait, err := a.refused("namespace "+namespace, a.allow(ctx, namespace, wanted[namespace]))
		again, failed = max(again, wait), append(failed, err)
	}
	return again, errors.Join(failed...)
}

// refused has an event name what keeps the agent from the Secrets until a person acts.
func (a access) refused(where string, err error) (again time.Duration, _ error) {
	stranger := &strangerError{}
	switch {
	case errors.As(err, &stranger):
		a.event("the agent cannot read Secrets in %s, because %v: delete it, or rename it; the manager then continues "+
			"within %s", where, stranger, strangerAgain)
		return strangerAgain, nil
	case apierrors.IsForbidden(err):
		a.event("the agent cannot read Secrets in %s, because the manager may not allow it: bind ClusterRole "+
			"hawser-secret-granter to the manager's service account there: %v", where, err)
	}
	return 0, err
}

func (a access) event(format string, args ...any) {
	a.Events.Eventf(a.nvs, nil, corev1.EventTypeWarning, EventSecretAccessRefused, "AllowSecrets", "%s",
		status.ShortenNote(fmt.Sprintf(format, args...)))
}

func (a access) createAccount(ctx context.Context) error {
	account := &corev1.ServiceAccount{ObjectMeta: a.meta(install.Namespace())}
	err := a.Client.Get(ctx, client.ObjectKeyFromObject(account), &corev1.ServiceAccount{})
	if !apierrors.IsNotFound(err) {
		return err
	}
	// Its token is requested, and never mounted.
	account.AutomountServiceAccountToken = ptr.To(false)
	if err := a.create(ctx, account, &corev1.ServiceAccountList{}); err != nil {
		return fmt.Errorf("creating service account %s: %w", client.ObjectKeyFromObject(account), err)
	}
	return nil
}

// allow lets the account read these Secrets of one namespace, and no others there.
func (a access) allow(ctx context.Context, namespace string, names []string) error {
	role := &rbacv1.Role{ObjectMeta: a.meta(namespace), Rules: []rbacv1.PolicyRule{{
		APIGroups: []string{""}, Resources: []string{"secrets"}, ResourceNames: names, Verbs: []string{"get"},
	}}}
	binding := &rbacv1.RoleBinding{ObjectMeta: a.meta(namespace),
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: a.account},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: install.Namespace(), Name: a.account}},
	}
	var err error
	has := a.given[namespace]
	switch {
	case has.role == nil:
		err = a.create(ctx, role, &rbacv1.RoleList{})
	case !equality.Semantic.DeepEqual(has.role.Rules, role.Rules):
		role.ResourceVersion = has.role.ResourceVersion
		err = a.Client.Update(ctx, role)
	}
	if stranger := (*strangerError)(nil); errors.As(err, &stranger) && has.binding != nil {
		// It would give what the stranger's Role allows.
		if err := a.remove(ctx, has.binding); err != nil {
			return err
		}
	}
	if err != nil {
		return fmt.Errorf("writing Role %s: %w", client.ObjectKeyFromObject(role), err)
	}
	switch {
	case has.binding == nil:
		err = a.create(ctx, binding, &rbacv1.RoleBindingList{})
	case has.binding.RoleRef != binding.RoleRef || !equality.Semantic.DeepEqual(has.binding.Subjects, binding.Subjects):
		err = a.remove(ctx, has.binding) // it cannot be changed. Its deletion is an event, and then it is created again
	}
	if err != nil {
		return fmt.Errorf("writing RoleBinding %s: %w", client.ObjectKeyFromObject(binding), err)
	}
	return nil
}

// take ends the access to namespaces of which nothing is needed any more. The Role goes first: without it the binding
// gives nothing.
func (a access) take(ctx context.Context, wanted map[string][]string) error {
	var failed []error
	for _, namespace := range sortedKeys(a.given) {
		if len(wanted[namespace]) > 0 {
			continue
		}
		if role := a.given[namespace].role; role != nil {
			failed = append(failed, a.remove(ctx, role))
		}
		if binding := a.given[namespace].binding; binding != nil {
			failed = append(failed, a.remove(ctx, binding))
		}
	}
	return errors.Join(failed...)
}

func (a access) remove(ctx context.Context, o client.Object) error {
	err := a.Client.Delete(ctx, o, client.Preconditions{UID: ptr.To(o.GetUID())})
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("deleting %T %s: %w", o, client.ObjectKeyFromObject(o), err)
	}
	return nil
}

func (a access) meta(namespace string) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Namespace: namespace, Name: a.account, Labels: map[string]string{install.NodeAccountLabel: "true"},
		OwnerReferences: []metav1.OwnerReference{{
			APIVersion: volumesv1alpha1.GroupVersion.String(), Kind: "NodeVolumeState", Name: a.nvs.Name, UID: a.nvs.UID,
		}},
	}
}
