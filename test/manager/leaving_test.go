/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package manager

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/liveness"
)

// TestADeletedIntentOfAPodReportsWhatItWaitsFor: with a policy it stays until the kubelet has released the volume, and
// no agent speaks of it.
func TestADeletedIntentOfAPodReportsWhatItWaitsFor(t *testing.T) {
	w := newWorld(t)
	c := newStepClock()
	o := replace
	o.forceDetachAfter, o.clock = 6*time.Minute, c
	w.manage(t, o)
	a := w.managedNode(t, "slow")
	w.renew(t, "slow", 40)
	w.volume(t, "slow", volumeOptions{})
	p := w.pod(t, "slow", "slow", "slow")
	w.listed(t, "slow", "slow")
	w.kubeletUses(t, "slow", "slow")
	intent := w.podIntents(t, p, "slow")[0]
	w.attached(t, intent)
	w.kill(t, p)
	if message := w.reason(
		t, intent, volumesv1alpha1.ConditionReady, metav1.ConditionFalse, volumesv1alpha1.ReasonReleasing,
	); !strings.Contains(message, "kubelet of node slow") || !strings.Contains(message, "6m0s") {
		t.Errorf("message of intent %s: %q; want the kubelet of node slow and the policy's time", intent.Name, message)
	}
	w.fallsSilent(t, c, a)
	if message := w.reason(t, intent, volumesv1alpha1.ConditionReady, metav1.ConditionUnknown,
		volumesv1alpha1.ReasonAgentUnreachable); !strings.Contains(message, "6m0s") {
		t.Errorf("message of intent %s: %q; want the policy's time", intent.Name, message)
	}
	w.renew(t, "slow", 3600)
	w.agent(t, "slow")
	w.kubeletUses(t, "slow")
	gone(t, w, intent)
}

func TestAnIntentOnANodeWithoutAnAgentCanBeDeleted(t *testing.T) {
	w := newWorld(t)
	c := newStepClock()
	w.manage(t, managerOptions{clock: c})
	w.bareNode(t, "agentless")
	w.volume(t, "agentless", volumeOptions{})
	intent := w.intent(t, "agentless", "agentless", "agentless")
	w.reason(t, intent, volumesv1alpha1.ConditionAttached, metav1.ConditionFalse, volumesv1alpha1.ReasonWaitingForAgent)
	c.advance(liveness.DefaultDuration)
	w.delete(t, intent)
	gone(t, w, intent)

	// One that comes later is served as any other.
	w.agent(t, "agentless")
	later := w.intent(t, "agentless-later", "agentless", "agentless")
	w.attached(t, later)
	w.releaseAndDetach(t, later, "agentless")
}
