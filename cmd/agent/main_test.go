/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package main

import (
	"context"
	"net/http"
	"path/filepath"
	"testing"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/agent"
	"github.com/hawser-io/hawser/internal/metrics/endpoint"
	"github.com/hawser-io/hawser/internal/mount"
	"github.com/hawser-io/hawser/test/apiserver"
	"github.com/hawser-io/hawser/test/endpoints"
)

// TestTheAgentOnARealAPIServer runs the whole program: it becomes ready when it has reported on its node, and shows its
// metrics to nobody without a token.
func TestTheAgentOnARealAPIServer(t *testing.T) {
	ctrl.SetLogger(logr.Discard())
	config, admin := apiserver.Start(t)
	t.Setenv("KUBECONFIG",
		apiserver.Kubeconfig(t, apiserver.ServiceAccount(config, "hawser-system", "hawser-agent", "node-a")))
	kubeconfig := apiserver.Kubeconfig(t, config)
	apiserver.Kubectl(t, kubeconfig, "", "apply", "-k", "namespace")
	for _, base := range []string{"rbac", "admission"} {
		apiserver.Kubectl(t, kubeconfig, "", "apply", "-k", base)
	}
	dir := t.TempDir()
	f := &flags{
		Options: agent.Options{
			NodeName: "node-a", RootDir: filepath.Join(dir, "root"), KubeletDir: filepath.Join(dir, "kubelet"),
		},
		mountInfo: mount.SelfMountInfo,
		metrics:   endpoint.Endpoint{Address: endpoints.FreeAddress(t)}, probeAddr: endpoints.FreeAddress(t),
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx, f) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	endpoints.Await(t, "the agent is alive", "http://"+f.probeAddr+"/healthz", http.StatusOK)
	endpoints.Await(t, "it can find drivers", "http://"+f.probeAddr+"/readyz/drivers", http.StatusOK)
	endpoints.Await(t, "metrics need a token", "https://"+f.metrics.Address+"/metrics", http.StatusUnauthorized)
	got, _ := endpoints.Send(t, http.MethodGet, "http://"+f.probeAddr+"/readyz", "")
	if got != http.StatusInternalServerError {
		t.Errorf("readiness of the agent before its first report: status %d, want %d", got, http.StatusInternalServerError)
	}
	create(t, admin, &volumesv1alpha1.NodeVolumeState{ObjectMeta: metav1.ObjectMeta{Name: f.NodeName}})
	endpoints.Await(t, "the first report is written", "http://"+f.probeAddr+"/readyz", http.StatusOK)
}

func create(t *testing.T, c client.Client, object client.Object) {
	t.Helper()
	if err := c.Create(t.Context(), object); err != nil {
		t.Fatal(err)
	}
}
