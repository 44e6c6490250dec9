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
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/hawser-io/hawser/internal/metrics/endpoint"
	"github.com/hawser-io/hawser/test/apiserver"
	"github.com/hawser-io/hawser/test/endpoints"
)

// aloneVariable is set in the process of the observer.
const aloneVariable = "HAWSER_TEST_ALONE"

// TestTheObserverRunsWithoutAnythingOfHawser needs a process of its own, because the observer and the manager register
// metrics of one name.
func TestTheObserverRunsWithoutAnythingOfHawser(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestTheObserverOnABareAPIServer$", "-test.v")
	cmd.Env = append(os.Environ(), aloneVariable+"=true")
	output, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(output), "--- PASS: TestTheObserverOnABareAPIServer") {
		t.Errorf("the observer on an API server without Hawser's kinds: error %v, want none: %s", err, output)
	}
}

// TestTheObserverOnABareAPIServer runs the whole program with the rights of config/observer. It holds no Lease.
func TestTheObserverOnABareAPIServer(t *testing.T) {
	if os.Getenv(aloneVariable) == "" {
		t.Log("TestTheObserverRunsWithoutAnythingOfHawser runs this in another process")
		return
	}
	ctrl.SetLogger(logr.Discard())
	config, _ := apiserver.StartBare(t, nil)
	kubectl := func(args ...string) string {
		return strings.TrimSpace(apiserver.Kubectl(t, apiserver.Kubeconfig(t, config), "", args...))
	}
	kubectl("apply", "-k", filepath.Join(apiserver.Root(), "config", "observer"))
	kubectl("create", "serviceaccount", "scraper", "-n", "default")
	kubectl("create", "clusterrolebinding", "scraper", "--clusterrole=hawser-observer-metrics-reader",
		"--serviceaccount=default:scraper")
	t.Setenv("KUBECONFIG",
		apiserver.Kubeconfig(t, apiserver.ServiceAccount(config, "hawser-observer", "hawser-observer")))
	o := options{observe: true, leaderElect: true, leaderElectNS: "hawser-observer", healthAddr: endpoints.FreeAddress(t),
		metrics: endpoint.Endpoint{Address: endpoints.FreeAddress(t)}}
	endpoints.Run(t, func(ctx context.Context) error { return run(ctx, o) })
	endpoints.Await(t, "the cluster is examined", "http://"+o.healthAddr+"/readyz", http.StatusOK)
	metrics := "https://" + o.metrics.Address + "/metrics"
	endpoints.Await(t, "metrics need a token", metrics, http.StatusUnauthorized)
	status, text := endpoints.Send(t, http.MethodGet, metrics, kubectl("create", "token", "scraper", "-n", "default"))
	if status != http.StatusOK || !strings.Contains(text, "hawser_observer_examined_seconds") {
		t.Errorf("metrics with a token: status %d, want %d and those of the observer: %.300s", status, http.StatusOK, text)
	}
}
