/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package plan

import (
	"reflect"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/agent/record"
	"github.com/hawser-io/hawser/internal/status"
)

// Intent returns the intent, or nil if it is not there.
func (f Facts) Intent(uid types.UID) *volumesv1alpha1.VolumeAttachmentIntent {
	i := slices.IndexFunc(f.Intents, func(i *volumesv1alpha1.VolumeAttachmentIntent) bool { return i.UID == uid })
	if i < 0 {
		return nil
	}
	return f.Intents[i]
}

// Orphan reports that the use's intent is simply not there.
func (f Facts) Orphan(u record.Use) bool { return f.Intent(u.Intent.UID) == nil }

// Ending reports that the use's intent is simply not there, and nothing of it has to stay. Either it was gone before
// anything was there for it, or the last call began to unpublish it and nothing is at its path: its end had been asked
// for.
func (f Facts) Ending(u record.Use) bool {
	if !f.Orphan(u) || f.Uses[u.Intent.UID] != record.Missing {
		return false
	}
	if u.Phase == record.PhaseNone {
		return !u.Live && !f.Unconfirmed
	}
	c := f.Record.Unfinished
	return u.Phase == record.PhaseUncertain && c != nil && c.Operation == "unpublish" && c.Target == u.Target
}

// Releases reports that the use's intent asks for its end, or for less than there is.
func (f Facts) Releases(u record.Use) bool {
	i := f.Intent(u.Intent.UID)
	if i == nil {
		return false
	}
	return !i.DeletionTimestamp.IsZero() || !f.Unconfirmed && Level(i.Spec.DesiredState) < Level(u.Want)
}

// Level orders the states that an intent may ask for.
func Level(d volumesv1alpha1.DesiredState) int {
	switch d {
	case volumesv1alpha1.DesiredAttached:
		return 0
	case volumesv1alpha1.DesiredStaged:
		return 1
	}
	return 2
}

// Wants reports that the use's intent is there and wants the volume.
func (f Facts) Wants(u record.Use) bool {
	return slices.ContainsFunc(f.Wanting(), func(i *volumesv1alpha1.VolumeAttachmentIntent) bool {
		return i.UID == u.Intent.UID
	})
}

// Differs reports that the publication is not what its intent asks for: it was asked for with other parameters, or its
// sub path names another directory by now.
func (f Facts) Differs(u record.Use) bool {
	i := f.Intent(u.Intent.UID)
	if i == nil || u.Phase == record.PhaseNone || u.Want != volumesv1alpha1.DesiredPublished ||
		i.Spec.DesiredState != volumesv1alpha1.DesiredPublished {
		return false
	}
	return u.Moved || u.ReadOnly != i.Spec.ReadOnly || !reflect.DeepEqual(u.Mount, i.Spec.Mount)
}

// Kept reports that some use stays, or is about to come.
func (f Facts) Kept() bool {
	if len(f.Wanting()) > 0 && f.Usable() {
		return true
	}
	return slices.ContainsFunc(f.Record.Uses, func(u record.Use) bool { return !f.Ends(u) })
}

// Ends reports that the use ends altogether, it does not merely become less.
func (f Facts) Ends(u record.Use) bool {
	i := f.Intent(u.Intent.UID)
	return i != nil && (!i.DeletionTimestamp.IsZero() || !f.Unconfirmed && Level(i.Spec.DesiredState) == 0)
}

// Wanting lists the intents that the agent is to carry out now. One without the release finalizer could be gone before
// the agent has undone anything; the manager sets it, and that wakes the agent.
func (f Facts) Wanting() []*volumesv1alpha1.VolumeAttachmentIntent {
	if !f.Attached() {
		return nil
	}
	var wanting []*volumesv1alpha1.VolumeAttachmentIntent
	for _, i := range f.Intents {
		if i.DeletionTimestamp.IsZero() && status.Finalized(i) &&
			i.Spec.Publisher != volumesv1alpha1.PublisherKubelet &&
			Level(i.Spec.DesiredState) > 0 && i.Status.UniqueVolumeName == f.Name &&
			i.Status.VolumeName == f.VolumeSource().PersistentVolume {
			wanting = append(wanting, i)
		}
	}
	return wanting
}

// JoinChanges reports whether the record lacks something that the intents want.
func (f Facts) JoinChanges() bool {
	unread := func(u record.Use) bool { return f.Wants(u) && u.Want == volumesv1alpha1.DesiredStaged && !u.Live }
	return f.Usable() && (!reflect.DeepEqual(f.Joined(), f.Record.Uses) || slices.ContainsFunc(f.Record.Uses, unread))
}

// Joined is the record's uses with what the wanting intents want. A use that the driver was asked for keeps
// its parameters until it is undone; one whose intent is gone is adopted by an intent of the same name.
func (f Facts) Joined() []record.Use {
	var uses []record.Use
	if f.Record != nil {
		uses = slices.Clone(f.Record.Uses)
	}
	for _, i := range f.Wanting() {
		k := slices.IndexFunc(uses, func(u record.Use) bool { return u.Intent.UID == i.UID })
		if k < 0 {
			k = slices.IndexFunc(uses, func(u record.Use) bool {
				return f.Orphan(u) && u.Intent.Namespace == i.Namespace && u.Intent.Name == i.Name
			})
		}
		if k < 0 {
			uses = append(uses, record.Use{})
			k = len(uses) - 1
		}
		if uses[k].Phase == record.PhaseNone {
			live := uses[k].Live && uses[k].Intent.UID == i.UID
			uses[k] = f.UseFor(i)
			uses[k].Live = live && uses[k].Want == volumesv1alpha1.DesiredStaged
		} else {
			uses[k].Intent = referenceTo(i)
		}
	}
	return uses
}

// Complete adds to an incomplete record the uses that it lacks: any intent of the volume may have been published before
// the record was lost. A publication whose intent does not exist either is not found here. Its mount keeps the volume
// from being unstaged.
func (f Facts) Complete() {
	r := f.Record
	if r == nil || !r.Incomplete {
		return
	}
	if f.Entry == nil {
		f.Entry = &volumesv1alpha1.NodeAttachment{VolumeMode: r.Mode}
	}
	for _, i := range f.Intents {
		u := f.UseFor(i)
		if u.Path == "" || i.Spec.Publisher == volumesv1alpha1.PublisherKubelet || r.UseOf(i.UID) != nil {
			continue
		}
		u.Phase, u.BootID = record.PhaseUncertain, f.Now.BootID
		if u.Type == volumesv1alpha1.PublicationDevice {
			u.Bound = f.Paths.Bound(r.VolumeSource(), i.UID)
		}
		r.Uses = append(r.Uses, u)
	}
	r.Incomplete = false
}

// UseFor is the use that the intent asks for.
func (f Facts) UseFor(i *volumesv1alpha1.VolumeAttachmentIntent) record.Use {
	u := record.Use{Intent: referenceTo(i), Want: volumesv1alpha1.DesiredStaged}
	if m := i.Spec.Mount; m != nil && m.SELinuxOptions != nil { // all else of it is for publications
		u.Mount = &volumesv1alpha1.MountSpec{SELinuxOptions: m.SELinuxOptions.DeepCopy()}
	}
	if Level(i.Spec.DesiredState) < Level(volumesv1alpha1.DesiredPublished) {
		return u
	}
	u.Want = volumesv1alpha1.DesiredPublished
	u.Path = f.Paths.Published(i.Namespace, i.Name)
	u.Target = u.Path
	u.Type = volumesv1alpha1.PublicationMount
	u.ReadOnly = i.Spec.ReadOnly
	u.Mount = i.Spec.Mount.DeepCopy()
	if f.VolumeSource().Mode == corev1.PersistentVolumeBlock {
		u.Type = volumesv1alpha1.PublicationDevice
	}
	if u.ReadOnly || u.Type == volumesv1alpha1.PublicationMount && u.SubPath() != "" {
		u.Target = f.Paths.Hidden(i.UID) // a driver may ignore that it is to be read-only
	}
	return u
}

func referenceTo(i *volumesv1alpha1.VolumeAttachmentIntent) volumesv1alpha1.IntentReference {
	return volumesv1alpha1.IntentReference{Namespace: i.Namespace, Name: i.Name, UID: i.UID}
}

// Sorted puts the oldest intent first, so that plans do not depend on the cache's order.
func Sorted(intents []*volumesv1alpha1.VolumeAttachmentIntent) []*volumesv1alpha1.VolumeAttachmentIntent {
	slices.SortFunc(intents, func(x, y *volumesv1alpha1.VolumeAttachmentIntent) int {
		if c := x.CreationTimestamp.Compare(y.CreationTimestamp.Time); c != 0 {
			return c
		}
		return slices.Compare([]string{x.Namespace, x.Name}, []string{y.Namespace, y.Name})
	})
	return intents
}
