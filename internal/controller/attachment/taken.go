/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package attachment

import (
	"context"
	"sync"

	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/nodestate"
	"github.com/hawser-io/hawser/internal/handshake"
)

// taken remembers, of volumes that are on their way to a node, what the API server has answered this process of the claim and the
// attachment, and since when. A claim leaves a node only by a fence, and an attachment is deleted only after Detaching: both are
// writes of the spec of the node's state. So what was answered still holds when Attached is written if nobody else has written that spec, and
// this process has done nothing of the kind itself: whatever may drops it first. The zero value is ready to use.
type taken struct {
	mu sync.Mutex
	// ways by volume and node.
	ways map[string]map[string]way
}

// way of a volume to a node.
type way struct {
	// since is the node's spec as it was known before anything else here was answered.
	since nodestate.Point
	// claim: it names the node, and nobody who would have to be fenced.
	claim bool
	// attachment that was created; empty for none.
	attachment types.UID
}

// claimed: the claim was made, or read, to name the node.
func (t *taken) claimed(volume, node string, since nodestate.Point) {
	t.set(volume, node, way{since: since, claim: true})
}

// created an attachment. What is known since an earlier point stays.
func (t *taken) created(volume, node string, since nodestate.Point, attachment types.UID) {
	w, known := t.to(volume, node)
	if !known {
		w.since = since
	}
	w.attachment = attachment
	t.set(volume, node, w)
}

func (t *taken) set(volume, node string, w way) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ways == nil {
		t.ways = map[string]map[string]way{}
	}
	if t.ways[volume] == nil {
		t.ways[volume] = map[string]way{}
	}
	t.ways[volume][node] = w
}

// to says what is remembered of the volume's way to the node.
func (t *taken) to(volume, node string) (way, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	w, known := t.ways[volume][node]
	return w, known
}

// arrived: the volume is on its way to the node no more.
func (t *taken) arrived(volume, node string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.ways[volume], node)
	if len(t.ways[volume]) == 0 {
		delete(t.ways, volume)
	}
}

// drop what is remembered of the volume, on all nodes.
func (t *taken) drop(volume string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.ways, volume)
}

// dropUnwanted volumes. Their claims may be given up, too.
func (t *taken) dropUnwanted(f *Facts) {
	for _, n := range f.Nodes {
		if len(n.Wanted) > 0 {
			return
		}
	}
	t.drop(f.Volume)
}

// undoes says whether the act may undo what is remembered, as all may that are not on the way in. Where one of these takes the claim
// away from another node, takeForGood drops it.
func undoes(a Act) bool {
	switch a {
	case Attach, Hold, Confirm, List, Look, Release:
		return false
	}
	return true
}

// takeForGood takes the claim and remembers that it did. For one that names the node already, as the cache shows it, nobody is
// asked, so there is no answer to be remembered.
func (c *Controller) takeForGood(ctx context.Context, f *Facts, n *Node) (bool, error) {
	since, asks := n.Spec, f.Exclusive && f.Claim != (handshake.Claim{Exists: true, Holder: n.Name})
	if asks {
		c.taken.drop(f.Volume)
	}
	is, err := c.takeClaim(ctx, f, n)
	if asks && is && err == nil {
		c.taken.claimed(f.Volume, n.Name, since)
	}
	return is, err
}

// stillTaken is what is remembered of the volume's way to the node, if it still holds at the state that is decided on. Each decision
// asks anew: a pass that was given up may have left one behind that is made while a later pass moves the claim.
func (c *Controller) stillTaken(f *Facts, node string, at *volumesv1alpha1.NodeVolumeState) way {
	if w, known := c.taken.to(f.Volume, node); known && c.Writer.Unbroken(at, w.since) {
		return w
	}
	return way{}
}

// knownAttachment is a copy of the attachment as the watch shows it, if it is the one that was created, attached, held and not
// terminating; otherwise nil.
func (c *Controller) knownAttachment(ctx context.Context, name string, uid types.UID) *storagev1.VolumeAttachment {
	va := &storagev1.VolumeAttachment{}
	if uid == "" || c.Client.Get(ctx, client.ObjectKey{Name: name}, va) != nil {
		return nil
	}
	if va.UID != uid || !va.Status.Attached || !va.DeletionTimestamp.IsZero() || !isHeld(va) {
		return nil
	}
	return va.DeepCopy()
}
