/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package images

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/test/system"
)

// testDeletedNode deletes a Node while its machine runs. Kubernetes then deletes the agent's pod, whose silence is no
// evidence: the volume stays attached until the kubelet registers the Node again and the agent releases it. No driver
// of that node is where this installation's agents look for one, so the volume is attached only.
func (s suite) testDeletedNode(t *testing.T) {
	t.Helper()
	intent := newIntent(ofDeletedNode, goneNode)
	intent.Spec.DesiredState = volumesv1alpha1.DesiredAttached
	s.create(t, intent)
	_, err := s.AwaitReady(limited(t), intent.Namespace, intent.Name)
	s.explain(t, err)
	agent := s.agentOn(t, goneNode)
	check(t, s.Client.Delete(limited(t), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: goneNode}}))
	s.awaitPod(t, agent, func(pod *corev1.Pod) bool { return pod == nil })
	// The message is the same however long that lasts.
	s.awaitState(t, func(nvs *volumesv1alpha1.NodeVolumeState) bool {
		possible := meta.FindStatusCondition(nvs.Status.Conditions, volumesv1alpha1.ConditionDetachPossible)
		return possible != nil && possible.Reason == volumesv1alpha1.ReasonEvidenceMissing &&
			strings.Contains(possible.Message, "is no evidence: no manager saw") && nvs.Status.Node.Absence == nil
	})
	check(t, s.Kill(system.Kubelet(goneNode)))
	check(t, s.StartAgain(limited(t), system.Kubelet(goneNode)))
	_, err = system.Await(limited(t), s.System, &corev1.NodeList{}, client.ObjectKey{Name: goneNode},
		func(node *corev1.Node) bool { return node != nil })
	s.explain(t, err)
	s.kubectl(t, "label", "node", goneNode, agentLabel+"=true")
	state := s.awaitState(t, func(nvs *volumesv1alpha1.NodeVolumeState) bool {
		ready := meta.FindStatusCondition(nvs.Status.Conditions, volumesv1alpha1.ConditionReady)
		return ready != nil && ready.Reason != volumesv1alpha1.ReasonAgentUnreachable && nvs.Status.Node.Absence == nil
	})
	if len(state.Spec.Attachments) != 1 || state.Spec.Attachments[0].State != volumesv1alpha1.AttachmentAttached {
		t.Errorf("entries of node state %s, whose Node is back: %+v, want one that is Attached", goneNode,
			state.Spec.Attachments)
	}
	check(t, s.Client.Delete(limited(t), intent))
	s.explain(t, s.AwaitGone(limited(t), intent.Namespace, intent.Name))
}

// awaitState of the node that is deleted.
func (s suite) awaitState(
	t *testing.T, done func(*volumesv1alpha1.NodeVolumeState) bool,
) *volumesv1alpha1.NodeVolumeState {
	t.Helper()
	state, err := system.Await(limited(t), s.System, &volumesv1alpha1.NodeVolumeStateList{},
		client.ObjectKey{Name: goneNode}, func(nvs *volumesv1alpha1.NodeVolumeState) bool { return nvs != nil && done(nvs) })
	s.explain(t, err)
	return state
}

// agentOn is the pod of the node's agent.
func (s suite) agentOn(t *testing.T, node string) *corev1.Pod {
	t.Helper()
	var agents corev1.PodList
	check(t, s.Client.List(limited(t), &agents, client.InNamespace(hawser),
		client.MatchingLabels{"app.kubernetes.io/component": "agent"}))
	for i := range agents.Items {
		if agents.Items[i].Spec.NodeName == node {
			return &agents.Items[i]
		}
	}
	t.Fatalf("no agent on node %s", node)
	return nil
}
