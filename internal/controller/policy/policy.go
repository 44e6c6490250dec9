/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

// Package policy reports whether Hawser's admission policies are in force.
//
// That they exist is not enough: a binding may only warn, and a policy may spare some requests. So the manager compares
// each policy and each binding with what this release ships. An API server takes up a change a moment after it was
// written. So the policies count as missing from a change that the watch reports until settle later, at least.
//
// That they are as shipped does not show that an API server uses them. So one policy of each kind is tried with a dry
// run of what it is for: the hold, on which attach mode Coexist relies, and the finalizer of intents.
//
// A second installation has locks of exclusive volumes of its own. Under another name it has policies of its own too,
// so of two of one kind neither counts. Under the same name it takes the roles of the first one away.
package policy

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/hawser-io/hawser/internal/controller/backoff"
	"github.com/hawser-io/hawser/internal/controller/policy/shipped"
)

// +kubebuilder:rbac:groups=admissionregistration.k8s.io,resources=validatingadmissionpolicies,verbs=list;watch
// +kubebuilder:rbac:groups=admissionregistration.k8s.io,resources=validatingadmissionpolicybindings,verbs=list;watch
// +kubebuilder:rbac:groups=admissionregistration.k8s.io,resources=mutatingadmissionpolicies,verbs=list;watch
// +kubebuilder:rbac:groups=admissionregistration.k8s.io,resources=mutatingadmissionpolicybindings,verbs=list;watch

// The policies that exempt the manager recognize it by this verb, which only its role has.
// +kubebuilder:rbac:groups=volumes.hawser.io,resources=nodevolumestates,verbs=manage

const (
	// settle is longer than an API server takes to take up a change. It checks once a second whether its policies have
	// changed.
	settle = 3 * time.Second
	// period is how often the dry runs are repeated where nothing has changed, with jitter.
	period = 10 * time.Minute
)

// trials return nil when a dry run has shown that the policy of that name works.
var trials = map[string]func(context.Context, trial) error{shipped.Hold: tryHold, shipped.Finalizer: tryFinalizer}

// Checker reports whether the policies are in force.
type Checker struct {
	clock   clock.PassiveClock
	reader  client.Reader
	dryRun  client.Client
	changed chan event.GenericEvent
	// policies that the API server can have, and what this release ships.
	policies []shipped.Policy
	shipped  shipped.Specs

	// version of the policies that was seen last, and since when. Only Reconcile uses them.
	version string
	since   time.Time
	// installed has the names that each policy has in this cluster. Only Reconcile uses it.
	installed map[string][]string

	mu sync.Mutex
	// missing says, for each policy that is not known to be in force, why.
	missing map[string]string
}

// New returns a checker. All policies are missing until they have been checked.
func New(now clock.PassiveClock) *Checker {
	c := &Checker{clock: now, changed: make(chan event.GenericEvent, 1), policies: shipped.Policies,
		missing: map[string]string{}}
	for _, p := range c.policies {
		c.missing[p.Name] = "the manager has not checked it yet"
	}
	return c
}

// Missing says why the policies are not known to be in force; empty while they are.
func (c *Checker) Missing() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range c.policies {
		if why := c.missing[p.Name]; why != "" {
			return fmt.Sprintf("admission policy %s is not known to be in force: %s", p.Name, why)
		}
	}
	return ""
}

// Changed has an event when Missing may have another answer. It has one reader.
func (c *Checker) Changed() <-chan event.GenericEvent { return c.changed }

// Ready is a readiness check.
func (c *Checker) Ready(*http.Request) error {
	if missing := c.Missing(); missing != "" {
		return errors.New(missing)
	}
	return nil
}

// Register adds the checker to the manager. It works in a manager that does not lead too, because each manager reports
// its readiness.
func (c *Checker) Register(mgr manager.Manager) error {
	// The manager's client reads unstructured objects live.
	c.reader, c.dryRun = mgr.GetCache(), client.NewDryRunClient(mgr.GetClient())
	kinds, err := c.restrict(mgr.GetRESTMapper())
	if err != nil {
		return err
	}
	if c.shipped, err = shipped.Load(); err != nil {
		return err
	}
	named := func(o client.Object) bool {
		return slices.ContainsFunc(c.policies, func(p shipped.Policy) bool {
			return p.Name == o.GetLabels()[shipped.Label]
		})
	}
	ours := predicate.NewPredicateFuncs(named)
	ours.UpdateFunc = func(e event.UpdateEvent) bool { return named(e.ObjectOld) || named(e.ObjectNew) }
	one := handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request {
		return []reconcile.Request{{}}
	})
	b := ctrl.NewControllerManagedBy(mgr).Named("policy")
	for _, k := range kinds {
		for _, gvk := range k {
			object := &unstructured.Unstructured{}
			object.SetGroupVersionKind(gvk)
			b = b.Watches(object, one, builder.WithPredicates(ours))
		}
	}
	return b.WatchesRawSource(source.Func(atStart)).
		WithOptions(controller.Options{RateLimiter: backoff.Limiter(), NeedLeaderElection: ptr.To(false)}).
		Complete(c)
}

// restrict leaves out the policies that the API server cannot have, and returns the kinds of the others. Before
// Kubernetes 1.36 there is no MutatingAdmissionPolicy of version v1. The manager itself then sets the finalizer of each
// intent (package intent) and attaches only after that, with or without this policy.
func (c *Checker) restrict(mapper meta.RESTMapper) ([]shipped.Kind, error) {
	kinds := []shipped.Kind{shipped.Validating}
	_, err := mapper.RESTMapping(shipped.Mutating[0].GroupKind(), shipped.Mutating[0].Version)
	switch {
	case err == nil:
		return append(kinds, shipped.Mutating), nil
	case !meta.IsNoMatchError(err):
		return nil, fmt.Errorf("asking if the API server has %s: %w", shipped.Mutating[0].Kind, err)
	}
	c.policies = slices.DeleteFunc(slices.Clone(c.policies), func(p shipped.Policy) bool {
		return p.Kind == shipped.Mutating
	})
	delete(c.missing, shipped.Finalizer)
	return kinds, nil
}

// atStart has the policies checked also where there is no policy that a watch could show.
func atStart(_ context.Context, q workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
	q.Add(reconcile.Request{})
	return nil
}

// Reconcile reports what is missing when a policy is gone or has changed. Nothing is once each policy is as shipped,
// and those with a dry run were seen to work after that.
func (c *Checker) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	version, missing, err := c.observe(ctx)
	if err != nil {
		return reconcile.Result{}, err
	}
	if version != c.version {
		c.version, c.since = version, c.clock.Now()
	}
	if len(missing) > 0 {
		c.report(ctx, missing)
		return reconcile.Result{}, nil
	}
	if left := settle - c.clock.Since(c.since); left > 0 {
		for _, p := range c.policies {
			missing[p.Name] = "it is new or has changed, and the API server takes it up in a moment"
		}
		c.report(ctx, missing)
		return reconcile.Result{RequeueAfter: left}, nil
	}
	err = c.try(ctx)
	return reconcile.Result{RequeueAfter: wait.Jitter(period, 0.2)}, err
}

// observe returns which version of the policies and their bindings the cache has, and which policies are missing or
// weakened.
func (c *Checker) observe(ctx context.Context) (version string, missing map[string]string, err error) {
	missing, c.installed = map[string]string{}, map[string][]string{}
	for _, p := range c.policies {
		var objects [2][]unstructured.Unstructured
		for i, gvk := range p.Kind {
			if objects[i], err = c.labelled(ctx, gvk, p.Name); err != nil {
				return "", nil, err
			}
			for _, object := range objects[i] {
				version += fmt.Sprintf("%s %d, ", object.GetUID(), object.GetGeneration())
			}
		}
		c.installed[p.Name] = shipped.Names(objects[0])
		problems := c.shipped.Problems(p, objects)
		if len(problems) > 0 {
			missing[p.Name] = strings.Join(problems, "; ")
		}
	}
	return version, missing, nil
}

// labelled returns the objects that carry the policy's label and are not being deleted, in the order of their names.
func (c *Checker) labelled(
	ctx context.Context, gvk schema.GroupVersionKind, policy string,
) ([]unstructured.Unstructured, error) {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(gvk.GroupVersion().WithKind(gvk.Kind + "List"))
	if err := c.reader.List(ctx, list, client.MatchingLabels{shipped.Label: policy}); err != nil {
		return nil, fmt.Errorf("listing each %s of policy %s: %w", gvk.Kind, policy, err)
	}
	objects := slices.DeleteFunc(slices.Clone(list.Items), func(o unstructured.Unstructured) bool {
		return o.GetDeletionTimestamp() != nil
	})
	slices.SortFunc(objects, func(a, b unstructured.Unstructured) int { return strings.Compare(a.GetName(), b.GetName()) })
	return objects, nil
}

// try sends the dry runs. What could not be tried leaves things as they are: that nothing has changed is still known.
func (c *Checker) try(ctx context.Context) error {
	missing, open := map[string]string{}, c.Missing() == ""
	var failures []error
	for _, p := range c.policies {
		try, tried := trials[p.Name]
		if !tried {
			continue
		}
		err := try(ctx, trial{dryRun: c.dryRun, reader: c.reader, names: c.installed[p.Name]})
		if err == nil {
			continue
		}
		failures = append(failures, fmt.Errorf("trying admission policy %s: %w", p.Name, err))
		if !open || errors.Is(err, errNotInForce) {
			missing[p.Name] = err.Error()
		}
	}
	c.report(ctx, missing)
	return errors.Join(failures...)
}

// report passes the result on to everything that waits.
func (c *Checker) report(ctx context.Context, missing map[string]string) {
	before := c.Missing()
	c.mu.Lock()
	c.missing = missing
	c.mu.Unlock()
	after := c.Missing()
	if before == after {
		return
	}
	ctrl.LoggerFrom(ctx).Info("checked the admission policies", "missing", after)
	select {
	case c.changed <- event.GenericEvent{Object: &metav1.PartialObjectMetadata{}}:
	default: // There is one already that was not read yet.
	}
}

var inForce = prometheus.NewDesc("hawser_admission_policy_in_force",
	"1 if the admission policy is known to be in force, otherwise 0. Nothing new is attached while one is 0. "+
		"Each manager has it, also one that does not lead. There is none for a policy that the API server cannot have.",
	[]string{"policy"}, nil)

var _ prometheus.Collector = (*Checker)(nil)

// Describe is part of a prometheus.Collector.
func (c *Checker) Describe(descs chan<- *prometheus.Desc) { descs <- inForce }

// Collect is part of a prometheus.Collector.
func (c *Checker) Collect(metrics chan<- prometheus.Metric) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range c.policies {
		value := 1.0
		if c.missing[p.Name] != "" {
			value = 0
		}
		metrics <- prometheus.MustNewConstMetric(inForce, prometheus.GaugeValue, value, p.Name)
	}
}
