/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package kubelet

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestAHeartbeatChangesOnlyItsTime(t *testing.T) {
	k, client := fakeNode()
	long := metav1.NewTime(time.Now().Add(-time.Hour).Truncate(time.Second))
	node := k.node()
	node.Status.VolumesInUse = []corev1.UniqueVolumeName{"volume"}
	node.Status.Conditions = []corev1.NodeCondition{
		{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady", LastHeartbeatTime: long,
			LastTransitionTime: long},
	}
	if _, err := client.CoreV1().Nodes().Update(t.Context(), node, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := k.reportBeat(t.Context()); err != nil {
		t.Fatal(err)
	}
	got, err := client.CoreV1().Nodes().Get(t.Context(), k.Node, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if len(got.Status.Conditions) != 1 || len(got.Status.VolumesInUse) != 1 {
		t.Fatalf("the status is %+v", got.Status)
	}
	beat := got.Status.Conditions[0]
	if !beat.LastHeartbeatTime.After(long.Time) {
		t.Errorf("the heartbeat is of %s", beat.LastHeartbeatTime)
	}
	beat.LastHeartbeatTime = long
	if beat != node.Status.Conditions[0] {
		t.Errorf("the condition is %+v, want %+v", beat, node.Status.Conditions[0])
	}
}
