/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package liveness

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/cached"
)

func nodeWith(os string, labels map[string]string, managed bool) *corev1.Node {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: labels}}
	node.Status.NodeInfo.OperatingSystem = os
	if managed {
		node.Annotations = map[string]string{cached.ManagedNodeAnnotation: "true"}
	}
	return node
}

func TestOnlyANodeThatCanRunNoAgentAndNeverReportedNeverHadOne(t *testing.T) {
	never := &volumesv1alpha1.NodeVolumeState{}
	reported, used, attached := never.DeepCopy(), never.DeepCopy(), never.DeepCopy()
	reported.Status.Protocol.Reports = 1
	used.Status.Volumes = []volumesv1alpha1.NodeVolume{{VolumeName: "v"}}
	attached.Spec.Attachments = []volumesv1alpha1.NodeAttachment{{VolumeName: "v"}}
	virtual := map[string]string{"type": "virtual-kubelet"}
	for _, c := range []struct {
		name string
		node *corev1.Node
		nvs  *volumesv1alpha1.NodeVolumeState
		want bool
	}{
		{"Linux", nodeWith("linux", nil, true), never, false},
		{"Linux without any state", nodeWith("linux", nil, true), nil, false},
		{"not known", nodeWith("", map[string]string{corev1.LabelOSStable: "windows"}, true), never, false},
		{"Windows", nodeWith("windows", nil, true), never, true},
		{"Windows without a state", nodeWith("windows", nil, true), nil, true},
		{"Windows, and a report", nodeWith("windows", nil, true), reported, false},
		{"Windows, and a volume in use", nodeWith("windows", nil, true), used, false},
		{"Windows, and an entry", nodeWith("windows", nil, true), attached, false},
		{"Fargate", nodeWith("linux", map[string]string{"eks.amazonaws.com/compute-type": "fargate"}, true), never, true},
		{"a virtual kubelet", nodeWith("linux", virtual, false), never, true},
		{"a machine with the label of a virtual kubelet", nodeWith("linux", virtual, true), never, false},
		{"another virtual kubelet", nodeWith("linux", map[string]string{corev1.LabelInstanceTypeStable: "eklet"}, false),
			never, true},
	} {
		if got := NeverHadAgent(c.node, c.nvs); got != c.want {
			t.Errorf("%s: node n never had an agent: %t, want %t", c.name, got, c.want)
		}
	}
}
