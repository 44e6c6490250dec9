/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package api

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
)

func (s server) testNodeVolumeState(t *testing.T) {
	entry := func(with changes) map[string]any {
		object := newNodeVolumeState(t, "unused", changes{
			"entry.volumeName": "kubernetes.io/csi/loop.csi.hawser.io^vol-1", "entry.state": "Attached",
			"entry.attachmentUID": "1",
		})
		with.apply(t, object)
		fields, ok := object.Object["entry"].(map[string]any)
		if !ok {
			t.Fatalf("no entry in %v", object.Object)
		}
		return fields
	}
	evidence := func(kind string) map[string]any {
		return map[string]any{"type": kind, "time": "2026-01-02T03:04:05Z"}
	}
	cases := []struct {
		name        string
		attachments []any
		want        []string
	}{
		{name: "no attachment"},
		{name: "an attachment", attachments: []any{entry(nil)}},
		{name: "a detach and why",
			attachments: []any{entry(changes{"entry.state": "Detaching", "entry.evidence": evidence("AgentReleased")})}},
		{name: "no volume name", attachments: []any{entry(changes{"entry.volumeName": ""})},
			want: []string{
				`spec.attachments[0].volumeName: Invalid value: "": ` +
					`spec.attachments[0].volumeName in body should be at least 1 chars long`}},
		{name: "the longest volume name",
			attachments: []any{entry(changes{"entry.volumeName": strings.Repeat("v", volumesv1alpha1.MaxVolumeNameLength)})}},
		{name: "a volume name that is too long",
			attachments: []any{entry(changes{"entry.volumeName": strings.Repeat("v", volumesv1alpha1.MaxVolumeNameLength+1)})},
			want:        []string{`spec.attachments[0].volumeName: Too long: may not be more than 2130 bytes`}},
		{name: "an unknown state", attachments: []any{entry(changes{"entry.state": "Gone"})},
			want: []string{`spec.attachments[0].state: Unsupported value: "Gone": supported values: "Attached", "Detaching"`}},
		{name: "unknown evidence",
			attachments: []any{entry(changes{"entry.state": "Detaching", "entry.evidence": evidence("Hunch")})},
			want: []string{`spec.attachments[0].evidence.type: Unsupported value: "Hunch": supported values: "AgentReleased", ` +
				`"OutOfServiceTaint", "NodeGone", "ForcedAfterTimeout", "DeclaredByAdministrator", "AttachmentLost", ` +
				`"Fenced"`}},
	}
	for i, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			state := newNodeVolumeState(t, fmt.Sprintf("node-%d", i), changes{"spec": map[string]any{}})
			if c.attachments != nil {
				changes{"spec.attachments": c.attachments}.apply(t, state)
			}
			expectRefusals(t, s.client.Create(t.Context(), state), c.want...)
		})
	}
	t.Run("a driver is listed once", s.testNodeVolumeStateDrivers)
	t.Run("registers are under protocol, and absent while they are zero", s.testRegisters)
	t.Run("field tracking ignores the elements of the lists that grow", s.testNodeVolumeStateTracking)
}

func (s server) testNodeVolumeStateDrivers(t *testing.T) {
	state := &volumesv1alpha1.NodeVolumeState{}
	state.Name = "node-keys"
	s.create(t, state)
	driver := volumesv1alpha1.NodeDriver{Name: "loop.csi.hawser.io"}
	state.Status = volumesv1alpha1.NodeVolumeStateStatus{Drivers: []volumesv1alpha1.NodeDriver{driver, driver}}
	expectRefusals(t, s.client.Status().Update(t.Context(), state),
		`status.drivers[1]: Duplicate value: {"name":"loop.csi.hawser.io"}`)
}

// testRegisters checks that the registers of the protocol are under members that are documented as internal.
func (s server) testRegisters(t *testing.T) {
	state := &volumesv1alpha1.NodeVolumeState{}
	state.Name = "node-registers"
	state.Spec.Attachments = []volumesv1alpha1.NodeAttachment{
		{VolumeName: "v", State: volumesv1alpha1.AttachmentAttached}}
	s.create(t, state)
	stored := newNodeVolumeState(t, state.Name, nil)
	expectProtocols := func(want ...string) {
		t.Helper()
		if err := s.client.Get(t.Context(), client.ObjectKeyFromObject(state), stored); err != nil {
			t.Fatal(err)
		}
		if got := protocolsOf("", stored.Object); !slices.Equal(got, want) {
			t.Errorf("node state %s stores the registers %q, want %q", state.Name, got, want)
		}
	}
	expectProtocols()
	state.Spec.Protocol.Fences = 2
	state.Spec.Attachments[0].Protocol.UnlistedGeneration = 3
	if err := s.client.Update(t.Context(), state); err != nil {
		t.Fatal(err)
	}
	state.Status.Protocol = volumesv1alpha1.AgentProtocol{ObservedUID: state.UID, Reports: 5, Session: 4}
	if err := s.client.Status().Update(t.Context(), state); err != nil {
		t.Fatal(err)
	}
	expectProtocols("spec.attachments[0].protocol: map[unlistedGeneration:3]", "spec.protocol: map[fences:2]",
		fmt.Sprintf("status.protocol: map[observedUID:%s reports:5 session:4]", state.UID))
}

// protocolsOf lists every member protocol below value, with what is in it, sorted.
func protocolsOf(path string, value any) (found []string) {
	switch v := value.(type) {
	case map[string]any:
		for key, inner := range v {
			if key == "protocol" {
				found = append(found, fmt.Sprintf("%s.%s: %v", strings.TrimPrefix(path, "."), key, inner))
			} else if key != "metadata" {
				found = append(found, protocolsOf(path+"."+key, inner)...)
			}
		}
	case []any:
		for i, inner := range v {
			found = append(found, protocolsOf(fmt.Sprintf("%s[%d]", path, i), inner)...)
		}
	}
	slices.Sort(found)
	return found
}

// testNodeVolumeStateTracking checks that field tracking does not grow with the lists. The API server tracks each
// element of a list that is a map, which makes each write more expensive.
func (s server) testNodeVolumeStateTracking(t *testing.T) {
	state := &volumesv1alpha1.NodeVolumeState{}
	state.Name = "node-tracking"
	const volume = "kubernetes.io/csi/loop.csi.hawser.io^vol-1"
	state.Spec.Attachments = []volumesv1alpha1.NodeAttachment{
		{VolumeName: volume, State: volumesv1alpha1.AttachmentAttached}}
	s.create(t, state)
	state.Status.Volumes = []volumesv1alpha1.NodeVolume{{VolumeName: volume, Publications: []volumesv1alpha1.Publication{{
		Path: "/p", Type: volumesv1alpha1.PublicationMount,
		Intent: volumesv1alpha1.IntentReference{Namespace: "default", Name: "data", UID: "1"},
	}}}}
	if err := s.client.Status().Update(t.Context(), state); err != nil {
		t.Fatal(err)
	}
	expectNoElements(t, state)
}

// expectNoElements fails if the object's managed fields contain elements of lists.
func expectNoElements(t *testing.T, o client.Object) {
	t.Helper()
	for _, tracked := range o.GetManagedFields() {
		if fields := tracked.FieldsV1.GetRawString(); strings.Contains(fields, "k:{") {
			t.Errorf("the API server tracks single elements: %s", fields)
		}
	}
}
