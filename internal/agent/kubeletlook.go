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
	"time"

	"github.com/fsnotify/fsnotify"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/agent/kubelet"
	"github.com/hawser-io/hawser/internal/mount"
	"github.com/hawser-io/hawser/internal/status"
)

// lookPatience is how long a look at the kubelet's records may take before people are told.
const lookPatience = 10 * time.Second

// observeKubelet looks whenever there may be something new, until ctx ends.
func (o *observer) observeKubelet(ctx context.Context) {
	defer o.watcher.Close() //nolint:errcheck // nothing is lost with it
	o.lookAtKubelet(ctx)
	for {
		select {
		case <-ctx.Done():
			return
		case <-o.wake:
		case <-o.nextLook():
		case <-o.mounted:
			if !o.kubeletMountsChanged() {
				continue
			}
		case <-o.watcher.Changes():
			o.drain()
		case <-o.proved:
			if err := o.saveKubeletUses(); err != nil {
				o.Log.Error(err, "what a report has proven of the kubelet's volumes is not on the disk")
			}
			continue
		case err := <-o.watcher.Failures():
			o.Log.Error(err, "watching the kubelet's records")
		}
		o.lookAtKubelet(ctx)
	}
}

// nextLook is when to look although nothing has changed: after a look that failed, and while a device is held.
func (o *observer) nextLook() <-chan time.Time {
	if failures := o.failures; failures > 0 {
		return o.Clock.After(status.Backoff(failures))
	}
	var next <-chan time.Time
	var first time.Time
	last, _ := o.lastSeen()
	for _, u := range last.uses {
		if u.held != nil && u.held.NextAttemptTime != nil && (first.IsZero() || u.held.NextAttemptTime.Time.Before(first)) {
			first = u.held.NextAttemptTime.Time
			next = o.Clock.After(max(first.Sub(o.Clock.Now()), time.Millisecond))
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
func (o *observer) lookAtKubelet(ctx context.Context) {
	done := make(chan error, 1)
	go func() { done <- o.observe() }()
	patience := o.Clock.NewTimer(lookPatience)
	defer patience.Stop()
	for {
		select {
		case err := <-done:
			o.looked(err)
			return
		case <-ctx.Done():
			return
		case <-patience.C():
			o.complain(fmt.Sprintf("reading the kubelet's records takes longer than %s", lookPatience))
		}
	}
}

func (o *observer) looked(err error) {
	if err == nil {
		o.failures = 0
		o.complain("")
		return
	}
	o.failures++
	o.Log.Error(err, "what the kubelet uses is not known")
	o.complain(err.Error())
}

func (o *observer) complain(trouble string) {
	select {
	case <-o.first:
	default:
		close(o.first)
	}
	if o.setTrouble(trouble) {
		o.Reports.touch()
	}
}

// kubeletMountsChanged says whether the mount table shows other mounts of the kubelet than the last look did.
func (o *observer) kubeletMountsChanged() bool {
	last, _ := o.lastSeen()
	table, err := o.Mounts.Table()
	return err != nil || !slices.Equal(o.kubeletMounts(table, o.Store.known(), sourcesOf(last.uses)), last.shown)
}

// kubeletMounts lists the mounts that are not the agent's own.
func (o *observer) kubeletMounts(table *mount.Table, own map[string]identity, sources []kubelet.Source) []string {
	var shown []string
	for _, s := range kubelet.Mounts(o.Paths.kubelet, table, sources) {
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
func (o *observer) observe() error {
	nvs := o.Reports.newest()
	last, _ := o.lastSeen()
	own := o.Store.known()
	table, err := o.Mounts.Table()
	if err != nil {
		return err
	}
	watched := map[string]bool{}
	signs := kubelet.Look(o.Paths.kubelet, table, sourcesOf(last.uses), func(dir string) error {
		watched[dir] = true
		return o.watcher.Add(dir)
	})
	o.unwatch(watched)
	// A volume that the agent let go of, or took, during the look was its own.
	maps.Copy(own, o.Store.known())
	found, strange := kubelet.Attribute(signs, knownVolumes(nvs, own, last.uses))
	now := observation{uses: kubeletUses(last.uses, found, nvs, o.BootID)}
	o.seeKubeletDevices(table, last.uses, now.uses)
	o.keepHeld(last.uses, now.uses, own)
	now.shown = o.kubeletMounts(table, own, sourcesOf(now.uses))
	if nvs != nil {
		now.uid, now.generation, now.fences = nvs.UID, nvs.Generation, nvs.Spec.Fences
	}
	for _, s := range strange {
		now.strange = append(now.strange, fmt.Sprintf("%s: %s", s.Path, s.Reason()))
	}
	return o.took(last, now)
}

// took makes the look the last one, and tells whoever waits for what changed.
func (o *observer) took(last, now observation) error {
	o.replace(now)
	err := o.saveKubeletUses()
	switch {
	case last.uid == "": // nothing is reported yet: the first report tells all
		o.Reports.touch()
	case now.uid != last.uid || now.fences != last.fences || pressing(last.uses, now.uses):
		o.Reports.press()
	case unproven(now.uses, o.Reports.newest()):
		o.Reports.affirm()
	case !sameUses(last.uses, now.uses) || !slices.Equal(last.strange, now.strange):
		o.Reports.touch()
	}
	for name := range concerned(last.uses, now.uses) {
		o.Volumes.Changed(name)
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
func (o *observer) unwatch(watched map[string]bool) {
	for _, dir := range o.watcher.WatchList() {
		if watched[dir] {
			continue
		}
		if err := o.watcher.Remove(dir); err != nil && !errors.Is(err, fsnotify.ErrNonExistentWatch) {
			o.Log.Info("watch stays", "path", dir, "why", err.Error())
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
