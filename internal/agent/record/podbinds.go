/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package record

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/mount"
)

// ErrUnpublishing: the intent's publication is being undone, so no pod may bind it.
var ErrUnpublishing = errors.New("the publication is being undone")

// PodBinds are the pod binds of the node, in memory and on the disk. They decide between a pod that comes and a
// publication that goes: a pod bind is added before its mount is made, and a publication is undone only while no pod
// bind can be added to it.
type PodBinds struct {
	store PodBindStore
	// DirectoriesChanged is called when a pod has the first directory, and when none has one any more. Nil is allowed.
	DirectoriesChanged func()

	mu sync.Mutex
	// binds by target.
	binds map[string]PodBind
	// undone counts how many callers undo a publication now.
	undone map[publication]int
}

// publication is one published path. An intent that was created again under its name keeps the path and the pods of the
// earlier one.
type publication struct{ volume, namespace, name string }

func (b PodBind) publication() publication {
	return publication{b.VolumeName, b.Intent.Namespace, b.Intent.Name}
}

// Shows reports whether the bind is one of the intent's publication of the volume.
func (b PodBind) Shows(volume string, intent volumesv1alpha1.IntentReference) bool {
	return b.publication() == publication{volume, intent.Namespace, intent.Name}
}

// NewPodBinds returns binds of which none is known yet.
func NewPodBinds(store PodBindStore) *PodBinds {
	return &PodBinds{store: store, binds: map[string]PodBind{}, undone: map[publication]int{}}
}

// Recover loads what earlier processes have left. A bind of which nothing is mounted at its target was not made, or was
// undone: its record is removed. One with a place in a directory that is there is kept, because a process of the pod
// may have a copy of the mount. It returns the records that hold no bind, which are removed too.
func (p *PodBinds) Recover(table *mount.Table) ([]Broken, error) {
	binds, broken, err := p.store.Load()
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, b := range binds {
		if len(table.All(b.Target)) > 0 || b.HasPlace() && len(table.All(b.Directory)) > 0 {
			p.binds[b.Target] = b
		} else if err := p.store.Remove(b.Target); err != nil {
			return nil, err
		}
	}
	for _, b := range broken {
		if err := p.store.removeFile(b.Name); err != nil {
			return nil, err
		}
	}
	return broken, nil
}

// Get returns the bind at the target.
func (p *PodBinds) Get(target string) (PodBind, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	b, ok := p.binds[target]
	return b, ok
}

// ErrOtherPod: another pod has the volume, which allows a single one.
var ErrOtherPod = errors.New("another pod has the volume")

// ErrTooManyPlaces: the directories of the pod's namespace have as many volumes on this node as it takes. Each is a
// mount, and all namespaces share the number of mounts that the kernel allows.
var ErrTooManyPlaces = fmt.Errorf("the node shows at most %d volumes in the directories of one namespace, and does so",
	volumesv1alpha1.MaxNamespacePlaces)

// Add adds the bind, and returns once it is on the disk. It is ErrUnpublishing while the publication is undone,
// ErrOtherPod if the volume allows a single pod and another one has it, and ErrTooManyPlaces.
func (p *PodBinds) Add(b PodBind, single bool) error {
	var before PodBind
	var had bool
	var err error
	p.change(func() { before, had, err = p.reserve(b, single) })
	if err != nil {
		return err
	}
	if err = p.store.Save(b); err == nil {
		return nil
	}
	p.change(func() {
		if delete(p.binds, b.Target); had {
			p.binds[b.Target] = before
		}
	})
	return err
}

// reserve adds the bind in memory, and returns the one that it replaces. The caller holds the lock.
func (p *PodBinds) reserve(b PodBind, single bool) (before PodBind, had bool, err error) {
	if p.undone[b.publication()] > 0 {
		return before, false, ErrUnpublishing
	}
	places := 0
	for other := range maps.Values(p.binds) {
		if single && other.VolumeName == b.VolumeName && other.Pod.UID != b.Pod.UID {
			return before, false, ErrOtherPod
		}
		if other.HasPlace() && other.Pod.Namespace == b.Pod.Namespace {
			places++
		}
	}
	before, had = p.binds[b.Target]
	if b.HasPlace() && !had && places >= volumesv1alpha1.MaxNamespacePlaces {
		return before, false, ErrTooManyPlaces
	}
	p.binds[b.Target] = b
	return before, had, nil
}

// Remove removes the bind at the target. The disk comes first: what it names counts as used.
func (p *PodBinds) Remove(target string) error {
	if err := p.store.Remove(target); err != nil {
		return err
	}
	p.change(func() { delete(p.binds, target) })
	return nil
}

// OfVolume lists the binds of the volume in the order of their targets.
func (p *PodBinds) OfVolume(name string) []PodBind {
	return p.all(func(b PodBind) bool { return b.VolumeName == name })
}

// change what is in memory, and call DirectoriesChanged where it has to be.
func (p *PodBinds) change(change func()) {
	p.mu.Lock()
	before := p.countDirectories()
	change()
	after := p.countDirectories()
	p.mu.Unlock()
	if (before == 0) != (after == 0) && p.DirectoriesChanged != nil {
		p.DirectoriesChanged()
	}
}

// CountDirectories counts the directories of pods.
func (p *PodBinds) CountDirectories() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.countDirectories()
}

func (p *PodBinds) countDirectories() int {
	n := 0
	for b := range maps.Values(p.binds) {
		if b.IsDirectory() {
			n++
		}
	}
	return n
}

// Directories lists the directories of pods in the namespace, in the order of their targets.
func (p *PodBinds) Directories(namespace string) []PodBind {
	return p.all(func(b PodBind) bool { return b.IsDirectory() && b.Pod.Namespace == namespace })
}

// InDirectory lists the binds that have their place in the directory, in the order of their targets.
func (p *PodBinds) InDirectory(target string) []PodBind {
	return p.all(func(b PodBind) bool { return b.HasPlace() && b.Directory == target })
}

// All lists every bind in the order of the targets.
func (p *PodBinds) All() []PodBind { return p.all(func(PodBind) bool { return true }) }

func (p *PodBinds) all(with func(PodBind) bool) []PodBind {
	p.mu.Lock()
	defer p.mu.Unlock()
	var found []PodBind
	for b := range maps.Values(p.binds) {
		if with(b) {
			found = append(found, b)
		}
	}
	slices.SortFunc(found, func(x, y PodBind) int { return strings.Compare(x.Target, y.Target) })
	return found
}

// BeginUndo keeps new pods from the publication until end is called. It returns false, and does nothing, if a pod has
// the publication bound as its volume. What has its place in a directory has yet to be taken away.
func (p *PodBinds) BeginUndo(volume string, intent volumesv1alpha1.IntentReference) (end func(), ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	key := publication{volume, intent.Namespace, intent.Name}
	for b := range maps.Values(p.binds) {
		if b.publication() == key && !b.HasPlace() {
			return nil, false
		}
	}
	p.undone[key]++
	return func() { p.endUndo(key) }, true
}

func (p *PodBinds) endUndo(key publication) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.undone[key]--; p.undone[key] == 0 {
		delete(p.undone, key)
	}
}
