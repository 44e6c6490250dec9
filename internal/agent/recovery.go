/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package agent

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/handshake"
)

// recoverRecords takes up what earlier processes have left: records from the disk, and volumes of which only the API
// still knows. Nothing is done for them here; that follows from looking at each.
func (a *Agent) recoverRecords(ctx context.Context) error {
	records, broken, err := a.store.load()
	if err != nil {
		return err
	}
	for _, b := range broken {
		a.Log.Error(b.err, "record is unreadable, its volume counts as in use", "file", b.name)
	}
	nvs, err := a.session.readState(ctx)
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("reading node state: %w", err)
	}
	if !a.session.noted.forgottenBy(nvs) { // otherwise the disk knows better
		records = append(records, a.rebuild(nvs, records, broken)...)
	}
	for _, r := range records {
		r.abandon() // nobody will learn the end of a call that was going on
		r.keepSourcesOf(a.bootID)
		// What the API does not show was taken back, or never stood: whoever was told may have let the intents go.
		r.InUse = r.InUse && handshake.NodeOf(nvs, r.VolumeName).Use == handshake.Use{UID: r.AttachmentUID, InUse: true}
		v := a.volume(r.VolumeName)
		v.record = r
		a.store.own(r) // also one that was rebuilt: what is mounted for it is not the kubelet's
		a.views.Store(v.name, r.copy())
		f := facts{now: a.now(), record: r}
		if r.held(f.now) {
			line := lineOf(v.snapshot(), f)
			// Who is there and who is not is told by the first look.
			for i := range line.line.Publications {
				line.line.Publications[i].Orphan = false
			}
			line.orphan = false
			a.state.inform(v.name, line)
		}
		a.queue.volume(v.name)
	}
	a.noteBroken(records, broken)
	a.observer.recover(nvs)
	return nil
}

// rebuild makes records for volumes that the API says are in use here and that no record speaks of, and for broken
// records whose volume the API names. What the driver was asked for, and when, is not known.
func (a *Agent) rebuild(nvs *volumesv1alpha1.NodeVolumeState, records []*Record, broken []brokenRecord) []*Record {
	var rebuilt []*Record
	known := func(name string) bool {
		return slices.ContainsFunc(records, func(r *Record) bool { return r.VolumeName == name })
	}
	lost := func(name string) bool {
		return slices.ContainsFunc(broken, func(b brokenRecord) bool { return b.name == hash(name)+recordSuffix })
	}
	for i := range nvs.Status.Volumes {
		line := &nvs.Status.Volumes[i]
		if !known(line.VolumeName) && line.PublishedBy != volumesv1alpha1.PublisherKubelet {
			rebuilt = append(rebuilt, a.rebuilt(line.VolumeName, line, handshake.AttachmentOf(nvs, line.VolumeName)))
		}
	}
	for i := range nvs.Spec.Attachments {
		e := &nvs.Spec.Attachments[i]
		if lost(e.VolumeName) && handshake.VolumeOf(nvs, e.VolumeName) == nil {
			rebuilt = append(rebuilt, a.rebuilt(e.VolumeName, nil, e))
		}
	}
	return rebuilt
}

// rebuilt is a record that assumes everything that may be: staged, published, and a call going on.
func (a *Agent) rebuilt(name string, line *volumesv1alpha1.NodeVolume, e *volumesv1alpha1.NodeAttachment) *Record {
	a.Log.Info("rebuilding a record from the API", "volume", name)
	r := &Record{Schema: recordSchema, VolumeName: name, Rebuilt: true, Mode: corev1.PersistentVolumeFilesystem}
	r.Driver, r.Handle = splitUniqueName(name)
	if e != nil {
		r.AttachmentUID, r.PersistentVolume, r.Driver, r.Handle = e.AttachmentUID, e.PersistentVolumeName, e.Driver, e.VolumeHandle
		if e.VolumeMode != "" {
			r.Mode = e.VolumeMode
		}
	}
	now := a.now()
	if line != nil {
		r.AttachmentUID = line.AttachmentUID
		for _, p := range line.Publications {
			u := Use{Intent: p.Intent, Want: volumesv1alpha1.DesiredPublished, Phase: PhaseUncertain, Path: p.Path, Target: p.Path,
				Type: p.Type, ReadOnly: p.ReadOnly, BootID: now.bootID}
			if p.Type == volumesv1alpha1.PublicationDevice {
				r.Mode = corev1.PersistentVolumeBlock
				u.Bound = a.paths.bound(r.PersistentVolume, p.Intent.UID)
				if u.ReadOnly {
					u.Target = a.paths.hidden(p.Intent.UID)
				}
			}
			r.Uses = append(r.Uses, u)
		}
	}
	r.Stage = Stage{Phase: PhaseUncertain, Path: a.paths.staging(r.Driver, r.Handle, r.PersistentVolume, r.Mode), BootID: now.bootID}
	unknown := a.steps.newCall("unknown", r.Stage.Path)
	unknown.Mounts = true
	r.begin(unknown)
	return r
}

// noteBroken remembers the unreadable records whose volume is not known, for the node's conditions.
func (a *Agent) noteBroken(records []*Record, broken []brokenRecord) {
	for _, b := range broken {
		if !slices.ContainsFunc(records, func(r *Record) bool { return hash(r.VolumeName)+recordSuffix == b.name }) {
			a.node.noteBroken(fmt.Sprintf("record %s is unreadable and its volume is not known", b.name))
		}
	}
}
