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

	admissionv1 "k8s.io/api/admissionregistration/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/test/apiserver"
)

// cluster is an API server with the policies installed. It does what admission says, whatever objects there are: a
// real one is late too.
type cluster struct {
	t     *testing.T
	gate  *Gate
	clock *clocktesting.FakePassiveClock
	// admission is nil while every policy acts, and otherwise the answer to every dry run.
	admission func() error
	// deletes, if not nil, is the answer to deletes.
	deletes func() error
	// real requests, which the gate must never send.
	real int
	client.Client
}

func newCluster(t *testing.T, objects ...client.Object) *cluster {
	c := &cluster{t: t, clock: clocktesting.NewFakePassiveClock(time.Unix(1000, 0))}
	for _, p := range policies {
		policy, binding := client.Object(&admissionv1.ValidatingAdmissionPolicy{}),
			client.Object(&admissionv1.ValidatingAdmissionPolicyBinding{})
		if p.kind == mutating {
			policy, binding = &admissionv1.MutatingAdmissionPolicy{}, &admissionv1.MutatingAdmissionPolicyBinding{}
		}
		for _, o := range []client.Object{policy, binding} {
			o.SetName(p.name)
			o.SetLabels(map[string]string{label: p.name})
			o.SetGeneration(1)
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
			c.count((&client.DeleteOptions{}).ApplyOptions(opts).DryRun)
			if c.deletes != nil {
				return c.deletes()
			}
			return c.answer(o)
		},
	})
	c.Client = base
	c.gate = New(c.clock)
	c.gate.reader, c.gate.dryRun = base, client.NewDryRunClient(tried)
	return c
}

func (c *cluster) count(dryRun []string) {
	if len(dryRun) == 0 {
		c.real++
	}
}

// answer to the request, as the policies' API server gives it.
func (c *cluster) answer(o client.Object) error {
	if c.admission != nil {
		return c.admission()
	}
	var name string
	switch o := o.(type) {
	case *storagev1.VolumeAttachment:
		name = hold
	case *corev1.ConfigMap:
		name = locks
	case *coordinationv1.Lease:
		name = leases
	case *volumesv1alpha1.NodeVolumeState:
		if name = agentState; o.Name == probe {
			name = declared
		}
	case *volumesv1alpha1.VolumeAttachmentIntent:
		if o.Name == probe {
			o.Finalizers = []string{volumesv1alpha1.ReleaseFinalizer}
			return nil
		}
		name = agentIntents
	}
	return apierrors.NewForbidden(schema.GroupResource{}, o.GetName(),
		errors.New("ValidatingAdmissionPolicy '"+name+"' with binding '"+name+"' denied request: no"))
}

// reconcile returns what is missing after it, and when it is to come again.
func (c *cluster) reconcile() (string, time.Duration) {
	c.t.Helper()
	result, err := c.gate.Reconcile(c.t.Context(), reconcile.Request{})
	if err != nil {
		c.t.Log(err)
	}
	return c.gate.Missing(), result.RequeueAfter
}

func (c *cluster) expect(when, missing string) {
	c.t.Helper()
	if got, _ := c.reconcile(); missing == "" && got != "" || !strings.Contains(got, missing) {
		c.t.Errorf("%s the gate misses %q, want %q", when, got, missing)
	}
}

func TestAChangeClosesTheGateAlthoughTheAPIServerStillRefuses(t *testing.T) {
	c := newCluster(t)
	if c.gate.Missing() == "" {
		t.Error("a new gate is open, want it closed")
	}
	missing, again := c.reconcile()
	if missing == "" || again != settle {
		t.Errorf("a new gate misses %q and checks again in %s, want it closed and %s", missing, again, settle)
	}
	c.clock.SetTime(c.clock.Now().Add(settle))
	c.expect("once all were tried", "")

	binding := &admissionv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: hold}}
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(binding), binding); err != nil {
		t.Fatal(err)
	}
	binding.Generation++
	if err := c.Update(t.Context(), binding); err != nil {
		t.Fatal(err)
	}
	c.expect("right after the change", "changed")
	c.clock.SetTime(c.clock.Now().Add(settle - time.Millisecond))
	c.expect("a moment too early", "changed")
	c.admission = func() error { return nil }
	c.clock.SetTime(c.clock.Now().Add(time.Millisecond))
	c.expect("once the change is in force", hold+" is not known to be in force: "+errNotInForce.Error())
	c.admission = nil
	c.expect("once it works again", "")
	if err := c.Delete(t.Context(), binding); err != nil {
		t.Fatal(err)
	}
	c.expect("without the binding", "there is no ValidatingAdmissionPolicyBinding")
	if c.real != 0 {
		t.Errorf("%d requests were no dry runs, want none", c.real)
	}
}

func TestASecondInstallationClosesTheGateUntilItIsGone(t *testing.T) {
	c := newCluster(t)
	c.reconcile()
	c.clock.SetTime(c.clock.Now().Add(settle))
	c.expect("with one installation", "")
	second := &admissionv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: "acme-" + hold,
		Labels: map[string]string{label: hold}}}
	if err := c.Create(t.Context(), second); err != nil {
		t.Fatal(err)
	}
	c.expect("once there is a second one", "acme-"+hold+" and "+hold+" show that Hawser is installed twice")
	c.clock.SetTime(c.clock.Now().Add(settle))
	c.expect("also later", "installed twice")
	if err := c.Delete(t.Context(), second); err != nil {
		t.Fatal(err)
	}
	c.reconcile()
	c.clock.SetTime(c.clock.Now().Add(settle))
	c.expect("once the second one is gone", "")
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
	c.reconcile()
	c.clock.SetTime(c.clock.Now().Add(settle))
	c.expect("once all were tried", "")
	c.admission = func() error { return errors.New("connection refused") }
	c.expect("without an API server", "")
}

func TestWithoutMutatingPoliciesTheOthersAreTried(t *testing.T) {
	mapper := meta.NewDefaultRESTMapper(nil)
	for _, gvk := range validating {
		mapper.Add(gvk, meta.RESTScopeRoot)
	}
	c := newCluster(t)
	kinds, err := c.gate.restrict(mapper)
	if err != nil || !slices.Equal(kinds, []kind{validating}) {
		t.Fatalf("kinds without mutating policies: %v, error %v; want the validating ones alone", kinds, err)
	}
	if got := c.gate.policies; len(got) != len(policies)-1 ||
		slices.ContainsFunc(got, func(p policy) bool { return p.name == finalizer }) {
		t.Errorf("policies without mutating ones: %v, want all but %s", got, finalizer)
	}
	for _, gvk := range mutating {
		object := metadataOf(gvk)
		object.Name = finalizer
		if err := c.Delete(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}
	c.reconcile()
	c.clock.SetTime(c.clock.Now().Add(settle))
	c.expect("on an API server without mutating policies", "")
}

func TestMutatingPoliciesAreTriedWhereTheAPIServerHasThem(t *testing.T) {
	mapper := meta.NewDefaultRESTMapper(nil)
	for _, gvk := range mutating {
		mapper.Add(gvk, meta.RESTScopeRoot)
	}
	gate := New(clocktesting.NewFakePassiveClock(time.Unix(1000, 0)))
	kinds, err := gate.restrict(mapper)
	if err != nil || !slices.Equal(kinds, []kind{validating, mutating}) || len(gate.policies) != len(policies) {
		t.Errorf("kinds %v, policies %v, error %v; want both kinds and %d policies", kinds, gate.policies, err, len(policies))
	}
}

func TestTheHoldIsTriedOnAnAttachmentThatIsHeld(t *testing.T) {
	held := attachment()
	held.Name = "held"
	c := newCluster(t, held)
	c.reconcile()
	c.clock.SetTime(c.clock.Now().Add(settle))
	c.deletes = func() error { return nil }
	c.expect("where a held attachment could be deleted", hold)
	c.deletes = func() error { return apierrors.NewNotFound(schema.GroupResource{}, "held") }
	c.expect("where it is gone", "")
}
