/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package manager

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/node"
	"github.com/hawser-io/hawser/internal/fencing"
	"github.com/hawser-io/hawser/internal/machine"
)

// powerStates are ConfigMaps that say whether the machine of a Node is off.
func powerStates(t *testing.T) []*fencing.Source {
	t.Helper()
	source, err := fencing.Compile(volumesv1alpha1.FenceSource{
		Name: "power", Version: "v1", Resource: "configmaps", Proves: volumesv1alpha1.FencePowerOff,
		NodeName: "has(object.data) && 'node' in object.data ? object.data.node : ''", Holds: "object.data.power == 'off'",
	})
	if err != nil {
		t.Fatal(err)
	}
	return []*fencing.Source{source}
}

func powerState(node, power string) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "power-of-" + node},
		Data:       map[string]string{"node": node, "power": power},
	}
}

// fences sets the power of the Node's machine as a program would that fences it.
func (w *world) fences(t *testing.T, node, power string) {
	t.Helper()
	state := powerState(node, power)
	w.change(t, state, func() { state.Data["power"] = power })
}

// identify the machine that has registered the Node, and the one whose agent reports.
func (w *world) identify(t *testing.T, name, registered, reporting string) {
	t.Helper()
	n := nodeNamed(name)
	w.changeStatus(t, n, func() { n.Status.NodeInfo.SystemUUID = registered })
	state := stateOf(name)
	w.changeStatus(t, state, func() { state.Status.Machine = machine.New(reporting, "") })
}

const firstMachine, secondMachine = "11111111-2222-4333-8444-555555555555", "66666666-7777-4888-8999-aaaaaaaaaaaa"

// used is a node whose agent has the volume published, and a fence of it that does not hold.
func (w *world) used(t *testing.T, name string) (*agent, *volumesv1alpha1.VolumeAttachmentIntent) {
	t.Helper()
	w.create(t, powerState(name, "on"))
	a := w.node(t, name)
	w.volume(t, "data", volumeOptions{})
	intent := w.intent(t, "data", name, "data")
	until(t, w, intent, "the intent is Ready", isReady)
	w.identify(t, name, firstMachine, firstMachine)
	return a, intent
}

func fencesOf(s *volumesv1alpha1.NodeVolumeState) []volumesv1alpha1.FenceObservation {
	return s.Status.Node.Fences
}

func isFenced(s *volumesv1alpha1.NodeVolumeState) bool { return len(fencesOf(s)) == 1 }

func fenceContradicted(s *volumesv1alpha1.NodeVolumeState) bool {
	return isFenced(s) && fencesOf(s)[0].Contradicted != nil
}

func TestAFenceOfADeadMachineReleasesItsVolumesOnceItsLeaseHasExpired(t *testing.T) {
	w := newWorld(t)
	c := newStepClock()
	_, stop := w.manage(t, managerOptions{clock: c, fenceSources: powerStates(t)})
	defer stop()
	a, intent := w.used(t, "dead")
	a.stop()
	w.fences(t, "dead", "off")
	w.delete(t, intent)
	state := until(t, w, stateOf("dead"), "the fence is recorded", isFenced)
	w.stillThere(t, "data", "dead")
	w.fallsSilent(t, c, a)
	until(t, w, attachmentOf("data", "dead"), "the volume is forced away", func(va *storagev1.VolumeAttachment) bool {
		return !exists(va) || va.DeletionTimestamp != nil
	})
	e := entryIn(w.state(t, "dead"), "data").Evidence
	if e == nil || e.Type != volumesv1alpha1.EvidenceFenced || e.Fence == nil ||
		*e.Fence != fencesOf(state)[0].FenceReference {
		t.Errorf("evidence of the detach of volume data: %s; want Fenced by %s", dump(e), dump(fencesOf(state)))
	}
	w.fences(t, "dead", "on")
	w.awaitEvent(t, "dead", node.EventFenceLifted)
}

// TestAFenceThatTheAgentContradictsForcesNothing and stays void after the manager and the agent have restarted: it is
// older than the use, or names a machine that runs.
func TestAFenceThatTheAgentContradictsForcesNothing(t *testing.T) {
	w := newWorld(t)
	_, stop := w.manage(t, managerOptions{fenceSources: powerStates(t)})
	a, intent := w.used(t, "alive")
	w.fences(t, "alive", "off")
	until(t, w, stateOf("alive"), "the agent contradicts the fence", fenceContradicted)
	w.awaitEvent(t, "alive", node.EventFenceContradicted)

	a.set(func() { a.hangs = true })
	w.delete(t, intent)
	stop()
	w.powersOff(t, a)
	_, stop = w.manage(t, managerOptions{fenceSources: powerStates(t)})
	defer stop()
	until(t, w, stateOf("alive"), "the agent counts as unreachable", unreachable)
	w.reconcileNode(t, "alive")
	w.stillThere(t, "data", "alive")
	if s := w.state(t, "alive"); !fenceContradicted(s) {
		t.Errorf("fences of node alive: %s; want one that is contradicted", dump(fencesOf(s)))
	}

	w.fences(t, "alive", "on")
	until(t, w, stateOf("alive"), "the record is gone", func(s *volumesv1alpha1.NodeVolumeState) bool {
		return len(fencesOf(s)) == 0
	})
	w.fences(t, "alive", "off")
	until(t, w, attachmentOf("data", "alive"), "the volume is forced away", func(va *storagev1.VolumeAttachment) bool {
		return !exists(va) || va.DeletionTimestamp != nil
	})
}

func TestAFenceForcesNothing(t *testing.T) {
	for name, befalls := range map[string]func(*testing.T, *world){
		"that is lifted before the Lease expires": func(t *testing.T, w *world) {
			w.fences(t, "dead", "off")
			until(t, w, stateOf("dead"), "the fence is recorded", isFenced)
			w.fences(t, "dead", "on")
			until(t, w, stateOf("dead"), "the record is gone", func(s *volumesv1alpha1.NodeVolumeState) bool {
				return len(fencesOf(s)) == 0
			})
		},
		"whose object is deleted": func(t *testing.T, w *world) {
			w.fences(t, "dead", "off")
			until(t, w, stateOf("dead"), "the fence is recorded", isFenced)
			w.delete(t, powerState("dead", "off"))
			until(t, w, stateOf("dead"), "the record is gone", func(s *volumesv1alpha1.NodeVolumeState) bool {
				return len(fencesOf(s)) == 0
			})
		},
		"of another machine that has the name of the node": func(t *testing.T, w *world) {
			w.identify(t, "dead", secondMachine, firstMachine)
			w.fences(t, "dead", "off")
		},
		"of a machine that cannot be recognized": func(t *testing.T, w *world) {
			w.identify(t, "dead", "", "")
			w.fences(t, "dead", "off")
		},
		"of another node": func(t *testing.T, w *world) {
			w.create(t, powerState("other", "off"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			c := newStepClock()
			_, stop := w.manage(t, managerOptions{clock: c, fenceSources: powerStates(t)})
			defer stop()
			a, intent := w.used(t, "dead")
			a.stop()
			befalls(t, w)
			w.delete(t, intent)
			w.fallsSilent(t, c, a)
			w.reconcileNode(t, "dead")
			w.stillThere(t, "data", "dead")
		})
	}
}

func TestAFenceThatIsLiftedWhileNoManagerRunsForcesNothingAfterwards(t *testing.T) {
	w := newWorld(t)
	_, stop := w.manage(t, managerOptions{fenceSources: powerStates(t)})
	a, intent := w.used(t, "dead")
	a.stop()
	w.fences(t, "dead", "off")
	until(t, w, stateOf("dead"), "the fence is recorded", isFenced)
	stop()
	w.fences(t, "dead", "on")
	c := newStepClock()
	_, stop = w.manage(t, managerOptions{clock: c, fenceSources: powerStates(t)})
	defer stop()
	until(t, w, stateOf("dead"), "the record is gone", func(s *volumesv1alpha1.NodeVolumeState) bool {
		return len(fencesOf(s)) == 0
	})
	w.delete(t, intent)
	w.fallsSilent(t, c, a)
	w.stillThere(t, "data", "dead")
}

func detachPossible(s *volumesv1alpha1.NodeVolumeState) *metav1.Condition {
	return meta.FindStatusCondition(s.Status.Conditions, volumesv1alpha1.ConditionDetachPossible)
}

func TestADeadNodeShowsWhatIsMissingForADetachUntilItsAgentReports(t *testing.T) {
	w := newWorld(t)
	c := newStepClock()
	_, stop := w.manage(t, managerOptions{clock: c, fenceSources: powerStates(t)})
	defer stop()
	a, _ := w.used(t, "dead")
	if got := detachPossible(w.state(t, "dead")); got != nil {
		t.Errorf("condition of a node whose agent reports: %s; want none", dump(got))
	}
	w.fallsSilent(t, c, a)
	missing := until(t, w, stateOf("dead"), "evidence is missing", func(s *volumesv1alpha1.NodeVolumeState) bool {
		got := detachPossible(s)
		return got != nil && got.Status == metav1.ConditionFalse && got.Reason == volumesv1alpha1.ReasonEvidenceMissing
	})
	if got := detachPossible(missing); !strings.Contains(got.Message, "power") ||
		!strings.Contains(got.Message, "unreachable since 20") {
		t.Errorf("condition %s; want the source power in it, and since when the agent is unreachable", dump(got))
	}
	c.advance(time.Hour)
	w.reconcileNode(t, "dead")
	if later := w.state(t, "dead"); dump(detachPossible(later)) != dump(detachPossible(missing)) {
		t.Errorf("condition an hour later: %s; want it as it was: %s", dump(detachPossible(later)),
			dump(detachPossible(missing)))
	}
	w.fences(t, "dead", "off")
	until(t, w, stateOf("dead"), "the fence is the evidence", func(s *volumesv1alpha1.NodeVolumeState) bool {
		got := detachPossible(s)
		return got != nil && got.Status == metav1.ConditionTrue && got.Reason == volumesv1alpha1.ReasonEvidenceGiven &&
			strings.Contains(got.Message, "default/power-of-dead")
	})
	w.fences(t, "dead", "on")
	until(t, w, stateOf("dead"), "evidence is missing again", func(s *volumesv1alpha1.NodeVolumeState) bool {
		got := detachPossible(s)
		return got != nil && got.Reason == volumesv1alpha1.ReasonEvidenceMissing
	})
	w.agent(t, "dead")
	until(t, w, stateOf("dead"), "nothing is missing any more", func(s *volumesv1alpha1.NodeVolumeState) bool {
		return !unreachable(s) && detachPossible(s) == nil
	})
}
