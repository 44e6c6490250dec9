/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package manager

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller"
	"github.com/hawser-io/hawser/internal/controller/attachment"
	"github.com/hawser-io/hawser/internal/controller/cached"
	"github.com/hawser-io/hawser/internal/controller/metrics"
	"github.com/hawser-io/hawser/internal/controller/policy"
	"github.com/hawser-io/hawser/internal/fencing"
	"github.com/hawser-io/hawser/test/apiserver"
)

type managerOptions struct {
	clock     clock.PassiveClock
	newClient client.NewClientFunc
	// transport is put between the manager and the API server.
	transport func(http.RoundTripper) http.RoundTripper
	// attachMode is Coexist unless it is set.
	attachMode controller.AttachMode
	podIntents bool
	// forceDetachAfter of pod intents.
	forceDetachAfter time.Duration
	// forgetGoneAfter is the policy for Nodes that are gone.
	forgetGoneAfter time.Duration
	// releaseTaints are the taints on which sets let a Node go.
	releaseTaints []string
	// fenceSources are what proves that machines are off.
	fenceSources []*fencing.Source
	// labelNodes where sets are Ready.
	labelNodes bool
	// manageTaint of Nodes whose machines are off.
	manageTaint bool
	// policies is for a manager that has its own account and checks whether its admission policies are in force.
	policies *policy.Checker
	// metrics of the manager go here, if anywhere.
	metrics prometheus.Registerer
}

// manage runs a manager until the test ends or stop is called, which waits for it.
func (w *world) manage(t *testing.T, o managerOptions) (requests *requestCounter, stop func()) {
	t.Helper()
	requests, filled, stop := w.start(t, o)
	if !filled(t.Context()) {
		t.Fatal("the manager's cache did not fill, want it filled")
	}
	return requests, stop
}

// start runs a manager as manage does, and leaves it to the caller to wait until its cache is filled.
func (w *world) start(
	t *testing.T, o managerOptions,
) (requests *requestCounter, filled func(context.Context) bool, stop func()) {
	t.Helper()
	if o.clock == nil {
		o.clock = clock.RealClock{}
	}
	requests = &requestCounter{seen: map[string]int{}}
	cfg := rest.CopyConfig(w.config)
	if o.policies != nil {
		cfg.Impersonate = rest.ImpersonationConfig{
			UserName: "system:serviceaccount:" + volumesv1alpha1.InstallNamespace + ":hawser-manager",
			Groups:   []string{"system:authenticated"},
		}
	}
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper {
		if o.transport != nil {
			next = o.transport(next)
		}
		requests.next = next
		return requests
	})
	mgr, err := manager.New(cfg, manager.Options{
		Scheme: apiserver.Scheme(), Cache: cached.Options(), NewClient: o.newClient, MapperProvider: w.mapper,
		Metrics:    metricsserver.Options{BindAddress: "0"},
		Controller: config.Controller{SkipNameValidation: ptr.To(true)},
	})
	if err != nil {
		t.Fatalf("creating a manager: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var policies attachment.Policies = inForce{}
	if o.policies != nil {
		policies = o.policies
		if err := o.policies.Register(mgr); err != nil {
			t.Fatalf("registering the watch over the policies: %v", err)
		}
	}
	if err := controller.Register(ctx, mgr, controller.Options{
		AttachMode: cmp.Or(o.attachMode, controller.Coexist), PodIntents: o.podIntents || o.attachMode == controller.Replace,
		ForceDetachAfter: o.forceDetachAfter, ForgetGoneNodesAfter: o.forgetGoneAfter,
		ReleaseSetsOnTaints: o.releaseTaints, Clock: o.clock, Policies: policies, FenceSources: o.fenceSources,
		ManageOutOfServiceTaint: o.manageTaint, LabelNodes: o.labelNodes,
	}); err != nil {
		t.Fatalf("registering the controllers: %v", err)
	}
	if o.metrics != nil {
		if err := metrics.Register(ctx, mgr, o.metrics); err != nil {
			t.Fatalf("registering metrics: %v", err)
		}
	}
	done := make(chan error, 1)
	go func() { done <- mgr.Start(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil && !errors.Is(err, context.Canceled) {
			t.Errorf("running a manager: %v", err)
		}
	})
	t.Cleanup(stop)
	return requests, mgr.GetCache().WaitForCacheSync, stop
}

// mapper spares each manager asking for all kinds.
func (w *world) mapper(*rest.Config, *http.Client) (meta.RESTMapper, error) {
	return w.client.RESTMapper(), nil
}

// inForce is the admission policies where a test does not concern them.
type inForce struct{}

func (inForce) Missing() string { return "" }

func (inForce) Changed() <-chan event.GenericEvent { return make(chan event.GenericEvent) }
