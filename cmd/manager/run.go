/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package main

import (
	"context"
	"flag"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller"
	"github.com/hawser-io/hawser/internal/controller/attachment"
	"github.com/hawser-io/hawser/internal/controller/cached"
)

// coexist is the attach mode beside upstream's attach/detach controller.
const coexist = "Coexist"

type options struct {
	leaderElect   bool
	metricsAddr   string
	healthAddr    string
	attachMode    string
	leaderElectNS string
}

func (o *options) addFlags(flags *flag.FlagSet) {
	flags.BoolVar(&o.leaderElect, "leader-elect", false, "let one of several managers act, elected through a Lease")
	flags.StringVar(&o.leaderElectNS, "leader-elect-namespace", volumesv1alpha1.InstallNamespace, "namespace of that Lease")
	flags.StringVar(&o.metricsAddr, "metrics-bind-address", ":8080", "address of the metrics endpoint; 0 for none")
	flags.StringVar(&o.healthAddr, "health-probe-bind-address", ":8081", "address of /healthz and /readyz; 0 for none")
	flags.StringVar(&o.attachMode, "attach-mode", coexist, "Coexist: beside upstream's attach/detach controller")
}

// run runs the manager until ctx ends.
func run(ctx context.Context, o options) error {
	if o.attachMode != coexist {
		return fmt.Errorf("attach mode %q is not known; there is %s", o.attachMode, coexist)
	}
	mgr, err := newManager(o)
	if err != nil {
		return err
	}
	if err := attachment.RegisterMetrics(); err != nil {
		return fmt.Errorf("registering metrics: %w", err)
	}
	if err := controller.Register(ctx, mgr, clock.RealClock{}); err != nil {
		return err
	}
	if err := mgr.AddHealthzCheck("ping", healthz.Ping); err != nil {
		return fmt.Errorf("adding the health check: %w", err)
	}
	if err := mgr.AddReadyzCheck("ping", healthz.Ping); err != nil {
		return fmt.Errorf("adding the readiness check: %w", err)
	}
	if err := mgr.Start(ctx); err != nil {
		return fmt.Errorf("running: %w", err)
	}
	return nil
}

func newManager(o options) (manager.Manager, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, volumesv1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, fmt.Errorf("building the scheme: %w", err)
		}
	}
	config, err := ctrl.GetConfig()
	if err != nil {
		return nil, fmt.Errorf("reading the kubeconfig: %w", err)
	}
	// The API server's priority and fairness is the limit.
	config.QPS, config.Burst = -1, -1
	mgr, err := ctrl.NewManager(config, manager.Options{
		Scheme:                        scheme,
		Cache:                         cached.Options(),
		Metrics:                       metricsserver.Options{BindAddress: o.metricsAddr},
		HealthProbeBindAddress:        o.healthAddr,
		LeaderElection:                o.leaderElect,
		LeaderElectionID:              "hawser-manager",
		LeaderElectionNamespace:       o.leaderElectNS,
		LeaderElectionReleaseOnCancel: true,
	})
	if err != nil {
		return nil, fmt.Errorf("creating the manager: %w", err)
	}
	return mgr, nil
}
