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

	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/handshake"
)

// TestAnAgentKilledBetweenAnyTwoStepsOfAFilesystemLosesNothingAndLeavesNothing has one life on a real API server and
// real files. The simulation has all of them (test/simulation, crash_test.go): sub paths, groups and devices, intents
// that are deleted or let go meanwhile, and the manager in both modes.
func TestAnAgentKilledBetweenAnyTwoStepsOfAFilesystemLosesNothingAndLeavesNothing(t *testing.T) {
	c := newCluster(t)
	// One life without a crash counts the steps.
	total, _ := c.live(t, 0)
	if total < 10 || total > 100 {
		t.Fatalf("%d steps in the life of a volume, want 10 to 100", total)
	}
	for k := int64(1); k <= total; k++ {
		t.Run(fmt.Sprintf("killed at step %d of %d", k, total), func(t *testing.T) {
			t.Parallel()
			if _, at := c.live(t, k); at != "" {
				t.Logf("killed %s", at)
			}
		})
	}
}

// live brings a volume to its path and back, with an agent that is killed at the step and one that comes after.
func (c *cluster) live(t *testing.T, killAt int64) (steps int64, killedAt string) {
	n, v := c.node(t), testVolume{handle: "fs"}
	n.timeout = 500 * time.Millisecond
	n.driver.before = n.inUseIsSet
	n.attach(v, "uid-1")
	i := n.want(v, "data")
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
	if calls := n.driver.made(); slices.ContainsFunc(calls, func(c string) bool { return strings.HasPrefix(c, "un") }) {
		t.Errorf("intent %s: calls %v, want nothing undone that nobody asked for", i.Name, calls)
	}
	n.release(i)
	r = n.outlive(r, func(ctx context.Context) bool {
		return n.reached(ctx, &volumesv1alpha1.NodeVolumeStateList{}, "", n.name, func(o client.Object) bool {
			return handshake.VolumeOf(o.(*volumesv1alpha1.NodeVolumeState), v.name()) == nil
		})
	})
	// A crash may come after the report, before the record is removed.
	n.outlive(r, n.cleared)
	n.nothingLeft()
	return r.steps.Load(), r.deathAt()
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
