/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package images

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
)

// story is what a recorder sees of one intent and its node's agent.
type story struct {
	*recorder
	clock *clocktesting.FakePassiveClock
}

func newStory() story {
	c := clocktesting.NewFakePassiveClock(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
	s := story{newRecorder("broken", c), c}
	s.see(s.intent("1", metav1.ConditionTrue), true)
	s.agent("first", "good", true)
	return s
}

func (s story) after(d time.Duration) { s.clock.SetTime(s.clock.Now().Add(d)) }

func (s story) intent(uid types.UID, ready metav1.ConditionStatus) *volumesv1alpha1.VolumeAttachmentIntent {
	intent := newIntent("data", nodeA)
	intent.UID = uid
	intent.Status.Conditions = []metav1.Condition{{Type: volumesv1alpha1.ConditionReady, Status: ready}}
	return intent
}

func (s story) ready(status metav1.ConditionStatus) { s.see(s.intent("1", status), false) }

func (s story) agent(name, image string, running bool) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: hawser, Name: name,
		Labels: map[string]string{"app.kubernetes.io/component": "agent"}}}
	pod.Spec.NodeName, pod.Spec.Containers = nodeA, []corev1.Container{{Image: image}}
	pod.Status.ContainerStatuses = make([]corev1.ContainerStatus, 1)
	if running {
		pod.Status.ContainerStatuses[0].State.Running = &corev1.ContainerStateRunning{}
	}
	s.see(pod, false)
	return pod
}

// TestTheRecorderFindsWhatAnUpgradeMustNotDo checks the judgement of the test of upgrades, without a cluster.
func TestTheRecorderFindsWhatAnUpgradeMustNotDo(t *testing.T) {
	const grace = 5 * time.Second
	for _, test := range []struct {
		name  string
		story func(story)
		want  string
	}{
		{"nothing happens", func(story) {}, ""},
		{"an agent is replaced without a trace", func(s story) {
			s.gone(s.agent("first", "good", false))
			s.after(time.Minute)
			s.agent("second", "good", true)
		}, ""},
		{"an intent is not Ready while its agent is replaced", func(s story) {
			s.agent("first", "good", false)
			s.after(time.Second)
			s.ready(metav1.ConditionUnknown)
			s.after(9 * time.Second)
			s.agent("second", "good", true)
			s.after(4 * time.Second)
			s.ready(metav1.ConditionTrue)
		}, ""},
		{"an intent is not Ready for longer than its agent was absent", func(s story) {
			s.agent("first", "good", false)
			s.ready(metav1.ConditionUnknown)
			s.after(10 * time.Second)
			s.agent("second", "good", true)
			s.after(6 * time.Second)
			s.ready(metav1.ConditionTrue)
		}, "intent default/data Ready: Unknown , from 03:04:05 for 16s; the agent of the node was absent for 10s only"},
		{"an intent is not Ready while its agent runs", func(s story) {
			s.ready(metav1.ConditionFalse)
			s.after(time.Second)
			s.ready(metav1.ConditionTrue)
		}, "intent default/data Ready: False , from 03:04:05 for 1s; the agent of the node ran meanwhile"},
		{"an agent that is none does not end the absence", func(s story) {
			s.agent("first", "good", false)
			s.ready(metav1.ConditionUnknown)
			s.after(time.Second)
			s.agent("second", "broken", true)
			s.after(time.Minute)
			s.agent("third", "good", true)
			s.ready(metav1.ConditionTrue)
		}, ""},
		{"an intent is never Ready again", func(s story) { s.ready(metav1.ConditionUnknown) },
			"when everything was well again: intent default/data Ready: Unknown , since 03:04:05, not over"},
		{"a node stays without an agent", func(s story) { s.agent("first", "good", false) },
			"when everything was well again: node node-a without a running agent"},
		{"an intent is deleted", func(s story) { s.gone(s.intent("1", metav1.ConditionTrue)) },
			"when everything was well again: intent default/data was deleted"},
		{"an intent is created again", func(s story) { s.see(s.intent("2", metav1.ConditionTrue), false) },
			"when everything was well again: intent default/data was created again"},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := newStory()
			test.story(s)
			got := strings.Join(s.problems(grace), "; ")
			if !strings.HasPrefix(got, test.want) || (got == "") != (test.want == "") {
				t.Errorf("the recorder finds %q, want %q", got, test.want)
			}
		})
	}
}
