/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package manager

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/policy"
	"github.com/hawser-io/hawser/test/apiserver"
)

const withoutPolicies = volumesv1alpha1.ReasonAdmissionPolicyMissing

func TestNothingNewIsAttachedWhileAnAdmissionPolicyDoesNotWork(t *testing.T) {
	w := newWorld(t)
	kubectl := w.kubectl(t)
	kubectl("", "apply", "-k", "rbac")
	gate := policy.New(clock.RealClock{})
	w.manage(t, managerOptions{policies: gate})
	w.node(t, "here")
	w.node(t, "there")
	w.volume(t, "data", volumeOptions{})
	w.volume(t, "late", volumeOptions{})

	data := w.intent(t, "data", "here", "data")
	// Before it has read the policies, the manager reports that it has not checked them.
	until(t, w, data, "it waits for the policies", func(i *volumesv1alpha1.VolumeAttachmentIntent) bool {
		c := meta.FindStatusCondition(i.Status.Conditions, volumesv1alpha1.ConditionResolved)
		return c != nil && c.Status == metav1.ConditionFalse && c.Reason == withoutPolicies &&
			strings.Contains(c.Message, "there is no ValidatingAdmissionPolicy") &&
			strings.Contains(c.Message, "config/admission")
	})
	w.notAttached(t, "data", "here")
	expectGate(t, gate, "hawser-hold", false)

	kubectl("", "apply", "-k", "admission")
	w.attached(t, data)
	expectGate(t, gate, "", true)

	// This intent waits for a volume that is in use elsewhere: it shows when the manager has seen what happens to the
	// policies.
	marker := w.intent(t, "marker", "there", "data")
	w.reason(t, marker, volumesv1alpha1.ConditionAttached, metav1.ConditionFalse, volumesv1alpha1.ReasonVolumeInUse)
	w.reason(t, marker, volumesv1alpha1.ConditionResolved, metav1.ConditionTrue, volumesv1alpha1.ReasonResolved)
	late := newIntent("late", "here", "late")
	// The binding only warns until the end, so that the gate opens at no time between two changes.
	patch := func(operation string) []string {
		return []string{"patch", "validatingadmissionpolicy", "hawser-hold", "--type=json", "--patch=[" + operation + "]"}
	}
	for _, step := range []struct {
		name, says string
		kubectl    []string
	}{
		{"the binding is deleted", "there is no ValidatingAdmissionPolicyBinding",
			[]string{"delete", "validatingadmissionpolicybinding", "hawser-hold"}},
		{"the binding is back, but only warns", "ships it: spec.validationActions", []string{"create", "-f", "-"}},
		{"an expression of the policy is weaker", "ships it: spec.validations[0].expression",
			patch(`{"op":"replace","path":"/spec/validations/0/expression","value":"true"}`)},
		{"failures of the policy are ignored", "ships it: spec.failurePolicy, spec.validations[0].expression",
			patch(`{"op":"replace","path":"/spec/failurePolicy","value":"Ignore"}`)},
		{"the policy has one more match condition", "spec.failurePolicy, spec.matchConditions, spec.validations",
			patch(`{"op":"add","path":"/spec/matchConditions/-","value":{"name":"never","expression":"false"}}`)},
		{"the policy excludes what it is for", "spec.matchConstraints.excludeResourceRules, spec.validations",
			patch(`{"op":"add","path":"/spec/matchConstraints/excludeResourceRules","value":[{"apiGroups":["storage.k8s.io"],` +
				`"apiVersions":["*"],"resources":["volumeattachments"],"operations":["*"]}]}`)},
	} {
		kubectl(warning, step.kubectl...)
		until(t, w, marker, step.name, func(i *volumesv1alpha1.VolumeAttachmentIntent) bool {
			c := meta.FindStatusCondition(i.Status.Conditions, volumesv1alpha1.ConditionResolved)
			return c != nil && c.Reason == withoutPolicies && strings.Contains(c.Message, step.says)
		})
		expectGate(t, gate, "hawser-hold", false)
		if !exists(late) {
			w.create(t, late)
		}
		w.reason(t, late, volumesv1alpha1.ConditionResolved, metav1.ConditionFalse, withoutPolicies)
		w.notAttached(t, "late", "here")
	}

	// What was attached stays, and says so.
	until(t, w, attachmentOf("data", "here"), "it is still held", held)
	w.reason(t, data, volumesv1alpha1.ConditionResolved, metav1.ConditionTrue, volumesv1alpha1.ReasonResolved)
	w.attached(t, data)
	// What is to be released is.
	w.delete(t, data)
	gone(t, w, data)
	gone(t, w, attachmentOf("data", "here"))

	kubectl("", "replace", "-k", "admission")
	w.attached(t, late)
	w.attached(t, marker)
	w.reason(t, late, volumesv1alpha1.ConditionResolved, metav1.ConditionTrue, volumesv1alpha1.ReasonResolved)
	expectGate(t, gate, "", true)
}

// warning is the binding of the policy hawser-hold as one that refuses nothing.
const warning = `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: hawser-hold, labels: {volumes.hawser.io/admission-policy: hawser-hold}}
spec: {policyName: hawser-hold, validationActions: [Warn]}
`

// notAttached: no attachment was made. Right before, the manager has said that it makes none.
func (w *world) notAttached(t *testing.T, claim, node string) {
	t.Helper()
	va := attachmentOf(claim, node)
	if err := client.IgnoreNotFound(w.client.Get(t.Context(), client.ObjectKeyFromObject(va), va)); err != nil ||
		exists(va) {
		t.Errorf("VolumeAttachment %s: error %v, UID %q; want that it does not exist", va.Name, err, va.UID)
	}
}

// expectGate checks the readiness and the metric: one policy or none is reported as not in force.
func expectGate(t *testing.T, gate *policy.Checker, missing string, ready bool) {
	t.Helper()
	if err := gate.Ready(nil); (err == nil) != ready || !ready && !strings.Contains(err.Error(), missing) {
		t.Errorf("readiness: error %v, want none: %t, or one that names %q", err, ready, missing)
	}
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(gate)
	policies := 8
	if apiserver.MutatingPolicies(t) {
		policies = 9
	}
	families, err := registry.Gather()
	if err != nil || len(families) != 1 || families[0].GetName() != "hawser_admission_policy_in_force" ||
		len(families[0].GetMetric()) != policies {
		t.Fatalf("metrics %v, error %v; want hawser_admission_policy_in_force for %d policies", families, err, policies)
	}
	for _, m := range families[0].GetMetric() {
		name := m.GetLabel()[0].GetValue()
		if name == missing && m.GetGauge().GetValue() != 0 || ready && m.GetGauge().GetValue() != 1 {
			t.Errorf("metric %v; want 0 for %q, or 1 for all if ready (%t)", m, missing, ready)
		}
	}
}

// TestAnIntentGoesWithItsNode, although the manager may delete no other intent of an author.
func TestAnIntentGoesWithItsNode(t *testing.T) {
	w := newWorld(t)
	w.kubectl(t)("", "apply", "-k", "rbac")
	w.kubectl(t)("", "apply", "-k", "admission")
	w.manage(t, managerOptions{policies: policy.New(clock.RealClock{})})
	w.node(t, "leaves")
	w.volume(t, "data", volumeOptions{})
	data := newIntent("data", "leaves", "data")
	data.Spec.OnNodeDeletion = volumesv1alpha1.OnNodeDeletionRelease
	w.create(t, data)
	w.attached(t, data)
	w.delete(t, nodeNamed("leaves"))
	until(t, w, data, "it is being deleted", func(i *volumesv1alpha1.VolumeAttachmentIntent) bool {
		return !i.DeletionTimestamp.IsZero()
	})
}

// kubectl returns kubectl as an administrator runs it in the folder config.
func (w *world) kubectl(t *testing.T) func(stdin string, args ...string) string {
	kubeconfig := apiserver.Kubeconfig(t, w.config)
	return func(stdin string, args ...string) string {
		t.Helper()
		return apiserver.Kubectl(t, kubeconfig, stdin, args...)
	}
}
