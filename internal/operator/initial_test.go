/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package operator_test

import (
	"reflect"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/operator"
)

func TestTheInitialSpecIsReadStrictly(t *testing.T) {
	for _, test := range []struct {
		name, text string
		want       map[string]any
		refusal    string
	}{
		{name: "none", text: ""},
		{name: "YAML", text: "{attachMode: Replace, manager: {replicas: 1}}",
			want: map[string]any{"attachMode": "Replace", "manager": map[string]any{"replicas": int64(1)}}},
		{name: "JSON", text: `{"agent":{"maxUnavailable":"20%","driverTimeout":"3m"}}`,
			want: map[string]any{"agent": map[string]any{"maxUnavailable": "20%", "driverTimeout": "3m"}}},
		{name: "an empty list stays one", text: "tolerations: []", want: map[string]any{"tolerations": []any{}}},
		{name: "a field that is not there", text: "{attachMode: Replace, mode: Replace}", refusal: `unknown field "mode"`},
		{name: "a field in other letters", text: "{attachmode: Replace}", refusal: `unknown field "attachmode"`},
		{name: "a field twice", text: "{attachMode: Replace, attachMode: Coexist}",
			refusal: `"attachMode" already set in map`},
		{name: "a value of another type", text: "{manager: 2}", refusal: "manager"},
		{name: "no object", text: "Replace", refusal: "cannot unmarshal string"},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := operator.ParseInitialSpec(test.text)
			if test.refusal != "" {
				if err == nil || !strings.Contains(err.Error(), test.refusal) ||
					!strings.Contains(err.Error(), operator.InitialSpecVariable) {
					t.Errorf("initial spec %q: error %v, want one that contains %q and names the variable", test.text, err,
						test.refusal)
				}
				return
			}
			if err != nil || !reflect.DeepEqual(got, test.want) {
				t.Errorf("initial spec %q: got %v, error %v; want %v", test.text, got, err, test.want)
			}
		})
	}
}

// TestTheOverlaysBringTheirModeUp applies each overlay with one kubectl apply. The operator has the environment of its
// Deployment.
func TestTheOverlaysBringTheirModeUp(t *testing.T) {
	s := newServer(t)
	for name, want := range map[string]volumesv1alpha1.VolumeManagerSpec{
		"coexist": {AttachMode: volumesv1alpha1.AttachCoexist, PodIntents: volumesv1alpha1.PodIntentsAuto},
		"observe": {AttachMode: volumesv1alpha1.AttachCoexist, PodIntents: volumesv1alpha1.PodIntentsAlways},
		"replace": {AttachMode: volumesv1alpha1.AttachReplace, PodIntents: volumesv1alpha1.PodIntentsAuto},
	} {
		if !t.Run(name, func(t *testing.T) { s.testOverlay(t, name, want) }) {
			return
		}
	}
	t.Run("a value that the API server refuses is an event of the operator's Deployment", s.testInvalidInitialSpec)
}

func (s server) testOverlay(t *testing.T, name string, want volumesv1alpha1.VolumeManagerSpec) {
	s.kubectl(t, "apply", "-k", "overlays/"+name)
	stop := s.run(t, operator.Options{Images: released, InitialSpec: s.initialSpec(t)})
	vm := asVolumeManager(t, s.await(t, volumeManager, "", "cluster", "the operator makes it", there))
	if vm.Spec.AttachMode != want.AttachMode || vm.Spec.PodIntents != want.PodIntents {
		t.Errorf("VolumeManager of overlay %s: attach mode %s, pod intents %s; want %s, %s", name, vm.Spec.AttachMode,
			vm.Spec.PodIntents, want.AttachMode, want.PodIntents)
	}
	s.awaitCondition(t, "Degraded", "False", "AsExpected", "")
	s.kubectl(t, "delete", "hvm", "cluster", "--wait=false")
	s.awaitGone(t, volumeManager, "", "cluster", "nothing is in use")
	stop()
	// As if it had never been installed.
	s.kubectl(t, "-n", namespace, "annotate", "deployment", "hawser-operator", volumesv1alpha1.RemovedAnnotation+"-")
}

// initialSpec is that of the operator's Deployment.
func (s server) initialSpec(t *testing.T) map[string]any {
	t.Helper()
	own := &appsv1.Deployment{}
	check(t, s.admin.Get(t.Context(), types.NamespacedName{Namespace: namespace, Name: "hawser-operator"}, own))
	for _, variable := range own.Spec.Template.Spec.Containers[0].Env {
		if variable.Name == operator.InitialSpecVariable {
			spec, err := operator.ParseInitialSpec(variable.Value)
			check(t, err)
			return spec
		}
	}
	t.Fatalf("the operator's Deployment has no environment variable %s, want one", operator.InitialSpecVariable)
	return nil
}

func (s server) testInvalidInitialSpec(t *testing.T) {
	s.run(t, operator.Options{Images: released, InitialSpec: map[string]any{"attachMode": "Sometimes"}})
	s.awaitAny(t, event, namespace, "an event of the Deployment has the API server's message",
		func(o *unstructured.Unstructured) bool {
			note, _, err := unstructured.NestedString(o.Object, "note")
			name, _, _ := unstructured.NestedString(o.Object, "regarding", "name")
			return err == nil && o.Object["reason"] == "InitialSpecInvalid" && name == "hawser-operator" &&
				strings.Contains(note, operator.InitialSpecVariable) &&
				strings.Contains(note, `spec.attachMode: Unsupported value: "Sometimes"`)
		})
	vm := &volumesv1alpha1.VolumeManager{}
	err := s.admin.Get(t.Context(), client.ObjectKey{Name: "cluster"}, vm)
	if client.IgnoreNotFound(err) != nil || err == nil {
		t.Errorf("reading VolumeManager cluster: error %v, want that there is none", err)
	}
}
