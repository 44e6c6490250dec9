/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package resizer

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const unused = corev1.PersistentVolumeClaimConditionType("Unused")

func claim(wanted, actual string, change func(*corev1.PersistentVolumeClaimStatus)) *corev1.PersistentVolumeClaim {
	c := &corev1.PersistentVolumeClaim{}
	c.Spec.Resources.Requests = with(nil, resource.MustParse(wanted))
	c.Status = corev1.PersistentVolumeClaimStatus{
		Phase:      corev1.ClaimBound,
		Capacity:   with(nil, resource.MustParse(actual)),
		Conditions: []corev1.PersistentVolumeClaimCondition{{Type: unused, Status: corev1.ConditionTrue}},
	}
	if change != nil {
		change(&c.Status)
	}
	return c
}

func TestAClaimWantsMoreOnlyWhileTheControllerHasSomethingToDo(t *testing.T) {
	onNode := func(stage corev1.ClaimResourceStatus, allocated string) func(*corev1.PersistentVolumeClaimStatus) {
		return func(s *corev1.PersistentVolumeClaimStatus) {
			setStage(s, stage)
			s.AllocatedResources = with(nil, resource.MustParse(allocated))
		}
	}
	deleting := claim("2Gi", "1Gi", nil)
	deleting.DeletionTimestamp = &metav1.Time{}
	for _, test := range []struct {
		name  string
		claim *corev1.PersistentVolumeClaim
		want  bool
	}{
		{"it has what it asks for", claim("1Gi", "1Gi", nil), false},
		{"it has more than it asks for", claim("1Gi", "2Gi", nil), false},
		{"it asks for more", claim("2Gi", "1Gi", nil), true},
		{"it is being deleted", deleting, false},
		{"it is not bound", claim("2Gi", "1Gi", func(s *corev1.PersistentVolumeClaimStatus) { s.Phase = corev1.ClaimPending }), false},
		{"an earlier attempt was cut off", claim("2Gi", "1Gi", onNode(corev1.PersistentVolumeClaimControllerResizeInProgress, "2Gi")), true},
		{"the node's turn", claim("2Gi", "1Gi", onNode(corev1.PersistentVolumeClaimNodeResizePending, "2Gi")), false},
		{"the node is at it", claim("2Gi", "1Gi", onNode(corev1.PersistentVolumeClaimNodeResizeInProgress, "2Gi")), false},
		{"still more while it is the node's turn", claim("3Gi", "1Gi", onNode(corev1.PersistentVolumeClaimNodeResizePending, "2Gi")), true},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := wantsMore(test.claim); got != test.want {
				t.Errorf("wants more: %t", got)
			}
		})
	}
}

func TestEachStepLeavesOneResizeConditionAndTheOthersAlone(t *testing.T) {
	c := claim("2Gi", "1Gi", nil)
	size := resource.MustParse("2Gi")
	for _, step := range []struct {
		name   string
		change func(*corev1.PersistentVolumeClaimStatus)
		want   []corev1.PersistentVolumeClaimConditionType
	}{
		{"started", started(size), []corev1.PersistentVolumeClaimConditionType{unused, corev1.PersistentVolumeClaimResizing}},
		{"awaits the node", awaitsNode(), []corev1.PersistentVolumeClaimConditionType{unused, corev1.PersistentVolumeClaimFileSystemResizePending}},
		{"finished", finished(size), []corev1.PersistentVolumeClaimConditionType{unused}},
	} {
		step.change(&c.Status)
		var got []corev1.PersistentVolumeClaimConditionType
		for _, condition := range c.Status.Conditions {
			got = append(got, condition.Type)
		}
		if len(got) != len(step.want) || got[len(got)-1] != step.want[len(step.want)-1] || got[0] != unused {
			t.Errorf("%s: conditions %v, want %v", step.name, got, step.want)
		}
	}
	if wantsMore(c) || len(c.Status.AllocatedResourceStatuses) != 0 {
		t.Errorf("a finished claim still wants something: %+v", c.Status)
	}
}
