/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package api

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
)

const tableAnswer = "application/json;as=Table;v=v1;g=meta.k8s.io"

func (s server) testListByNode(t *testing.T) {
	s.create(t, newIntent(t, "on-list-1", changes{"spec.nodeName": "list-1"}))
	s.create(t, newIntent(t, "on-list-2", changes{"spec.nodeName": "list-2"}))

	var list volumesv1alpha1.VolumeAttachmentIntentList
	if err := s.client.List(t.Context(), &list, client.MatchingFields{"spec.nodeName": "list-1"}); err != nil {
		t.Fatal(err)
	}
	if len(list.Items) != 1 || list.Items[0].Name != "on-list-1" {
		t.Errorf("the intents of node list-1: %+v", list.Items)
	}
}

func (s server) testListByClaimAndVolume(t *testing.T) {
	for _, name := range []string{"one", "two"} {
		object := newIntent(t, "select-"+name, changes{
			"spec.volume.persistentVolumeClaim.claimName": "claim-" + name, "spec.nodeName": "select-fields",
		})
		s.create(t, object)
		intent := asIntent(t, object)
		intent.Status.VolumeName = "pv-" + name
		if err := s.client.Status().Update(t.Context(), &intent); err != nil {
			t.Fatalf("writing the status of intent %s: %v", intent.Name, err)
		}
	}
	for field, value := range map[string]string{
		"spec.volume.persistentVolumeClaim.claimName": "claim-two", "status.volumeName": "pv-two",
	} {
		var list volumesv1alpha1.VolumeAttachmentIntentList
		if err := s.client.List(t.Context(), &list, client.MatchingFields{field: value}); err != nil {
			t.Fatalf("listing intents by %s: %v", field, err)
		}
		if len(list.Items) != 1 || list.Items[0].Name != "select-two" {
			t.Errorf("intents with %s=%s: got %d, want select-two alone", field, value, len(list.Items))
		}
	}
}

// testWatchByNode creates the other node's intent first. The first event must be about this node's intent.
func (s server) testWatchByNode(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	events, err := s.client.Watch(ctx, &volumesv1alpha1.VolumeAttachmentIntentList{},
		client.MatchingFields{"spec.nodeName": "watch-1"})
	if err != nil {
		t.Fatal(err)
	}
	defer events.Stop()
	s.create(t, newIntent(t, "on-watch-2", changes{"spec.nodeName": "watch-2"}))
	s.create(t, newIntent(t, "on-watch-1", changes{"spec.nodeName": "watch-1"}))

	event, open := <-events.ResultChan()
	if !open {
		t.Fatal("the watch ended without an event")
	}
	intent, ok := event.Object.(*volumesv1alpha1.VolumeAttachmentIntent)
	if event.Type != watch.Added || !ok || intent.Name != "on-watch-1" {
		t.Errorf("the first event of node watch-1: %s %+v", event.Type, event.Object)
	}
}

func (s server) testDiscovery(t *testing.T) {
	set := kubernetes.NewForConfigOrDie(s.config)
	resources, err := set.Discovery().ServerResourcesForGroupVersion(volumesv1alpha1.GroupVersion.String())
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]metav1.APIResource{}
	for _, r := range resources.APIResources {
		found[r.Name] = r
	}
	for _, want := range []metav1.APIResource{
		{Name: "volumeattachmentintents", ShortNames: []string{"vai"}, Namespaced: true},
		{Name: "nodevolumestates", ShortNames: []string{"nvs"}, Namespaced: false},
		{Name: "volumemanagers", ShortNames: []string{"hvm"}, Namespaced: false},
	} {
		got := found[want.Name]
		if !slices.Equal(got.ShortNames, want.ShortNames) || got.Namespaced != want.Namespaced ||
			!slices.Contains(got.Categories, "hawser") {
			t.Errorf("%s: %+v", want.Name, got)
		}
		if _, ok := found[want.Name+"/status"]; !ok {
			t.Errorf("%s has no status subresource", want.Name)
		}
	}
}

// columns reads the table that kubectl would print, without the age. Names of -o wide columns are in brackets.
func (s server) columns(t *testing.T, path string) (names []string, cells []string) {
	t.Helper()
	var table metav1.Table
	set := kubernetes.NewForConfigOrDie(s.config)
	raw, err := set.Discovery().RESTClient().Get().AbsPath(path).SetHeader("Accept", tableAnswer).DoRaw(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	decode(t, raw, &table)
	for i, column := range table.ColumnDefinitions {
		name, cell := column.Name, fmt.Sprint(table.Rows[0].Cells[i])
		if name == "Age" {
			cell = ""
		}
		if column.Priority > 0 {
			name = "(" + name + ")"
		}
		names, cells = append(names, name), append(cells, cell)
	}
	return names, cells
}

func (s server) testIntentColumns(t *testing.T) {
	object := newIntent(t, "columns", nil)
	s.create(t, object)
	intent := asIntent(t, object)
	intent.Status.VolumeName, intent.Status.Path = "pv-data", "/var/lib/hawser/published/default/columns"
	intent.Status.Conditions = []metav1.Condition{{
		Type: volumesv1alpha1.ConditionReady, Status: metav1.ConditionFalse, Reason: volumesv1alpha1.ReasonClaimNotFound,
		Message: "there is no claim data", LastTransitionTime: metav1.Now(),
	}, {
		Type: volumesv1alpha1.ConditionExpanded, Status: metav1.ConditionFalse, Reason: volumesv1alpha1.ReasonExpandFailed,
		LastTransitionTime: metav1.Now(),
	}}
	if err := s.client.Status().Update(t.Context(), &intent); err != nil {
		t.Fatal(err)
	}

	names, cells := s.columns(t, "/apis/volumes.hawser.io/v1alpha1/namespaces/default/volumeattachmentintents/columns")
	if want := []string{"Name", "Node", "Claim", "Desired", "Ready", "Reason", "(Volume)", "(Path)", "(Expansion)",
		"(Message)", "Age"}; !slices.Equal(names, want) {
		t.Errorf("columns %q, want %q", names, want)
	}
	want := []string{
		"columns", "node-a", "data", "Published", "False", "ClaimNotFound", "pv-data",
		"/var/lib/hawser/published/default/columns", "ExpandFailed", "there is no claim data", "",
	}
	if !slices.Equal(cells, want) {
		t.Errorf("cells %q, want %q", cells, want)
	}
}

func (s server) testNodeVolumeStateColumns(t *testing.T) {
	state := &volumesv1alpha1.NodeVolumeState{}
	state.Name = "columns"
	s.create(t, state)
	state.Status.Summary = &volumesv1alpha1.NodeVolumeSummary{
		Attached: 4, Staged: 3, Published: 2, Failing: 1, Orphaned: 5,
	}
	state.Status.AgentVersion = "v1.2.3"
	state.Status.Conditions = []metav1.Condition{{
		Type: volumesv1alpha1.ConditionReady, Status: metav1.ConditionTrue, Reason: volumesv1alpha1.ReasonReady,
		LastTransitionTime: metav1.Now(),
	}}
	if err := s.client.Status().Update(t.Context(), state); err != nil {
		t.Fatal(err)
	}

	names, cells := s.columns(t, "/apis/volumes.hawser.io/v1alpha1/nodevolumestates/columns")
	if want := []string{"Name", "Ready", "Attached", "Staged", "Published", "Failing", "Orphaned", "(Agent)",
		"Age"}; !slices.Equal(names, want) {
		t.Errorf("columns %q, want %q", names, want)
	}
	if want := []string{"columns", "True", "4", "3", "2", "1", "5", "v1.2.3", ""}; !slices.Equal(cells, want) {
		t.Errorf("cells %q, want %q", cells, want)
	}
}

// testSetColumns holds that what counts nothing shows 0.
func (s server) testSetColumns(t *testing.T) {
	set := &volumesv1alpha1.VolumeAttachmentIntentSet{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "columns"}}
	set.Spec.NodeSelector = &metav1.LabelSelector{}
	set.Spec.Template.Spec.Volume = &volumesv1alpha1.TemplateVolumeSource{
		PersistentVolumeClaim: volumesv1alpha1.PersistentVolumeClaimSource{ClaimName: "data"}}
	s.create(t, set)
	set.Status.Desired = 1
	if err := s.client.Status().Update(t.Context(), set); err != nil {
		t.Fatal(err)
	}
	_, cells := s.columns(t, "/apis/volumes.hawser.io/v1alpha1/namespaces/default/volumeattachmentintentsets/columns")
	if want := []string{"columns", "1", "0", "0", "0", "0"}; !slices.Equal(cells[:len(want)], want) {
		t.Errorf("cells %q, want that they begin with %q", cells, want)
	}
}

// testConditionTypesAreUnique holds for both kinds: tools find a condition by its type.
func (s server) testConditionTypesAreUnique(t *testing.T) {
	twice := []metav1.Condition{
		{Type: "Ready", Status: metav1.ConditionTrue, Reason: "Ready", LastTransitionTime: metav1.Now()},
		{Type: "Ready", Status: metav1.ConditionFalse, Reason: "Not", LastTransitionTime: metav1.Now()},
	}
	object := newIntent(t, "conditions-twice", nil)
	s.create(t, object)
	intent := asIntent(t, object)
	intent.Status.Conditions = twice
	state := &volumesv1alpha1.NodeVolumeState{}
	state.Name = "conditions-twice"
	s.create(t, state)
	state.Status.Conditions = twice
	for _, object := range []client.Object{&intent, state} {
		err := s.client.Status().Update(t.Context(), object)
		if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "Duplicate value") {
			t.Errorf("two conditions of type Ready on %T %s: %v, want refused as a duplicate", object, object.GetName(),
				err)
		}
	}
}

func (s server) testOperationsOfErrorsAreKnown(t *testing.T) {
	object := newIntent(t, "operations", nil)
	s.create(t, object)
	intent := asIntent(t, object)
	intent.Status.LastError = &volumesv1alpha1.OperationError{Operation: "mount"}
	if err := s.client.Status().Update(t.Context(), &intent); !apierrors.IsInvalid(err) {
		t.Errorf("lastError.operation mount on intent %s: %v, want refused", intent.Name, err)
	}
	intent.Status.LastError.Operation = "stage"
	if err := s.client.Status().Update(t.Context(), &intent); err != nil {
		t.Errorf("lastError.operation stage on intent %s: %v, want accepted", intent.Name, err)
	}
}
