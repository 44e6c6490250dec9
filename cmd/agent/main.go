/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

// The agent brings volumes onto the node that it runs on.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os"

	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/clock"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/agent"
	"github.com/hawser-io/hawser/internal/agent/podstats"
	"github.com/hawser-io/hawser/internal/agent/secrets"
	"github.com/hawser-io/hawser/internal/driver/csi"
	"github.com/hawser-io/hawser/internal/driver/metered"
	"github.com/hawser-io/hawser/internal/install"
	"github.com/hawser-io/hawser/internal/metrics"
	"github.com/hawser-io/hawser/internal/metrics/endpoint"
	"github.com/hawser-io/hawser/internal/mount"
	"github.com/hawser-io/hawser/internal/version"
)

// flags of the program.
type flags struct {
	agent.Options
	mountInfo string
	metrics   endpoint.Endpoint
	probeAddr string
	zap       zap.Options
}

func parseFlags() *flags {
	f := &flags{}
	flag.StringVar(&f.NodeName, "node-name", os.Getenv("NODE_NAME"), "Name of the Node that the agent runs on.")
	flag.StringVar(&f.RootDir, "root-dir", "/var/lib/hawser",
		"Directory for published volumes and records. It may be a symbolic link.")
	flag.StringVar(&f.KubeletDir, "kubelet-dir", "/var/lib/kubelet",
		"The kubelet's root directory, by the name that the kubelet has for it (--root-dir). It may be a symbolic link.")
	flag.DurationVar(&f.DriverTimeout, "driver-timeout", agent.DefaultDriverTimeout, "How long one driver call may take.")
	flag.DurationVar(&f.StatsPeriod, "stats-period", agent.DefaultStatsPeriod,
		"How often to ask the drivers how full their volumes are, with some jitter.")
	flag.StringVar(&f.BootIDFile, "boot-id-file", "/proc/sys/kernel/random/boot_id",
		"File with the ID of the running boot.")
	flag.StringVar(&f.MachineIdentityFile, "machine-identity-file", "",
		"File with the system UUID and, in a second line, the machine ID. It is for test nodes that share a kernel. "+
			"Empty: those of the firmware and of the host.")
	flag.StringVar(&f.mountInfo, "mountinfo", mount.SelfMountInfo,
		"The mount table; "+mount.HostMountInfo+" in a container that shares the host's process IDs.")
	flag.StringVar(&f.metrics.Address, "metrics-bind-address", "0",
		"Address of the metrics endpoint, which uses TLS; 0 turns it off.")
	flag.StringVar(&f.metrics.CertDir, "metrics-cert-dir", "",
		"Directory with the endpoint's tls.crt and tls.key, which may be replaced at any time. "+
			"Empty: a self-signed certificate.")
	flag.StringVar(&f.probeAddr, "health-probe-bind-address", "0", "Address of the health endpoint; 0 turns it off.")
	f.zap.BindFlags(flag.CommandLine)
	flag.Parse()
	return f
}

func main() {
	f := parseFlags()
	ctrl.SetLogger(zap.New(zap.UseFlagOptions(&f.zap)))
	klog.SetLogger(ctrl.Log)
	if err := run(ctrl.SetupSignalHandler(), f); err != nil {
		ctrl.Log.Error(err, "agent ended")
		os.Exit(1)
	}
}

func run(ctx context.Context, f *flags) error {
	if f.NodeName == "" {
		return errors.New("--node-name is missing")
	}
	cfg, err := ctrl.GetConfig()
	if err != nil {
		return fmt.Errorf("finding the API server: %w", err)
	}
	connections := &agent.Connections{}
	cfg.Dial = connections.Dial
	cfg.QPS, cfg.Burst = -1, -1 // priority and fairness of the API server decide
	mgr, err := newManager(cfg, f)
	if err != nil {
		return err
	}
	registry, err := csi.NewRegistry(csi.Options{KubeletDir: f.KubeletDir, Registerer: ctrlmetrics.Registry})
	if err != nil {
		return fmt.Errorf("making driver registry: %w", err)
	}
	calls := metrics.NewCalls(clock.RealClock{})
	if err := registerMetrics(calls); err != nil {
		return err
	}
	links, err := mount.ResolveLinks(f.mountInfo, f.KubeletDir, f.RootDir)
	if err != nil {
		return err
	}
	mounter := mount.New(mount.Options{MountInfo: f.mountInfo, Links: links})
	watcher := mounter.NewWatcher()
	o := f.Options
	if o.Live, o.Secrets, err = clients(mgr, f.NodeName); err != nil {
		return err
	}
	o.Version, o.Connections, o.ServePods, o.Calls = version.Version, connections, true, calls
	o.Cache, o.Registry = mgr.GetCache(), metered.Wrap(registry)
	o.Mounts, o.MountChanges = mounter, watcher.Changes()
	o.Filesystems = agent.NodeFilesystems{File: "/proc/filesystems", MissingPrograms: mounter.MissingPrograms}
	o.Recorder = mgr.GetEventRecorder("hawser-agent")
	o.Log = ctrl.Log.WithName("agent").WithValues("node", f.NodeName)
	a, err := agent.New(o)
	if err != nil {
		return fmt.Errorf("making agent: %w", err)
	}
	if err := ctrlmetrics.Registry.Register(podstats.NewCollector(a.StatsOfPods)); err != nil {
		return fmt.Errorf("registering the figures of pods' volumes: %w", err)
	}
	if err := ctrlmetrics.Registry.Register(podstats.NewPublishedCollector(a.StatsOfPublished)); err != nil {
		return fmt.Errorf("registering the figures of published volumes: %w", err)
	}
	for _, r := range []manager.Runnable{manager.RunnableFunc(registry.Start), manager.RunnableFunc(watcher.Start), a} {
		if err := mgr.Add(r); err != nil {
			return err
		}
	}
	if err := addProbes(mgr, a, registry); err != nil {
		return err
	}
	return mgr.Start(ctx)
}

func registerMetrics(calls *metrics.Calls) error {
	if err := metrics.Register(ctrlmetrics.Registry); err != nil {
		return err
	}
	return errors.Join(ctrlmetrics.Registry.Register(calls),
		ctrlmetrics.Registry.Register(metrics.BuildInfo("agent")))
}

// clients returns what reads and writes as the agent, without a cache, and what reads Secrets as the node's account.
func clients(mgr manager.Manager, node string) (client.Client, *secrets.Reader, error) {
	live, err := client.New(mgr.GetConfig(),
		client.Options{HTTPClient: mgr.GetHTTPClient(), Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper()})
	if err != nil {
		return nil, nil, fmt.Errorf("making client: %w", err)
	}
	reader, err := secrets.NewReader(
		secrets.Options{Config: mgr.GetConfig(), Live: live, Node: node, Namespace: install.Namespace()})
	return live, reader, err
}

func newManager(cfg *rest.Config, f *flags) (manager.Manager, error) {
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), volumesv1alpha1.AddToScheme(scheme)); err != nil {
		return nil, fmt.Errorf("making scheme: %w", err)
	}
	metricsOptions, besides, err := f.metrics.Open()
	if err != nil {
		return nil, err
	}
	mgr, err := ctrl.NewManager(cfg, ctrl.Options{
		Scheme:                 scheme,
		Metrics:                metricsOptions,
		HealthProbeBindAddress: f.probeAddr,
		NewCache: func(cfg *rest.Config, o cache.Options) (cache.Cache, error) {
			own := agent.CacheOptions(f.NodeName)
			o.ByObject, o.DefaultTransform, o.ReaderFailOnMissingInformer = own.ByObject, own.DefaultTransform,
				own.ReaderFailOnMissingInformer
			return cache.New(cfg, o)
		},
	})
	if err != nil {
		return nil, fmt.Errorf("making manager: %w", err)
	}
	for _, runnable := range besides {
		if err := mgr.Add(runnable); err != nil {
			return nil, fmt.Errorf("adding the watcher of the metrics endpoint's certificate: %w", err)
		}
	}
	return mgr, nil
}

// addProbes: the agent is ready once the API server has its first report and while it can find the node's drivers.
func addProbes(mgr manager.Manager, a *agent.Agent, registry *csi.Registry) error {
	reported := func(*http.Request) error {
		select {
		case <-a.Started():
			return nil
		default:
			return errors.New("the first report is not written yet")
		}
	}
	drivers := func(*http.Request) error { return registry.Readable() }
	pods := func(*http.Request) error { return a.ServingPods() }
	return errors.Join(
		mgr.AddHealthzCheck("ping", healthz.Ping),
		mgr.AddReadyzCheck("report", reported), mgr.AddReadyzCheck("drivers", drivers),
		mgr.AddReadyzCheck("pods", pods),
	)
}
