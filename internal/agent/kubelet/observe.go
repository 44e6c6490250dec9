/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package kubelet

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/fsnotify/fsnotify"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/agent/record"
	"github.com/hawser-io/hawser/internal/mount"
	"github.com/hawser-io/hawser/internal/status"
)

// slowObservation is how long one observation may take before the node's conditions report it.
const slowObservation = 10 * time.Second

// Run observes whenever there may be something new, until ctx ends.
func (o *Observer) Run(ctx context.Context) {
	defer o.Watcher.Close() //nolint:errcheck // nothing is lost with it
	o.observeOnce(ctx)
	for {
		select {
		case <-ctx.Done():
			return
		case <-o.Wake:
		case <-o.nextAttempt():
		case <-o.Mounted:
			if !o.otherMounts() {
				continue
			}
		case <-o.Watcher.Changes():
			o.drain()
		case <-o.proved:
			if err := o.Save(); err != nil {
				o.Log.Error(err, "what a report has proven of the kubelet's volumes is not on the disk")
			}
			continue
		case err := <-o.Watcher.Failures():
			o.Log.Error(err, "watching the kubelet's records")
		}
		o.observeOnce(ctx)
	}
}

// nextAttempt is when to observe although nothing has changed: after a failure, while a device is held, and while one
// could not be looked up.
func (o *Observer) nextAttempt() <-chan time.Time {
	if failures := o.failures; failures > 0 {
		return o.Clock.After(status.Backoff(failures))
	}
	var first time.Time
	sooner := func(at time.Time) {
		if first.IsZero() || at.Before(first) {
			first = at
		}
	}
	if o.lookups > 0 {
		sooner(o.Clock.Now().Add(status.Backoff(o.lookups)))
	}
	last, _ := o.Latest()
	for _, u := range last.Uses {
		if u.Held != nil && u.Held.NextAttemptTime != nil {
			sooner(u.Held.NextAttemptTime.Time)
		}
	}
	if first.IsZero() {
		return nil
	}
	return o.Clock.After(max(first.Sub(o.Clock.Now()), time.Millisecond))
}

// countLookups counts the observations one after the other in which some device could not be looked up.
func (o *Observer) countLookups() {
	last, _ := o.Latest()
	for _, u := range last.Uses {
		if len(u.Unfound) > 0 {
			o.lookups++
			return
		}
	}
	o.lookups = 0
}

// drain takes the events that came together.
func (o *Observer) drain() {
	for {
		select {
		case <-o.Watcher.Changes():
		default:
			return
		}
	}
}

// scanned is what a scan of the node has found, and the observation before it.
type scanned struct {
	last, now Observation
	// left are the uses that have ended and that the agent's release asks about.
	left []string
	err  error
}

// observeOnce observes once. An observation that hangs blocks only this loop, and the node's conditions report it. When
// ctx has ended, another agent may work on the node: what is found then is neither taken in nor written.
func (o *Observer) observeOnce(ctx context.Context) {
	done := make(chan scanned, 1)
	go func() { done <- o.scan() }()
	patience := o.Clock.NewTimer(slowObservation)
	defer patience.Stop()
	for {
		select {
		case found := <-done:
			if found.err == nil {
				found.err = o.accept(found.last, found.now, found.left...)
			}
			if errors.Is(found.err, errReleased) {
				go func() { done <- o.scan() }()
				continue
			}
			o.observed(found.err)
			return
		case <-ctx.Done():
			return
		case <-patience.C():
			o.reportTrouble(fmt.Sprintf("reading the kubelet's records takes longer than %s", slowObservation))
		}
	}
}

func (o *Observer) observed(err error) {
	if err == nil {
		o.failures = 0
		o.countLookups()
		o.reportTrouble("")
		return
	}
	o.failures++
	o.Log.Error(err, "what the kubelet uses is not known")
	o.reportTrouble(err.Error())
}

func (o *Observer) reportTrouble(trouble string) {
	select {
	case <-o.First:
	default:
		close(o.First)
	}
	if o.setTrouble(trouble) {
		o.Reports.ReportSoon()
	}
}

// otherMounts reports whether the mount table shows other mounts of the kubelet than the last Observation did.
func (o *Observer) otherMounts() bool {
	last, _ := o.Latest()
	table, err := o.Mounts.TableWithin(mount.Recent)
	return err != nil || !slices.Equal(o.mountsOfKubelet(table, o.Store.Known(), sourcesOf(last.Uses)), last.shown)
}

// mountsOfKubelet lists the mounts that are not the agent's own.
func (o *Observer) mountsOfKubelet(table *mount.Table, own map[string]record.Identity, sources []Source) []string {
	var shown []string
	for _, s := range Mounts(o.Paths.Kubelet, table, sources) {
		if !s.Shared || !ownPlace(own, s) {
			shown = append(shown, s.Life)
		}
	}
	return shown
}

// ownPlace reports whether the agent has a volume there.
func ownPlace(own map[string]record.Identity, s Sign) bool {
	for _, i := range own {
		if s.Hash != "" && i.Driver == s.HashDriver && i.Hash == s.Hash ||
			s.PersistentVolume != "" && i.PersistentVolume == s.PersistentVolume {
			return true
		}
	}
	return false
}

func sourcesOf(uses map[string]TrackedUse) []Source {
	var sources []Source
	for _, u := range uses {
		sources = append(sources, u.Sources...)
	}
	return sources
}

// scan reads the version of the spec first, then the mount table, then the records.
func (o *Observer) scan() scanned {
	nvs := o.Reports.Newest()
	last, _ := o.Latest()
	own := o.Store.Known()
	table, err := o.Mounts.Table()
	if err != nil {
		return scanned{err: err}
	}
	watched := map[string]bool{}
	signs := FindSigns(o.Paths.Kubelet, table, sourcesOf(last.Uses), func(dir string) error {
		watched[dir] = true
		return o.Watcher.Add(dir)
	})
	o.unwatch(watched)
	// A volume that the agent released, or marked as in use, during the observation was its own.
	maps.Copy(own, o.Store.Known())
	found, strange := Attribute(signs, knownVolumes(nvs, own, last.Uses))
	now := Observation{Uses: trackUses(last.Uses, found, nvs, o.BootID)}
	o.addDevices(table, last.Uses, now.Uses)
	left := o.keepHeld(last.Uses, now.Uses, own)
	now.shown = o.mountsOfKubelet(table, own, sourcesOf(now.Uses))
	if nvs != nil {
		now.UID, now.Generation, now.fences = nvs.UID, nvs.Generation, nvs.Spec.Protocol.Fences
	}
	for _, s := range strange {
		now.Unattributed = append(now.Unattributed, fmt.Sprintf("%s: %s", s.Path, s.Reason()))
	}
	return scanned{last: last, now: now, left: left}
}

// errReleased: what an observation left to the agent's release was released before, without asking for it.
var errReleased = errors.New("a volume was released during the observation")

// accept makes the observation the latest one, and has what changed reported and reconciled.
func (o *Observer) accept(last, now Observation, left ...string) error {
	if !o.replace(now, left...) {
		return errReleased
	}
	err := o.Save()
	switch {
	case last.UID == "": // nothing is reported yet: the first report contains everything
		o.Reports.ReportSoon()
	case now.UID != last.UID || now.fences != last.fences || urgent(last.Uses, now.Uses):
		o.Reports.ReportNow()
	case unproven(now.Uses, o.Reports.Newest()):
		o.Reports.ReportAnyway()
	case !sameUses(last.Uses, now.Uses) || !slices.Equal(last.Unattributed, now.Unattributed):
		o.Reports.ReportSoon()
	}
	for name := range affected(last.Uses, now.Uses) {
		o.Volumes.Changed(name)
	}
	return err
}

// unproven reports whether a report would prove of some use on which attachment it is mounted.
func unproven(uses map[string]TrackedUse, nvs *volumesv1alpha1.NodeVolumeState) bool {
	for name, u := range uses {
		if !u.Proven() && u.provable(nvs, name) {
			return true
		}
	}
	return false
}

// affected are the volumes whose own work may depend on what changed.
func affected(before, now map[string]TrackedUse) map[string]bool {
	names := map[string]bool{}
	for name, u := range now {
		if old, ok := before[name]; !ok || old.AttachmentUID != u.AttachmentUID ||
			!slices.Equal(old.Mounts, u.Mounts) || old.Doubt != u.Doubt {
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
func (o *Observer) unwatch(watched map[string]bool) {
	for _, dir := range o.Watcher.WatchList() {
		if watched[dir] {
			continue
		}
		if err := o.Watcher.Remove(dir); err != nil && !errors.Is(err, fsnotify.ErrNonExistentWatch) {
			o.Log.Info("watch stays", "path", dir, "why", err.Error())
		}
	}
}

// knownVolumes are those that a sign may belong to.
func knownVolumes(nvs *volumesv1alpha1.NodeVolumeState, own map[string]record.Identity,
	uses map[string]TrackedUse) []Known {
	var known []Known
	if nvs != nil {
		for _, e := range nvs.Spec.Attachments {
			if s := record.VolumeSourceOf(&e); s.KubeletKnows() {
				known = append(known, Known{Name: s.UniqueName, Driver: s.Driver, Handle: s.Handle,
					PersistentVolumes: []string{s.PersistentVolume}, Attached: true})
			}
		}
	}
	for name, i := range own {
		known = append(known, Known{Name: name, Driver: i.Driver, Handle: i.Handle,
			PersistentVolumes: []string{i.PersistentVolume}, Own: true})
	}
	for name, u := range uses {
		s := record.VolumeSourceNamed(name)
		known = append(known, Known{Name: name, Driver: s.Driver, Handle: s.Handle,
			PersistentVolumes: u.PersistentVolumes, Sources: u.Sources})
	}
	return known
}
