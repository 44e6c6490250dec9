/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

// Package capacity keeps this process within the number of a driver's volumes that a node can take.
package capacity

import (
	"context"
	"slices"
	"sync"

	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/hawser-io/hawser/internal/controller/attachment/decision"
	"github.com/hawser-io/hawser/internal/handshake"
)

// driverOnNode is what a limit counts: one driver's attachments to one node.
type driverOnNode struct{ node, driver string }

// waitingVolume is a volume that found no capacity. The order is that of the intents that want it.
type waitingVolume struct {
	volume string
	since  metav1.Time
	intent string
}

func (w waitingVolume) before(v waitingVolume) bool {
	if !w.since.Equal(&v.since) {
		return w.since.Before(&v.since)
	}
	if w.intent != v.intent {
		return w.intent < v.intent
	}
	return w.volume < v.volume
}

// Limits keeps this process within the nodes' limits. The attachments that count are read from the cache under mu;
// those that the cache does not show yet are reserved. A restart begins anew: by the time it acts its cache shows
// what was created.
type Limits struct {
	mu sync.Mutex
	// reserved attachments by name, each with its UID once it is known.
	reserved map[driverOnNode]map[string]types.UID
	waiting  map[driverOnNode][]waitingVolume
	// at is where each volume may wait or have a reservation, with the name of the attachment.
	at map[string]map[driverOnNode]string
	// wake queues a volume.
	wake func(volumeName string)
}

// Start takes the queue over in which woken volumes are put.
func (l *Limits) Start(_ context.Context, q workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.wake = func(name string) { q.Add(reconcile.Request{NamespacedName: client.ObjectKey{Name: name}}) }
	return nil
}

// wakeFirst queues the volume that has waited for longest. Once reconciled it is attached or waits no more, and the
// next is queued; or there is no capacity, and it stays the first. mu is held.
func (l *Limits) wakeFirst(s driverOnNode) {
	if waiting := l.waiting[s]; len(waiting) > 0 && l.wake != nil {
		l.wake(waiting[0].volume)
	}
}

// AttachmentChanged ends the reservation of an attachment that the cache shows, and queues the next volume if one is
// gone.
func (l *Limits) AttachmentChanged(before, after client.Object) {
	was, _ := before.(*storagev1.VolumeAttachment)
	is, _ := after.(*storagev1.VolumeAttachment)
	va := is
	if va == nil {
		va = was
	}
	s := driverOnNode{va.Spec.NodeName, va.Spec.Attacher}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.reserved[s][va.Name] == va.UID {
		delete(l.reserved[s], va.Name)
	}
	if !handshake.AttachmentFrom(was).Gone() && handshake.AttachmentFrom(is).Gone() {
		l.wakeFirst(s)
	}
}

// NodeChanged queues the volumes that wait for a node whose limit may have grown. An event of its own queues the
// others.
func (l *Limits) NodeChanged(node string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for s := range l.waiting {
		if s.node == node {
			l.wakeFirst(s)
		}
	}
}

// Counter counts a node's volumes by the cache, within the limits.
type Counter struct {
	Client client.Client
	Limits *Limits
}

// check counts for an attachment of that name, and lines w up where there is no room. present are the attachments
// that the cache shows. mu is held.
func (l *Limits) check(
	s driverOnNode, limit int, present map[string]bool, name string, w waitingVolume,
) decision.Limit {
	for reserved := range l.reserved[s] {
		if present[reserved] {
			delete(l.reserved[s], reserved)
		}
	}
	if _, mine := l.reserved[s][name]; mine || present[name] {
		return decision.Limit{}
	}
	l.note(w.volume, s, name)
	found := decision.Limit{Known: true, Max: limit, Used: len(present) + len(l.reserved[s])}
	for _, v := range l.waiting[s] {
		if v.volume != w.volume && v.before(w) {
			found.Ahead++
		}
	}
	if found.Reached() {
		l.enqueue(s, w)
	}
	return found
}

func (l *Limits) enqueue(s driverOnNode, w waitingVolume) {
	l.dequeue(s, w.volume)
	at := slices.IndexFunc(l.waiting[s], w.before)
	if at < 0 {
		at = len(l.waiting[s])
	}
	l.waiting[s] = slices.Insert(l.waiting[s], at, w)
}

// dequeue removes a volume from those that wait, and reports whether it was among them.
func (l *Limits) dequeue(s driverOnNode, volumeName string) bool {
	at := slices.IndexFunc(l.waiting[s], func(v waitingVolume) bool { return v.volume == volumeName })
	if at < 0 {
		return false
	}
	l.waiting[s] = slices.Delete(l.waiting[s], at, at+1)
	return true
}

func (l *Limits) note(volumeName string, s driverOnNode, name string) {
	if l.at == nil {
		l.reserved, l.waiting, l.at = map[driverOnNode]map[string]types.UID{}, map[driverOnNode][]waitingVolume{},
			map[string]map[driverOnNode]string{}
	}
	if l.at[volumeName] == nil {
		l.at[volumeName] = map[driverOnNode]string{}
	}
	l.at[volumeName][s] = name
}

// reserve capacity for an attachment that is about to be created. mu is held.
func (l *Limits) reserve(s driverOnNode, name, volumeName string) {
	if l.reserved[s] == nil {
		l.reserved[s] = map[string]types.UID{}
	}
	l.reserved[s][name] = ""
	if l.dequeue(s, volumeName) {
		l.wakeFirst(s)
	}
}

// created records the attachment of a reservation, if that still exists. mu is held.
func (l *Limits) created(s driverOnNode, name string, uid types.UID) {
	if _, reserved := l.reserved[s][name]; reserved {
		l.reserved[s][name] = uid
	}
}

// release cancels a reservation. mu is held.
func (l *Limits) release(s driverOnNode, name string) {
	if _, reserved := l.reserved[s][name]; reserved {
		delete(l.reserved[s], name)
		l.wakeFirst(s)
	}
}

// EndPass ends a pass over a volume: where it found room and did not take it, or is not wanted any more, others come
// first; and what was reserved for an attachment that is not there is given back.
func (l *Limits) EndPass(f *decision.Facts) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for s, name := range l.at[f.Volume] {
		var n *decision.Node
		if at := slices.IndexFunc(f.Nodes, func(n *decision.Node) bool { return n.Name == s.node }); at >= 0 &&
			f.Driver == s.driver {
			n = f.Nodes[at]
		}
		l.settleNode(f, n, s, name)
	}
	if len(l.at[f.Volume]) == 0 {
		delete(l.at, f.Volume)
	}
}

// settleNode: n is nil where the volume has nothing to do with the node any more.
func (l *Limits) settleNode(f *decision.Facts, n *decision.Node, s driverOnNode, name string) {
	waits := n != nil && n.Limit.Reached()
	if !waits && l.dequeue(s, f.Volume) {
		l.wakeFirst(s)
	}
	// While an act of this pass has failed, the attachment may yet appear.
	_, reserved := l.reserved[s][name]
	if reserved = reserved && n != nil && (n.Wait != nil || n.AttachmentNamed(name) != nil); !reserved {
		l.release(s, name)
	}
	if !waits && !reserved {
		delete(l.at[f.Volume], s)
	}
	if len(l.waiting[s]) == 0 {
		delete(l.waiting, s)
	}
	if len(l.reserved[s]) == 0 {
		delete(l.reserved, s)
	}
}
