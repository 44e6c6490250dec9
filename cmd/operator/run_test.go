/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package main

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hawser-io/hawser/internal/install"
	"github.com/hawser-io/hawser/internal/metrics/endpoint"
	"github.com/hawser-io/hawser/test/apiserver"
	"github.com/hawser-io/hawser/test/endpoints"
)

// TestTheOperatorOnARealAPIServer runs the whole program under its own account: it is elected, installs, and shows its
// metrics only to clients with a token.
func TestTheOperatorOnARealAPIServer(t *testing.T) {
	ctrl.SetLogger(logr.Discard())
	config, c := apiserver.Start(t)
	admin := apiserver.Kubeconfig(t, config)
	namespace := install.Namespace()
	t.Setenv("KUBECONFIG", apiserver.Kubeconfig(t, apiserver.ServiceAccount(config, namespace, "hawser-operator")))
	t.Setenv("RELATED_IMAGE_MANAGER", "example.com/manager:v1")
	t.Setenv("RELATED_IMAGE_AGENT", "example.com/agent:v1")
	apiserver.Kubectl(t, admin, "", "apply", "-k", "default")
	o := options{leaderElect: true, healthAddr: endpoints.FreeAddress(t),
		metrics: endpoint.Endpoint{Address: endpoints.FreeAddress(t)}}
	endpoints.Run(t, func(ctx context.Context) error { return run(ctx, o) })
	endpoints.Await(t, "the operator is ready", "http://"+o.healthAddr+"/readyz", http.StatusOK)
	endpoints.Await(t, "metrics need a token", "https://"+o.metrics.Address+"/metrics", http.StatusUnauthorized)
	lease := &coordinationv1.LeaseList{}
	await(t, c, lease, namespace, "hawser-operator", func(o client.Object) bool {
		return o.(*coordinationv1.Lease).Spec.HolderIdentity != nil
	})
	for name, image := range map[string]string{"hawser-manager": "example.com/manager:v1"} {
		await(t, c, &appsv1.DeploymentList{}, namespace, name, func(o client.Object) bool {
			return o.(*appsv1.Deployment).Spec.Template.Spec.Containers[0].Image == image
		})
	}
	await(t, c, &appsv1.DaemonSetList{}, namespace, "hawser-agent", func(o client.Object) bool {
		return o.(*appsv1.DaemonSet).Spec.Template.Spec.Containers[0].Image == "example.com/agent:v1"
	})
}

func TestTheOperatorEndsWithAnInitialSpecThatItCannotRead(t *testing.T) {
	t.Setenv("INITIAL_SPEC", "{attachMod: Replace}")
	err := run(t.Context(), options{})
	if err == nil || !strings.Contains(err.Error(), `INITIAL_SPEC`) || !strings.Contains(err.Error(), `"attachMod"`) {
		t.Errorf("running the operator with an unknown field in INITIAL_SPEC: error %v, want one that names both", err)
	}
}

// await waits until the object holds. A watch without a version begins with what is there.
func await(t *testing.T, c client.WithWatch, list client.ObjectList, namespace, name string,
	holds func(client.Object) bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	w, err := c.Watch(ctx, list, client.InNamespace(namespace), client.MatchingFields{"metadata.name": name})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	for event := range w.ResultChan() {
		if object, is := event.Object.(client.Object); is && holds(object) {
			return
		}
	}
	t.Fatalf("%s/%s did not become what is expected within a minute", namespace, name)
}
