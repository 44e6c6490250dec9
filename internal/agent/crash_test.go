/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package agent

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/handshake"
)

// maxSteps is more than a life has.
const maxSteps = 200

// life is one volume's way to its path and back.
type life struct {
	volume testVolume
	change func(*volumesv1alpha1.VolumeAttachmentIntent)
}

var lives = map[string]life{
	"filesystem": {volume: testVolume{handle: "fs"}},
	"sub path": {volume: testVolume{handle: "sub"}, change: func(i *volumesv1alpha1.VolumeAttachmentIntent) {
		i.Spec.Mount = &volumesv1alpha1.MountSpec{SubPath: "inner"}
	}},
	"filesystem of a group": {volume: testVolume{handle: "group"}, change: grouped},
	"sub path of a group":   {volume: testVolume{handle: "subgroup"}, change: groupedPart},
	"block":                 {volume: testVolume{handle: "raw", mode: corev1.PersistentVolumeBlock}},
}

func TestAnAgentKilledBetweenAnyTwoStepsLosesNothingAndLeavesNothing(t *testing.T) {
	c := newCluster(t)
	for name, l := range lives {
		t.Run(name, func(t *testing.T) {
			// One life without a crash counts the steps.
			total, _ := c.live(t, l, 0)
			if total < 10 || total > maxSteps {
				t.Fatalf("%d steps in a life of volume %s, want 10 to %d", total, l.volume.handle, maxSteps)
			}
			t.Logf("%d steps", total)
			t.Run("killed", func(t *testing.T) {
				for k := int64(1); k <= total; k++ {
					t.Run(fmt.Sprintf("at step %d", k), func(t *testing.T) {
						t.Parallel()
						if _, at := c.live(t, l, k); at != "" {
							t.Logf("killed %s", at)
						}
					})
				}
			})
		})
	}
}

// live brings the volume to its path and back, with an agent that is killed at the step and one that comes after.
func (c *cluster) live(t *testing.T, l life, killAt int64) (steps int64, killedAt string) {
	n := c.node(t)
	n.timeout = 500 * time.Millisecond
	n.driver.before = n.inUseIsSet
	i := l.wanted(n)
	r := n.launch(killAt)
	t.Cleanup(r.stop)

	r = n.outlive(r, func(ctx context.Context) bool {
		return n.reached(ctx, &volumesv1alpha1.VolumeAttachmentIntentList{}, i.Namespace, i.Name,
			func(o client.Object) bool {
				return meta.IsStatusConditionTrue(o.(*volumesv1alpha1.VolumeAttachmentIntent).Status.Conditions,
					volumesv1alpha1.ConditionReady)
			})
	})
	path := filepath.Join(n.root, "published", "default", i.Name)
	if _, ok := n.kernel.at(path); !ok {
		t.Errorf("intent %s is Ready and nothing is mounted at %s, want its volume", i.Name, path)
	}
	if m := i.Spec.Mount; m != nil && m.FSGroup != nil {
		if g := n.kernel.groupOf(publicationOf(n, i)); g != *m.FSGroup {
			t.Errorf("intent %s is Ready and its files have group %d, want %d", i.Name, g, *m.FSGroup)
		}
	}
	if calls := n.driver.made(); slices.ContainsFunc(calls, func(c string) bool { return strings.HasPrefix(c, "un") }) {
		t.Errorf("intent %s: calls %v, want nothing undone that nobody asked for", i.Name, calls)
	}
	n.release(i)
	r = n.outlive(r, func(ctx context.Context) bool {
		return n.reached(ctx, &volumesv1alpha1.NodeVolumeStateList{}, "", n.name, func(o client.Object) bool {
			return handshake.VolumeOf(o.(*volumesv1alpha1.NodeVolumeState), l.volume.name()) == nil
		})
	})
	// A crash may come after the report, before the record is removed.
	n.outlive(r, n.cleared)
	n.nothingLeft()
	return r.steps.Load(), r.deathAt()
}

// wanted attaches the volume and has an intent want it.
func (l life) wanted(n *node) *volumesv1alpha1.VolumeAttachmentIntent {
	n.t.Helper()
	n.attach(l.volume, "uid-1")
	if l.change == nil {
		return n.want(l.volume, "data")
	}
	n.driver.inner = "inner"
	return n.want(l.volume, "data", l.change)
}

// cleared waits until nothing is left behind.
func (n *node) cleared(ctx context.Context) bool {
	for ctx.Err() == nil && len(n.leftovers()) > 0 {
		select {
		case <-ctx.Done():
		case <-time.After(10 * time.Millisecond):
		}
	}
	return ctx.Err() == nil
}

// outlive waits for what is wanted; if the agent is killed before, another one takes its place.
func (n *node) outlive(r *running, wanted func(context.Context) bool) *running {
	n.t.Helper()
	ctx, cancel := context.WithTimeout(n.t.Context(), patience)
	defer cancel()
	alive, stop := context.WithCancel(ctx)
	go func() {
		defer stop()
		select {
		case <-r.dead:
		case <-alive.Done():
		}
	}()
	if wanted(alive) {
		return r
	}
	select {
	case <-r.dead:
	default:
		n.t.Fatalf("what is wanted of node %s did not come about, want it; calls: %v, left: %v", n.name, n.driver.made(),
			n.leftovers())
	}
	next := n.launch(0)
	next.killedAt.Store(r.deathAt())
	n.t.Cleanup(next.stop)
	if !wanted(ctx) {
		n.t.Fatalf("what is wanted of node %s, whose agent was killed %s, did not come about, want it; calls: %v, left: "+
			"%v\n%s", n.name, r.deathAt(), n.driver.made(), n.leftovers(), n.records())
	}
	return next
}

func (n *node) records() string {
	var all []string
	found, _ := filepath.Glob(n.root + "/volumes/*") // the pattern is good
	for _, f := range found {
		data, err := os.ReadFile(f)
		all = append(all, f, string(data), fmt.Sprint(err))
	}
	return strings.Join(all, "\n")
}

func TestAnIntentDeletedWhileItsAgentIsDeadLeavesNothing(t *testing.T) {
	c := newCluster(t)
	for name, l := range lives {
		t.Run(name, func(t *testing.T) {
			total := c.dies(t, l, maxSteps)
			t.Logf("%d steps", total)
			t.Run("killed", func(t *testing.T) {
				for k := int64(1); k <= total; k++ {
					t.Run(fmt.Sprintf("at step %d", k), func(t *testing.T) {
						t.Parallel()
						c.dies(t, l, k)
					})
				}
			})
		})
	}
}

// dies kills the agent at the step on its way to the path, has the intent deleted, and starts another one. It
// returns how many steps there were.
func (c *cluster) dies(t *testing.T, l life, killAt int64) int64 {
	t.Helper()
	n := c.node(t)
	n.timeout = 300 * time.Millisecond
	i := l.wanted(n)
	r := n.launch(killAt)
	t.Cleanup(r.stop)
	settled := make(chan struct{})
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	go func() {
		defer close(settled)
		n.reached(ctx, &volumesv1alpha1.NodeVolumeStateList{}, "", n.name, func(o client.Object) bool {
			line := handshake.VolumeOf(o.(*volumesv1alpha1.NodeVolumeState), l.volume.name())
			return line != nil && line.Capacity != nil
		})
	}()
	select {
	case <-settled:
		return r.steps.Load()
	case <-r.dead:
		cancel()
	}
	n.release(i)
	b := n.start()
	n.gone(l.volume)
	n.nothingLeft()
	b.stop()
	if t.Failed() {
		t.Fatalf("agent of node %s was killed at step %d, %s; want no failure after that", n.name, killAt, r.deathAt())
	}
	return killAt
}

func TestACallOfADeadAgentThatEndsLateIsUndoneBeforeInUseIsCleared(t *testing.T) {
	c := newCluster(t)
	n := c.node(t)
	n.timeout = time.Second
	v := testVolume{handle: "late"}
	release := n.driver.hang("stage", "late")
	a := n.start()
	n.attach(v, "uid-1")
	i := n.want(v, "data")
	n.called("stage late")
	a.kill()
	n.driver.clearHang("stage", "late")
	n.release(i)
	n.start()
	// The second agent unstages what is not there yet, and must not believe it.
	n.called("unstage late")
	release()
	n.gone(v)
	n.nothingLeft()
}
