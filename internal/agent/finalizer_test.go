/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package agent

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/handshake"
)

// company is who else uses the volume of an intent that is let go.
type company struct {
	// change the intent that is let go.
	change func(*volumesv1alpha1.VolumeAttachmentIntent)
	join   func(*node, testVolume) *volumesv1alpha1.VolumeAttachmentIntent
	leave  func(*node, testVolume, *volumesv1alpha1.VolumeAttachmentIntent)
}

func staged(i *volumesv1alpha1.VolumeAttachmentIntent) {
	i.Spec.DesiredState = volumesv1alpha1.DesiredStaged
}

func published(*volumesv1alpha1.VolumeAttachmentIntent) {}

func another(n *node, v testVolume) *volumesv1alpha1.VolumeAttachmentIntent {
	return n.want(v, "other", staged)
}

func releaseOther(n *node, _ testVolume, other *volumesv1alpha1.VolumeAttachmentIntent) {
	n.release(other)
}

var companies = map[string]company{
	"another intent":            {change: published, join: another, leave: releaseOther},
	"another intent of a stage": {change: staged, join: another, leave: releaseOther},
	"the kubelet": {
		change: published,
		join: func(n *node, v testVolume) *volumesv1alpha1.VolumeAttachmentIntent {
			k := fakeKubelet{n}
			k.write(filepath.Join(k.stageDir(v), "vol_data.json"), kubeletRecord(v))
			k.publish(v, "pod-1")
			return nil
		},
		leave: func(n *node, v testVolume, _ *volumesv1alpha1.VolumeAttachmentIntent) {
			k := fakeKubelet{n}
			k.unpublish(v, "pod-1")
			k.unstage(v)
		},
	},
}

func TestAnIntentThatIsLetGoWhileItsAgentIsDeadLeavesNothing(t *testing.T) {
	c := newCluster(t)
	for name, with := range companies {
		t.Run(name, func(t *testing.T) {
			// One life without a crash counts the steps.
			from, total := c.letGo(t, with, 0)
			if total-from < 5 || total > maxSteps {
				t.Fatalf("the agent passes steps %d to %d, want at least 5", from, total)
			}
			t.Logf("steps %d to %d", from, total)
			t.Run("killed", func(t *testing.T) {
				for k := from; k <= total; k++ {
					t.Run(fmt.Sprintf("at step %d", k), func(t *testing.T) {
						t.Parallel()
						c.letGo(t, with, k)
					})
				}
			})
		})
	}
}

// letGo removes an intent's finalizer as soon as its agent has reported it as released, while another intent uses the
// volume. The agent is killed at the step, and the next one does not find the intent any more. It returns the steps of
// the release.
func (c *cluster) letGo(t *testing.T, with company, killAt int64) (from, to int64) {
	t.Helper()
	n := c.node(t)
	n.timeout = 300 * time.Millisecond
	v := testVolume{handle: "shared"}
	n.attach(v, "uid-1")
	i := n.want(v, "data", with.change)
	r := n.launch(killAt)
	t.Cleanup(r.stop)
	ready := func(i *volumesv1alpha1.VolumeAttachmentIntent) {
		r = n.outlive(r, func(ctx context.Context) bool {
			return n.reached(ctx, &volumesv1alpha1.VolumeAttachmentIntentList{}, i.Namespace, i.Name,
				func(o client.Object) bool {
					return meta.IsStatusConditionTrue(o.(*volumesv1alpha1.VolumeAttachmentIntent).Status.Conditions,
						volumesv1alpha1.ConditionReady)
				})
		})
	}
	ready(i)
	other := with.join(n, v)
	if other != nil {
		ready(other)
	}
	from = r.steps.Load()

	n.release(i)
	r = n.outlive(r, func(ctx context.Context) bool {
		return n.reached(ctx, &volumesv1alpha1.VolumeAttachmentIntentList{}, i.Namespace, i.Name, toldReleased) ||
			n.isReleased(i, v)
	})
	n.unfinalize(i)
	with.leave(n, v, other)
	r = n.outlive(r, func(ctx context.Context) bool {
		return n.reached(ctx, &volumesv1alpha1.NodeVolumeStateList{}, "", n.name, func(o client.Object) bool {
			return handshake.VolumeOf(o.(*volumesv1alpha1.NodeVolumeState), v.name()) == nil
		})
	})
	// A crash may come after the report, before the record is removed.
	n.outlive(r, n.cleared)
	n.nothingLeft()
	return from, r.steps.Load()
}

// isReleased reports whether the manager may remove the intent's finalizer, by what its dead agent has reported.
func (n *node) isReleased(i *volumesv1alpha1.VolumeAttachmentIntent, v testVolume) bool {
	n.t.Helper()
	live, s := &volumesv1alpha1.VolumeAttachmentIntent{}, &volumesv1alpha1.NodeVolumeState{}
	n.must(n.client.Get(n.t.Context(), client.ObjectKeyFromObject(i), live))
	n.must(n.client.Get(n.t.Context(), clientKey(n.name), s))
	line := handshake.VolumeOf(s, v.name())
	return toldReleased(live) || line == nil || line.PublishedBy == volumesv1alpha1.PublisherKubelet
}

func toldReleased(o client.Object) bool {
	c := meta.FindStatusCondition(o.(*volumesv1alpha1.VolumeAttachmentIntent).Status.Conditions,
		volumesv1alpha1.ConditionPublished)
	return c != nil && c.Reason == volumesv1alpha1.ReasonReleased
}

func TestAnIntentThatIsLetGoOfAVolumeThatWasNeverStagedLeavesNothing(t *testing.T) {
	n := newCluster(t).node(t)
	v := testVolume{handle: "vol", change: func(e *volumesv1alpha1.NodeAttachment) {
		e.NodeStageSecretRef = &corev1.SecretReference{Namespace: "default", Name: "absent"}
	}}
	n.dieAt = "after clear"
	a := n.start()
	n.attach(v, "uid-1")
	i := n.want(v, "data")
	n.condition(i, volumesv1alpha1.ConditionStaged, volumesv1alpha1.ReasonSecretNotReadable)
	a.rest()
	n.release(i)
	select {
	case <-a.dead:
	case <-time.After(patience):
		t.Fatalf("inUse was not cleared within %s, want that it is", patience)
	}
	n.unfinalize(i)
	n.dieAt = ""
	n.start()
	n.gone(v)
	n.nothingLeft()
}

func TestAnOrphanThatWasBeingUnpublishedIsFinished(t *testing.T) {
	n := newCluster(t).node(t)
	n.timeout = 300 * time.Millisecond
	v := testVolume{handle: "vol"}
	n.dieAt = "after unpublish"
	a := n.start()
	n.attach(v, "uid-1")
	i := n.want(v, "data")
	n.ready(i)
	n.release(i)
	select {
	case <-a.dead:
	case <-time.After(patience):
		t.Fatalf("nothing was unpublished within %s, want that it is", patience)
	}
	n.unfinalize(i) // as after an agent of an earlier version, which reported before it wrote
	n.dieAt = ""
	n.start()
	n.gone(v)
	n.nothingLeft()
}
