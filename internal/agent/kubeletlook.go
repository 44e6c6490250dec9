/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package agent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/fsnotify/fsnotify"
	"k8s.io/apimachinery/pkg/types"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/agent/kubelet"
	"github.com/hawser-io/hawser/internal/mount"
	"github.com/hawser-io/hawser/internal/status"
)

// lookPatience is how long a look at the kubelet's records may take before people are told.
const lookPatience = 10 * time.Second

// seen is what a look found, and the version of the spec that was read before it.
type seen struct {
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
	// mounted is signalled when the mount table changed, wake when a look is due whatever the table says.
	mounted, wake chan struct{}
	watcher       Watcher

	// first is closed once the first look ended, or took too long.
	first    chan struct{}
	failures int32

	// proved is signalled when the disk has to learn what reports have proven.
	proved chan struct{}

	mu   sync.Mutex
	last seen
	// told are the uses of the report that is on its way.
	told map[string]kubeletUse
	// trouble is why no look succeeds.
	trouble string
}

func newObserver() *observer {
	return &observer{mounted: make(chan struct{}, 1), wake: make(chan struct{}, 1), proved: make(chan struct{}, 1), first: make(chan struct{})}
}

// seen is what the last look found. It must not be changed.
func (o *observer) seen() (last seen, trouble string) {
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

// took makes the look the last one. What became of a use during the look is not forgotten.
func (o *observer) took(now seen) {
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
func (o *observer) tells() seen {
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

// complain sets why no look succeeds and says whether that is news.
func (o *observer) complain(trouble string) bool {
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

// observeKubelet looks whenever there may be something new, until ctx ends.
func (a *Agent) observeKubelet(ctx context.Context) {
	o := a.observer
	defer o.watcher.Close() //nolint:errcheck // nothing is lost with it
	a.lookAtKubelet(ctx)
	for {
		select {
		case <-ctx.Done():
			return
		case <-o.wake:
		case <-a.nextLook():
		case <-o.mounted:
			if !a.kubeletMountsChanged() {
				continue
			}
		case <-o.watcher.Changes():
			o.drain()
		case <-o.proved:
			if err := a.saveKubeletUses(); err != nil {
				a.Log.Error(err, "what a report has proven of the kubelet's volumes is not on the disk")
			}
			continue
		case err := <-o.watcher.Failures():
			a.Log.Error(err, "watching the kubelet's records")
		}
		a.lookAtKubelet(ctx)
	}
}

// nextLook is when to look although nothing has changed: after a look that failed, and while a device is held.
func (a *Agent) nextLook() <-chan time.Time {
	if failures := a.observer.failures; failures > 0 {
		return a.Clock.After(status.Backoff(failures))
	}
	var next <-chan time.Time
	var first time.Time
	last, _ := a.observer.seen()
	for _, u := range last.uses {
		if u.held != nil && u.held.NextAttemptTime != nil && (first.IsZero() || u.held.NextAttemptTime.Time.Before(first)) {
			first = u.held.NextAttemptTime.Time
			next = a.Clock.After(max(first.Sub(a.Clock.Now()), time.Millisecond))
		}
	}
	return next
}

// drain takes the events that came together.
func (o *observer) drain() {
	for {
		select {
		case <-o.watcher.Changes():
		default:
			return
		}
	}
}

// lookAtKubelet looks once. A look that hangs keeps only this waiting, and tells people.
func (a *Agent) lookAtKubelet(ctx context.Context) {
	done := make(chan error, 1)
	go func() { done <- a.observe() }()
	patience := a.Clock.NewTimer(lookPatience)
	defer patience.Stop()
	for {
		select {
		case err := <-done:
			a.looked(err)
			return
		case <-ctx.Done():
			return
		case <-patience.C():
			a.complain(fmt.Sprintf("reading the kubelet's records takes longer than %s", lookPatience))
		}
	}
}

func (a *Agent) looked(err error) {
	if err == nil {
		a.observer.failures = 0
		a.complain("")
		return
	}
	a.observer.failures++
	a.Log.Error(err, "what the kubelet uses is not known")
	a.complain(err.Error())
}

func (a *Agent) complain(trouble string) {
	select {
	case <-a.observer.first:
	default:
		close(a.observer.first)
	}
	if a.observer.complain(trouble) {
		a.state.touch()
	}
}

// kubeletMountsChanged says whether the mount table shows other mounts of the kubelet than the last look did.
func (a *Agent) kubeletMountsChanged() bool {
	last, _ := a.observer.seen()
	table, err := a.Mounts.Table()
	return err != nil || !slices.Equal(a.kubeletMounts(table, a.store.known(), sourcesOf(last.uses)), last.shown)
}

// kubeletMounts lists the mounts that are not the agent's own.
func (a *Agent) kubeletMounts(table *mount.Table, own map[string]identity, sources []kubelet.Source) []string {
	var shown []string
	for _, s := range kubelet.Mounts(a.paths.kubelet, table, sources) {
		if !s.Shared || !ownPlace(own, s) {
			shown = append(shown, s.Life)
		}
	}
	return shown
}

// ownPlace says whether the agent has a volume there.
func ownPlace(own map[string]identity, s kubelet.Sign) bool {
	for _, i := range own {
		if s.Hash != "" && i.driver == s.HashDriver && i.hash == s.Hash ||
			s.PersistentVolume != "" && i.persistentVolume == s.PersistentVolume {
			return true
		}
	}
	return false
}

func sourcesOf(uses map[string]kubeletUse) []kubelet.Source {
	var sources []kubelet.Source
	for _, u := range uses {
		sources = append(sources, u.Sources...)
	}
	return sources
}

// observe is one look: the version of the spec is taken first, then the mount table is read, then the records.
func (a *Agent) observe() error {
	nvs := a.state.newest()
	last, _ := a.observer.seen()
	own := a.store.known()
	table, err := a.Mounts.Table()
	if err != nil {
		return err
	}
	watched := map[string]bool{}
	signs := kubelet.Look(a.paths.kubelet, table, sourcesOf(last.uses), func(dir string) error {
		watched[dir] = true
		return a.observer.watcher.Add(dir)
	})
	a.unwatch(watched)
	// A volume that the agent let go of, or took, during the look was its own.
	maps.Copy(own, a.store.known())
	found, strange := kubelet.Attribute(signs, knownVolumes(nvs, own, last.uses))
	now := seen{uses: kubeletUses(last.uses, found, nvs, a.bootID)}
	a.seeKubeletDevices(table, last.uses, now.uses)
	a.keepHeld(last.uses, now.uses, own)
	now.shown = a.kubeletMounts(table, own, sourcesOf(now.uses))
	if nvs != nil {
		now.uid, now.generation, now.fences = nvs.UID, nvs.Generation, nvs.Spec.Fences
	}
	for _, s := range strange {
		now.strange = append(now.strange, fmt.Sprintf("%s: %s", s.Path, s.Reason()))
	}
	return a.took(last, now)
}

// took makes the look the last one, and tells whoever waits for what changed.
func (a *Agent) took(last, now seen) error {
	a.observer.took(now)
	err := a.saveKubeletUses()
	switch {
	case last.uid == "": // nothing is reported yet: the first report tells all
		a.state.touch()
	case now.uid != last.uid || now.fences != last.fences || pressing(last.uses, now.uses):
		a.state.press()
	case unproven(now.uses, a.state.newest()):
		a.state.affirm()
	case !sameUses(last.uses, now.uses) || !slices.Equal(last.strange, now.strange):
		a.state.touch()
	}
	for name := range concerned(last.uses, now.uses) {
		a.volume(name).nudge(nudgeMounts)
		a.queue.volume(name)
	}
	return err
}

// unproven reports whether a report would prove of some use on which attachment it is mounted.
func unproven(uses map[string]kubeletUse, nvs *volumesv1alpha1.NodeVolumeState) bool {
	for name, u := range uses {
		if !u.proven() && u.provable(nvs, name) {
			return true
		}
	}
	return false
}

// concerned are the volumes whose own work may depend on what changed.
func concerned(before, now map[string]kubeletUse) map[string]bool {
	names := map[string]bool{}
	for name, u := range now {
		if old, ok := before[name]; !ok || old.AttachmentUID != u.AttachmentUID || !slices.Equal(old.mounts, u.mounts) || old.doubt != u.doubt {
			names[name] = true
		}
	}
	for name := range before {
		if _, ok := now[name]; !ok {
			names[name] = true
		}
	}
	return names
}

// unwatch gives up the directories in which no record is any more.
func (a *Agent) unwatch(watched map[string]bool) {
	for _, dir := range a.observer.watcher.WatchList() {
		if watched[dir] {
			continue
		}
		if err := a.observer.watcher.Remove(dir); err != nil && !errors.Is(err, fsnotify.ErrNonExistentWatch) {
			a.Log.Info("watch stays", "path", dir, "why", err.Error())
		}
	}
}

// knownVolumes are those that a sign may belong to.
func knownVolumes(nvs *volumesv1alpha1.NodeVolumeState, own map[string]identity, uses map[string]kubeletUse) []kubelet.Known {
	var known []kubelet.Known
	if nvs != nil {
		for _, e := range nvs.Spec.Attachments {
			known = append(known, kubelet.Known{Name: e.VolumeName, Driver: e.Driver, Handle: e.VolumeHandle,
				PersistentVolumes: []string{e.PersistentVolumeName}, Attached: true})
		}
	}
	for name, i := range own {
		known = append(known, kubelet.Known{Name: name, Driver: i.driver, Handle: i.handle,
			PersistentVolumes: []string{i.persistentVolume}, Own: true})
	}
	for name, u := range uses {
		driver, handle := splitUniqueName(name)
		known = append(known, kubelet.Known{Name: name, Driver: driver, Handle: handle,
			PersistentVolumes: u.PersistentVolumes, Sources: u.Sources})
	}
	return known
}

// saveKubeletUses keeps on disk which attachment each use belongs to.
func (a *Agent) saveKubeletUses() error {
	return a.store.saveKubelet(func() kubeletFile {
		last, _ := a.observer.seen()
		return kubeletFile{Schema: recordSchema, BootID: a.bootID, Uses: last.uses}
	})
}
