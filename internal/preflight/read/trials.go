/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package read

import (
	"context"
	"sync"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hawser-io/hawser/internal/explain/facts"
	"github.com/hawser-io/hawser/internal/preflight"
)

// trials ask the API server what it would do. Nothing is written.
type trials struct {
	ctx       context.Context // of this one pass
	server    Server
	clientset kubernetes.Interface
	facts     *preflight.Facts
}

// run tries everything at once.
func (t *trials) run(group *sync.WaitGroup) {
	f := t.facts
	f.Rights = preflight.Needed(f.System)
	for i := range f.Rights {
		group.Go(func() { t.review(&f.Rights[i]) })
	}
	var policies []client.Object
	for _, object := range f.Release.Policies {
		if f.Served[object.GroupVersionKind()] {
			f.PolicyTrials = append(f.PolicyTrials, preflight.Trial{
				Object: facts.Ref{Kind: object.GetKind(), Name: object.GetName()}})
			policies = append(policies, object)
		}
	}
	for i, object := range policies {
		group.Go(func() { f.PolicyTrials[i].Err = t.create(object.DeepCopyObject().(client.Object)) })
	}
	group.Go(t.namespace)
	group.Go(t.user)
}

// user asks for the name of the user, which only helps to read the report.
func (t *trials) user() {
	review, err := t.clientset.AuthenticationV1().SelfSubjectReviews().Create(t.ctx,
		&authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err == nil {
		t.facts.User = review.Status.UserInfo.Username
	}
}

// review asks whether the user has a right.
func (t *trials) review(r *preflight.Right) {
	review, err := t.clientset.AuthorizationV1().SelfSubjectAccessReviews().Create(t.ctx,
		&authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
			ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: r.Verb, Group: r.Group, Resource: r.Resource,
				Namespace: r.Namespace}}}, metav1.CreateOptions{})
	if r.Err = err; err == nil {
		r.Allowed = review.Status.Allowed
	}
}

func (t *trials) create(object client.Object) error {
	return t.server.Create(t.ctx, object, client.DryRunAll)
}

// namespace tries a pod in it, or the namespace itself if it does not exist.
func (t *trials) namespace() {
	f := t.facts
	ref := facts.Ref{Kind: preflight.KindNamespace, Name: f.System}
	var namespace corev1.Namespace
	err := t.server.Get(t.ctx, client.ObjectKey{Name: f.System}, &namespace)
	switch {
	case err == nil:
		f.Namespace = facts.Object[*corev1.Namespace]{Ref: ref, Value: &namespace, Found: true}
		f.PodTrial = &preflight.Trial{Object: facts.Ref{Kind: facts.KindPod, Namespace: f.System, Name: "agent"},
			Err: t.create(f.Release.AgentPod(f.System))}
	case apierrors.IsNotFound(err):
		object := f.Release.Namespace.DeepCopy()
		object.SetName(f.System)
		f.NamespaceTrial = &preflight.Trial{Object: ref, Err: t.create(object)}
	default:
		f.Namespace = facts.Object[*corev1.Namespace]{Ref: ref, Err: err}
	}
}
