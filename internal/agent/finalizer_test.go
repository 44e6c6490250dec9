/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package agent

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/handshake"
)

// isReleased reports whether the manager may remove the intent's finalizer, by what its dead agent has reported.
func (n *node) isReleased(i *volumesv1alpha1.VolumeAttachmentIntent, v testVolume) bool {
	n.t.Helper()
	live, s := &volumesv1alpha1.VolumeAttachmentIntent{}, &volumesv1alpha1.NodeVolumeState{}
	n.must(n.client.Get(n.t.Context(), client.ObjectKeyFromObject(i), live))
	n.must(n.client.Get(n.t.Context(), clientKey(n.name), s))
	line := handshake.VolumeOf(s, v.name())
	c := meta.FindStatusCondition(live.Status.Conditions, volumesv1alpha1.ConditionPublished)
	reported := c != nil && c.Reason == volumesv1alpha1.ReasonReleased
	return reported || line == nil || line.PublishedBy == volumesv1alpha1.PublisherKubelet
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
