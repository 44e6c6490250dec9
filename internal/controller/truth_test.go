/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package controller_test

import (
	"context"
	"fmt"
	"slices"
	"sync"

	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"
)

// place is one volume on one node.
type place struct{ volume, node string }

// truth is what really is, whatever is reported of it: where the driver has published exclusive volumes, and which
// nodes have mounted them. It judges each change at the moment at which it happens.
type truth struct {
	mu sync.Mutex
	// volumes that it is about, by name of their PersistentVolume.
	volumes map[string]string
	// published attachments.
	published map[place]types.UID
	// mounted by whom: the node's agent, its kubelet.
	mounted map[place][]string
	// found are the rules that were broken.
	found []string
	// changed is closed with the next change.
	changed chan struct{}
}

func newTruth() *truth {
	return &truth{volumes: map[string]string{}, published: map[place]types.UID{}, mounted: map[place][]string{}, changed: make(chan struct{})}
}

// act changes what is and wakes what waits.
func (w *truth) act(change func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	change()
	close(w.changed)
	w.changed = make(chan struct{})
}

func (w *truth) blame(format string, args ...any) {
	w.found = append(w.found, fmt.Sprintf(format, args...))
}

// driver is called by the attacher with each attachment that it publishes or unpublishes.
func (w *truth) driver(va *storagev1.VolumeAttachment, publish bool) {
	w.act(func() {
		volume, ours := w.volumes[*va.Spec.Source.PersistentVolumeName]
		p := place{volume, va.Spec.NodeName}
		switch {
		case !ours:
		case publish:
			w.published[p] = va.UID
		default:
			if by := w.mounted[p]; len(by) > 0 {
				w.blame("%s is detached from %s while mounted by %q", volume, p.node, by)
			}
			delete(w.published, p)
		}
	})
}

// mount is what an agent or a kubelet does with a volume that it may use; uid is empty where it knows none.
func (w *truth) mount(p place, by string, uid types.UID) {
	w.act(func() {
		if at, ok := w.published[p]; !ok || uid != "" && at != uid {
			w.blame("%s mounts %s on %s for attachment %q, while %q is published there", by, p.volume, p.node, uid, at)
		}
		for other, users := range w.mounted {
			if other.volume == p.volume && other.node != p.node && len(users) > 0 {
				w.blame("%s mounts %s on %s, while %q have it mounted on %s", by, p.volume, p.node, users, other.node)
			}
		}
		if !slices.Contains(w.mounted[p], by) {
			w.mounted[p] = append(w.mounted[p], by)
		}
	})
}

func (w *truth) unmount(p place, by string) {
	w.act(func() { w.mounted[p] = slices.DeleteFunc(w.mounted[p], func(user string) bool { return user == by }) })
}

// mountedBy names what is mounted on a node.
func (w *truth) mountedBy(node, by string) map[string]bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	volumes := map[string]bool{}
	for p, users := range w.mounted {
		if p.node == node && slices.Contains(users, by) {
			volumes[p.volume] = true
		}
	}
	return volumes
}

// isMounted reports whether anybody has the volume mounted there.
func (w *truth) isMounted(p place) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.mounted[p]) > 0
}

// violations so far.
func (w *truth) violations() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.found)
}

// await returns when ok, or an error with what is when the context ends.
func (w *truth) await(ctx context.Context, what string, ok func() bool) error {
	for {
		w.mu.Lock()
		changed := w.changed
		w.mu.Unlock()
		if ok() {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			w.mu.Lock()
			defer w.mu.Unlock()
			return fmt.Errorf("waiting until %s: %w; published %v, mounted %v", what, ctx.Err(), w.published, w.mounted)
		}
	}
}
