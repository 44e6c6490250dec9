/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package policy

import (
	"context"
	"errors"

	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/policy/shipped"
	"github.com/hawser-io/hawser/test/apiserver"
)

// cluster is an API server with the policies installed. The test plays what they do: a real one is late too.
type cluster struct {
	t       *testing.T
	checker *Checker
	clock   *clocktesting.FakePassiveClock
	// admission is nil while every policy acts, and otherwise the answer to every dry run.
	admission func() error
	// deletes, if not nil, is the answer to deletes.
	deletes func() error
	// real requests, which the checker must never send.
	real int
	client.Client
}

func newCluster(t *testing.T, objects ...client.Object) *cluster {
	t.Helper()
	c := &cluster{t: t, clock: clocktesting.NewFakePassiveClock(time.Unix(1000, 0))}
	specs, err := shipped.Load()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range shipped.Policies {
		for _, gvk := range p.Kind {
			o := installed(gvk, p.Name)
			o.SetLabels(map[string]string{shipped.Label: p.Name})
			o.SetGeneration(1)
			o.Object["spec"] = runtime.DeepCopyJSON(specs[[2]string{gvk.Kind, p.Name}])
			objects = append(objects, o)
		}
	}
	base := fake.NewClientBuilder().WithScheme(apiserver.Scheme()).WithObjects(objects...).Build()
	tried := interceptor.NewClient(base, interceptor.Funcs{
		Create: func(_ context.Context, _ client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			c.count((&client.CreateOptions{}).ApplyOptions(opts).DryRun)
			return c.answer(o)
		},
		Delete: func(_ context.Context, _ client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			options := (&client.DeleteOptions{}).ApplyOptions(opts)
			c.count(options.DryRun)
			if p := options.Preconditions; p == nil || p.UID == nil || p.ResourceVersion == nil {
				t.Errorf("%T %s is deleted with the preconditions %v, want UID and version", o, o.GetName(), p)
			}
			if c.deletes != nil {
				return c.deletes()
			}
			return c.answer(o)
		},
	})
	c.Client = base
	c.checker = New(c.clock)
	c.checker.reader, c.checker.dryRun, c.checker.shipped = base, client.NewDryRunClient(tried), specs
	return c
}

// installed is a policy or a binding of that name, without content.
func installed(gvk schema.GroupVersionKind, name string) *unstructured.Unstructured {
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(gvk)
	o.SetName(name)
	return o
}

// change gives an object another spec, as a write of another client does.
func (c *cluster) change(gvk schema.GroupVersionKind, name string, change func(spec map[string]any)) {
	c.t.Helper()
	o := installed(gvk, name)
	if err := c.Get(c.t.Context(), client.ObjectKeyFromObject(o), o); err != nil {
		c.t.Fatal(err)
	}
	change(o.Object["spec"].(map[string]any))
	o.SetGeneration(o.GetGeneration() + 1)
	if err := c.Update(c.t.Context(), o); err != nil {
		c.t.Fatal(err)
	}
}

// open lets the checker open, and fails the test if it does not.
func (c *cluster) open() {
	c.t.Helper()
	c.reconcile()
	c.clock.SetTime(c.clock.Now().Add(settle))
	c.expect("once the policies are as shipped", "")
}

func (c *cluster) count(dryRun []string) {
	if len(dryRun) == 0 {
		c.real++
	}
}

// answer to the dry run, as the policies' API server gives it.
func (c *cluster) answer(o client.Object) error {
	if c.admission != nil {
		return c.admission()
	}
	if intent, ok := o.(*volumesv1alpha1.VolumeAttachmentIntent); ok {
		intent.Finalizers = []string{volumesv1alpha1.ReleaseFinalizer}
		return nil
	}
	return apierrors.NewForbidden(schema.GroupResource{}, o.GetName(),
		errors.New("ValidatingAdmissionPolicy '"+shipped.Hold+"' with binding '"+shipped.Hold+"' denied request: no"))
}

// reconcile returns what is missing after it, and when it is to come again.
func (c *cluster) reconcile() (string, time.Duration) {
	c.t.Helper()
	result, err := c.checker.Reconcile(c.t.Context(), reconcile.Request{})
	if err != nil {
		c.t.Log(err)
	}
	return c.checker.Missing(), result.RequeueAfter
}

func (c *cluster) expect(when, missing string) {
	c.t.Helper()
	if got, _ := c.reconcile(); missing == "" && got != "" || !strings.Contains(got, missing) {
		c.t.Errorf("%s the checker misses %q, want %q", when, got, missing)
	}
}

func TestAWeakenedPolicyClosesTheGateAtOnceAndUntilItIsPutBack(t *testing.T) {
	c := newCluster(t)
	c.open()
	fail := func(value string) {
		c.change(shipped.Validating[0], shipped.Hold, func(spec map[string]any) { spec["failurePolicy"] = value })
	}
	fail("Ignore")
	const want = "hawser-hold is not known to be in force: " +
		"ValidatingAdmissionPolicy hawser-hold is not as this release ships it: spec.failurePolicy"
	c.expect("at once", want)
	c.clock.SetTime(c.clock.Now().Add(settle))
	c.expect("although the API server still refuses", want)
	fail("Fail")
	c.expect("right after it was put back", "changed")
	c.open()
}

func TestAChangeClosesTheGateAlthoughTheAPIServerStillRefuses(t *testing.T) {
	c := newCluster(t)
	if c.checker.Missing() == "" {
		t.Error("a new checker is open, want it closed")
	}
	missing, again := c.reconcile()
	if missing == "" || again != settle {
		t.Errorf("a new checker misses %q and checks again in %s, want it closed and %s", missing, again, settle)
	}
	c.clock.SetTime(c.clock.Now().Add(settle))
	c.expect("once all were tried", "")

	c.change(shipped.Validating[1], shipped.Hold, func(map[string]any) {})
	c.expect("right after the change", "changed")
	c.clock.SetTime(c.clock.Now().Add(settle - time.Millisecond))
	c.expect("a moment too early", "changed")
	c.admission = func() error { return nil }
	c.clock.SetTime(c.clock.Now().Add(time.Millisecond))
	c.expect("once the change is in force", shipped.Hold+" is not known to be in force: "+errNotInForce.Error())
	c.admission = nil
	c.expect("once it works again", "")
	if err := c.Delete(t.Context(), installed(shipped.Validating[1], shipped.Hold)); err != nil {
		t.Fatal(err)
	}
	c.expect("without the binding", "there is no ValidatingAdmissionPolicyBinding")
	if err := c.Delete(t.Context(), installed(shipped.Validating[0], shipped.Hold)); err != nil {
		t.Fatal(err)
	}
	c.expect("without the policy", "there is no ValidatingAdmissionPolicy with label")
	if c.real != 0 {
		t.Errorf("%d requests were no dry runs, want none", c.real)
	}
}

func TestASecondInstallationClosesTheGateUntilItIsGone(t *testing.T) {
	c := newCluster(t)
	c.open()
	second := installed(shipped.Validating[0], "acme-"+shipped.Hold)
	second.SetLabels(map[string]string{shipped.Label: shipped.Hold})
	if err := c.Create(t.Context(), second); err != nil {
		t.Fatal(err)
	}
	c.expect("once there is a second one",
		"acme-"+shipped.Hold+" and "+shipped.Hold+" show that Hawser is installed twice")
	c.clock.SetTime(c.clock.Now().Add(settle))
	c.expect("also later", "installed twice")
	if err := c.Delete(t.Context(), second); err != nil {
		t.Fatal(err)
	}
	c.open()
}

func TestOnlyAPolicysOwnRefusalShowsThatItWorks(t *testing.T) {
	for name, answer := range map[string]error{
		"it is not allowed anyway": apierrors.NewForbidden(schema.GroupResource{}, "probe",
			errors.New("User cannot create")),
		"another policy refuses": apierrors.NewForbidden(schema.GroupResource{}, "probe",
			errors.New("ValidatingAdmissionPolicy 'other' denied request")),
		"the policy cannot be evaluated": apierrors.NewInvalid(
			schema.GroupKind{Kind: "ValidatingAdmissionPolicy 'hawser-hold'"}, "probe", nil,
		),
		"the API server cannot be reached":  errors.New("connection refused"),
		"a webhook does not take a dry run": apierrors.NewBadRequest("admission webhook does not support dry run"),
	} {
		c := newCluster(t)
		c.reconcile()
		c.clock.SetTime(c.clock.Now().Add(settle))
		c.admission = func() error { return answer }
		c.expect(name, answer.Error())
	}
}

func TestAnOpenGateStaysOpenWhileThePoliciesCannotBeTried(t *testing.T) {
	c := newCluster(t)
	c.open()
	c.admission = func() error { return errors.New("connection refused") }
	c.expect("without an API server", "")
}

func TestWithoutMutatingPoliciesTheOthersAreChecked(t *testing.T) {
	mapper := meta.NewDefaultRESTMapper(nil)
	for _, gvk := range shipped.Validating {
		mapper.Add(gvk, meta.RESTScopeRoot)
	}
	c := newCluster(t)
	kinds, err := c.checker.restrict(mapper)
	if err != nil || !slices.Equal(kinds, []shipped.Kind{shipped.Validating}) {
		t.Fatalf("kinds without mutating policies: %v, error %v; want the validating ones alone", kinds, err)
	}
	if got := c.checker.policies; len(got) != len(shipped.Policies)-1 ||
		slices.ContainsFunc(got, func(p shipped.Policy) bool { return p.Name == shipped.Finalizer }) {
		t.Errorf("policies without mutating ones: %v, want all but %s", got, shipped.Finalizer)
	}
	for _, gvk := range shipped.Mutating {
		if err := c.Delete(t.Context(), installed(gvk, shipped.Finalizer)); err != nil {
			t.Fatal(err)
		}
	}
	c.open()
}

func TestMutatingPoliciesAreCheckedWhereTheAPIServerHasThem(t *testing.T) {
	mapper := meta.NewDefaultRESTMapper(nil)
	for _, gvk := range shipped.Mutating {
		mapper.Add(gvk, meta.RESTScopeRoot)
	}
	checker := New(clocktesting.NewFakePassiveClock(time.Unix(1000, 0)))
	kinds, err := checker.restrict(mapper)
	if err != nil || !slices.Equal(kinds, []shipped.Kind{shipped.Validating, shipped.Mutating}) ||
		len(checker.policies) != len(shipped.Policies) {
		t.Errorf("kinds %v, policies %v, error %v; want both kinds and %d policies", kinds, checker.policies, err,
			len(shipped.Policies))
	}
}

// refusing refuses deletes.
type refusing struct {
	client.Client
	err error
}

func (r refusing) Delete(context.Context, client.Object, ...client.DeleteOption) error { return r.err }

func TestTheHoldIsTriedOnAnAttachmentThatIsHeld(t *testing.T) {
	held := attachment()
	held.Name = "held"
	c := newCluster(t, held)
	c.reconcile()
	c.clock.SetTime(c.clock.Now().Add(settle))
	c.deletes = func() error { return nil }
	c.expect("where a held attachment could be deleted", shipped.Hold)
	c.deletes = func() error { return apierrors.NewNotFound(schema.GroupResource{}, "held") }
	c.expect("where it is gone", "")
	c.deletes = func() error { return apierrors.NewConflict(schema.GroupResource{}, "held", nil) }
	c.expect("where it has changed", "")
	another := apierrors.NewForbidden(schema.GroupResource{}, "held", errors.New("ValidatingAdmissionPolicy 'other'"))
	if err := tryHold(t.Context(), trial{reader: c.Client, dryRun: refusing{c.checker.dryRun, another},
		names: []string{shipped.Hold}}); err == nil {
		t.Error("the deletion of a held attachment is refused by another policy: no error, want one")
	}
}
