/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package apiserver

import (
	"os"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
)

func TestMain(m *testing.M) { os.Exit(Main(m)) }

func TestNothingOfATestReachesTheNextOneOnItsControlPlane(t *testing.T) {
	var host string
	var late client.Client
	held := metav1.ObjectMeta{Name: "held", Namespace: "default", Finalizers: []string{"example.com/for-ever"}}
	t.Run("the first", func(t *testing.T) {
		config, c := Borrow(t)
		host, late = config.Host, c
		create(t, c,
			&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: volumesv1alpha1.InstallNamespace}},
			&corev1.ConfigMap{ObjectMeta: held},
			&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "held", Finalizers: held.Finalizers}})
		if err := c.Delete(t.Context(), &corev1.ConfigMap{ObjectMeta: held}); err != nil {
			t.Fatal(err)
		}
	})
	t.Run("the next", func(t *testing.T) {
		config, c := Borrow(t)
		if config.Host != host {
			t.Errorf("control plane of the second test: %s, want that of the first: %s", config.Host, host)
		}
		if err := late.Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "late"}}); err == nil {
			t.Error("creating Node late by a client of the first test: no error, want one")
		}
		for _, o := range []client.Object{&corev1.ConfigMap{}, &corev1.Node{}, &corev1.Namespace{}} {
			key := client.ObjectKey{Namespace: "default", Name: "held"}
			if _, namespace := o.(*corev1.Namespace); namespace {
				key = client.ObjectKey{Name: volumesv1alpha1.InstallNamespace}
			}
			if err := c.Get(t.Context(), key, o); client.IgnoreNotFound(err) != nil || o.GetUID() != "" {
				t.Errorf("%T %s of the first test: UID %q, error %v; want not found", o, key, o.GetUID(), err)
			}
		}
	})
}

func TestAControlPlaneIsNotSharedAfterAChangeOfItself(t *testing.T) {
	var host string
	t.Run("the first", func(t *testing.T) {
		config, c := Borrow(t)
		host = config.Host
		create(t, c, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "new"}})
	})
	if config, _ := Borrow(t); config.Host == host {
		t.Errorf("control plane after a new ClusterRole: %s as before, want another", config.Host)
	}
}

func TestWhatDeletionRestores(t *testing.T) {
	const lease, namespace, pod = "/registry/masterleases/192.0.2.1", "/registry/namespaces/default",
		"/registry/pods/default/web"
	before := map[string]string{lease: "1", namespace: "2"}
	for _, test := range []struct {
		name string
		now  map[string]string
		want []string
		ok   bool
	}{
		{"nothing has happened", before, nil, true},
		{"a pod is new", map[string]string{lease: "1", namespace: "2", pod: "3"}, []string{pod}, true},
		{"the API server has renewed its lease", map[string]string{lease: "3", namespace: "2"}, nil, true},
		{"the namespace was changed", map[string]string{lease: "1", namespace: "3"}, nil, false},
		{"the namespace was deleted", map[string]string{lease: "1"}, nil, false},
		{"a role is new", map[string]string{lease: "1", namespace: "2", "/registry/clusterroles/new": "3"}, nil, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got, ok := added(before, test.now); ok != test.ok || !slices.Equal(got, test.want) {
				t.Errorf("keys to delete: %v, restorable %t; want %v, %t", got, ok, test.want, test.ok)
			}
		})
	}
}

func create(t *testing.T, c client.Client, objects ...client.Object) {
	t.Helper()
	for _, o := range objects {
		if err := c.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
}
