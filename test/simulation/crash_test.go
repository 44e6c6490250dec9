/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package simulation

import (
	"regexp"
	"testing"
	"testing/synctest"

	"k8s.io/utils/ptr"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
)

// life is one volume's way to its path and back.
type life struct {
	volume string
	how    *volumesv1alpha1.MountSpec
}

var lives = map[string]life{
	"filesystem":            {volume: "rwo"},
	"sub path":              {volume: "rwo", how: &volumesv1alpha1.MountSpec{SubPath: "inner"}},
	"filesystem of a group": {volume: "rwo", how: &volumesv1alpha1.MountSpec{FSGroup: ptr.To[int64](7)}},
	"sub path of a group":   {volume: "rwo", how: &volumesv1alpha1.MountSpec{FSGroup: ptr.To[int64](7), SubPath: "inner"}},
	"block":                 {volume: rawDevice},
}

// Both modes of the manager. Only in Replace machines have kubelets.
var modes = map[string]bool{"Coexist": false, "Replace": true}

func TestAnAgentKilledBetweenAnyTwoStepsLosesNothingAndLeavesNothing(t *testing.T) {
	for name, l := range lives {
		t.Run(name, func(t *testing.T) {
			killedBeforeEachStep(t, l.volume, modes, func(w *World, d *death) []string {
				w.nodes["a"].setDeath(d)
				w.wantMounted("data", "a", l.volume, l.how)
				w.await("what is wanted is not there", w.missing)
				w.expectNothingUndone()
				w.unwant("data")
				w.await("something is left over", w.leftovers)
				return d.steps()
			})
		})
	}
}

func TestAnIntentDeletedWhileItsAgentIsDeadLeavesNothing(t *testing.T) {
	for name, l := range lives {
		t.Run(name, func(t *testing.T) {
			killedBeforeEachStep(t, l.volume, modes, func(w *World, d *death) []string {
				d.then = func() { w.unwant("data") }
				w.nodes["a"].setDeath(d)
				w.wantMounted("data", "a", l.volume, l.how)
				w.await("what is wanted is not there", w.missing)
				steps := d.steps()
				w.unwant("data") // unless the agent was killed
				w.await("something is left over", w.leftovers)
				return steps
			})
		})
	}
}

// company is who else uses the volume of an intent that is let go.
type company struct {
	// staged: the intent that is let go has its volume staged only.
	staged      bool
	modes       map[string]bool
	join, leave func(*World)
}

func another(w *World) {
	w.want("other", "a", "rwo")
	w.lower("other")
}

func releaseOther(w *World) { w.unwant("other") }

var companies = map[string]company{
	"another intent":            {modes: modes, join: another, leave: releaseOther},
	"another intent of a stage": {modes: modes, staged: true, join: another, leave: releaseOther},
	"the kubelet": {modes: map[string]bool{"Replace": true},
		join:  func(w *World) { w.wantPod("pod", "a", "rwo") },
		leave: func(w *World) { w.deletePod("pod", false) }},
}

// TestAnIntentThatIsLetGoWhileItsAgentIsDeadLeavesNothing: the manager removes the intent's finalizer as soon as the
// agent has reported its release. Where the agent is killed after that, the next one does not find the intent any more.
func TestAnIntentThatIsLetGoWhileItsAgentIsDeadLeavesNothing(t *testing.T) {
	for name, with := range companies {
		t.Run(name, func(t *testing.T) {
			killedBeforeEachStep(t, "rwo", with.modes, func(w *World, d *death) []string {
				w.want("data", "a", "rwo")
				if with.staged {
					w.lower("data")
				}
				with.join(w)
				w.await("what is wanted is not there", w.missing)
				w.expectNothingUndone()
				w.nodes["a"].setDeath(d)
				w.unwant("data")
				w.await("the intent is not let go", func() []string {
					if w.intent("data") == nil {
						return nil
					}
					return []string{"data"}
				})
				with.leave(w)
				w.await("something is left over", w.leftovers)
				return d.steps()
			})
		})
	}
}

// killedBeforeEachStep lives once without a kill, which shows the steps, and once for each of them: the agent is killed
// before it, and another one comes. Each life has its own world, in which nothing else goes wrong. How many changes one
// write carries depends on the scheduler, so a life may have fewer repetitions of a step than the first one had.
func killedBeforeEachStep(t *testing.T, volume string, modes map[string]bool,
	live func(*World, *death) (steps []string)) {
	for mode, replace := range modes {
		t.Run(mode, func(t *testing.T) {
			steps, _ := liveOnce(t, volume, replace, "", live)
			if len(steps) < 10 {
				t.Fatalf("%d steps in a life of volume %s, want at least 10: %v", len(steps), volume, steps)
			}
			for _, step := range steps {
				t.Run("killed before "+step, func(t *testing.T) {
					t.Parallel()
					_, killed := liveOnce(t, volume, replace, step, live)
					if !killed && !repetition.MatchString(step) {
						t.Errorf("no agent was killed before %q, want one", step)
					}
				})
			}
		})
	}
}

// repetition is a step that came before.
var repetition = regexp.MustCompile(` \(\d+\)$`)

// liveOnce in a world with one node and the volume.
func liveOnce(t *testing.T, volume string, replace bool, before string, live func(*World, *death) []string) (
	steps []string, killed bool) {
	t.Helper()
	d := &death{before: before}
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(1, scratch())
		defer w.remove()
		w.chance.cease()
		w.replace = replace
		w.populate([]string{"a"}, []string{volume})
		steps = live(w, d)
		w.end()
		if f := w.failure(); f != "" {
			t.Errorf("simulation of a life of volume %s failed, want no failure: %s", volume, f)
		}
	})
	passed := d.steps()
	return steps, len(passed) > 0 && passed[len(passed)-1] == before
}

// expectNothingUndone: nobody has asked for it yet.
func (w *World) expectNothingUndone() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if n := w.nodes["a"].undone; n > 0 {
		w.breaks("undone what nobody asked for: %d driver calls", n)
	}
}
