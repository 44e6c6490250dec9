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
)

// reportOtherMachine reports once, on the Node, that this agent waits: another machine has its name. The status of the
// node state is that of the other one.
func (a *Agent) reportOtherMachine(other *report.OtherMachineError) {
	a.Log.Error(other, "waiting for the Lease of the node")
	node := &corev1.Node{}
	node.Name, node.UID = a.NodeName, types.UID(a.NodeName) // as the kubelet names it in its events
	node.Kind, node.APIVersion = "Node", "v1"
	a.Recorder.Eventf(node, nil, corev1.EventTypeWarning, volumesv1alpha1.ReasonAnotherMachine, "Wait", "%s", other.Error())
}
