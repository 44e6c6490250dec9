/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	ctrlconfig "sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller"
	"github.com/hawser-io/hawser/internal/controller/cached"
	"github.com/hawser-io/hawser/internal/controller/metrics"
	"github.com/hawser-io/hawser/internal/controller/policy"
	"github.com/hawser-io/hawser/internal/fencing"
	"github.com/hawser-io/hawser/internal/install"
	shared "github.com/hawser-io/hawser/internal/metrics"
	"github.com/hawser-io/hawser/internal/metrics/endpoint"
	"github.com/hawser-io/hawser/internal/observe"
)

type options struct {
	leaderElect   bool
	metrics       endpoint.Endpoint
	healthAddr    string
	pprofAddr     string
	attachMode    string
	podIntents    string
	forceDetach   time.Duration
	forgetGone    time.Duration
	releaseTaints []string
	labelNodes    bool
	fenceSources  []*fencing.Source
	manageTaint   bool
	leaderElectNS string
	observe       bool
	// withdrawn flags that were given.
	withdrawn []string
}

func (o *options) addFlags(flags *flag.FlagSet) {
	flags.BoolVar(&o.observe, "observe", false,
		"attach nothing, and only examine the cluster: what kubectl hawser doctor finds becomes metrics. "+
			"It needs the role of config/observer and neither agents nor Hawser's kinds; "+
			"the flags about attaching have no effect")
	flags.BoolVar(&o.leaderElect, "leader-elect", false, "elect one of several managers as the leader through a Lease")
	flags.StringVar(&o.leaderElectNS, "leader-elect-namespace", install.Namespace(),
		"namespace of that Lease")
	flags.StringVar(&o.metrics.Address, "metrics-bind-address", ":8443",
		"address of the metrics endpoint, which uses TLS; 0 for none")
	flags.StringVar(&o.metrics.CertDir, "metrics-cert-dir", "",
		"directory with the endpoint's tls.crt and tls.key, which may be replaced at any time; "+
			"empty for a self-signed certificate")
	flags.StringVar(&o.healthAddr, "health-probe-bind-address", ":8081", "address of /healthz and /readyz; 0 for none")
	flags.StringVar(&o.pprofAddr, "pprof-bind-address", "", "address of Go's profiles, for measurements; empty for none")
	flags.StringVar(&o.attachMode, "attach-mode", string(controller.Coexist),
		"Coexist: next to upstream's attach/detach controller; Replace: instead of it, which must then be disabled")
	flags.StringVar(&o.podIntents, "pod-intents", "auto",
		"create intents for the volumes of pods: true, false, or auto, which is true in Replace")
	flags.DurationVar(&o.forceDetach, "pod-force-detach-after", 0,
		"force the detach of a pod's volume from a node that has not been Ready for this long (1m to 720h); 0 for never. "+
			"Warning: data that the node had not yet written is lost")
	flags.DurationVar(&o.forgetGone, "forget-gone-nodes-after", 0,
		"declare released what was forced away from a Node that has been gone for this long (at least 1h); 0 for never. "+
			"Warning: the machine must not return under that name with the volume still mounted. "+
			"Requires the role of config/forget-gone-nodes")
	flags.Func("release-sets-on-taints",
		"keys of taints, with commas between them: a set of intents deletes its intent on a Node with such a taint",
		func(keys string) error {
			o.releaseTaints = strings.FieldsFunc(keys, func(r rune) bool { return r == ',' })
			return nil
		})
	flags.BoolVar(&o.labelNodes, "label-nodes", false,
		"label each Node where the intent of a set is Ready with ready.volumes.hawser.io/<namespace>.<set>. "+
			"Requires the role of config/node-writes")
	flags.Func("fence-source",
		"JSON of a fence source, as in spec.fencing.sources of the VolumeManager; may be repeated. "+
			"The manager must be allowed to get, list and watch its objects", o.addFenceSource)
	flags.BoolVar(&o.manageTaint, "manage-out-of-service-taint", false,
		"set the taint node.kubernetes.io/out-of-service on a Node while a fence source proves that its machine is off or "+
			"gone, and remove it once its agent has reported that nothing is left. Requires the role of config/node-writes")
	for _, name := range []string{"csi-endpoint", "verify-period"} {
		flags.Func(name, "deprecated and without effect: a later release refuses it", func(string) error {
			o.withdrawn = append(o.withdrawn, "--"+name)
			return nil
		})
	}
}

func (o *options) addFenceSource(text string) error {
	var spec volumesv1alpha1.FenceSource
	decoder := json.NewDecoder(strings.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&spec); err != nil {
		return err
	}
	source, err := fencing.Compile(spec)
	if slices.ContainsFunc(o.fenceSources, func(s *fencing.Source) bool { return s.Name == spec.Name }) {
		return fmt.Errorf("there are two sources %s", spec.Name)
	}
	o.fenceSources = append(o.fenceSources, source)
	return err
}

// run runs the manager until ctx ends.
func run(ctx context.Context, o options) error {
	if o.observe {
		return runObserver(ctx, o)
	}
	options, err := o.controllers()
	if err != nil {
		return err
	}
	mgr, err := newManager(o, cached.Options())
	if err != nil {
		return err
	}
	if err := metrics.Register(ctx, mgr, ctrlmetrics.Registry); err != nil {
		return fmt.Errorf("registering metrics: %w", err)
	}
	if err := ctrlmetrics.Registry.Register(shared.BuildInfo("manager")); err != nil {
		return fmt.Errorf("registering the metric of the version: %w", err)
	}
	if options.Policies, err = watchPolicies(mgr, options.Clock); err != nil {
		return err
	}
	if err := controller.Register(ctx, mgr, options); err != nil {
		return err
	}
	if err := mgr.AddHealthzCheck("ping", healthz.Ping); err != nil {
		return fmt.Errorf("adding the health check: %w", err)
	}
	if err := mgr.AddReadyzCheck("caches", cachesFilled(mgr.GetCache())); err != nil {
		return fmt.Errorf("adding the readiness check: %w", err)
	}
	if err := mgr.Start(ctx); err != nil {
		return fmt.Errorf("running: %w", err)
	}
	return nil
}

// runObserver examines the cluster until ctx ends. Several report the same, so none is elected. The manager caches
// nothing: that would need Hawser's kinds.
func runObserver(ctx context.Context, o options) error {
	o.leaderElect = false
	mgr, err := newManager(o, cache.Options{})
	if err != nil {
		return err
	}
	observer, err := observe.New(mgr.GetConfig())
	if err != nil {
		return err
	}
	for _, collector := range []prometheus.Collector{observer, shared.BuildInfo("observer")} {
		if err := ctrlmetrics.Registry.Register(collector); err != nil {
			return fmt.Errorf("registering metrics: %w", err)
		}
	}
	for _, err := range []error{mgr.Add(observer), mgr.AddHealthzCheck("ping", healthz.Ping),
		mgr.AddReadyzCheck("examined", observer.Ready)} {
		if err != nil {
			return fmt.Errorf("setting up the observer: %w", err)
		}
	}
	if err := mgr.Start(ctx); err != nil {
		return fmt.Errorf("observing: %w", err)
	}
	return nil
}

// watchPolicies adds the check of the admission policies. Metrics and readiness of the manager report whether the
// policies are in force.
func watchPolicies(mgr manager.Manager, now clock.PassiveClock) (*policy.Checker, error) {
	policies := policy.New(now)
	if err := policies.Register(mgr); err != nil {
		return nil, fmt.Errorf("registering the check of the admission policies: %w", err)
	}
	if err := ctrlmetrics.Registry.Register(policies); err != nil {
		return nil, fmt.Errorf("registering the metric of the admission policies: %w", err)
	}
	if err := mgr.AddReadyzCheck("admission-policies", policies.Ready); err != nil {
		return nil, fmt.Errorf("adding the readiness check: %w", err)
	}
	return policies, nil
}

// cacheReply is how long a probe waits for a cache that is being filled. The kubelet waits for a second.
const cacheReply = 500 * time.Millisecond

// cachesFilled is a readiness check: the manager has read everything that it decides on.
func cachesFilled(informers cache.Informers) healthz.Checker {
	return func(request *http.Request) error {
		ctx, cancel := context.WithTimeout(request.Context(), cacheReply)
		defer cancel()
		if !informers.WaitForCacheSync(ctx) {
			return errors.New("the caches are not filled yet: the API server has not answered every list")
		}
		return nil
	}
}

// leastForgetGone is longer than it takes to reinstall a machine and to register its Node again by hand.
const leastForgetGone = time.Hour

// controllers converts the flags to the controllers' options.
func (o options) controllers() (controller.Options, error) {
	options := controller.Options{AttachMode: controller.AttachMode(o.attachMode), ForceDetachAfter: o.forceDetach,
		ForgetGoneNodesAfter: o.forgetGone, ReleaseSetsOnTaints: o.releaseTaints, LabelNodes: o.labelNodes,
		FenceSources: o.fenceSources, ManageOutOfServiceTaint: o.manageTaint,
		Clock: clock.RealClock{}}
	replace := options.AttachMode == controller.Replace
	if !replace && options.AttachMode != controller.Coexist {
		return options, fmt.Errorf("attach mode %q is not known; there are %s and %s",
			o.attachMode, controller.Coexist, controller.Replace)
	}
	if o.forgetGone != 0 && o.forgetGone < leastForgetGone {
		return options, fmt.Errorf("--forget-gone-nodes-after=%s: must be 0 or at least %s", o.forgetGone, leastForgetGone)
	}
	switch o.podIntents {
	case "auto":
		options.PodIntents = replace
	case "true":
		options.PodIntents = true
	case "false":
		if replace {
			return options, fmt.Errorf("attach mode %s needs pod intents: without them pods get no volumes", controller.Replace)
		}
	default:
		return options, fmt.Errorf("--pod-intents=%q: must be true, false or auto", o.podIntents)
	}
	return options, nil
}

// cacheSyncTimeout is how long the first lists, and what they wake, may take once the manager leads. One that ends
// sooner, as by default after two minutes, begins again with the same: beside 100,000 volumes on a slow API server it
// would never get to work.
const cacheSyncTimeout = 20 * time.Minute

func newManager(o options, cacheOptions cache.Options) (manager.Manager, error) {
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
	// The API server's priority and fairness limits the requests.
	config.QPS, config.Burst = -1, -1
	// The API server would compress every watch, which costs processor time on both sides for traffic in the cluster.
	config.DisableCompression = true
	metricsOptions, besides, err := o.metrics.Open()
	if err != nil {
		return nil, err
	}
	mgr, err := ctrl.NewManager(config, manager.Options{
		Scheme:                        scheme,
		Cache:                         cacheOptions,
		Metrics:                       metricsOptions,
		HealthProbeBindAddress:        o.healthAddr,
		PprofBindAddress:              o.pprofAddr,
		LeaderElection:                o.leaderElect,
		LeaderElectionID:              "hawser-manager",
		LeaderElectionNamespace:       o.leaderElectNS,
		LeaderElectionReleaseOnCancel: true,
		Controller:                    ctrlconfig.Controller{CacheSyncTimeout: cacheSyncTimeout},
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
