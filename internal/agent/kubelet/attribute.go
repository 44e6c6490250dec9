/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package kubelet

import (
	"path/filepath"
	"slices"
	"strings"
)

// Known is a volume to which a sign may belong.
type Known struct {
	// Name is the volume's unique name.
	Name, Driver, Handle string
	// PersistentVolumes that represent it.
	PersistentVolumes []string
	// Attached: the controller lists it for the node.
	Attached bool
	// Own: the agent has a record of it, so mounts at shared places are the agent's.
	Own bool
	// Sources that were seen of it before.
	Sources []Source
}

// Use is the kubelet's use of one volume.
type Use struct {
	// StagedPath is where a filesystem is staged; empty where none is.
	StagedPath string
	DevicePath string
	// Published to a pod.
	Published bool
	Block     bool
	// Life are the traces that distinguish this use from a later one of the same volume.
	Life []string
	// StageWritten identifies the last write of the record of its stage; empty where there is none. The kubelet writes
	// it before it calls the driver.
	StageWritten string
	// Mounts are the paths of its mounts.
	Mounts  []string
	Sources []Source
	// PersistentVolumes under whose names it is used.
	PersistentVolumes []string
	// Doubt is why it is only assumed: something cannot be read that may belong to the volume.
	Doubt string
}

// Attribute finds the volume that each sign belongs to. What cannot be attributed counts for every attached volume that
// it may belong to, and is returned too.
func Attribute(signs []Sign, known []Known) (map[string]*Use, []Sign) {
	a := newAttribution(signs, known)
	var rest []Sign
	for _, s := range signs {
		if !a.explained(s) && !a.attribute(s) && (!s.Weak || s.Err != nil) {
			rest = append(rest, s)
			a.doubt(s)
		}
	}
	a.addShared()
	return a.uses, rest
}

type hashed struct{ driver, hash string }

type attribution struct {
	known     []Known
	own       map[string]bool
	byHash    map[hashed]string
	byVolume  map[string][]string
	byDir     map[string]string
	sources   map[string][]Source
	ephemeral map[string]bool
	uses      map[string]*Use
	shared    map[string][]Sign
}

func newAttribution(signs []Sign, known []Known) *attribution {
	a := &attribution{
		known: known, own: map[string]bool{}, byHash: map[hashed]string{}, byVolume: map[string][]string{},
		byDir:   map[string]string{},
		sources: map[string][]Source{}, ephemeral: map[string]bool{}, uses: map[string]*Use{},
		shared: map[string][]Sign{},
	}
	for _, k := range known {
		a.own[k.Name] = a.own[k.Name] || k.Own
		a.byHash[hashed{k.Driver, HashOf(k.Handle)}] = k.Name
		for _, pv := range k.PersistentVolumes {
			a.nameVolume(pv, k.Name)
		}
	}
	for _, s := range signs {
		switch {
		case s.Ephemeral:
			a.ephemeral[filepath.Dir(s.Path)] = true
		case s.Volume() != "":
			a.byHash[hashed{s.Driver, HashOf(s.Handle)}] = s.Volume()
			a.nameVolume(s.PersistentVolume, s.Volume())
			a.byDir[filepath.Dir(s.Path)] = s.Volume()
		}
	}
	a.learnSources(signs)
	for _, s := range signs {
		if names := a.bySource(s); s.Published && len(names) == 1 && !a.explained(s) {
			a.byDir[filepath.Dir(s.Path)] = names[0]
		}
	}
	return a
}

// learnSources takes the sources of the mounts whose place identifies the volume first, and then the earlier ones that
// no mount contradicts: a device's number may be another volume's by now.
func (a *attribution) learnSources(signs []Sign) {
	var seen []Source
	for _, s := range signs {
		if names := a.byPlace(s); s.Source != nil && len(names) == 1 && !a.explained(s) {
			a.sources[names[0]] = append(a.sources[names[0]], *s.Source)
			seen = append(seen, *s.Source)
		}
	}
	for _, k := range a.known {
		for _, old := range k.Sources {
			if !slices.ContainsFunc(seen, func(s Source) bool { return s.Major == old.Major && s.Minor == old.Minor }) {
				a.sources[k.Name] = append(a.sources[k.Name], old)
			}
		}
	}
}

// nameVolume notes that a persistent volume of that name represents the volume.
func (a *attribution) nameVolume(persistentVolume, name string) {
	escaped := strings.ReplaceAll(persistentVolume, "/", "~")
	if escaped != "" && !slices.Contains(a.byVolume[escaped], name) {
		a.byVolume[escaped] = append(a.byVolume[escaped], name)
	}
}

// byPlace names the volumes that the record or the place identifies.
func (a *attribution) byPlace(s Sign) []string {
	if name := s.Volume(); name != "" {
		return []string{name}
	}
	if s.Hash != "" {
		if name, ok := a.byHash[hashed{s.HashDriver, s.Hash}]; ok {
			return []string{name}
		}
		return nil
	}
	if name, ok := a.byDir[filepath.Dir(s.Path)]; ok {
		return []string{name}
	}
	if s.Weak && s.Source != nil {
		return nil // the pod chooses this name freely; the filesystem identifies the volume
	}
	return a.byVolume[s.PersistentVolume]
}

// bySource names the volumes of whose filesystem the mount shows a part.
func (a *attribution) bySource(s Sign) []string {
	if s.Source == nil {
		return nil
	}
	var names []string
	for name, sources := range a.sources {
		if slices.ContainsFunc(sources, func(o Source) bool { return o.Covers(*s.Source) }) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// attribute counts the sign for its volume.
func (a *attribution) attribute(s Sign) bool {
	names := a.byPlace(s)
	if len(names) == 0 {
		names = a.bySource(s)
	}
	for _, name := range names {
		if elsewhere := s.Weak && !s.Published; s.Shared || elsewhere {
			a.shared[name] = append(a.shared[name], s)
		} else {
			a.count(name, s)
		}
	}
	return len(names) > 0
}

// explained: it belongs to an inline volume, or to a part of one that the kubelet has mounted for a container.
func (a *attribution) explained(s Sign) bool {
	return a.ephemeral[filepath.Dir(s.Path)] || s.SubPathOf != "" && a.ephemeral[s.SubPathOf]
}

// doubt counts a sign that cannot be attributed for every volume that it may belong to. Where the place contains the
// hash of a handle it belongs to none of those that are known.
func (a *attribution) doubt(s Sign) {
	if s.Hash != "" || s.Weak {
		return
	}
	for _, k := range a.known {
		if k.Attached {
			a.use(k.Name).Doubt = s.Path
			a.count(k.Name, Sign{Life: s.Life})
		}
	}
}

// addShared adds the mounts at places that the agent uses too: where the agent has the volume they prove nothing.
func (a *attribution) addShared() {
	for name, signs := range a.shared {
		if a.own[name] && a.uses[name] == nil {
			continue
		}
		for _, s := range signs {
			if !s.Weak || !a.own[name] {
				a.count(name, s)
			}
		}
	}
}

func (a *attribution) use(name string) *Use {
	u, ok := a.uses[name]
	if !ok {
		u = &Use{}
		a.uses[name] = u
	}
	return u
}

func (a *attribution) count(name string, s Sign) {
	u := a.use(name)
	u.Life = append(u.Life, s.Life)
	u.Published = u.Published || s.Published
	u.Block = u.Block || s.Block
	mounted := strings.HasPrefix(s.Life, "mount ")
	if mounted {
		u.Mounts = append(u.Mounts, s.Path)
	}
	if s.Source != nil && !slices.Contains(u.Sources, *s.Source) {
		u.Sources = append(u.Sources, *s.Source)
	}
	if s.PersistentVolume != "" && !s.Weak && !slices.Contains(u.PersistentVolumes, s.PersistentVolume) {
		u.PersistentVolumes = append(u.PersistentVolumes, s.PersistentVolume)
	}
	if u.DevicePath == "" {
		u.DevicePath = s.DevicePath
	}
	if s.Record && s.Hash != "" && s.Err == nil {
		u.StageWritten = s.Written
	}
	if mounted && s.Shared && filepath.Base(s.Path) == "globalmount" {
		u.StagedPath = s.Path
	}
}
