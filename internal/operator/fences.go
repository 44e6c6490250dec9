/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package operator

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/fencing"
	"github.com/hawser-io/hawser/internal/operator/condition"
	"github.com/hawser-io/hawser/internal/operator/render"
)

const (
	// DefaultFenceRecheck is after how long fence sources that cannot be used are examined again. The roles that an
	// administrator makes for them are not watched: they do not have the operator's label.
	DefaultFenceRecheck = time.Minute
	// fenceReread is how old the answer may be that all can be used. It is renewed by a reconcile that has another
	// cause, so that nothing is polled.
	fenceReread = 10 * time.Minute
)

// fenceSources remembers what was found out of the fence sources, so that not each reconcile asks the API server.
type fenceSources struct {
	discovery discovery.ServerResourcesInterface

	// examined sources, when, and what was found.
	examined []volumesv1alpha1.FenceSource
	at       time.Time
	problems []condition.Problem

	mu sync.Mutex
	// definitions are the names that the CustomResourceDefinitions of the sources have.
	definitions map[string]bool
	// outdated is true if one of them has changed.
	outdated bool
}

// sourcesOf the spec.
func sourcesOf(spec volumesv1alpha1.VolumeManagerSpec) []volumesv1alpha1.FenceSource {
	if spec.Fencing == nil {
		return nil
	}
	return spec.Fencing.Sources
}

// withoutBroken returns the spec without the sources whose expressions do not compile: the manager does not start with
// one. The problems name them.
func withoutBroken(spec volumesv1alpha1.VolumeManagerSpec) (volumesv1alpha1.VolumeManagerSpec, []condition.Problem) {
	var usable []volumesv1alpha1.FenceSource
	var problems []condition.Problem
	for _, source := range sourcesOf(spec) {
		if _, err := fencing.Compile(source); err != nil {
			problems = append(problems, condition.Problem{Reason: volumesv1alpha1.ReasonFenceSourceBroken,
				Message: oneLine(err) + " (the manager runs without this source: correct it in spec.fencing.sources)"})
			continue
		}
		usable = append(usable, source)
	}
	if spec.Fencing != nil {
		spec.Fencing = spec.Fencing.DeepCopy()
		spec.Fencing.Sources = usable
	}
	return spec, problems
}

// oneLine leaves out the lines in which CEL repeats the expression and points into it: the error has the column.
func oneLine(err error) string {
	lines := strings.Split(err.Error(), "\n")
	lines = slices.DeleteFunc(lines, func(line string) bool { return strings.HasPrefix(line, " |") })
	return strings.Join(lines, ", ")
}

// fences returns what is known of the sources; nil if there are none. Usable are those that are not broken.
func (r *Reconciler) fences(ctx context.Context, usable []volumesv1alpha1.FenceSource, broken []condition.Problem,
) (*condition.FenceSources, error) {
	if len(usable)+len(broken) == 0 {
		return nil, nil
	}
	problems, again, err := r.examineFences(ctx, usable)
	if err != nil {
		return nil, err
	}
	return &condition.FenceSources{Problems: append(broken, problems...), Again: again}, nil
}

// examineFences asks the API server if what it answered before may be outdated. It returns when to do so again.
func (r *Reconciler) examineFences(ctx context.Context, sources []volumesv1alpha1.FenceSource,
) ([]condition.Problem, time.Duration, error) {
	s, now := &r.sources, r.Clock.Now()
	outdated := s.follow(sources)
	valid := fenceReread
	if len(s.problems) > 0 {
		valid = r.FenceRecheck
	}
	if age := now.Sub(s.at); outdated || age >= valid || !equality.Semantic.DeepEqual(sources, s.examined) {
		s.problems, s.at = nil, time.Time{} // until every source was examined
		var problems []condition.Problem
		for i := range sources {
			problem, err := r.examineFence(ctx, &sources[i])
			if err != nil {
				return nil, 0, fmt.Errorf("examining fence source %s: %w", sources[i].Name, err)
			}
			if problem != nil {
				problems = append(problems, *problem)
			}
		}
		s.examined, s.at, s.problems = sources, now, problems
	}
	if len(s.problems) == 0 {
		return nil, 0, nil
	}
	return s.problems, r.FenceRecheck - now.Sub(s.at), nil
}

// examineFence returns what keeps a source from being used, or nil.
func (r *Reconciler) examineFence(ctx context.Context, source *volumesv1alpha1.FenceSource) (*condition.Problem,
	error) {
	resources := []schema.GroupVersionResource{{Group: source.Group, Version: source.Version, Resource: source.Resource}}
	if c := source.Clients; c != nil {
		resources = append(resources, schema.GroupVersionResource{Group: c.Group, Version: c.Version, Resource: c.Resource})
	}
	for _, resource := range resources {
		if problem, err := r.examineResource(ctx, source, resource); problem != nil || err != nil {
			return problem, err
		}
	}
	return nil, nil
}

// examineResource of a source.
func (r *Reconciler) examineResource(ctx context.Context, source *volumesv1alpha1.FenceSource,
	resource schema.GroupVersionResource) (*condition.Problem, error) {
	served, err := serves(r.sources.discovery, resource)
	if err != nil {
		return nil, err
	}
	if !served {
		return &condition.Problem{Reason: volumesv1alpha1.ReasonFenceSourceMissing, Message: fmt.Sprintf(
			"source %s: the API server does not serve %s in version %s: install it, or correct group, version and resource",
			source.Name, resource.GroupResource(), resource.Version)}, nil
	}
	for _, verb := range []string{"get", "list", "watch"} {
		allowed, err := r.managerMay(ctx, verb, resource)
		if err != nil {
			return nil, err
		}
		if !allowed {
			return &condition.Problem{Reason: volumesv1alpha1.ReasonFenceSourceForbidden, Message: fmt.Sprintf(
				"source %s: %s may not %s %s: bind a ClusterRole with get, list and watch to it",
				source.Name, r.managerUser(), verb, resource.GroupResource())}, nil
		}
	}
	return nil, nil
}

func serves(api discovery.ServerResourcesInterface, resource schema.GroupVersionResource) (bool, error) {
	list, err := api.ServerResourcesForGroupVersion(resource.GroupVersion().String())
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	for i := range list.APIResources {
		if list.APIResources[i].Name == resource.Resource {
			return true, nil
		}
	}
	return false, nil
}

func (r *Reconciler) managerUser() string {
	return "system:serviceaccount:" + r.Namespace + ":" + render.ManagerName
}

func (r *Reconciler) managerMay(ctx context.Context, verb string, on schema.GroupVersionResource) (bool, error) {
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User:   r.managerUser(),
		Groups: []string{"system:serviceaccounts", "system:serviceaccounts:" + r.Namespace, "system:authenticated"},
		ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: verb, Group: on.Group, Version: on.Version,
			Resource: on.Resource},
	}}
	if err := r.Client.Create(ctx, review); err != nil {
		return false, fmt.Errorf("asking whether the manager may %s %s: %w", verb, on.GroupResource(), err)
	}
	return review.Status.Allowed, nil
}

// follow notes which definitions concern the sources, and reports whether one has changed since the last call.
func (s *fenceSources) follow(sources []volumesv1alpha1.FenceSource) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.definitions = map[string]bool{}
	for _, source := range sources {
		s.definitions[source.Resource+"."+source.Group] = true
		if c := source.Clients; c != nil {
			s.definitions[c.Resource+"."+c.Group] = true
		}
	}
	outdated := s.outdated
	s.outdated = false
	return outdated
}

// defines reports whether a CustomResourceDefinition concerns a source, which is then examined again.
func (s *fenceSources) defines(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.outdated = s.outdated || s.definitions[name]
	return s.definitions[name]
}
