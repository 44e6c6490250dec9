/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package api

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/test/apiserver"
)

// server is the one API server that all tests of this package share. Each test case has its own objects.
type server struct {
	config *rest.Config
	client client.WithWatch
}

// TestTheAPIServerEnforcesTheAPI starts one API server for all tests that need a real one.
func TestTheAPIServerEnforcesTheAPI(t *testing.T) {
	config, c := apiserver.Start(t)
	s := server{config: config, client: c}
	t.Run("the API server accepts an intent or refuses it with a clear message", s.testCreateIntent)
	t.Run("the API server accepts an intent's change or refuses it with a clear message", s.testUpdateIntent)
	t.Run("an earlier manifest of an intent works, or the refusal names what to write", s.testEarlierManifests)
	t.Run("an intent gets its defaults", s.testIntentDefaults)
	t.Run("the author of an intent cannot write its status", s.testIntentStatusIsASubresource)
	t.Run("the API server accepts or refuses a node state", s.testNodeVolumeState)
	t.Run("the API server accepts a VolumeManager or refuses it with a clear message", s.testCreateVolumeManager)
	t.Run("a VolumeManager gets its defaults", s.testVolumeManagerDefaults)
	t.Run("a list selects intents by node", s.testListByNode)
	t.Run("a list selects intents by claim and by volume", s.testListByClaimAndVolume)
	t.Run("a condition type occurs once", s.testConditionTypesAreUnique)
	t.Run("an error names a known operation", s.testOperationsOfErrorsAreKnown)
	t.Run("a watch selects intents by node", s.testWatchByNode)
	t.Run("discovery finds kinds by short name and by category", s.testDiscovery)
	t.Run("kubectl get shows an intent's columns", s.testIntentColumns)
	t.Run("kubectl get shows a node state's columns", s.testNodeVolumeStateColumns)
	t.Run("kubectl get shows a set's columns", s.testSetColumns)
}

// changes are values by dotted path; nil removes the field.
type changes map[string]any

// apply sets each change in object.
func (c changes) apply(t *testing.T, object *unstructured.Unstructured) {
	t.Helper()
	for path, value := range c {
		fields := strings.Split(path, ".")
		if value == nil {
			unstructured.RemoveNestedField(object.Object, fields...)
			continue
		}
		if err := unstructured.SetNestedField(object.Object, value, fields...); err != nil {
			t.Fatalf("setting %s: %v", path, err)
		}
	}
}

// newIntent is a valid intent of this name, with the changes made to it.
func newIntent(t *testing.T, name string, with changes) *unstructured.Unstructured {
	t.Helper()
	intent := &unstructured.Unstructured{Object: map[string]any{
		"spec": map[string]any{
			"nodeName": "node-a",
			"volume":   map[string]any{"persistentVolumeClaim": map[string]any{"claimName": "data"}},
		},
	}}
	intent.SetGroupVersionKind(volumesv1alpha1.GroupVersion.WithKind("VolumeAttachmentIntent"))
	intent.SetNamespace(metav1.NamespaceDefault)
	intent.SetName(name)
	with.apply(t, intent)
	return intent
}

// newNodeVolumeState is a valid node state of this name, with the changes made to it.
func newNodeVolumeState(t *testing.T, name string, with changes) *unstructured.Unstructured {
	t.Helper()
	state := &unstructured.Unstructured{Object: map[string]any{}}
	state.SetGroupVersionKind(volumesv1alpha1.GroupVersion.WithKind("NodeVolumeState"))
	state.SetName(name)
	with.apply(t, state)
	return state
}

// expectRefusals compares the fields and messages of the API server's answer with the wanted ones.
// Without any, it wants the object to be accepted.
func expectRefusals(t *testing.T, err error, want ...string) {
	t.Helper()
	got := refusals(err)
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("refused with\n  %s\nwant\n  %s", strings.Join(got, "\n  "), strings.Join(want, "\n  "))
	}
}

// notAllChecked begins the cause that the API server adds if the schema refuses the object before CEL runs.
const notAllChecked = "Invalid value: null: some validation rules were not checked"

// refusals lists "field: message" for each cause of an Invalid answer. Any other error is one line.
func refusals(err error) []string {
	if err == nil {
		return nil
	}
	var status apierrors.APIStatus
	if !errors.As(err, &status) || status.Status().Details == nil || len(status.Status().Details.Causes) == 0 {
		return []string{err.Error()}
	}
	var lines []string
	for _, cause := range status.Status().Details.Causes {
		if strings.HasPrefix(cause.Message, notAllChecked) {
			continue
		}
		lines = append(lines, fmt.Sprintf("%s: %s", cause.Field, cause.Message))
	}
	return lines
}

// create stores the object.
func (s server) create(t *testing.T, object client.Object) {
	t.Helper()
	if err := s.client.Create(t.Context(), object); err != nil {
		t.Fatalf("creating %s: %v", object.GetName(), err)
	}
}

// asIntent converts an unstructured intent.
func asIntent(t *testing.T, object *unstructured.Unstructured) volumesv1alpha1.VolumeAttachmentIntent {
	t.Helper()
	raw, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	var intent volumesv1alpha1.VolumeAttachmentIntent
	decode(t, raw, &intent)
	return intent
}

func decode(t *testing.T, raw []byte, into any) {
	t.Helper()
	if err := json.Unmarshal(raw, into); err != nil {
		t.Fatalf("reading %s: %v", raw, err)
	}
}
