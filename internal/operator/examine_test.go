/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package operator

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	fakediscovery "k8s.io/client-go/discovery/fake"
	clienttesting "k8s.io/client-go/testing"
	testingclock "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/operator/render"
)

// access answers for an API server that serves hosts.example.com.
type access struct {
	// allowed is the answer to all reviews. failure is what they fail with.
	allowed bool
	failure error
	// asked is how many reviews there were, and user the last one's.
	asked int
	user  string
}

func (a *access) create(_ context.Context, _ client.WithWatch, o client.Object, _ ...client.CreateOption) error {
	review, is := o.(*authorizationv1.SubjectAccessReview)
	if !is {
		return errors.New("not a review")
	}
	a.asked++
	a.user, review.Status.Allowed = review.Spec.User, a.allowed
	return a.failure
}

func newExamined(a *access) (*Reconciler, *testingclock.FakePassiveClock) {
	now := testingclock.NewFakePassiveClock(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
	served := &fakediscovery.FakeDiscovery{Fake: &clienttesting.Fake{Resources: []*metav1.APIResourceList{
		{GroupVersion: "example.com/v1", APIResources: []metav1.APIResource{{Name: "hosts"}}}}}}
	return &Reconciler{
		Options: Options{Clock: now, Namespace: "storage-system", FenceRecheck: DefaultFenceRecheck},
		Client:  interceptor.NewClient(fake.NewFakeClient(), interceptor.Funcs{Create: a.create}),
		sources: fenceSources{discovery: served},
	}, now
}

func hosts() []volumesv1alpha1.FenceSource {
	return []volumesv1alpha1.FenceSource{{Name: "hosts", Group: "example.com", Version: "v1", Resource: "hosts",
		NodeName: "object.metadata.name", Holds: "true", Proves: volumesv1alpha1.FencePowerOff}}
}

// TestFenceSourcesAreExaminedOnlyAfterAChangeOrAWait: reconciles are frequent, and each question is a request.
func TestFenceSourcesAreExaminedOnlyAfterAChangeOrAWait(t *testing.T) {
	const once = time.Second
	for _, test := range []struct {
		name    string
		allowed bool
		act     func(r *Reconciler, now *testingclock.FakePassiveClock)
		// asks: the API server is asked again. again is when the sources are examined without an event.
		asks  bool
		again time.Duration
	}{
		{"forbidden, a moment later", false, func(_ *Reconciler, now *testingclock.FakePassiveClock) {
			now.SetTime(now.Now().Add(once))
		}, false, time.Minute - once},
		{"forbidden, a minute later", false, func(_ *Reconciler, now *testingclock.FakePassiveClock) {
			now.SetTime(now.Now().Add(time.Minute))
		}, true, time.Minute},
		{"forbidden, with a definition that changed", false, func(r *Reconciler, _ *testingclock.FakePassiveClock) {
			if !r.sources.defines("hosts.example.com") {
				t.Error("the definition of a source does not concern the operator")
			}
		}, true, time.Minute},
		{"forbidden, with another definition that changed", false, func(r *Reconciler, _ *testingclock.FakePassiveClock) {
			if r.sources.defines("others.example.com") {
				t.Error("the definition of no source concerns the operator")
			}
		}, false, time.Minute},
		{"allowed, a minute later", true, func(_ *Reconciler, now *testingclock.FakePassiveClock) {
			now.SetTime(now.Now().Add(time.Minute))
		}, false, 0},
		{"allowed, much later", true, func(_ *Reconciler, now *testingclock.FakePassiveClock) {
			now.SetTime(now.Now().Add(fenceReread))
		}, true, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			a := &access{allowed: test.allowed}
			r, now := newExamined(a)
			if _, _, err := r.examineFences(t.Context(), hosts()); err != nil {
				t.Fatal(err)
			}
			test.act(r, now)
			before := a.asked
			problems, again, err := r.examineFences(t.Context(), hosts())
			if err != nil || (len(problems) == 0) != test.allowed || again != test.again || (a.asked > before) != test.asks {
				t.Errorf("problems %v, again in %s, %d requests more, error %v; want again in %s, requests %t", problems, again,
					a.asked-before, err, test.again, test.asks)
			}
			if want := "system:serviceaccount:storage-system:" + render.ManagerName; a.user != want {
				t.Errorf("asked about %s, want %s", a.user, want)
			}
		})
	}
}

func TestChangedFenceSourcesAreExaminedAtOnce(t *testing.T) {
	a := &access{allowed: true}
	r, _ := newExamined(a)
	if problems, _, err := r.examineFences(t.Context(), hosts()); err != nil || len(problems) > 0 {
		t.Fatalf("problems %v, error %v", problems, err)
	}
	other := hosts()
	other[0].Version = "v2"
	problems, again, err := r.examineFences(t.Context(), other)
	if err != nil || len(problems) != 1 || problems[0].Reason != volumesv1alpha1.ReasonFenceSourceMissing ||
		again != time.Minute {
		t.Errorf("problems %v, again in %s, error %v; want that the version is not served", problems, again, err)
	}
}

// TestWithoutAnAnswerItIsNotKnownWhetherASourceCanBeUsed: neither is a source called ready.
func TestWithoutAnAnswerItIsNotKnownWhetherASourceCanBeUsed(t *testing.T) {
	a := &access{failure: errors.New("timed out")}
	r, _ := newExamined(a)
	for range 2 {
		before := a.asked
		fences, err := r.fences(t.Context(), hosts(), nil)
		if err == nil || fences != nil || a.asked == before {
			t.Errorf("fences %+v, error %v, %d requests more; want an error, and that it is asked again", fences, err,
				a.asked-before)
		}
	}
}

// TestBothResourcesOfASourceThatCutsAccessAreExamined: it needs the addresses that drivers report.
func TestBothResourcesOfASourceThatCutsAccessAreExamined(t *testing.T) {
	source := volumesv1alpha1.FenceSource{Name: "net", Group: "example.com", Version: "v1", Resource: "hosts",
		Clients: &volumesv1alpha1.FenceClients{Group: "example.com", Version: "v1", Resource: "clients"}}
	r, _ := newExamined(&access{allowed: true})
	problems, _, err := r.examineFences(t.Context(), []volumesv1alpha1.FenceSource{source})
	if err != nil || len(problems) != 1 || problems[0].Reason != volumesv1alpha1.ReasonFenceSourceMissing ||
		!strings.Contains(problems[0].Message, "clients.example.com") {
		t.Errorf("problems %+v, error %v; want that clients.example.com is not served", problems, err)
	}
	if !r.sources.defines("clients.example.com") {
		t.Error("the definition of the clients does not concern the operator, want that it does")
	}
}

func TestABrokenFenceSourceIsLeftOutAndNamed(t *testing.T) {
	sources := append(hosts(), hosts()...)
	sources[0].Name, sources[0].Holds = "broken", "object."
	given := volumesv1alpha1.VolumeManagerSpec{Fencing: &volumesv1alpha1.Fencing{Sources: sources,
		ManageOutOfServiceTaint: ptr.To(true)}}
	spec, problems := withoutBroken(given)
	if !ptr.Deref(spec.Fencing.ManageOutOfServiceTaint, false) {
		t.Error("manageOutOfServiceTaint is lost beside a broken source, want it kept")
	}
	if got := sourcesOf(spec); len(got) != 1 || got[0].Name != "hosts" || len(given.Fencing.Sources) != 2 {
		t.Errorf("sources %+v of %+v, want hosts alone", got, given.Fencing.Sources)
	}
	if len(problems) != 1 || problems[0].Reason != volumesv1alpha1.ReasonFenceSourceBroken {
		t.Errorf("problems %+v, want that one is broken", problems)
	}
	if !ptr.Deref(spec.Fencing.ManageOutOfServiceTaint, false) {
		t.Errorf("fencing without the broken source is %+v, want manageOutOfServiceTaint as it was given", spec.Fencing)
	}
}
