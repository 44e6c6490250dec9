/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package exclusive

import (
	"maps"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
)

// newest remembers the newest version of each ConfigMap that was read, and which writes were ours. The zero value is
// ready to use.
type newest struct {
	mu   sync.Mutex
	last map[string]*corev1.ConfigMap
	// own writes that the watch has not shown yet, by the UID of the ConfigMap.
	own map[types.UID]map[int64]bool
}

// get returns the newest version that is remembered; nil when there is none.
func (n *newest) get(name string) *corev1.ConfigMap {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.last[name]
}

// of returns what was written last if the cache, which has cached, is behind it, and cached otherwise.
func (n *newest) of(cached *corev1.ConfigMap) (*corev1.ConfigMap, table, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	object := cached
	if last := n.last[cached.Name]; last != nil && last.UID == cached.UID {
		if order, err := resourceversion.CompareResourceVersion(last.ResourceVersion,
			cached.ResourceVersion); err == nil && order >= 0 {
			object = last
		}
	}
	t, err := parse(object)
	if err != nil {
		return nil, t, err
	}
	n.keep(object)
	return object, t, nil
}

// wrote takes note of a write of ours.
func (n *newest) wrote(object *corev1.ConfigMap, t table) {
	n.mu.Lock()
	defer n.mu.Unlock()
	object.ManagedFields = nil
	n.keep(object)
	if n.own == nil {
		n.own = map[types.UID]map[int64]bool{}
	}
	if n.own[object.UID] == nil {
		n.own[object.UID] = map[int64]bool{}
	}
	n.own[object.UID][t.Writes] = true
}

func (n *newest) keep(object *corev1.ConfigMap) {
	if n.last == nil {
		n.last = map[string]*corev1.ConfigMap{}
	}
	n.last[object.Name] = object
}

// Changed names the volumes whose locks another process has changed, given both versions that the watch shows; one
// of the two may be nil. A caller that changes a lock here continues by itself.
func (s *Store) Changed(before, after *corev1.ConfigMap) ([]string, error) {
	old, err := parse(before)
	if err != nil {
		return nil, err
	}
	t, err := parse(after)
	if err != nil {
		return nil, err
	}
	var own map[int64]bool
	if after != nil {
		own = s.newest.told(after.UID, t.Writes)
	} else {
		s.newest.forget(before)
	}
	var changed []string
	for name := range old.Locks {
		if _, there := t.Locks[name]; !there {
			changed = append(changed, name)
		}
	}
	for name, lock := range t.Locks {
		if lock != old.Locks[name] && !own[lock.Write] {
			changed = append(changed, name)
		}
	}
	slices.Sort(changed)
	return changed, nil
}

// told returns which writes were ours, and forgets those up to the one that the watch shows.
func (n *newest) told(uid types.UID, writes int64) map[int64]bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	own := maps.Clone(n.own[uid])
	maps.DeleteFunc(n.own[uid], func(write int64, _ bool) bool { return write <= writes })
	return own
}

// forget a ConfigMap that is gone.
func (n *newest) forget(object *corev1.ConfigMap) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.own, object.UID)
	if last := n.last[object.Name]; last != nil && last.UID == object.UID {
		delete(n.last, object.Name)
	}
}
