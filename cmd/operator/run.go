/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package main

import (
	"context"
	"flag"
	"fmt"
	"net/http"
	"os"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/install"
	"github.com/hawser-io/hawser/internal/metrics"
	"github.com/hawser-io/hawser/internal/metrics/endpoint"
	"github.com/hawser-io/hawser/internal/operator"
	"github.com/hawser-io/hawser/internal/operator/rollout"
	"github.com/hawser-io/hawser/internal/version"
)

type options struct {
	leaderElect bool
	metrics     endpoint.Endpoint
	healthAddr  string
}

func (o *options) addFlags(flags *flag.FlagSet) {
	flags.BoolVar(&o.leaderElect, "leader-elect", false, "elect one of several operators as the leader through a Lease")
	flags.StringVar(&o.metrics.Address, "metrics-bind-address", ":8443",
		"address of the metrics endpoint, which uses TLS; 0 for none")
	flags.StringVar(&o.metrics.CertDir, "metrics-cert-dir", "",
		"directory with the endpoint's tls.crt and tls.key, which may be replaced at any time; "+
			"empty for a self-signed certificate")
	flags.StringVar(&o.healthAddr, "health-probe-bind-address", ":8081", "address of /healthz and /readyz; 0 for none")
}

// run runs the operator until ctx ends.
func run(ctx context.Context, o options) error {
	initial, err := operator.ParseInitialSpec(os.Getenv(operator.InitialSpecVariable))
	if err != nil {
		return err
	}
	config, err := ctrl.GetConfig()
	if err != nil {
		return fmt.Errorf("reading the kubeconfig: %w", err)
	}
	// The API server's priority and fairness limits the requests.
	config.QPS, config.Burst = -1, -1
	httpClient, err := rest.HTTPClientFor(config)
	if err != nil {
		return fmt.Errorf("creating the HTTP client: %w", err)
	}
	mapper, err := apiutil.NewDynamicRESTMapper(config, httpClient)
	if err != nil {
		return fmt.Errorf("creating the REST mapper: %w", err)
	}
	kinds, err := operator.FindKinds(mapper)
	if err != nil {
		return err
	}
	mgr, err := newManager(config, o, mapper, kinds)
	if err != nil {
		return err
	}
	progress := &rollout.Metrics{}
	for _, c := range []prometheus.Collector{progress, metrics.BuildInfo("operator")} {
		if err := ctrlmetrics.Registry.Register(c); err != nil {
			return fmt.Errorf("registering metrics: %w", err)
		}
	}
	if err := operator.Register(mgr, operator.Options{
		Rollout:   progress,
		Namespace: install.Namespace(), Version: version.Version, Kinds: kinds, Clock: clock.RealClock{},
		// The names are those that tools of the operator framework collect as related images.
		Images: volumesv1alpha1.Images{Manager: os.Getenv("RELATED_IMAGE_MANAGER"),
			Agent: os.Getenv("RELATED_IMAGE_AGENT")},
		InitialSpec: initial,
	}); err != nil {
		return err
	}
	for name, add := range map[string]func(string, healthz.Checker) error{
		"health": mgr.AddHealthzCheck, "readiness": mgr.AddReadyzCheck,
	} {
		if err := add("ping", healthz.Ping); err != nil {
			return fmt.Errorf("adding the %s check: %w", name, err)
		}
	}
	if err := mgr.Start(ctx); err != nil {
		return fmt.Errorf("running: %w", err)
	}
	return nil
}

func newManager(config *rest.Config, o options, mapper meta.RESTMapper, kinds operator.Kinds) (manager.Manager, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, volumesv1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, fmt.Errorf("building the scheme: %w", err)
		}
	}
	metricsOptions, besides, err := o.metrics.Open()
	if err != nil {
		return nil, err
	}
	mgr, err := ctrl.NewManager(config, manager.Options{
		Scheme:                        scheme,
		MapperProvider:                func(*rest.Config, *http.Client) (meta.RESTMapper, error) { return mapper, nil },
		Cache:                         kinds.CacheOptions(install.Namespace()),
		Metrics:                       metricsOptions,
		HealthProbeBindAddress:        o.healthAddr,
		LeaderElection:                o.leaderElect,
		LeaderElectionID:              "hawser-operator",
		LeaderElectionNamespace:       install.Namespace(),
		LeaderElectionReleaseOnCancel: true,
	})
	if err != nil {
		return nil, fmt.Errorf("creating the manager: %w", err)
	}
	for _, runnable := range besides {
		if err := mgr.Add(runnable); err != nil {
			return nil, fmt.Errorf("adding the watcher of the metrics endpoint's certificate: %w", err)
		}
	}
	return mgr, nil
}
