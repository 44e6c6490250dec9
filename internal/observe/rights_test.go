/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package observe

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/explain/live"
	"github.com/hawser-io/hawser/internal/version"
	"github.com/hawser-io/hawser/test/apiserver"
)

// TestAnObserverNeedsEachOfItsRightsAndNoOther in a cluster with Hawser: with all of them it can read everything, and
// without any one a kind is left out.
func TestAnObserverNeedsEachOfItsRightsAndNoOther(t *testing.T) {
	config, c := apiserver.Start(t)
	// Policies are compared with those of the version that reports.
	manager := &volumesv1alpha1.VolumeManager{ObjectMeta: metav1.ObjectMeta{Name: volumesv1alpha1.VolumeManagerName}}
	if err := c.Create(t.Context(), manager); err != nil {
		t.Fatal(err)
	}
	manager.Status.Version = version.Version
	if err := c.Status().Update(t.Context(), manager); err != nil {
		t.Fatal(err)
	}
	// Events are read where something waits.
	if err := c.Create(t.Context(), &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "waits"},
		Spec: corev1.PersistentVolumeClaimSpec{AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{
				corev1.ResourceStorage: resource.MustParse("1Gi")}}}}); err != nil {
		t.Fatal(err)
	}
	rules := rulesOfRole(t)
	grant(t, c, "whole", rules)
	var lacking []string
	for _, rule := range rules {
		for _, resource := range rule.Resources {
			lacking = append(lacking, resource)
			grant(t, c, resource, without(rules, resource))
		}
	}
	if unread := unreadBy(t, config, c, "whole", rules[0]); unread != 0 {
		t.Errorf("with all rights %d kinds are left out, want none", unread)
	}
	for _, resource := range lacking {
		if unread := unreadBy(t, config, c, resource, without(rules, resource)[0]); unread == 0 {
			t.Errorf("without the right to %s nothing is left out, want that the right is needed", resource)
		}
	}
}

// rulesOfRole are those about reading.
func rulesOfRole(t *testing.T) []rbacv1.PolicyRule {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(apiserver.Root(), "config", "observer", "rbac.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for document := range strings.SplitSeq(string(text), "\n---\n") {
		role := &rbacv1.ClusterRole{}
		if err := yaml.Unmarshal([]byte(document), role); err != nil {
			t.Fatal(err)
		}
		if role.Kind == "ClusterRole" && role.Name == "hawser-observer" {
			return slices.DeleteFunc(role.Rules, func(r rbacv1.PolicyRule) bool { return !slices.Contains(r.Verbs, "list") })
		}
	}
	t.Fatal("there is no ClusterRole hawser-observer")
	return nil
}

func without(rules []rbacv1.PolicyRule, resource string) []rbacv1.PolicyRule {
	var left []rbacv1.PolicyRule
	for _, rule := range rules {
		rule.Resources = slices.DeleteFunc(slices.Clone(rule.Resources), func(r string) bool { return r == resource })
		if len(rule.Resources) > 0 {
			left = append(left, rule)
		}
	}
	return left
}

// grant rules to the user of the name.
func grant(t *testing.T, c client.Client, name string, rules []rbacv1.PolicyRule) {
	t.Helper()
	name = "observer-" + name
	for _, object := range []client.Object{
		&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: rules},
		&rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: name},
			RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
			Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: name}}},
	} {
		if err := c.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}
}

// unreadBy counts the kinds that an observer with the rights of the user leaves out.
func unreadBy(t *testing.T, config *rest.Config, c client.Client, user string, rule rbacv1.PolicyRule) int {
	t.Helper()
	awaitRight(t, c, "observer-"+user, rule)
	as := rest.CopyConfig(config)
	as.Impersonate = rest.ImpersonationConfig{UserName: "observer-" + user, Groups: []string{"system:authenticated"}}
	o, err := New(as)
	if err != nil {
		t.Fatal(err)
	}
	if err := o.examine(t.Context(), live.New(t.Context(), o.server, o.server, func(string, error) {})); err != nil {
		t.Fatalf("examining as %s: %v", user, err)
	}
	return testutil.CollectAndCount(o, "hawser_observer_unread")
}

// awaitRight waits until the API server applies a rule of the user's role. Nothing announces that.
func awaitRight(t *testing.T, c client.Client, user string, rule rbacv1.PolicyRule) {
	t.Helper()
	err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, patience, true,
		func(ctx context.Context) (bool, error) {
			review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{User: user,
				ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: rule.Verbs[0], Group: rule.APIGroups[0],
					Resource: rule.Resources[0]}}}
			err := c.Create(ctx, review)
			return review.Status.Allowed, err
		})
	if err != nil {
		t.Fatalf("waiting for the rights of %s: %v", user, err)
	}
}
