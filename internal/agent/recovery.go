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
	"github.com/hawser-io/hawser/internal/agent/plan"
	"github.com/hawser-io/hawser/internal/agent/record"
	"github.com/hawser-io/hawser/internal/agent/report"
	"github.com/hawser-io/hawser/internal/handshake"
	"github.com/hawser-io/hawser/internal/machine"
	"github.com/hawser-io/hawser/internal/mount"
)

// recoverRecords loads what earlier processes have left: records from the disk, and volumes that only the API still
// names. Nothing is done for them here; that follows when each is reconciled.
func (a *Agent) recoverRecords(ctx context.Context) error {
	records, broken, err := a.store.Load()
	if err != nil {
		return err
	}
	for _, b := range broken {
		a.Log.Error(b.Err, "record is unreadable, its volume counts as in use", "file", b.Name)
	}
	nvs, err := a.session.ReadState(ctx)
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("reading node state: %w", err)
	}
	a.node.NoteUnknownUser(machine.Unknown(a.bootID, nvs, recordedIn(records)))
	a.node.RecoverStorageHealth(nvs)
	nvs = machine.Of(a.machine, nvs, recordedIn(records))
	if !a.session.Persisted.ForgottenBy(nvs) { // otherwise the disk knows better
		rebuilt, err := a.rebuild(nvs, records, broken)
		if err != nil {
			return err
		}
		records = append(records, rebuilt...)
	}
	for _, r := range records {
		r.Abandon() // the end of a call that was going on will not become known
		r.ForgetOtherBoots(a.bootID)
		// What the API does not show was cleared, or never acknowledged: the manager may have removed the intents'
		// finalizers since.
		r.InUse = r.InUse && markedInUse(nvs, r)
		v := a.volume(r.VolumeName)
		v.Record = r
		a.store.Note(r) // also one that was rebuilt: what is mounted for it is not the kubelet's
		a.views.Store(v.Name, r.Copy())
		f := plan.Facts{Now: a.now(), Record: r}
		if r.CountsAsInUse(f.Now) {
			line := report.NewVolumeReport(v.Snapshot(), f)
			// The first reconcile finds out which intents exist.
			for i := range line.Line.Publications {
				line.Line.Publications[i].Orphan = false
			}
			line.Orphan = false
			a.state.SetReport(v.Name, line)
		}
		a.queue.add(v.Name)
	}
	a.noteBroken(records, broken)
	a.observer.Recover(nvs)
	return a.recoverPods(ctx, records)
}

// recordedIn returns whether one of the records is of the use that a line is about.
func recordedIn(records []*record.Record) func(line *volumesv1alpha1.NodeVolume) bool {
	return func(line *volumesv1alpha1.NodeVolume) bool {
		return slices.ContainsFunc(records, func(r *record.Record) bool {
			return r.VolumeName == line.VolumeName && r.AttachmentUID == line.AttachmentUID
		})
	}
}

// rebuild makes records for volumes that the API says are in use here and that no record speaks of, and for broken
// records whose volume the API names. What the driver was asked for, and when, is not known.
func (a *Agent) rebuild(nvs *volumesv1alpha1.NodeVolumeState, records []*record.Record,
	broken []record.Broken) ([]*record.Record, error) {
	table, err := a.Mounts.Table()
	if err != nil {
		return nil, fmt.Errorf("reading the mount table: %w", err)
	}
	var rebuilt []*record.Record
	known := func(name string) bool {
		return slices.ContainsFunc(records, func(r *record.Record) bool { return r.VolumeName == name })
	}
	lost := func(name string) bool {
		return slices.ContainsFunc(broken, func(b record.Broken) bool {
			return b.Name == record.Hash(name)+record.Suffix
		})
	}
	for i := range nvs.Status.Volumes {
		line := &nvs.Status.Volumes[i]
		if !known(line.VolumeName) && line.PublishedBy != volumesv1alpha1.PublisherKubelet {
			rebuilt = append(rebuilt, a.rebuilt(line.VolumeName, line, handshake.AttachmentOf(nvs, line.VolumeName), table))
		}
	}
	for i := range nvs.Spec.Attachments {
		e := &nvs.Spec.Attachments[i]
		if lost(e.VolumeName) && handshake.VolumeOf(nvs, e.VolumeName) == nil {
			rebuilt = append(rebuilt, a.rebuilt(e.VolumeName, nil, e, table))
		}
	}
	return rebuilt, nil
}

// rebuilt is a record that assumes everything that may be: staged, published, and a call going on.
func (a *Agent) rebuilt(name string, line *volumesv1alpha1.NodeVolume, e *volumesv1alpha1.NodeAttachment,
	table *mount.Table) *record.Record {
	a.Log.Info("rebuilding a record from the API", "volume", name)
	r := &record.Record{Schema: record.Schema, Rebuilt: true}
	r.SetVolumeSource(record.VolumeSourceNamed(name))
	if e != nil {
		r.AttachmentUID = e.AttachmentUID
		r.SetVolumeSource(record.VolumeSourceOf(e))
	}
	now := a.now()
	if line != nil {
		r.AttachmentUID, r.Incomplete = line.AttachmentUID, line.Unlisted() > 0
		for _, p := range line.Publications {
			u := record.Use{Intent: p.Intent, Want: volumesv1alpha1.DesiredPublished, Phase: record.PhaseUncertain,
				Path: p.Path, Target: p.Path,
				Type: p.Type, ReadOnly: p.ReadOnly, BootID: now.BootID}
			hidden := a.paths.Hidden(p.Intent.UID)
			if p.Type == volumesv1alpha1.PublicationDevice {
				r.Mode = corev1.PersistentVolumeBlock
				u.Bound = a.paths.Bound(r.VolumeSource(), p.Intent.UID)
				if u.ReadOnly {
					u.Target = hidden
				}
			} else if len(table.All(hidden)) > 0 { // the agent's own bind mount is at the path
				u.Target = hidden
			}
			r.Uses = append(r.Uses, u)
		}
	}
	r.Stage = record.Stage{Phase: record.PhaseUncertain,
		Path: a.paths.Staging(r.VolumeSource()), BootID: now.BootID}
	unknown := a.steps.NewCall("unknown", r.Stage.Path)
	unknown.Mounts = true
	r.Begin(unknown)
	return r
}

// noteBroken remembers the unreadable records whose volume is not known, for the node's conditions.
func (a *Agent) noteBroken(records []*record.Record, broken []record.Broken) {
	for _, b := range broken {
		if !slices.ContainsFunc(records, func(r *record.Record) bool {
			return record.Hash(r.VolumeName)+record.Suffix == b.Name
		}) {
			a.node.AddBroken(fmt.Sprintf("record %s is unreadable and its volume is not known", b.Name))
		}
	}
}
