/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package manager

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

// mountChecker knows the real state, whatever is reported: where the driver has published exclusive volumes, and which
// nodes have mounted them. It checks each change when it happens.
type mountChecker struct {
	mu sync.Mutex
	// volumes that are checked, by name of their PersistentVolume.
	volumes map[string]string
	// published attachments.
	published map[place]types.UID
	// mounted has the users by place: the node's agent, its kubelet.
	mounted map[place][]string
	// broken are the rules that were broken.
	broken []string
	// changed is closed with the next change.
	changed chan struct{}
}

func newMountChecker() *mountChecker {
	return &mountChecker{volumes: map[string]string{}, published: map[place]types.UID{}, mounted: map[place][]string{},
		changed: make(chan struct{})}
}

// change changes the state and wakes what waits for it.
func (w *mountChecker) change(change func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	change()
	close(w.changed)
	w.changed = make(chan struct{})
}

func (w *mountChecker) violation(format string, args ...any) {
	w.broken = append(w.broken, fmt.Sprintf(format, args...))
}

// driver is called by the attacher with each attachment that it publishes or unpublishes.
func (w *mountChecker) driver(va *storagev1.VolumeAttachment, publish bool) {
	w.change(func() {
		volume, ours := w.volumes[*va.Spec.Source.PersistentVolumeName]
		p := place{volume, va.Spec.NodeName}
		switch {
		case !ours:
		case publish:
			w.published[p] = va.UID
		default:
			if by := w.mounted[p]; len(by) > 0 {
				w.violation("%s is detached from %s while mounted by %q", volume, p.node, by)
			}
			delete(w.published, p)
		}
	})
}

// mount is what an agent or a kubelet does with a volume that it may use; uid is empty where it knows none.
func (w *mountChecker) mount(p place, by string, uid types.UID) {
	w.change(func() {
		if at, ok := w.published[p]; !ok || uid != "" && at != uid {
			w.violation("%s mounts %s on %s for attachment %q, while %q is published there", by, p.volume, p.node, uid, at)
		}
		for other, users := range w.mounted {
			if other.volume == p.volume && other.node != p.node && len(users) > 0 {
				w.violation("%s mounts %s on %s, while %q have it mounted on %s", by, p.volume, p.node, users, other.node)
			}
		}
		if !slices.Contains(w.mounted[p], by) {
			w.mounted[p] = append(w.mounted[p], by)
		}
	})
}

func (w *mountChecker) unmount(p place, by string) {
	w.change(func() { w.mounted[p] = slices.DeleteFunc(w.mounted[p], func(user string) bool { return user == by }) })
}

// mountedBy names what is mounted on a node.
func (w *mountChecker) mountedBy(node, by string) map[string]bool {
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

// isMounted reports whether agent or kubelet have the volume mounted there.
func (w *mountChecker) isMounted(p place) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.mounted[p]) > 0
}

// violations so far.
func (w *mountChecker) violations() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.broken)
}

// await returns when ok; when the context ends, an error with the state.
func (w *mountChecker) await(ctx context.Context, what string, ok func() bool) error {
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
