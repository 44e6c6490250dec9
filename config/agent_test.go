/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package config_test

import (
	"slices"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/test/apiserver"
)

const noNode = "the agent's token names no node"

func (in installation) testAgentNodeState(t *testing.T) {
	for _, node := range []string{"own", "other"} {
		expectAllowed(t, in.admin.Create(t.Context(), newNodeState(node)))
	}
	report := func(c client.Client, node string) error {
		state := newNodeState(node)
		expectAllowed(t, in.admin.Get(t.Context(), client.ObjectKeyFromObject(state), state))
		state.Status.Protocol.Reports++
		return c.Status().Update(t.Context(), state)
	}
	agent := in.as(t, agentAccount, "own")
	expectAllowed(t, report(agent, "own"))
	expectForbidden(t, report(agent, "other"), "the agent of node own cannot write the NodeVolumeState of node other")
	expectForbidden(t, report(in.as(t, agentAccount), "own"), noNode)
	expectForbidden(t, report(in.as(t, agentAccount, "own", "other"), "own"), noNode)
	expectForbidden(t, report(in.as(t, agentAccount, ""), "own"), noNode)
	expectAllowed(t, report(in.admin, "other"))

	in.testAgentNodeObservation(t, agent)

	// The policy limits an agent with another service account to its node too, whatever rights it has.
	in.grantEverything(t, "hawser-agent-pool")
	pool := in.as(t, "hawser-agent-pool", "own")
	expectAllowed(t, report(pool, "own"))
	expectForbidden(t, report(pool, "other"), "the agent of node own")
	state := newNodeState("own")
	expectAllowed(t, in.admin.Get(t.Context(), client.ObjectKeyFromObject(state), state))
	state.Spec.Protocol.Fences++
	expectForbidden(t, pool.Update(t.Context(), state), "an agent may write only the status of a NodeVolumeState")
	expectForbidden(t, pool.Delete(t.Context(), state), "an agent may write only the status of a NodeVolumeState")
	expectForbidden(t, pool.Create(t.Context(), newNodeState("third")),
		"an agent may write only the status of a NodeVolumeState")
}

// testAgentNodeObservation checks that an agent sends back what the manager observed of the Node, and cannot forge it:
// that would force the node's volumes away.
func (in installation) testAgentNodeObservation(t *testing.T, agent client.Client) {
	t.Helper()
	report := func(c client.Client, change func(*volumesv1alpha1.NodeObservation)) error {
		state := newNodeState("own")
		expectAllowed(t, in.admin.Get(t.Context(), client.ObjectKeyFromObject(state), state))
		state.Status.Protocol.Reports++
		change(&state.Status.Node)
		return c.Status().Update(t.Context(), state)
	}
	unready := &volumesv1alpha1.UnreadyObservation{
		Transition: metav1.Now(), Observed: metav1.Duration{Duration: time.Hour},
	}
	const refused = "an agent may not change status.node"
	expectForbidden(t, report(agent, func(o *volumesv1alpha1.NodeObservation) { o.Unready = unready }), refused)
	expectForbidden(t, report(agent, func(o *volumesv1alpha1.NodeObservation) {
		o.Gone = &volumesv1alpha1.GoneObservation{Observed: unready.Observed}
	}), refused)
	expectAllowed(t, report(in.admin, func(o *volumesv1alpha1.NodeObservation) { o.Unready = unready }))
	expectAllowed(t, report(agent, func(*volumesv1alpha1.NodeObservation) {}))
	expectForbidden(t, report(agent, func(o *volumesv1alpha1.NodeObservation) {
		o.Unready.Observed.Duration *= 2
	}), refused)
	expectForbidden(t, report(agent, func(o *volumesv1alpha1.NodeObservation) { o.Unready = nil }), refused)
	expectAllowed(t, report(in.admin, func(o *volumesv1alpha1.NodeObservation) { o.Unready = nil }))
}

func (in installation) testAgentIntents(t *testing.T) {
	resolved := metav1.Condition{Type: volumesv1alpha1.ConditionResolved, Status: metav1.ConditionTrue, Reason: "Resolved",
		LastTransitionTime: metav1.Now()}
	attached := metav1.Condition{Type: volumesv1alpha1.ConditionAttached, Status: metav1.ConditionTrue, Reason: "Attached",
		LastTransitionTime: metav1.Now()}
	for _, node := range []string{"own", "other"} {
		intent := newIntent("on-"+node, node)
		expectAllowed(t, in.admin.Create(t.Context(), intent))
		intent.Status.ClaimUID, intent.Status.VolumeName, intent.Status.VolumeUID = "1", "pv", "2"
		intent.Status.UniqueVolumeName, intent.Status.VolumeMode = "kubernetes.io/csi/loop.csi.hawser.io^1", "Filesystem"
		intent.Status.Conditions = []metav1.Condition{resolved, attached}
		expectAllowed(t, in.as(t, managerAccount).Status().Update(t.Context(), intent))
	}
	report := func(c client.Client, node string, change func(*volumesv1alpha1.VolumeAttachmentIntentStatus)) error {
		intent := newIntent("on-"+node, node)
		expectAllowed(t, in.admin.Get(t.Context(), client.ObjectKeyFromObject(intent), intent))
		intent.Spec.NodeName = "own" // no effect: a status update ignores the spec
		change(&intent.Status)
		return c.Status().Update(t.Context(), intent)
	}
	publish := func(s *volumesv1alpha1.VolumeAttachmentIntentStatus) {
		s.Path, s.ObservedGeneration = "/var/lib/hawser/published/default/on-own", 1
		for _, done := range []string{volumesv1alpha1.ConditionStaged, volumesv1alpha1.ConditionPublished,
			volumesv1alpha1.ConditionReady} {
			meta.SetStatusCondition(&s.Conditions, metav1.Condition{Type: done, Status: metav1.ConditionTrue, Reason: done})
		}
		slices.Reverse(s.Conditions) // their order has no meaning
	}
	agent := in.as(t, agentAccount, "own")
	expectAllowed(t, report(agent, "own", publish))
	expectForbidden(t, report(agent, "other", publish), "the agent of node own cannot write an intent of node other")
	expectForbidden(t, report(in.as(t, agentAccount), "own", publish), noNode)

	const pins, conditions = "uniqueVolumeName and volumeMode; an agent cannot change them",
		"only the manager writes the conditions Resolved and Attached"
	refused := map[string]struct {
		change  func(*volumesv1alpha1.VolumeAttachmentIntentStatus)
		message string
	}{
		"claimUID":         {func(s *volumesv1alpha1.VolumeAttachmentIntentStatus) { s.ClaimUID = "9" }, pins},
		"volumeName":       {func(s *volumesv1alpha1.VolumeAttachmentIntentStatus) { s.VolumeName = "9" }, pins},
		"volumeUID":        {func(s *volumesv1alpha1.VolumeAttachmentIntentStatus) { s.VolumeUID = "" }, pins},
		"uniqueVolumeName": {func(s *volumesv1alpha1.VolumeAttachmentIntentStatus) { s.UniqueVolumeName = "9" }, pins},
		"volumeMode":       {func(s *volumesv1alpha1.VolumeAttachmentIntentStatus) { s.VolumeMode = "Block" }, pins},
		"Resolved": {func(s *volumesv1alpha1.VolumeAttachmentIntentStatus) {
			meta.SetStatusCondition(&s.Conditions,
				metav1.Condition{Type: "Resolved", Status: metav1.ConditionFalse, Reason: "Changed"})
		}, conditions},
		"Attached": {func(s *volumesv1alpha1.VolumeAttachmentIntentStatus) {
			meta.RemoveStatusCondition(&s.Conditions, volumesv1alpha1.ConditionAttached)
		}, conditions},
	}
	for name, r := range refused {
		t.Run("an agent cannot change "+name, func(t *testing.T) {
			expectForbidden(t, report(agent, "own", r.change), r.message)
			expectAllowed(t, report(in.as(t, managerAccount), "other", r.change))
		})
	}
}

func (in installation) testAgentLeases(t *testing.T) {
	agent := in.as(t, agentAccount, "own")
	lease := in.newLease(volumesv1alpha1.AgentLeasePrefix + "own")
	expectAllowed(t, agent.Create(t.Context(), lease))
	expectAllowed(t, agent.Update(t.Context(), lease))

	lease.Spec.LeaseDurationSeconds = ptr.To[int32](40)
	expectAllowed(t, agent.Update(t.Context(), lease))
	long := lease.DeepCopy()
	long.Spec.LeaseDurationSeconds = ptr.To[int32](301)
	expectForbidden(t, agent.Update(t.Context(), long), "five minutes at most")

	message := "the agent of node own may write only the Lease " + in.namespace + "/hawser-agent-own"
	expectForbidden(t, agent.Create(t.Context(), in.newLease(volumesv1alpha1.AgentLeasePrefix+"other")), message)
	other := in.as(t, agentAccount, "other")
	expectForbidden(t, other.Update(t.Context(), lease.DeepCopy()), "the agent of node other")
	expectForbidden(t, in.as(t, agentAccount).Update(t.Context(), lease.DeepCopy()), noNode)
	expectForbidden(t, agent.Delete(t.Context(), lease.DeepCopy()))

	leader := in.newLease("hawser-manager")
	expectAllowed(t, in.as(t, managerAccount).Create(t.Context(), leader))
	expectForbidden(t, agent.Update(t.Context(), leader), message)

	in.grantEverything(t, "hawser-agent-pool")
	expectForbidden(t, in.as(t, "hawser-agent-pool", "own").Delete(t.Context(), lease.DeepCopy()), message)
	expectAllowed(t, in.admin.Delete(t.Context(), lease))
}

// testAgentToken requests a token as the kubelet of node own does for the pod of an agent, and reports with it.
func (in installation) testAgentToken(t *testing.T) {
	pod := &corev1.Pod{Spec: corev1.PodSpec{NodeName: "own", ServiceAccountName: in.name(agentAccount),
		Containers: []corev1.Container{{Name: "agent", Image: "agent"}}}}
	pod.Namespace, pod.Name = in.namespace, "an-agent"
	node := &corev1.Node{}
	node.Name = pod.Spec.NodeName
	account := &corev1.ServiceAccount{}
	account.Namespace, account.Name = in.namespace, in.name(agentAccount)
	for _, object := range []client.Object{node, pod} {
		expectAllowed(t, in.admin.Create(t.Context(), object))
	}
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		BoundObjectRef: &authenticationv1.BoundObjectReference{Kind: "Pod", APIVersion: "v1", Name: pod.Name, UID: pod.UID}}}
	expectAllowed(t, in.admin.SubResource("token").Create(t.Context(), account, request))
	config := rest.AnonymousClientConfig(in.config)
	config.BearerToken = request.Status.Token
	agent, err := client.New(config, client.Options{Scheme: apiserver.Scheme()})
	expectAllowed(t, err)
	for name, message := range map[string]string{"own": "", "other": "the agent of node own"} {
		state := newNodeState(name)
		expectAllowed(t, in.admin.Get(t.Context(), client.ObjectKeyFromObject(state), state))
		if err := agent.Status().Update(t.Context(), state); message == "" {
			expectAllowed(t, err)
		} else {
			expectForbidden(t, err, message)
		}
	}
}
