/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package v1alpha1_test

import (
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
)

func (s server) testNodeVolumeState(t *testing.T) {
	entry := func(with changes) map[string]any {
		object := newNodeVolumeState(t, "unused", changes{
			"entry.volumeName": "kubernetes.io/csi/loop.csi.hawser.io^vol-1", "entry.state": "Attached", "entry.attachmentUID": "1",
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
		{name: "a detach and why", attachments: []any{entry(changes{"entry.state": "Detaching", "entry.evidence": evidence("AgentReleased")})}},
		{name: "one volume twice", attachments: []any{entry(nil), entry(changes{"entry.attachmentUID": "2"})},
			want: []string{`spec.attachments[1]: Duplicate value: {"volumeName":"kubernetes.io/csi/loop.csi.hawser.io^vol-1"}`}},
		{name: "no volume name", attachments: []any{entry(changes{"entry.volumeName": ""})},
			want: []string{`spec.attachments[0].volumeName: Invalid value: "": spec.attachments[0].volumeName in body should be at least 1 chars long`}},
		{name: "an unknown state", attachments: []any{entry(changes{"entry.state": "Gone"})},
			want: []string{`spec.attachments[0].state: Unsupported value: "Gone": supported values: "Attached", "Detaching"`}},
		{name: "unknown evidence", attachments: []any{entry(changes{"entry.state": "Detaching", "entry.evidence": evidence("Hunch")})},
			want: []string{`spec.attachments[0].evidence.type: Unsupported value: "Hunch": supported values: "AgentReleased", ` +
				`"OutOfServiceTaint", "NodeGone", "ForcedAfterTimeout", "DeclaredByAdministrator", "AttachmentLost"`}},
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
	t.Run("status lists have keys", s.testNodeVolumeStateStatusKeys)
}

func (s server) testNodeVolumeStateStatusKeys(t *testing.T) {
	state := &volumesv1alpha1.NodeVolumeState{}
	state.Name = "node-keys"
	s.create(t, state)
	at := func(path string, uid types.UID) volumesv1alpha1.Publication {
		return volumesv1alpha1.Publication{
			Path: path, Type: volumesv1alpha1.PublicationMount,
			Intent: volumesv1alpha1.IntentReference{Namespace: "default", Name: "data", UID: uid},
		}
	}
	volume := volumesv1alpha1.NodeVolume{VolumeName: "v", InUse: true, Publications: []volumesv1alpha1.Publication{at("/p", "1"), at("/p", "2")}}
	driver := volumesv1alpha1.NodeDriver{Name: "loop.csi.hawser.io"}
	state.Status = volumesv1alpha1.NodeVolumeStateStatus{
		Drivers: []volumesv1alpha1.NodeDriver{driver, driver},
		Volumes: []volumesv1alpha1.NodeVolume{volume, {VolumeName: "v"}},
	}
	expectRefusals(t, s.client.Status().Update(t.Context(), state),
		`status.drivers[1]: Duplicate value: {"name":"loop.csi.hawser.io"}`,
		`status.volumes[1]: Duplicate value: {"volumeName":"v"}`,
		`status.volumes[0].publications[1]: Duplicate value: {"path":"/p"}`,
	)
}
