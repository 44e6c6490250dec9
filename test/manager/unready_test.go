/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package manager

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/attachment"
)

// TestTimeAsEvidence runs every scenario on one control plane, each with managers, nodes and volumes of its own.
func TestTimeAsEvidence(t *testing.T) {
	w := newWorld(t)
	for _, s := range []struct {
		name     string
		scenario func(*testing.T, *world)
	}{
		{"a forced detach is not delayed by a restart or a clock that jumps",
			aForcedDetachIsNotDelayedByARestartOrAClockThatJumps},
		{"the time starts again after a node was Ready between two managers",
			theTimeStartsAgainAfterANodeWasReadyBetweenTwoManagers},
		{"a Node whose volume is left while the manager is down counts as gone in time",
			aNodeWhoseVolumeIsLeftWhileTheManagerIsDownCountsAsGoneInTime},
		{"a renamed node keeps its mounts until its agent releases them",
			aRenamedNodeKeepsItsMountsUntilItsAgentReleasesThem},
		{"the time in a Lease does not decide whether an agent is reachable",
			theTimeInALeaseDoesNotDecideWhetherAnAgentIsReachable},
	} {
		t.Run(s.name, func(t *testing.T) { s.scenario(t, w) })
	}
}

// setReady sets the Node's Ready condition, as of that time by its writer's clock.
func (w *world) setReady(t *testing.T, name string, status corev1.ConditionStatus, at time.Time) {
	t.Helper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	w.changeStatus(t, node, func() {
		node.Status.Conditions = []corev1.NodeCondition{
			{Type: corev1.NodeReady, Status: status, LastTransitionTime: metav1.NewTime(at)},
		}
	})
}

// advance lets time pass for a manager, and makes it reconcile the node.
func (w *world) advance(t *testing.T, c *stepClock, name string, d time.Duration) {
	t.Helper()
	c.advance(d)
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	w.change(t, node, func() { node.Labels["poke"] = fmt.Sprint(time.Now().UnixNano()) })
}

// watched waits until managers have watched the node for so long since that transition.
func (w *world) watched(t *testing.T, name string, since time.Time, d time.Duration) {
	t.Helper()
	until(t, w, stateOf(name), fmt.Sprintf("node %s was watched for %s", name, d),
		func(s *volumesv1alpha1.NodeVolumeState) bool {
			u := s.Status.Node.Unready
			return u != nil && u.Observed.Duration == d && u.Transition.Unix() == since.Unix()
		})
}

// deadNode creates a node whose machine dies while a volume is in use there. Its intent, whose policy forces after six
// minutes, is then deleted.
func (w *world) deadNode(t *testing.T, name string, at time.Time) *volumesv1alpha1.VolumeAttachmentIntent {
	t.Helper()
	a := w.node(t, name)
	w.volume(t, name, volumeOptions{})
	intent := newIntent(name, name, name)
	intent.Spec.DetachPolicy = &volumesv1alpha1.DetachPolicy{ForceAfter: metav1.Duration{Duration: 6 * time.Minute}}
	w.create(t, intent)
	until(t, w, intent, "the intent is Ready", isReady)
	a.stop()
	w.setReady(t, name, corev1.ConditionUnknown, at)
	w.delete(t, intent)
	return intent
}

// forced waits until the volume was detached because time was up.
func (w *world) forced(t *testing.T, intent *volumesv1alpha1.VolumeAttachmentIntent) {
	t.Helper()
	state := until(t, w, stateOf(intent.Spec.NodeName), "the volume is forced away",
		func(s *volumesv1alpha1.NodeVolumeState) bool {
			return entryIn(s, intent.Name).DetachedTime != nil
		})
	if e := entryIn(state, intent.Name).Evidence; e.Type != volumesv1alpha1.EvidenceForcedAfterTimeout {
		t.Errorf("evidence of the detach of volume %s: %s; want ForcedAfterTimeout", intent.Name, dump(e))
	}
	gone(t, w, intent)
}

func (w *world) stillThere(t *testing.T, claim, node string) {
	t.Helper()
	va := attachmentOf(claim, node)
	until(t, w, va, "nothing is forced early", func(va *storagev1.VolumeAttachment) bool {
		return exists(va) && va.DeletionTimestamp == nil
	})
}

func aForcedDetachIsNotDelayedByARestartOrAClockThatJumps(t *testing.T, w *world) {
	for name, by := range map[string]time.Duration{"ahead": 48 * time.Hour, "behind": -48 * time.Hour} {
		t.Run(name, func(t *testing.T) {
			// The writer of the condition had a clock of its own.
			at := time.Now().Add(-by)
			first := newStepClock()
			requests, stop := w.manage(t, managerOptions{clock: first})
			intent := w.deadNode(t, "timer-"+name, at)
			w.watched(t, intent.Spec.NodeName, at, 0)
			requests.reset()
			for m := time.Minute; m <= 3*time.Minute; m += time.Minute {
				w.advance(t, first, intent.Spec.NodeName, time.Minute)
				w.watched(t, intent.Spec.NodeName, at, m)
			}
			// One more may mark the agent as unreachable.
			if n := requests.count("PUT nodevolumestates/status"); n > 4 {
				t.Errorf("%d writes to watch node %s for three minutes, want at most 4", n, intent.Spec.NodeName)
			}
			if n := requests.count("PUT nodevolumestates"); n > 0 {
				t.Errorf("%d writes of the spec of node state %s, want none", n, intent.Spec.NodeName)
			}
			// An hour without a read counts as one plan.
			w.advance(t, first, intent.Spec.NodeName, time.Hour)
			w.watched(t, intent.Spec.NodeName, at, 4*time.Minute)
			stop()
			second := newStepClock()
			w.manage(t, managerOptions{clock: offsetClock{second, by}})
			// This pass of the volume reads the nodes in order, and then says what it found.
			w.node(t, "waiting-"+name)
			other := w.intent(t, "waiting-"+name, "waiting-"+name, intent.Name)
			w.reason(t, other, volumesv1alpha1.ConditionAttached, metav1.ConditionFalse, volumesv1alpha1.ReasonVolumeInUse)
			w.advance(t, second, intent.Spec.NodeName, time.Minute)
			w.watched(t, intent.Spec.NodeName, at, 5*time.Minute)
			w.stillThere(t, intent.Name, intent.Spec.NodeName)
			w.advance(t, second, intent.Spec.NodeName, time.Minute)
			w.forced(t, intent)
			w.attached(t, other)
		})
	}
}

func theTimeStartsAgainAfterANodeWasReadyBetweenTwoManagers(t *testing.T, w *world) {
	died := time.Now().Add(-time.Hour)
	first := newStepClock()
	_, stop := w.manage(t, managerOptions{clock: first})
	intent := w.deadNode(t, "relapse", died)
	w.watched(t, "relapse", died, 0)
	for m := time.Minute; m <= 5*time.Minute; m += time.Minute {
		w.advance(t, first, "relapse", time.Minute)
		w.watched(t, "relapse", died, m)
	}
	stop()
	again := died.Add(time.Minute)
	w.setReady(t, "relapse", corev1.ConditionTrue, died.Add(30*time.Second))
	w.setReady(t, "relapse", corev1.ConditionUnknown, again)
	second := newStepClock()
	w.manage(t, managerOptions{clock: second})
	w.watched(t, "relapse", again, 0)
	for m := time.Minute; m <= 5*time.Minute; m += time.Minute {
		w.advance(t, second, "relapse", time.Minute)
		w.watched(t, "relapse", again, m)
		w.stillThere(t, "relapse", "relapse")
	}
	// Ready: what was watched is forgotten, in the API too.
	w.setReady(t, "relapse", corev1.ConditionTrue, again.Add(time.Minute))
	until(t, w, stateOf("relapse"), "the time that was watched is forgotten",
		func(s *volumesv1alpha1.NodeVolumeState) bool { return s.Status.Node.Unready == nil })
	w.advance(t, second, "relapse", time.Hour)
	w.stillThere(t, "relapse", "relapse")
	w.agent(t, "relapse")
	gone(t, w, intent)
}

// waitingIntents creates intents for a volume on a node whose name comes after those that are watched: when one reports
// that it waits, a reconcile has read all of them.
type waitingIntents struct {
	w           *world
	clock       *stepClock
	claim, node string
	intents     []*volumesv1alpha1.VolumeAttachmentIntent
}

// advance lets time pass for the manager and waits for one reconcile of the volume.
func (a *waitingIntents) advance(t *testing.T, d time.Duration) {
	t.Helper()
	a.clock.advance(d)
	next := a.w.intent(t, fmt.Sprintf("%s-%d", a.node, len(a.intents)), a.node, a.claim)
	a.intents = append(a.intents, next)
	a.w.reason(t, next, volumesv1alpha1.ConditionAttached, metav1.ConditionFalse, volumesv1alpha1.ReasonVolumeInUse)
}

// awaitAttached waits until the volume is attached for every intent.
func (a *waitingIntents) awaitAttached(t *testing.T) {
	t.Helper()
	for _, i := range a.intents {
		a.w.attached(t, i)
	}
}

func aNodeWhoseVolumeIsLeftWhileTheManagerIsDownCountsAsGoneInTime(t *testing.T, w *world) {
	c := newStepClock()
	_, stop := w.manage(t, managerOptions{clock: c})
	w.node(t, "missed-waiting")
	machine := w.node(t, "missed")
	w.renew(t, "missed", 40)
	w.volume(t, "missed", volumeOptions{})
	intent := w.intent(t, "missed", "missed", "missed")
	until(t, w, intent, "the intent is Ready", isReady)
	w.fallsSilent(t, c, machine)
	w.seenToGo(t, "missed")
	stop()
	w.delete(t, intent)

	c = newStepClock()
	w.manage(t, managerOptions{clock: c})
	waiting := &waitingIntents{w: w, clock: c, claim: "missed", node: "missed-waiting"}
	waiting.advance(t, 0)
	waiting.advance(t, 50*time.Second)
	waiting.advance(t, 4*time.Minute)
	w.stillThere(t, "missed", "missed")
	// Now its agent has been silent for long enough; the pass finds that and does not say any more that it waits for it.
	c.advance(time.Minute)
	w.advance(t, c, "missed-waiting", 0)
	state := until(t, w, stateOf("missed"), "the volume is detached", func(s *volumesv1alpha1.NodeVolumeState) bool {
		return entryIn(s, "missed").DetachedTime != nil
	})
	if e := entryIn(state, "missed").Evidence; e.Type != volumesv1alpha1.EvidenceNodeGone {
		t.Errorf("evidence of the detach of volume missed: %s; want NodeGone", dump(e))
	}
	gone(t, w, intent)
	waiting.awaitAttached(t)
}

func aRenamedNodeKeepsItsMountsUntilItsAgentReleasesThem(t *testing.T, w *world) {
	c := newStepClock()
	w.manage(t, managerOptions{clock: c})
	machine := w.node(t, "old-name")
	w.node(t, "other-machine")
	w.renew(t, "old-name", 40)
	w.volume(t, "renamed", volumeOptions{})
	intent := w.intent(t, "renamed", "old-name", "renamed")
	until(t, w, intent, "the intent is Ready", isReady)
	uid := until(t, w, stateOf("old-name"), "it is in use", func(s *volumesv1alpha1.NodeVolumeState) bool {
		return len(s.Status.Volumes) == 1
	}).Status.Volumes[0].AttachmentUID
	// The kubelet and the agent start under another name, on the same machine; what is mounted there stays.
	w.fallsSilent(t, c, machine)
	w.seenToGo(t, "old-name")
	w.bareNode(t, "new-name")
	until(t, w, stateOf("new-name"), "the state is there", exists)
	w.keepRenewing(t, "new-name")
	state := stateOf("new-name")
	w.changeStatus(t, state, func() {
		state.Status.Protocol.ObservedUID, state.Status.BootID, state.Status.Protocol.Reports = state.UID, "boot-1", 1
		state.Status.Volumes = []volumesv1alpha1.NodeVolume{
			{VolumeName: uniqueName("renamed"), AttachmentUID: uid, InUse: true},
		}
	})
	w.delete(t, intent)
	waiting := &waitingIntents{w: w, clock: c, claim: "renamed", node: "other-machine"}
	waiting.advance(t, 0)
	waiting.advance(t, 50*time.Second)
	waiting.advance(t, 10*time.Minute)
	waiting.advance(t, 10*time.Minute)
	w.stillThere(t, "renamed", "old-name")
	if note := w.awaitEvent(t, "old-name", attachment.EventNodeRenamed); !strings.Contains(note, "new-name") {
		t.Errorf("event of node state old-name: %q; want the new name", note)
	}
	until(t, w, stateOf("old-name"), "its condition names the other node", hasReason(
		volumesv1alpha1.ConditionAttachmentsHealthy, volumesv1alpha1.ReasonNodeRenamed))
	// The agent under the new name unmounts what no intent of its own asks for, as an administrator made it do.
	w.changeStatus(t, state, func() { state.Status.Volumes, state.Status.Protocol.Reports = nil, 2 })
	until(t, w, stateOf("old-name"), "the volume is detached", func(s *volumesv1alpha1.NodeVolumeState) bool {
		return entryIn(s, "renamed").DetachedTime != nil
	})
	gone(t, w, intent)
	waiting.awaitAttached(t)
}

func hasReason(kind, reason string) func(*volumesv1alpha1.NodeVolumeState) bool {
	return func(s *volumesv1alpha1.NodeVolumeState) bool {
		c := meta.FindStatusCondition(s.Status.Conditions, kind)
		return c != nil && c.Reason == reason
	}
}

func unreachable(s *volumesv1alpha1.NodeVolumeState) bool {
	ready := meta.FindStatusCondition(s.Status.Conditions, volumesv1alpha1.ConditionReady)
	return ready != nil && ready.Reason == volumesv1alpha1.ReasonAgentUnreachable
}

func theTimeInALeaseDoesNotDecideWhetherAnAgentIsReachable(t *testing.T, w *world) {
	c := newStepClock()
	w.manage(t, managerOptions{clock: c})
	for name, by := range map[string]time.Duration{"ahead": 48 * time.Hour, "behind": -48 * time.Hour} {
		node := "clock-" + name
		w.bareNode(t, node)
		machine := w.agentAhead(t, node, by)
		w.volume(t, node, volumeOptions{})
		intent := w.intent(t, node, node, node)
		until(t, w, intent, "the intent is Ready", isReady)
		if unreachable(until(t, w, stateOf(node), "the state is there", exists)) {
			t.Errorf("agent of node state %s, whose clock is %s, counts as unreachable, want it reachable", node, name)
		}
		w.fallsSilent(t, c, machine)
	}
}
