/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package agent

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/agent/report"
	"github.com/hawser-io/hawser/internal/status"
)

// reportOtherMachine reports once, on the Node, that this agent waits: another machine has its name. The status of the
// node state is that of the other one.
func reportOtherMachine(o Options, other *report.OtherMachineError) {
	o.Log.Error(other, "waiting for the Lease of the node")
	node := &corev1.Node{}
	node.Name, node.UID = o.NodeName, types.UID(o.NodeName) // as the kubelet names it in its events
	node.Kind, node.APIVersion = "Node", "v1"
	o.Recorder.Eventf(node, nil, corev1.EventTypeWarning, volumesv1alpha1.ReasonAnotherMachine, "Wait", "%s",
		status.ShortenNote(other.Error()))
}
