/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package operator_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hawser-io/hawser/test/apiserver"
)

// mirror is a policy that takes images from a mirror, and gives each pod a sidecar and an environment variable.
const mirror = `
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {name: mirror}
spec:
  failurePolicy: Fail
  reinvocationPolicy: Never
  matchConstraints:
    resourceRules:
    - {apiGroups: [apps], apiVersions: [v1], resources: [deployments], operations: [CREATE, UPDATE]}
  mutations:
  - patchType: ApplyConfiguration
    applyConfiguration:
      expression: >-
        Object{spec: Object.spec{template: Object.spec.template{spec: Object.spec.template.spec{containers: [
        Object.spec.template.spec.containers{name: "mesh", image: "mesh:v1"},
        Object.spec.template.spec.containers{name: "manager", image: "mirror.example/manager:dev",
        env: [Object.spec.template.spec.containers.env{name: "MESH", value: "1"}]}]}}}}
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicyBinding
metadata: {name: mirror}
spec: {policyName: mirror}
`

// testAdmission lets the API server change what the operator applies. Otherwise each reconcile would apply it again.
func (s server) testAdmission(t *testing.T) {
	if !apiserver.MutatingPolicies(t) {
		t.Skip("needs MutatingAdmissionPolicy")
	}
	apiserver.Kubectl(t, s.kubeconfig, mirror, "apply", "-f", "-")
	s.awaitMirror(t, "mirror.example/manager:dev")
	// Another client's change makes the operator apply the Deployment once.
	s.kubectl(t, "-n", namespace, "scale", "deployment", "hawser-manager", "--replicas=7")
	s.awaitManager(t, "the replicas are put back and the image is the mirror's", func(d *appsv1.Deployment) bool {
		return *d.Spec.Replicas == 2 && image(d) == "mirror.example/manager:dev" && len(d.Spec.Template.Spec.Containers) == 2
	})
	s.awaitEvent(t, "AlteredByAdmission", "changes Deployment hawser-system/hawser-manager when the operator applies it: "+
		".spec.template.spec.containers[manager].image is mirror.example/manager:dev, and 1 field(s) differ in all")

	// The next reconcile mends what it finds of another object, and applies no Deployment.
	before := s.kubectl(
		t, "-n", namespace, "get", "deployment", "hawser-manager", "-o", "jsonpath={.metadata.managedFields}",
	)
	lost := s.await(t, binding, "", "hawser-hold", "it is there", there)
	check(t, s.admin.Delete(t.Context(), lost.DeepCopy()))
	s.await(t, binding, "", "hawser-hold", "the binding is made again", func(o *unstructured.Unstructured) bool {
		return o.GetUID() != lost.GetUID()
	})
	after := s.kubectl(
		t, "-n", namespace, "get", "deployment", "hawser-manager", "-o", "jsonpath={.metadata.managedFields}",
	)
	if before != after {
		t.Errorf("the Deployment was applied again: managed fields %s, before %s", after, before)
	}
	s.expectNoDrift(t, ".spec.template.spec")

	apiserver.Kubectl(t, s.kubeconfig, mirror, "delete", "-f", "-")
	s.awaitMirror(t, "probe")
	s.kubectl(t, "-n", namespace, "patch", "deployment", "hawser-manager", "--type=strategic", "-p",
		`{"spec":{"template":{"spec":{"containers":[{"name":"mesh","$patch":"delete"}]}}}}`)
	for _, replicas := range []int32{3, 2} {
		s.change(t, fmt.Sprintf(`{"manager":{"replicas":%d}}`, replicas))
		s.awaitManager(t, "the next change takes the image back", func(d *appsv1.Deployment) bool {
			return *d.Spec.Replicas == replicas && image(d) == "hawser/manager:dev"
		})
	}
	s.settle(t)
}

func (s server) manager(t *testing.T) *appsv1.Deployment {
	t.Helper()
	d := &appsv1.Deployment{}
	check(t, s.admin.Get(t.Context(), types.NamespacedName{Namespace: namespace, Name: "hawser-manager"}, d))
	return d
}

// image of the manager itself.
func image(d *appsv1.Deployment) string {
	for _, c := range d.Spec.Template.Spec.Containers {
		if c.Name == "manager" {
			return c.Image
		}
	}
	return ""
}

func (s server) awaitManager(t *testing.T, what string, holds func(*appsv1.Deployment) bool) {
	t.Helper()
	s.await(t, deployment, namespace, "hawser-manager", what, func(*unstructured.Unstructured) bool {
		return holds(s.manager(t))
	})
}

// awaitMirror waits until a Deployment with the image probe, which is not kept, gets the image. That the API server
// applies a policy has no event.
func (s server) awaitMirror(t *testing.T, want string) {
	t.Helper()
	check(t, wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, patience, true,
		func(ctx context.Context) (bool, error) {
			d := s.manager(t)
			d.ResourceVersion = ""
			for i, c := range d.Spec.Template.Spec.Containers {
				if c.Name == "manager" {
					d.Spec.Template.Spec.Containers[i].Image = "probe"
				}
			}
			err := s.admin.Update(ctx, d, client.DryRunAll)
			return err == nil && image(d) == want, err
		}))
}

// expectNoDrift checks that no event reports drift at such a place.
func (s server) expectNoDrift(t *testing.T, place string) {
	t.Helper()
	events := &eventsv1.EventList{}
	check(t, s.admin.List(t.Context(), events, client.InNamespace(corev1.NamespaceDefault)))
	for _, e := range events.Items {
		if e.Reason == "DriftMended" && strings.Contains(e.Note, place) {
			t.Errorf("event %s: %s; want none of %s", e.Reason, e.Note, place)
		}
	}
}
