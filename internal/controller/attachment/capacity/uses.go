/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package capacity

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/attachment/decision"
)

// Uses counts the pinned intents of each namespace on each node, by the events of the cache. To list them in each pass
// would cost more the more there are. The zero value counts none.
type Uses struct {
	mu     sync.Mutex
	pinned map[namespaceOnNode]map[types.UID]bool
	// waiting are the volumes of which an intent waits for the end of another one of the namespace.
	waiting map[namespaceOnNode]map[string]bool
}

type namespaceOnNode struct{ node, namespace string }

// IntentChanged counts the intent; after is nil for one that is gone. It returns a volume that may have room now, or
// none.
func (u *Uses) IntentChanged(before, after *volumesv1alpha1.VolumeAttachmentIntent) (volume string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if after != nil {
		if s := placeOf(after); counts(after) {
			if u.pinned == nil {
				u.pinned = map[namespaceOnNode]map[types.UID]bool{}
			}
			if u.pinned[s] == nil {
				u.pinned[s] = map[types.UID]bool{}
			}
			u.pinned[s][after.UID] = true
		}
		return ""
	}
	s := placeOf(before)
	delete(u.pinned[s], before.UID)
	if len(u.pinned[s]) == 0 {
		delete(u.pinned, s)
	}
	for volume = range u.waiting[s] {
		u.setWaiting(s, volume, false)
		break
	}
	return volume
}

func counts(i *volumesv1alpha1.VolumeAttachmentIntent) bool {
	return i.Status.UniqueVolumeName != "" && i.Spec.Publisher != volumesv1alpha1.PublisherKubelet
}

func placeOf(i *volumesv1alpha1.VolumeAttachmentIntent) namespaceOnNode {
	return namespaceOnNode{i.Spec.NodeName, i.Namespace}
}

// Gather puts the counts of the namespaces that want the volume on the node into the facts.
func (u *Uses) Gather(n *decision.Node) {
	u.mu.Lock()
	defer u.mu.Unlock()
	n.NamespaceUses = map[string]int{}
	for _, i := range n.Wanted {
		namespace := i.Object.Namespace
		n.NamespaceUses[namespace] = len(u.pinned[namespaceOnNode{n.Name, namespace}])
	}
}

// EndPass notes for which namespaces the volume waits.
func (u *Uses) EndPass(f *decision.Facts) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, n := range f.Nodes {
		waiting := n.WaitingNamespaces()
		for namespace := range n.NamespaceUses {
			u.setWaiting(namespaceOnNode{n.Name, namespace}, f.Volume, waiting[namespace])
		}
	}
}

// setWaiting has mu held.
func (u *Uses) setWaiting(s namespaceOnNode, volume string, waits bool) {
	switch {
	case !waits:
		if delete(u.waiting[s], volume); len(u.waiting[s]) == 0 {
			delete(u.waiting, s)
		}
		return
	case u.waiting == nil:
		u.waiting = map[namespaceOnNode]map[string]bool{}
	}
	if u.waiting[s] == nil {
		u.waiting[s] = map[string]bool{}
	}
	u.waiting[s][volume] = true
}
