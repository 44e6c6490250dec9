/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package handshake

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
)

func TestANodeIsSettledOnceItsAgentHasReportedAndNothingIsLeftOfWhatWasForcedAway(t *testing.T) {
	entry := func(evidence volumesv1alpha1.EvidenceType) volumesv1alpha1.NodeAttachment {
		e := volumesv1alpha1.NodeAttachment{VolumeName: "v", AttachmentUID: "1", State: volumesv1alpha1.AttachmentAttached}
		if evidence != "" {
			e.State, e.Evidence = volumesv1alpha1.AttachmentDetaching, &volumesv1alpha1.DetachEvidence{Type: evidence}
		}
		return e
	}
	used := func(attachment types.UID) []volumesv1alpha1.NodeVolume {
		return []volumesv1alpha1.NodeVolume{{VolumeName: "v", InUse: true, AttachmentUID: attachment}}
	}
	waits := []volumesv1alpha1.NodeVolume{{VolumeName: "v", InUse: true, Waiting: true}}
	for _, c := range []struct {
		name    string
		silent  bool
		entries []volumesv1alpha1.NodeAttachment
		lines   []volumesv1alpha1.NodeVolume
		// listed: the Node lists the volume as attached. blank: the state was created again.
		listed, blank, want bool
	}{
		{name: "nothing is attached", want: true},
		{name: "the agent has not reported since", silent: true},
		{name: "a volume is attached and used", want: true,
			entries: []volumesv1alpha1.NodeAttachment{entry("")}, lines: used("1")},
		{name: "a volume was released by the agent", want: true,
			entries: []volumesv1alpha1.NodeAttachment{entry(volumesv1alpha1.EvidenceAgentReleased)}},
		{name: "a volume was forced away",
			entries: []volumesv1alpha1.NodeAttachment{entry(volumesv1alpha1.EvidenceFenced)}},
		{name: "an earlier attachment is used beside the present one",
			entries: []volumesv1alpha1.NodeAttachment{entry("")}, lines: used("0")},
		{name: "what is used is attached no more", lines: used("1")},
		{name: "what is used was attached by others, and is no more", lines: used("")},
		{name: "what is used was attached by others", lines: used(""), listed: true, want: true},
		{name: "a pod waits for a volume", lines: waits, want: true},
		{name: "no agent has reported to this state", blank: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			nvs := &volumesv1alpha1.NodeVolumeState{}
			nvs.Spec.Attachments, nvs.Status.Volumes = c.entries, c.lines
			if c.silent {
				nvs.Status.Conditions = []metav1.Condition{{Type: volumesv1alpha1.ConditionReady,
					Reason: volumesv1alpha1.ReasonAgentUnreachable}}
			}
			node := &corev1.Node{}
			if c.listed {
				node.Status.VolumesAttached = []corev1.AttachedVolume{{Name: "v"}}
			}
			nvs.UID = "state"
			if !c.blank {
				nvs.Status.Protocol.ObservedUID = nvs.UID
			}
			if got := Settled(nvs, node); got != c.want {
				t.Errorf("node is settled: %t, want %t", got, c.want)
			}
		})
	}
}

func TestTheTaintThatTheManagerSetsAssertsNothing(t *testing.T) {
	for value, want := range map[string]bool{
		"": true, "nodeshutdown": true, volumesv1alpha1.OutOfServiceTaintValue: false,
	} {
		node := &corev1.Node{Spec: corev1.NodeSpec{Taints: []corev1.Taint{
			{Key: corev1.TaintNodeOutOfService, Value: value, Effect: corev1.TaintEffectNoExecute}}}}
		if got := DeclaredOff(node) != nil; got != want {
			t.Errorf("the taint of value %q asserts that the machine is off: %t, want %t", value, got, want)
		}
		if OutOfService(node) == nil {
			t.Errorf("a Node with the taint of value %q is in service, want it out of service", value)
		}
	}
}
