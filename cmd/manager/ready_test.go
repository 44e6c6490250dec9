/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package main

import (
	"context"
	"net/http"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/go-logr/logr"
	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache/informertest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hawser-io/hawser/internal/install"
	"github.com/hawser-io/hawser/internal/metrics/endpoint"
	"github.com/hawser-io/hawser/test/apiserver"
	"github.com/hawser-io/hawser/test/endpoints"
)

func TestTheManagerIsReadyOnceItsCachesAreFilled(t *testing.T) {
	for _, filled := range []bool{false, true} {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "/readyz", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		err = cachesFilled(&informertest.FakeInformers{Synced: ptr.To(filled)})(request)
		if filled != (err == nil) {
			t.Errorf("readiness with caches filled %t: error %v, want one: %t", filled, err, !filled)
		}
	}
}

// prefixVariable is what an overlay puts before the names in TestTheManagerOnARealAPIServer. The variable POD_NAMESPACE
// sets the namespace, as in the manifests.
const prefixVariable = "HAWSER_NAME_PREFIX"

// TestTheManagerUnderAnotherNamespaceAndName needs a process of its own, because a program's namespace never changes.
func TestTheManagerUnderAnotherNamespaceAndName(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestTheManagerOnARealAPIServer$")
	cmd.Env = append(os.Environ(), "POD_NAMESPACE=storage-system", prefixVariable+"=acme-")
	if output, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("manager in namespace storage-system with prefix acme-: error %v, want none: %s", err, output)
	}
}

// TestTheManagerOnARealAPIServer runs the whole program. It is ready while the policies are applied and those of no
// other installation, and refuses its metrics to a client without a token.
func TestTheManagerOnARealAPIServer(t *testing.T) {
	ctrl.SetLogger(logr.Discard())
	config, c := apiserver.Start(t)
	admin := apiserver.Kubeconfig(t, config)
	namespace, prefix := install.Namespace(), os.Getenv(prefixVariable)
	t.Setenv("KUBECONFIG",
		apiserver.Kubeconfig(t, apiserver.ServiceAccount(config, namespace, prefix+"hawser-manager")))
	apiserver.Kubectl(t, admin, "", "create", "namespace", namespace)
	overlay := func(base string) string {
		return apiserver.Kustomization{Resources: []string{base}, Namespace: namespace, NamePrefix: prefix}.Write(t)
	}
	apiserver.Kubectl(t, admin, "", "apply", "-k", overlay("rbac"))
	o := options{leaderElect: true, leaderElectNS: namespace, healthAddr: endpoints.FreeAddress(t),
		metrics: endpoint.Endpoint{Address: endpoints.FreeAddress(t)}, attachMode: "Coexist", podIntents: "auto"}
	endpoints.Run(t, func(ctx context.Context) error { return run(ctx, o) })
	endpoints.Await(t, "the manager is alive", "http://"+o.healthAddr+"/healthz", http.StatusOK)
	endpoints.Await(t, "its caches are filled", "http://"+o.healthAddr+"/readyz/caches", http.StatusOK)
	got, _ := endpoints.Send(t, http.MethodGet, "http://"+o.healthAddr+"/readyz", "")
	if got != http.StatusInternalServerError {
		t.Errorf("readiness of the manager without the policies: status %d, want %d", got, http.StatusInternalServerError)
	}
	// The metrics of a manager that is not ready show why.
	endpoints.Await(t, "metrics need a token", "https://"+o.metrics.Address+"/metrics", http.StatusUnauthorized)

	apiserver.Kubectl(t, admin, "", "apply", "-k", overlay("standalone"))
	endpoints.Await(t, "the policies are in force", "http://"+o.healthAddr+"/readyz", http.StatusOK)
	awaitRenewed(t, c, namespace)

	second := apiserver.Kustomization{Resources: []string{"admission"}, Namespace: namespace,
		NamePrefix: "second-"}.Write(t)
	apiserver.Kubectl(t, admin, "", "apply", "-k", second)
	endpoints.Await(t, "Hawser is installed twice", "http://"+o.healthAddr+"/readyz", http.StatusInternalServerError)
	apiserver.Kubectl(t, admin, "", "delete", "-k", second)
	endpoints.Await(t, "the second one is gone", "http://"+o.healthAddr+"/readyz", http.StatusOK)
}

// awaitRenewed waits until the manager has renewed the Lease with which it leads.
func awaitRenewed(t *testing.T, c client.WithWatch, namespace string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	w, err := c.Watch(ctx, &coordinationv1.LeaseList{}, client.InNamespace(namespace),
		client.MatchingFields{"metadata.name": "hawser-manager"})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	for event := range w.ResultChan() {
		lease, is := event.Object.(*coordinationv1.Lease)
		if is && lease.Spec.RenewTime != nil && lease.Spec.RenewTime.After(lease.Spec.AcquireTime.Time) {
			return
		}
	}
	t.Errorf("Lease hawser-manager in namespace %s was not renewed, want it renewed", namespace)
}
