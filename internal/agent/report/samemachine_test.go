/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package report

import (
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/agent/kubelet"
	"github.com/hawser-io/hawser/internal/machine"
)

var (
	thisMachine  = machine.New("4c4c4544-0043-3510-8052-b4c04f564d31", "9f1c2e5b7a8d4e0f93b1c6d2a4f80e11")
	otherMachine = machine.New("4c4c4544-0043-3510-8052-b4c04f564d32", "9f1c2e5b7a8d4e0f93b1c6d2a4f80e12")
)

func nodeOf(m volumesv1alpha1.MachineIdentity) *Node {
	n := NewNode("boot", "v1", m, func() []volumesv1alpha1.NodeDriver { return nil },
		kubelet.NewObserver(kubelet.ObserverOptions{}))
	n.Directories = func() int { return 0 }
	return n
}

// usedByOther is the state that the other machine has left, with one volume in use.
func usedByOther() *volumesv1alpha1.NodeVolumeState {
	nvs := &volumesv1alpha1.NodeVolumeState{}
	nvs.Status.Machine, nvs.Status.BootID = otherMachine, "other-boot"
	nvs.Status.Volumes = []volumesv1alpha1.NodeVolume{{VolumeName: "v", AttachmentUID: "uid-1", InUse: true}}
	return nvs
}

func condition(nvs *volumesv1alpha1.NodeVolumeState, name string) metav1.Condition {
	if c := meta.FindStatusCondition(nvs.Status.Conditions, name); c != nil {
		return *c
	}
	return metav1.Condition{}
}

func TestAUseOfAnotherMachineKeepsTheNodeFromBeingReleased(t *testing.T) {
	nvs := usedByOther()
	nodeOf(thisMachine).Render(nvs, nil)
	if c := condition(nvs, volumesv1alpha1.ConditionVolumesReleased); c.Status != metav1.ConditionFalse {
		t.Errorf("condition VolumesReleased is %+v, want False: the node may not be removed", c)
	}
	for _, name := range []string{volumesv1alpha1.ConditionReady, volumesv1alpha1.ConditionSameMachine} {
		c := condition(nvs, name)
		if c.Status != metav1.ConditionFalse || c.Reason != volumesv1alpha1.ReasonAnotherMachine {
			t.Errorf("condition %s is %+v, want False with AnotherMachine", name, c)
		}
		for _, part := range []string{thisMachine.SystemUUID, otherMachine.SystemUUID, "other-boot", "uid-1",
			"declare-released"} {
			if !strings.Contains(c.Message, part) {
				t.Errorf("message of condition %s is %q, want it to name %s", name, c.Message, part)
			}
		}
	}
}

func TestAReportTakesBackWhatTheManagerWroteOfASilentAgent(t *testing.T) {
	nvs := &volumesv1alpha1.NodeVolumeState{}
	nvs.Status.Conditions = []metav1.Condition{
		{Type: volumesv1alpha1.ConditionReady, Reason: volumesv1alpha1.ReasonAgentUnreachable},
		{Type: volumesv1alpha1.ConditionDetachPossible, Reason: volumesv1alpha1.ReasonEvidenceMissing},
		{Type: volumesv1alpha1.ConditionTaintConsistent, Reason: volumesv1alpha1.ReasonTaintContradicted},
	}
	nodeOf(thisMachine).Render(nvs, nil)
	if c := condition(nvs, volumesv1alpha1.ConditionDetachPossible); c.Type != "" {
		t.Errorf("condition DetachPossible of an agent that reports is %+v, want none", c)
	}
	if c := condition(nvs, volumesv1alpha1.ConditionReady); c.Reason == volumesv1alpha1.ReasonAgentUnreachable {
		t.Errorf("condition Ready of an agent that reports is %+v, want another reason", c)
	}
	if c := condition(nvs, volumesv1alpha1.ConditionTaintConsistent); c.Type == "" {
		t.Error("condition TaintConsistent is gone, want it as the manager wrote it")
	}
}

func TestAConditionAboutAnotherMachineChangesOnce(t *testing.T) {
	n, nvs := nodeOf(thisMachine), usedByOther()
	n.Render(nvs, nil)
	long := metav1.NewTime(time.Now().Add(-time.Hour).Truncate(time.Second))
	for i := range nvs.Status.Conditions {
		nvs.Status.Conditions[i].LastTransitionTime = long
	}
	before := slices.Clone(nvs.Status.Conditions)
	n.Render(nvs, nil)
	if !slices.Equal(before, nvs.Status.Conditions) {
		t.Errorf("conditions after a second report of the same: %+v, want them unchanged: %+v", nvs.Status.Conditions, before)
	}
}

func TestAMachineWithoutAnIdentityIsReportedAsUnknown(t *testing.T) {
	nvs := usedByOther()
	nodeOf(volumesv1alpha1.MachineIdentity{}).Render(nvs, nil)
	if c := condition(nvs, volumesv1alpha1.ConditionSameMachine); c.Status != metav1.ConditionUnknown ||
		c.Reason != volumesv1alpha1.ReasonMachineUnknown {
		t.Errorf("condition SameMachine is %+v, want Unknown with MachineUnknown", c)
	}
	if c := condition(nvs, volumesv1alpha1.ConditionReady); c.Status != metav1.ConditionTrue {
		t.Errorf("condition Ready is %+v, want True: the machine is taken for the one before, as without identities", c)
	}
}

func TestVolumesOfAnUnknownMachineAreNamed(t *testing.T) {
	n, nvs := nodeOf(thisMachine), &volumesv1alpha1.NodeVolumeState{}
	n.NoteUnknownUser([]string{"v"})
	n.Render(nvs, nil)
	c := condition(nvs, volumesv1alpha1.ConditionSameMachine)
	if c.Status != metav1.ConditionUnknown || c.Reason != volumesv1alpha1.ReasonMachineUnknown ||
		!strings.Contains(c.Message, ": v.") {
		t.Errorf("condition SameMachine is %+v, want Unknown with MachineUnknown, naming v", c)
	}
}
