/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package usage

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
)

func entry(volume string, state volumesv1alpha1.AttachmentState) volumesv1alpha1.NodeAttachment {
	return volumesv1alpha1.NodeAttachment{VolumeName: volume, State: state}
}

func ofKubelet(volume string) volumesv1alpha1.NodeVolume {
	return volumesv1alpha1.NodeVolume{VolumeName: volume, InUse: true, PublishedBy: volumesv1alpha1.PublisherKubelet}
}

func ofAgent(volume string) volumesv1alpha1.NodeVolume {
	return volumesv1alpha1.NodeVolume{VolumeName: volume, InUse: true, PublishedBy: volumesv1alpha1.PublisherAgent}
}

func intent(volume string, ofPod bool) volumesv1alpha1.VolumeAttachmentIntent {
	i := volumesv1alpha1.VolumeAttachmentIntent{}
	i.Namespace, i.Name, i.Spec.NodeName, i.Status.UniqueVolumeName = "shop", "data", "a", volume
	if ofPod {
		i.Labels = map[string]string{volumesv1alpha1.PodUIDLabel: "1"}
		i.Spec.Publisher = volumesv1alpha1.PublisherKubelet
	}
	return i
}

func TestWhatHawserHasToRelease(t *testing.T) {
	const attached, detaching = volumesv1alpha1.AttachmentAttached, volumesv1alpha1.AttachmentDetaching
	orphan := volumesv1alpha1.NodeVolume{VolumeName: "v", PublishedBy: volumesv1alpha1.PublisherKubelet,
		Publications: []volumesv1alpha1.Publication{{Orphan: true}}}
	unlisted := volumesv1alpha1.NodeVolume{VolumeName: "v", PublishedBy: volumesv1alpha1.PublisherKubelet,
		PublicationCount: 300}
	forgotten := entry("v", detaching)
	forgotten.AttachmentUID, forgotten.DetachedTime = "declared", &metav1.Time{}
	inline := intent("v", true)
	inline.Spec.Publisher = volumesv1alpha1.PublisherAgent
	stuck, away, failed := entry("v", detaching), entry("v", detaching), intent("v", false)
	stuck.DetachError, away.DetachedTime = "the array is busy", &metav1.Time{}
	failed.Status.Conditions = []metav1.Condition{{Type: volumesv1alpha1.ConditionReady, Reason: "AgentUnreachable"}}
	for _, test := range []struct {
		name    string
		entries []volumesv1alpha1.NodeAttachment
		volumes []volumesv1alpha1.NodeVolume
		intents []volumesv1alpha1.VolumeAttachmentIntent
		gone    bool
		// coexist and replace are the states of volume v, or of the only one.
		coexist, replace []string
	}{
		{name: "nothing"},
		{name: "an intent counts before anything is attached", intents: []volumesv1alpha1.VolumeAttachmentIntent{intent("",
			false)}, coexist: []string{"intent shop/data"}, replace: []string{"intent shop/data"}},
		{name: "an intent says why it waits", intents: []volumesv1alpha1.VolumeAttachmentIntent{failed},
			coexist: []string{"intent shop/data, AgentUnreachable"}, replace: []string{"intent shop/data, AgentUnreachable"}},
		{name: "the intent of a pod shows only what upstream does", replace: []string{"intent shop/data"},
			intents: []volumesv1alpha1.VolumeAttachmentIntent{intent("v", true)}},
		{name: "the intent of a pod's inline volume counts", coexist: []string{"intent shop/data"},
			replace: []string{"intent shop/data"}, intents: []volumesv1alpha1.VolumeAttachmentIntent{inline}},
		{name: "one volume counts once", entries: []volumesv1alpha1.NodeAttachment{entry("v", attached)},
			volumes: []volumesv1alpha1.NodeVolume{ofAgent("v")},
			intents: []volumesv1alpha1.VolumeAttachmentIntent{intent("v", false)},
			coexist: []string{"in use", "attached", "intent shop/data"},
			replace: []string{"in use", "attached", "intent shop/data"}},
		{name: "an attachment without a user may still be detached",
			entries: []volumesv1alpha1.NodeAttachment{entry("v", attached)},
			coexist: []string{"attached"}, replace: []string{"attached"}},
		{name: "an attachment that only pods use is upstream's",
			entries: []volumesv1alpha1.NodeAttachment{entry("v", attached)},
			volumes: []volumesv1alpha1.NodeVolume{ofKubelet("v")}, replace: []string{"used by pods", "attached"}},
		{name: "a detach ends first, whatever pods do", entries: []volumesv1alpha1.NodeAttachment{entry("v", detaching)},
			volumes: []volumesv1alpha1.NodeVolume{ofKubelet("v")}, coexist: []string{"being detached"},
			replace: []string{"used by pods", "being detached"}},
		{name: "a detach names its error", entries: []volumesv1alpha1.NodeAttachment{stuck},
			coexist: []string{"being detached: the array is busy"}, replace: []string{"being detached: the array is busy"}},
		{name: "a forced detach waits for the agent", entries: []volumesv1alpha1.NodeAttachment{away},
			coexist: []string{"detached by force, which the agent has not confirmed"},
			replace: []string{"detached by force, which the agent has not confirmed"}},
		{name: "publications count that the node state does not list", volumes: []volumesv1alpha1.NodeVolume{unlisted},
			coexist: []string{"used by pods"}, replace: []string{"used by pods"}},
		{name: "an orphan counts", volumes: []volumesv1alpha1.NodeVolume{orphan},
			coexist: []string{"published, but its intent is missing"},
			replace: []string{"published, but its intent is missing"}},
		{name: "a volume that is not in use any more", volumes: []volumesv1alpha1.NodeVolume{{VolumeName: "v"}}},
		{name: "what an administrator declared released does not count", gone: true,
			entries: []volumesv1alpha1.NodeAttachment{forgotten},
			volumes: []volumesv1alpha1.NodeVolume{{VolumeName: "v", AttachmentUID: "declared", InUse: true}}},
		{name: "a Node that is gone", entries: []volumesv1alpha1.NodeAttachment{away}, gone: true,
			coexist: []string{"the Node is gone: declare it released if the machine does not come back"},
			replace: []string{"the Node is gone: declare it released if the machine does not come back"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			state := volumesv1alpha1.NodeVolumeState{}
			state.Annotations = map[string]string{volumesv1alpha1.DeclaredReleasedPrefix + "declared": "scrapped"}
			state.Name, state.Spec.Attachments, state.Status.Volumes = "a", test.entries, test.volumes
			for replace, want := range map[bool][]string{false: test.coexist, true: test.replace} {
				found := Find(Facts{Replace: replace, Intents: test.intents,
					States: []volumesv1alpha1.NodeVolumeState{state}, NodeExists: func(string) bool { return !test.gone }})
				var got []string
				if len(found) > 0 {
					got = found[0].States
				}
				if len(found) > 1 || !reflect.DeepEqual(got, want) {
					t.Errorf("volumes to release, with Replace %t: %v, want one with the states %q", replace, found, want)
				}
			}
		})
	}
}

func TestAMessageCountsAllVolumesAndNamesTheFirst(t *testing.T) {
	var all []Use
	for _, node := range []string{"a", "b"} {
		for _, volume := range []string{"1", "2", "3"} {
			all = append(all, Use{Node: node, Volume: volume, States: []string{"attached", "in use"}})
		}
	}
	got := Message(all)
	for _, want := range []string{"6 volume(s) on 2 node(s): node a, 1 (attached; in use)", "node b, 2 (", "and 1 more"} {
		if !strings.Contains(got, want) {
			t.Errorf("message %q, want that it contains %q", got, want)
		}
	}
}

// intents of one volume on one node, with the longest names.
func intents(volume string, count int) []volumesv1alpha1.VolumeAttachmentIntent {
	all := make([]volumesv1alpha1.VolumeAttachmentIntent, count)
	for i := range all {
		all[i] = intent(volume, false)
		all[i].Namespace, all[i].Name = strings.Repeat("n", 63), fmt.Sprintf("%0253d", i)
		all[i].Status.Conditions = []metav1.Condition{{Type: volumesv1alpha1.ConditionReady, Reason: "AgentUnreachable"}}
	}
	return all
}

func TestAMessageDoesNotDependOnTheOrderOfIntents(t *testing.T) {
	all := intents("v", 5)
	want := Message(Find(Facts{Intents: all}))
	slices.Reverse(all)
	if got := Message(Find(Facts{Intents: all})); got != want {
		t.Errorf("message of the intents in another order: %q, want %q", got, want)
	}
}

func TestAMessageNamesTheStatesOfANodeAndSomeOfItsIntents(t *testing.T) {
	state := volumesv1alpha1.NodeVolumeState{}
	state.Name = "a"
	state.Spec.Attachments = []volumesv1alpha1.NodeAttachment{entry("v", volumesv1alpha1.AttachmentAttached)}
	facts := Facts{States: []volumesv1alpha1.NodeVolumeState{state}}
	for i := range 6 {
		one := intent("v", false)
		one.Name = fmt.Sprint("data-", i)
		facts.Intents = append(facts.Intents, one)
	}
	want := "1 volume(s) on 1 node(s): node a, v (attached; intent shop/data-0; intent shop/data-1; intent shop/data-2; " +
		"intent shop/data-3; and 2 more)"
	if got := Message(Find(facts)); got != want {
		t.Errorf("message of a volume with 6 intents: %q, want %q", got, want)
	}
}

func TestAMessageFitsIntoACondition(t *testing.T) {
	var all []volumesv1alpha1.VolumeAttachmentIntent
	for i := range 5 {
		all = append(all, intents(fmt.Sprint(i), 256)...)
	}
	if got := len(Message(Find(Facts{Intents: all}))); got >= 32768 {
		t.Errorf("message of 5 volumes with 256 intents each: %d bytes, want fewer than 32768", got)
	}
}

func TestPodsWithInlineVolumesAreNamedWhileTheyRun(t *testing.T) {
	pod := func(name, node, driver string, phase corev1.PodPhase) corev1.Pod {
		p := corev1.Pod{}
		p.Namespace, p.Name, p.Spec.NodeName, p.Status.Phase = "shop", name, node, phase
		p.Spec.Volumes = []corev1.Volume{{Name: "other"}, {Name: "data", VolumeSource: corev1.VolumeSource{
			CSI: &corev1.CSIVolumeSource{Driver: driver}}}}
		return p
	}
	got := Running([]corev1.Pod{
		pod("z", "node-a", volumesv1alpha1.InlineDriver, corev1.PodRunning),
		pod("starting", "node-b", volumesv1alpha1.InlineDriver, corev1.PodPending),
		pod("unscheduled", "", volumesv1alpha1.InlineDriver, corev1.PodPending),
		pod("succeeded", "node-a", volumesv1alpha1.InlineDriver, corev1.PodSucceeded),
		pod("failed", "node-a", volumesv1alpha1.InlineDriver, corev1.PodFailed),
		pod("foreign", "node-a", "example.com", corev1.PodRunning),
		{},
	})
	want := []string{"pod shop/starting on node node-b", "pod shop/z on node node-a"}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("pods with inline volumes %q, want %q", got, want)
	}
	exists := func(node string) bool { return node != "gone" }
	var states []volumesv1alpha1.NodeVolumeState
	for node, directories := range map[string]int32{"node-b": 2, "node-a": 1, "none": 0, "gone": 3} {
		s := volumesv1alpha1.NodeVolumeState{}
		s.Name, s.Status.Summary = node, &volumesv1alpha1.NodeVolumeSummary{Directories: directories}
		states = append(states, s)
	}
	left := Directories(append(states, volumesv1alpha1.NodeVolumeState{}), exists)
	if want := []string{"1 on node node-a", "2 on node node-b"}; !reflect.DeepEqual(left, want) {
		t.Errorf("directories that agents have yet to remove %q, want %q", left, want)
	}
	message := PodsMessage([]string{"1", "2", "3", "4", "5", "6", "7"})
	if !strings.Contains(message, "7 pod(s)") || !strings.HasSuffix(message, "1; 2; 3; 4; 5; and 2 more") {
		t.Errorf("message %q, want that it counts seven pods and names five", message)
	}
}
