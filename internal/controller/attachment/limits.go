/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package attachment

import (
	"context"
	"fmt"
	"slices"
	"sync"

	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/hawser-io/hawser/internal/handshake"
)

// Limit is how many volumes of a driver a node can have, as its CSINode says, and how many it has.
type Limit struct {
	// Known: there is a limit, and the volume would count against it.
	Known bool
	Max   int
	// Used counts the attachments to the node that are not gone, whoever made them, and those that are about to be made.
	Used int
	// Ahead are the volumes that have waited for longer.
	Ahead int
}

func (l Limit) reached() bool { return l.Known && l.Used+l.Ahead >= l.Max }

// message counts those ahead as there: there is room for them and they are on their way.
func (l Limit) message(node, driver string) string {
	return fmt.Sprintf("node %s has %d of %d volumes of driver %s", node, max(l.Used, l.Max), l.Max, driver)
}

// slots is what a limit counts: one driver's attachments to one node.
type slots struct{ node, driver string }

// waiter is a volume that found no room. The order is that of the intents that want it.
type waiter struct {
	volume string
	since  metav1.Time
	intent string
}

func (w waiter) before(v waiter) bool {
	if !w.since.Equal(&v.since) {
		return w.since.Before(&v.since)
	}
	if w.intent != v.intent {
		return w.intent < v.intent
	}
	return w.volume < v.volume
}

// limits keeps this process within the nodes' limits. The attachments that count are read from the cache under mu; those that
// the cache does not show yet are reserved. A restart begins anew: by the time it acts its cache shows what was created.
type limits struct {
	mu sync.Mutex
	// reserved attachments by name, each with its UID once it is known.
	reserved map[slots]map[string]types.UID
	waiting  map[slots][]waiter
	// at says for each volume where it may wait or have something reserved, for an attachment of which name.
	at map[string]map[slots]string
	// wake makes the controller look at a volume.
	wake func(volumeName string)
}

// start takes the queue over in which woken volumes are put.
func (l *limits) start(_ context.Context, q workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.wake = func(name string) { q.Add(reconcile.Request{NamespacedName: client.ObjectKey{Name: name}}) }
	return nil
}

// wakeFirst wakes who has waited for longest. Once it has been looked at it is at work or waits no more, and the next is woken;
// or there is no room, and it stays the first. mu is held.
func (l *limits) wakeFirst(s slots) {
	if waiting := l.waiting[s]; len(waiting) > 0 && l.wake != nil {
		l.wake(waiting[0].volume)
	}
}

// changed ends the reservation of an attachment that the cache shows, and wakes who waits for the room of one that is gone.
func (l *limits) changed(before, after client.Object) {
	was, _ := before.(*storagev1.VolumeAttachment)
	is, _ := after.(*storagev1.VolumeAttachment)
	va := is
	if va == nil {
		va = was
	}
	s := slots{va.Spec.NodeName, va.Spec.Attacher}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.reserved[s][va.Name] == va.UID {
		delete(l.reserved[s], va.Name)
	}
	if !handshake.AttachmentFrom(was).Gone() && handshake.AttachmentFrom(is).Gone() {
		l.wakeFirst(s)
	}
}

// nodeChanged wakes who waits for room on a node that may have more of it now. Others who want something there are woken anyway.
func (l *limits) nodeChanged(node string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for s := range l.waiting {
		if s.node == node {
			l.wakeFirst(s)
		}
	}
}

// gate counts a node's volumes by the cache, within the limits.
type gate struct {
	client client.Client
	limits *limits
}

// look counts for an attachment of that name, and lines w up where there is no room. present are the attachments that the cache
// shows. mu is held.
func (l *limits) look(s slots, limit int, present map[string]bool, name string, w waiter) Limit {
	for reserved := range l.reserved[s] {
		if present[reserved] {
			delete(l.reserved[s], reserved)
		}
	}
	if _, mine := l.reserved[s][name]; mine || present[name] {
		return Limit{}
	}
	l.note(w.volume, s, name)
	found := Limit{Known: true, Max: limit, Used: len(present) + len(l.reserved[s])}
	for _, v := range l.waiting[s] {
		if v.volume != w.volume && v.before(w) {
			found.Ahead++
		}
	}
	if found.reached() {
		l.lineUp(s, w)
	}
	return found
}

func (l *limits) lineUp(s slots, w waiter) {
	l.leave(s, w.volume)
	at := slices.IndexFunc(l.waiting[s], w.before)
	if at < 0 {
		at = len(l.waiting[s])
	}
	l.waiting[s] = slices.Insert(l.waiting[s], at, w)
}

// leave takes a volume out of the line and says whether it stood there.
func (l *limits) leave(s slots, volumeName string) bool {
	at := slices.IndexFunc(l.waiting[s], func(v waiter) bool { return v.volume == volumeName })
	if at < 0 {
		return false
	}
	l.waiting[s] = slices.Delete(l.waiting[s], at, at+1)
	return true
}

func (l *limits) note(volumeName string, s slots, name string) {
	if l.at == nil {
		l.reserved, l.waiting, l.at = map[slots]map[string]types.UID{}, map[slots][]waiter{}, map[string]map[slots]string{}
	}
	if l.at[volumeName] == nil {
		l.at[volumeName] = map[slots]string{}
	}
	l.at[volumeName][s] = name
}

// reserve room for an attachment that is about to be created. mu is held.
func (l *limits) reserve(s slots, name, volumeName string) {
	if l.reserved[s] == nil {
		l.reserved[s] = map[string]types.UID{}
	}
	l.reserved[s][name] = ""
	if l.leave(s, volumeName) {
		l.wakeFirst(s)
	}
}

// created says which attachment has come of a reservation, if that still stands. mu is held.
func (l *limits) created(s slots, name string, uid types.UID) {
	if _, reserved := l.reserved[s][name]; reserved {
		l.reserved[s][name] = uid
	}
}

// release gives room back that was reserved. mu is held.
func (l *limits) release(s slots, name string) {
	if _, reserved := l.reserved[s][name]; reserved {
		delete(l.reserved[s], name)
		l.wakeFirst(s)
	}
}

// settle ends a pass over a volume: where it found room and did not take it, or is not wanted any more, others come first; and what
// was reserved for an attachment that is not there is given back.
func (l *limits) settle(f *Facts) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for s, name := range l.at[f.Volume] {
		var n *Node
		if at := slices.IndexFunc(f.Nodes, func(n *Node) bool { return n.Name == s.node }); at >= 0 && f.Driver == s.driver {
			n = f.Nodes[at]
		}
		l.settleNode(f, n, s, name)
	}
	if len(l.at[f.Volume]) == 0 {
		delete(l.at, f.Volume)
	}
}

// settleNode: n is nil where the volume has nothing to do with the node any more.
func (l *limits) settleNode(f *Facts, n *Node, s slots, name string) {
	waits := n != nil && n.Limit.reached()
	if !waits && l.leave(s, f.Volume) {
		l.wakeFirst(s)
	}
	// While an act of this pass has failed, the attachment may yet appear.
	_, reserved := l.reserved[s][name]
	if reserved = reserved && n != nil && (n.Wait != nil || n.named(name) != nil); !reserved {
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
