/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package capacity

import (
	"context"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/attachment/decision"
)

// Uses counts the pinned intents of each namespace on each node, by the events of the cache. To list them in each pass
// would cost more the more there are. The zero value counts none.
type Uses struct {
	mu     sync.Mutex
	pinned map[namespaceOnNode]map[types.UID]bool
	// waiting are the volumes of which an intent waits for the end of another one of the namespace, or has found room
	// after that and is not pinned yet.
	waiting map[namespaceOnNode]map[string]waitingVolume
	// wake queues a volume.
	wake func(volumeName string)
}

type namespaceOnNode struct{ node, namespace string }

// Start takes the queue over in which woken volumes are put.
func (u *Uses) Start(_ context.Context, q workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.wake = func(name string) { q.Add(reconcile.Request{NamespacedName: client.ObjectKey{Name: name}}) }
	return nil
}

// IntentChanged counts the intent, and wakes a volume where one is gone; after is nil for that. An intent of another
// UID is another one, of the same name.
func (u *Uses) IntentChanged(before, after *volumesv1alpha1.VolumeAttachmentIntent) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if after != nil && counts(after) {
		u.count(after)
	}
	if before == nil || after != nil && after.UID == before.UID {
		return
	}
	s := placeOf(before)
	delete(u.pinned[s], before.UID)
	if len(u.pinned[s]) == 0 {
		delete(u.pinned, s)
	}
	u.wakeFirst(s)
}

// count has mu held.
func (u *Uses) count(i *volumesv1alpha1.VolumeAttachmentIntent) {
	if u.pinned == nil {
		u.pinned = map[namespaceOnNode]map[types.UID]bool{}
	}
	s := placeOf(i)
	if u.pinned[s] == nil {
		u.pinned[s] = map[types.UID]bool{}
	}
	u.pinned[s][i.UID] = true
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

// EndPass notes for which namespaces the volume waits. Where it does so no more others come first, and what has failed
// waits for nothing: its facts have no nodes.
func (u *Uses) EndPass(f *decision.Facts) {
	u.mu.Lock()
	defer u.mu.Unlock()
	waited := u.dequeue(f.Volume)
	for _, n := range f.Nodes {
		for namespace, i := range n.WaitingNamespaces() {
			s := namespaceOnNode{n.Name, namespace}
			u.enqueue(s, waitingVolume{volume: f.Volume, since: i.Object.CreationTimestamp, intent: i.Name()})
			if len(u.pinned[s]) < n.NamespaceUses[namespace] {
				u.wakeFirst(s) // a use has ended since the facts were gathered
			}
		}
		for _, i := range n.Admitted() {
			s := namespaceOnNode{n.Name, i.Object.Namespace}
			if w, has := waited[s]; has && !u.pinned[s][i.Object.UID] {
				u.enqueue(s, w) // the room that it has found is not counted yet
			}
		}
	}
	for s := range waited {
		if _, waits := u.waiting[s][f.Volume]; !waits {
			u.wakeFirst(s)
		}
	}
}

// dequeue removes the volume from those that wait, and returns where it did. mu is held.
func (u *Uses) dequeue(volume string) map[namespaceOnNode]waitingVolume {
	waited := map[namespaceOnNode]waitingVolume{}
	for s := range u.waiting { // few namespaces are at their limit
		if w, waits := u.waiting[s][volume]; waits {
			waited[s] = w
		}
		if delete(u.waiting[s], volume); len(u.waiting[s]) == 0 {
			delete(u.waiting, s)
		}
	}
	return waited
}

// enqueue has mu held.
func (u *Uses) enqueue(s namespaceOnNode, w waitingVolume) {
	if u.waiting == nil {
		u.waiting = map[namespaceOnNode]map[string]waitingVolume{}
	}
	if u.waiting[s] == nil {
		u.waiting[s] = map[string]waitingVolume{}
	}
	u.waiting[s][w.volume] = w
}

// wakeFirst queues the volume whose intent has waited for longest, if there is room. Once reconciled it waits no more
// and the next is queued, or it stays the first. mu is held.
func (u *Uses) wakeFirst(s namespaceOnNode) {
	if len(u.waiting[s]) == 0 || len(u.pinned[s]) >= volumesv1alpha1.MaxNamespaceUses || u.wake == nil {
		return
	}
	var first *waitingVolume
	for _, w := range u.waiting[s] {
		if first == nil || w.before(*first) {
			first = &w
		}
	}
	u.wake(first.volume)
}
