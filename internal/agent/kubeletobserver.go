/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package agent

import (
	"context"
	"maps"
	"sync"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/mount"
)

// observation is what a look found, and the version of the spec that was read before it.
type observation struct {
	uid        types.UID
	generation int64
	fences     int64
	uses       map[string]kubeletUse
	// strange are the signs that belong to no volume that is known.
	strange []string
	// shown are the mounts that the look saw at the kubelet's places, but for the agent's own.
	shown []string
}

// observer looks at what the kubelet uses: when the mount table shows another mount of it, when a record that a look found
// changes, and when the spec does. Nothing waits for it, but the acknowledgement that it looked.
type observer struct {
	observerOptions
	// mounted is signalled when the mount table changed, wake when a look is due whatever the table says.
	mounted, wake chan struct{}
	watcher       Watcher
	// lifetime is the context of calls into the kernel.
	lifetime context.Context

	// first is closed once the first look ended, or took too long.
	first    chan struct{}
	failures int32

	// proved is signalled when the disk has to learn what reports have proven.
	proved chan struct{}

	mu   sync.Mutex
	last observation
	// told are the uses of the report that is on its way.
	told map[string]kubeletUse
	// trouble is why no look succeeds.
	trouble string
}

// observerMounts is what the observer needs of the node's mounts.
type observerMounts interface {
	deviceFinder
	Table() (*mount.Table, error)
	CheckFree(ctx context.Context, d mount.Device, raw bool) error
	ShutdownFilesystem(ctx context.Context, path string, still func() error, within ...string) error
}

// reports is the writer of the node's state as the observer needs it.
type reports interface {
	newest() *volumesv1alpha1.NodeVolumeState
	touch()
	press()
	affirm()
}

// volumes are the volumes of the agent as the observer needs them.
type volumes interface {
	// Changed requeues the volume: what the kubelet has of it is not as it was.
	Changed(volume string)
	// Inherit has the agent's own release ask about the devices too.
	Inherit(volume string, devices []mount.Device)
	// RestOnMountTable notes that the mount table alone shows the end of the volume's use.
	RestOnMountTable(volume string, attachment types.UID)
	// AwaitHolder requeues the volume once the first process that holds its device has ended.
	AwaitHolder(volume string, held *mount.HeldError)
}

// observerOptions are what an observer works with.
type observerOptions struct {
	Paths   paths
	BootID  string
	Mounts  observerMounts
	Store   *store
	Reports reports
	Volumes volumes
	Clock   clock.Clock
	Log     logr.Logger
}

func newObserver(options observerOptions) *observer {
	return &observer{observerOptions: options, mounted: make(chan struct{}, 1), wake: make(chan struct{}, 1), proved: make(chan struct{}, 1), first: make(chan struct{})}
}

// lastSeen is what the last look found. It must not be changed.
func (o *observer) lastSeen() (last observation, trouble string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.last, o.trouble
}

// use is the kubelet's use of the volume, or nil.
func (o *observer) use(name string) *kubeletUse {
	o.mu.Lock()
	defer o.mu.Unlock()
	u, ok := o.last.uses[name]
	if !ok {
		return nil
	}
	return &u
}

// change notes what became of the use, if it is still there.
func (o *observer) change(name string, f func(*kubeletUse)) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.last.uses = maps.Clone(o.last.uses)
	if u, ok := o.last.uses[name]; ok {
		f(&u)
		o.last.uses[name] = u
	}
}

// observeSoon has the observer look, whatever the mount table shows.
func (o *observer) observeSoon() { signal(o.wake) }

// mountsChanged has the observer look if the mount table shows other mounts of the kubelet.
func (o *observer) mountsChanged() { signal(o.mounted) }

// replace makes the look the last one. What became of a use during the look is not forgotten.
func (o *observer) replace(now observation) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for name, u := range now.uses {
		if current, ok := o.last.uses[name]; ok && sameLife(current.Life, u.Life) {
			if !u.waiting {
				u.ShutDown, u.failure, u.ProvenStage = current.ShutDown, current.failure, current.ProvenStage
			}
			now.uses[name] = u
		}
	}
	o.last = now
}

// tells notes what the report that is being written says, and returns it.
func (o *observer) tells() observation {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.told = o.last.uses
	return o.last
}

// reported takes in the version that a report was taken as. At that version, so at the look before it, no attachment had come
// after those whose entries are Attached in it: what the look saw mounted is of these.
func (o *observer) reported(nvs *volumesv1alpha1.NodeVolumeState) {
	o.mu.Lock()
	told := o.told
	o.mu.Unlock()
	for name, t := range told {
		if t.proven() || !t.provable(nvs, name) {
			continue
		}
		o.change(name, func(u *kubeletUse) {
			if u.AttachmentUID == t.AttachmentUID {
				u.ProvenStage = t.StageWritten
			}
		})
		signal(o.proved)
	}
}

// known sets what earlier processes knew.
func (o *observer) known(uses map[string]kubeletUse) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.last.uses = uses
}

// setTrouble sets why no look succeeds and says whether that is news.
func (o *observer) setTrouble(trouble string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	news := o.trouble != trouble
	o.trouble = trouble
	return news
}

func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default: // one that covers this is waiting already
	}
}
