/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package manager

import (
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller"
	"github.com/hawser-io/hawser/internal/controller/node"
	"github.com/hawser-io/hawser/internal/handshake"
)

// forgetAfter is a policy under which a Node that is gone is checked for every five minutes.
const forgetAfter, forgetPeriod = 2 * time.Hour, 5 * time.Minute

// TestNodesThatNeverReturn: what waits for the agent of a Node that is gone.
func TestNodesThatNeverReturn(t *testing.T) {
	w := newWorld(t)
	for _, s := range []struct {
		name     string
		scenario func(*testing.T, *world)
	}{
		{"an absent Node is forgotten after the time of the policy, also across managers",
			anAbsentNodeIsForgottenAfterTheTimeOfThePolicy},
		{"in mode Replace an absent Node is forgotten", anAbsentNodeIsForgottenInModeReplace},
		{"without a policy an absent Node is not forgotten", withoutAPolicyAnAbsentNodeIsNotForgotten},
		{"the time starts again when the Node registers", theTimeStartsAgainWhenTheNodeRegisters},
		{"the time starts again when the agent renews its Lease", theTimeStartsAgainWhenTheAgentRenewsItsLease},
		{"a machine that continues under another name is not forgotten", aMachineThatContinuesUnderAnotherNameIsNotForgotten},
		{"wanted volumes of an absent Node are kept", wantedVolumesOfAnAbsentNodeAreKept},
		{"the volumes of a Node that is deleted while its machine runs wait for a declaration",
			theVolumesOfANodeThatIsDeletedWhileItsMachineRunsWaitForADeclaration},
		{"an absence that the agent contradicts is no evidence", anAbsenceThatTheAgentContradictsIsNoEvidence},
	} {
		t.Run(s.name, func(t *testing.T) { s.scenario(t, w) })
	}
}

// forcedAwayFrom makes a node with a volume, deletes the Node, and waits until the volume has been forced away; the
// answer is the attachment's UID.
func (w *world) forcedAwayFrom(t *testing.T, name string, o managerOptions) types.UID {
	t.Helper()
	c := newStepClock()
	o.clock, o.forgetGoneAfter = c, 0
	_, stop := w.manage(t, o)
	defer stop()
	machine := w.node(t, name)
	w.renew(t, name, 40)
	w.volume(t, name, volumeOptions{})
	intent := w.intent(t, name, name, name)
	until(t, w, intent, "the intent is Ready", isReady)
	w.fallsSilent(t, c, machine)
	w.seenToGo(t, name)
	w.delete(t, intent)
	return w.detachedFrom(t, c, name)
}

// seenToGo deletes the Node of an agent that is silent, after its kubelet fell silent too, and waits until a manager
// has recorded that.
func (w *world) seenToGo(t *testing.T, name string) {
	t.Helper()
	w.setReady(t, name, corev1.ConditionUnknown, time.Now())
	w.delete(t, nodeNamed(name))
	until(t, w, stateOf(name), "a manager has seen the Node go", func(s *volumesv1alpha1.NodeVolumeState) bool {
		return s.Status.Node.Absence != nil
	})
}

// detachedFrom lets time pass until the volume has been forced away from a Node that is gone.
func (w *world) detachedFrom(t *testing.T, c *stepClock, name string) types.UID {
	t.Helper()
	waits := name + "-waits"
	w.bareNode(t, waits)
	w.agent(t, waits)
	waiting := &waitingIntents{w: w, clock: c, claim: name, node: waits}
	waiting.advance(t, 0)
	c.advance(50 * time.Second)
	w.advance(t, c, waits, 0)
	state := until(t, w, stateOf(name), "the volume is forced away", func(s *volumesv1alpha1.NodeVolumeState) bool {
		return entryIn(s, name).DetachedTime != nil
	})
	waiting.awaitAttached(t)
	if e := entryIn(state, name).Evidence; e.Type != volumesv1alpha1.EvidenceNodeGone {
		t.Errorf("evidence of the detach of volume %s: %s; want NodeGone", name, dump(e))
	}
	return entryIn(state, name).AttachmentUID
}

// goneFor lets managers watch a Node being gone, from a time that they have watched already to a later one.
func (w *world) goneFor(t *testing.T, c *stepClock, name string, from, to time.Duration) {
	t.Helper()
	for d := from; ; d += forgetPeriod {
		w.reconcileNode(t, name)
		until(t, w, stateOf(name), "the node was watched being gone for "+d.String(),
			func(s *volumesv1alpha1.NodeVolumeState) bool {
				return s.Status.Node.Gone != nil && s.Status.Node.Gone.Observed.Duration == d
			})
		if d >= to {
			return
		}
		c.advance(forgetPeriod)
	}
}

// firstWrite notes when an object is first updated.
type firstWrite struct {
	path string
	once sync.Once
	done chan struct{}
}

func (f *firstWrite) transport(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		if r.Method == http.MethodPut && strings.HasSuffix(r.URL.Path, f.path) {
			f.once.Do(func() { close(f.done) })
		}
		return next.RoundTrip(r)
	})
}

// keptName waits until the node's entry is there and the attachment has only our finalizer.
func (w *world) keptName(t *testing.T, name string, uid types.UID) {
	t.Helper()
	until(t, w, attachmentOf(name, name), "the attachment's name stays taken", func(va *storagev1.VolumeAttachment) bool {
		return exists(va) && va.UID == uid && handshake.AttachmentFrom(va).Gone()
	})
	until(t, w, stateOf(name), "the entry stays", func(s *volumesv1alpha1.NodeVolumeState) bool {
		return exists(s) && entryIn(s, name).AttachmentUID == uid && !declares(s, uid)
	})
}

func anAbsentNodeIsForgottenAfterTheTimeOfThePolicy(t *testing.T, w *world) {
	uid := w.forcedAwayFrom(t, "scaled", managerOptions{})
	first := newStepClock()
	_, stop := w.manage(t, managerOptions{clock: first, forgetGoneAfter: forgetAfter})
	w.goneFor(t, first, "scaled", 0, time.Hour)
	// A day without a read counts as one period.
	first.advance(24 * time.Hour)
	w.goneFor(t, first, "scaled", time.Hour+forgetPeriod, time.Hour+forgetPeriod)
	stop()
	second := newStepClock()
	looked := &firstWrite{path: "/nodevolumestates/scaled/status", done: make(chan struct{})}
	w.manage(t, managerOptions{clock: second, forgetGoneAfter: forgetAfter, transport: looked.transport})
	<-looked.done
	w.goneFor(t, second, "scaled", time.Hour+forgetPeriod, forgetAfter-forgetPeriod)
	w.keptName(t, "scaled", uid)

	second.advance(forgetPeriod)
	w.reconcileNode(t, "scaled")
	if note := w.awaitEvent(t, "scaled", node.EventGoneNodeForgotten); !strings.Contains(note, string(uid)) ||
		!strings.Contains(note, "--forget-gone-nodes-after=2h0m0s") {
		t.Errorf("event of node state scaled: %q; want attachment UID %s and the flag with its value", note, uid)
	}
	gone(t, w, attachmentOf("scaled", "scaled"))
	gone(t, w, stateOf("scaled"))

	// A new machine of that name gets volumes like any other.
	w.create(t, &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "scaled", Labels: map[string]string{corev1.LabelHostname: "scaled"}},
	})
	w.agent(t, "scaled")
	w.volume(t, "scaled-again", volumeOptions{})
	until(t, w, w.intent(t, "scaled-again", "scaled", "scaled-again"), "the new machine has a volume", isReady)
}

func anAbsentNodeIsForgottenInModeReplace(t *testing.T, w *world) {
	uid := w.forcedAwayFrom(t, "scaled-replace", managerOptions{attachMode: controller.Replace})
	c := newStepClock()
	_, stop := w.manage(t, managerOptions{attachMode: controller.Replace, clock: c, forgetGoneAfter: forgetAfter})
	defer stop()
	w.goneFor(t, c, "scaled-replace", 0, forgetAfter-forgetPeriod)
	w.keptName(t, "scaled-replace", uid)
	c.advance(forgetPeriod)
	w.reconcileNode(t, "scaled-replace")
	gone(t, w, attachmentOf("scaled-replace", "scaled-replace"))
	gone(t, w, stateOf("scaled-replace"))
}

func withoutAPolicyAnAbsentNodeIsNotForgotten(t *testing.T, w *world) {
	uid := w.forcedAwayFrom(t, "kept", managerOptions{})
	c := newStepClock()
	requests, _ := w.manage(t, managerOptions{clock: c})
	c.advance(1000 * time.Hour)
	requests.reset()
	w.reconcileNode(t, "kept")
	w.keptName(t, "kept", uid)
	if n := requests.count("PUT nodevolumestates"); n > 0 {
		t.Errorf("%d writes to watch a Node without a policy, want none", n)
	}
	if s := until(t, w, stateOf("kept"), "the state stays", exists); s.Status.Node.Gone != nil {
		t.Errorf("absence in node state kept: %s; want none without a policy", dump(s.Status.Node.Gone))
	}
}

func theTimeStartsAgainWhenTheNodeRegisters(t *testing.T, w *world) {
	uid := w.forcedAwayFrom(t, "flaps", managerOptions{})
	c := newStepClock()
	w.manage(t, managerOptions{clock: c, forgetGoneAfter: forgetAfter})
	w.goneFor(t, c, "flaps", 0, forgetAfter-forgetPeriod)
	w.create(t, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "flaps"}})
	until(t, w, stateOf("flaps"), "what was watched is void", func(s *volumesv1alpha1.NodeVolumeState) bool {
		return s.Status.Node.Gone == nil
	})
	c.advance(1000 * time.Hour)
	w.reconcileNode(t, "flaps")
	w.keptName(t, "flaps", uid)
	w.delete(t, nodeNamed("flaps"))
	w.goneFor(t, c, "flaps", 0, forgetPeriod)
	// It is there for a moment only, which may be too short for anybody to see it there.
	w.create(t, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "flaps"}})
	w.delete(t, nodeNamed("flaps"))
	w.goneFor(t, c, "flaps", 0, forgetPeriod)
	w.keptName(t, "flaps", uid)
}

func theTimeStartsAgainWhenTheAgentRenewsItsLease(t *testing.T, w *world) {
	uid := w.forcedAwayFrom(t, "whispers", managerOptions{})
	c := newStepClock()
	w.manage(t, managerOptions{clock: c, forgetGoneAfter: forgetAfter})
	w.goneFor(t, c, "whispers", 0, forgetAfter-forgetPeriod)
	w.renew(t, "whispers", 40)
	c.advance(forgetPeriod)
	w.goneFor(t, c, "whispers", 0, forgetPeriod)
	w.keptName(t, "whispers", uid)
}

func aMachineThatContinuesUnderAnotherNameIsNotForgotten(t *testing.T, w *world) {
	uid := w.forcedAwayFrom(t, "was-named", managerOptions{})
	w.bareNode(t, "is-named")
	c := newStepClock()
	w.manage(t, managerOptions{clock: c, forgetGoneAfter: forgetAfter})
	until(t, w, stateOf("is-named"), "the state is there", exists)
	w.keepRenewing(t, "is-named")
	renamed := stateOf("is-named")
	w.goneFor(t, c, "was-named", 0, forgetAfter-forgetPeriod)
	w.changeStatus(t, renamed, func() {
		renamed.Status.Protocol.ObservedUID, renamed.Status.BootID, renamed.Status.Protocol.Reports = renamed.UID, "boot-1", 1
		renamed.Status.Volumes = []volumesv1alpha1.NodeVolume{
			{VolumeName: uniqueName("was-named"), AttachmentUID: uid, InUse: true},
		}
	})
	// The manager has seen that once it acts on what comes after it.
	w.volume(t, "is-named", volumeOptions{})
	w.attached(t, w.intent(t, "is-named", "is-named", "is-named"))
	c.advance(1000 * time.Hour)
	w.reconcileNode(t, "was-named")
	w.keptName(t, "was-named", uid)
	w.changeStatus(t, renamed, func() { renamed.Status.Volumes, renamed.Status.Protocol.Reports = nil, 2 })
	c.advance(forgetPeriod)
	w.reconcileNode(t, "was-named")
	c.advance(forgetPeriod)
	w.reconcileNode(t, "was-named")
	gone(t, w, stateOf("was-named"))
}

func wantedVolumesOfAnAbsentNodeAreKept(t *testing.T, w *world) {
	c := newStepClock()
	w.manage(t, managerOptions{clock: c, forgetGoneAfter: forgetAfter})
	machine := w.node(t, "wanted")
	w.renew(t, "wanted", 40)
	w.volume(t, "wanted", volumeOptions{})
	until(t, w, w.intent(t, "wanted", "wanted", "wanted"), "the intent is Ready", isReady)
	machine.stop()
	w.delete(t, nodeNamed("wanted"))
	for range 3 {
		c.advance(1000 * time.Hour)
		w.reconcileNode(t, "wanted")
	}
	w.stillThere(t, "wanted", "wanted")
	until(t, w, stateOf("wanted"), "the entry stays Attached", func(s *volumesv1alpha1.NodeVolumeState) bool {
		return entryIn(s, "wanted").State == volumesv1alpha1.AttachmentAttached && s.Status.Node.Gone == nil
	})
}

func theVolumesOfANodeThatIsDeletedWhileItsMachineRunsWaitForADeclaration(t *testing.T, w *world) {
	c := newStepClock()
	w.manage(t, managerOptions{clock: c})
	w.node(t, "runs-waiting")
	machine := w.node(t, "runs")
	w.renew(t, "runs", 40)
	w.volume(t, "runs", volumeOptions{})
	intent := w.intent(t, "runs", "runs", "runs")
	until(t, w, intent, "the intent is Ready", isReady)
	// Kubernetes deletes the pod of the agent because the Node is gone.
	w.delete(t, nodeNamed("runs"))
	w.fallsSilent(t, c, machine)
	w.delete(t, intent)
	waiting := &waitingIntents{w: w, clock: c, claim: "runs", node: "runs-waiting"}
	for _, d := range []time.Duration{0, 50 * time.Second, 10 * time.Minute, 10 * time.Minute} {
		waiting.advance(t, d)
	}
	state := until(t, w, stateOf("runs"), "its condition names what is missing", hasReason(
		volumesv1alpha1.ConditionDetachPossible, volumesv1alpha1.ReasonEvidenceMissing))
	if absence := state.Status.Node.Absence; absence != nil {
		t.Errorf("absence in node state runs: %s; want none, for both were heard until the Node went", dump(absence))
	}
	w.stillThere(t, "runs", "runs")

	w.declare(t, "runs", entryIn(state, "runs").AttachmentUID)
	gone(t, w, attachmentOf("runs", "runs"))
	waiting.awaitAttached(t)
}

func anAbsenceThatTheAgentContradictsIsNoEvidence(t *testing.T, w *world) {
	c := newStepClock()
	w.manage(t, managerOptions{clock: c})
	w.node(t, "hidden-waiting")
	machine := w.node(t, "hidden")
	w.renew(t, "hidden", 40)
	w.volume(t, "hidden", volumeOptions{})
	intent := w.intent(t, "hidden", "hidden", "hidden")
	until(t, w, intent, "the intent is Ready", isReady)
	w.fallsSilent(t, c, machine)
	w.seenToGo(t, "hidden")
	// The machine was cut off, and is heard once more before its agent is ended.
	w.renew(t, "hidden", 40)
	until(t, w, stateOf("hidden"), "the agent was heard since", func(s *volumesv1alpha1.NodeVolumeState) bool {
		return s.Status.Node.Absence.Contradicted != nil
	})
	w.delete(t, intent)
	waiting := &waitingIntents{w: w, clock: c, claim: "hidden", node: "hidden-waiting"}
	for _, d := range []time.Duration{0, 50 * time.Second, 10 * time.Minute, 10 * time.Minute} {
		waiting.advance(t, d)
	}
	w.stillThere(t, "hidden", "hidden")
}
