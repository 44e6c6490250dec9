/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package kubelet

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/agent/record"
	"github.com/hawser-io/hawser/internal/mount"
)

// Observation is what was found at one time, and the version of the spec that was read before.
type Observation struct {
	UID        types.UID
	Generation int64
	fences     int64
	Uses       map[string]TrackedUse
	// strange are the signs that belong to no known volume.
	Unattributed []string
	// shown are the mounts at the kubelet's places, without the agent's own.
	shown []string
}

// Observer finds out what the kubelet uses: when the mount table shows another mount of it, when a record that it found
// changes, and when the spec does. Only the acknowledgement of the spec's generation waits for it.
type Observer struct {
	ObserverOptions
	// Mounted is signalled when the mount table changed, Wake when an observation is due whatever the table shows.
	Mounted, Wake chan struct{}
	Watcher       Watcher
	// Lifetime is the context of calls into the kernel.
	Lifetime context.Context

	// First is closed once the first observation has ended, or takes too long.
	First    chan struct{}
	failures int32
	// lookups are the last observations, one after the other, in which some device could not be looked up.
	lookups int32

	// proved is signalled when the disk has to learn what reports have proven.
	proved chan struct{}

	mu   sync.Mutex
	Last Observation
	// reporting are the uses of the report that is on its way.
	reporting map[string]TrackedUse
	// Trouble is why observations fail.
	Trouble string
}

// ObserverMounts is what the observer needs of the node's mounts.
type ObserverMounts interface {
	DeviceFinder
	Table() (*mount.Table, error)
	// TableWithin is mount.Mounter's: nothing may be released by it.
	TableWithin(age time.Duration) (*mount.Table, error)
	CheckFree(ctx context.Context, d mount.Device, raw bool) error
	ShutdownFilesystem(ctx context.Context, path string, still func() error, within ...string) error
}

// StateWriter is the writer of the node's state as the observer needs it.
type StateWriter interface {
	Newest() *volumesv1alpha1.NodeVolumeState
	ReportSoon()
	ReportNow()
	ReportAnyway()
}

// Volumes are the volumes of the agent as the observer needs them.
type Volumes interface {
	// Changed requeues the volume: what the kubelet has of it is not as it was.
	Changed(volume string)
	// Inherit has the agent's own release ask about the devices too.
	Inherit(volume string, devices []mount.Device)
	// NoteMountTableRelease notes that the mount table alone shows the end of the volume's use.
	NoteMountTableRelease(volume string, attachment types.UID)
	// AwaitHolder requeues the volume once the first process that holds its device has ended.
	AwaitHolder(volume string, held *mount.HeldError)
}

// ObserverOptions are what an observer works with.
type ObserverOptions struct {
	Paths   record.Paths
	BootID  string
	Mounts  ObserverMounts
	Store   *record.Store
	Reports StateWriter
	Volumes Volumes
	Clock   clock.Clock
	Log     logr.Logger
}

// NewObserver returns an observer that does nothing before Run. It needs a Watcher and a Lifetime by then.
func NewObserver(options ObserverOptions) *Observer {
	return &Observer{ObserverOptions: options, Mounted: make(chan struct{}, 1), Wake: make(chan struct{}, 1),
		proved: make(chan struct{}, 1), First: make(chan struct{})}
}

// Latest is what the last Observation found. It must not be changed.
func (o *Observer) Latest() (last Observation, trouble string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.Last, o.Trouble
}

// Use is the kubelet's use of the volume, or nil.
func (o *Observer) Use(name string) *TrackedUse {
	o.mu.Lock()
	defer o.mu.Unlock()
	u, ok := o.Last.Uses[name]
	if !ok {
		return nil
	}
	return &u
}

// Update notes what became of the use, if it is still there.
func (o *Observer) Update(name string, f func(*TrackedUse)) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.Last.Uses = maps.Clone(o.Last.Uses)
	if u, ok := o.Last.Uses[name]; ok {
		f(&u)
		o.Last.Uses[name] = u
	}
}

// ObserveSoon requests an observation, whatever the mount table shows.
func (o *Observer) ObserveSoon() { signal(o.Wake) }

// MountsChanged requests an observation if the mount table shows other mounts of the kubelet.
func (o *Observer) MountsChanged() { signal(o.Mounted) }

// replace makes the observation the latest one. What became of a use meanwhile is not forgotten. It reports false, and
// changes nothing, where a use was left to the release of a volume that the agent does not have any more. A release
// that comes after this sees that the use has ended.
func (o *Observer) replace(now Observation, left ...string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if slices.ContainsFunc(left, func(name string) bool { return !o.Store.Knows(name) }) {
		return false
	}
	for name, u := range now.Uses {
		if current, ok := o.Last.Uses[name]; ok && sameLife(current.Life, u.Life) {
			if !u.Waiting {
				u.ShutDown, u.Failure, u.ProvenStage = current.ShutDown, current.Failure, current.ProvenStage
			}
			now.Uses[name] = u
		}
	}
	o.Last = now
	return true
}

// BeginReport notes what the report that is being written contains, and returns it.
func (o *Observer) BeginReport() Observation {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.reporting = o.Last.Uses
	return o.Last
}

// Reported takes in the version that a report was taken as. At that version, and so at the observation before it, no
// attachment had followed those whose entries are Attached in it. What the observation saw mounted belongs to these.
func (o *Observer) Reported(nvs *volumesv1alpha1.NodeVolumeState) {
	o.mu.Lock()
	told := o.reporting
	o.mu.Unlock()
	for name, t := range told {
		if t.Proven() || !t.provable(nvs, name) {
			continue
		}
		o.Update(name, func(u *TrackedUse) {
			if u.AttachmentUID == t.AttachmentUID {
				u.ProvenStage = t.StageWritten
			}
		})
		signal(o.proved)
	}
}

// SetKnown sets what earlier processes knew.
func (o *Observer) SetKnown(uses map[string]TrackedUse) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.Last.Uses = uses
}

// setTrouble sets why observations fail, and reports whether that is new.
func (o *Observer) setTrouble(trouble string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	news := o.Trouble != trouble
	o.Trouble = trouble
	return news
}

func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default: // one that covers this is waiting already
	}
}
