/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package agent

import (
	"reflect"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/status"
)

func (f facts) intent(uid types.UID) *volumesv1alpha1.VolumeAttachmentIntent {
	i := slices.IndexFunc(f.intents, func(i *volumesv1alpha1.VolumeAttachmentIntent) bool { return i.UID == uid })
	if i < 0 {
		return nil
	}
	return f.intents[i]
}

// orphan: the use's intent is simply not there.
func (f facts) orphan(u Use) bool { return f.intent(u.Intent.UID) == nil }

// ending: the use's intent is simply not there, and nothing of it has to stay. Either it was gone before anything was there for it, or the
// last call began to unpublish it and nothing is at its path: its end had been asked for.
func (f facts) ending(u Use) bool {
	if !f.orphan(u) || f.uses[u.Intent.UID] != missing {
		return false
	}
	if u.Phase == PhaseNone {
		return !u.Live && !f.unsettled
	}
	c := f.record.Unfinished
	return u.Phase == PhaseUncertain && c != nil && c.Operation == "unpublish" && c.Target == u.Target
}

// releases: the use's intent asks for its end, or for less than there is.
func (f facts) releases(u Use) bool {
	i := f.intent(u.Intent.UID)
	if i == nil {
		return false
	}
	return !i.DeletionTimestamp.IsZero() || !f.unsettled && level(i.Spec.DesiredState) < level(u.Want)
}

func level(d volumesv1alpha1.DesiredState) int {
	switch d {
	case volumesv1alpha1.DesiredAttached:
		return 0
	case volumesv1alpha1.DesiredStaged:
		return 1
	}
	return 2
}

// wants: the use's intent is there and wants the volume.
func (f facts) wants(u Use) bool {
	return slices.ContainsFunc(f.wanting(), func(i *volumesv1alpha1.VolumeAttachmentIntent) bool { return i.UID == u.Intent.UID })
}

// differs: the publication was asked for with other parameters than its intent has now.
func (f facts) differs(u Use) bool {
	i := f.intent(u.Intent.UID)
	if i == nil || u.Phase == PhaseNone || u.Want != volumesv1alpha1.DesiredPublished || i.Spec.DesiredState != volumesv1alpha1.DesiredPublished {
		return false
	}
	return u.ReadOnly != i.Spec.ReadOnly || !reflect.DeepEqual(u.Mount, i.Spec.Mount)
}

// kept: some use stays, or is about to come.
func (f facts) kept() bool {
	if len(f.wanting()) > 0 && f.usable() {
		return true
	}
	return slices.ContainsFunc(f.record.Uses, func(u Use) bool { return !f.gone(u) })
}

// gone: the use ends altogether, it does not merely become less.
func (f facts) gone(u Use) bool {
	i := f.intent(u.Intent.UID)
	return i != nil && (!i.DeletionTimestamp.IsZero() || !f.unsettled && level(i.Spec.DesiredState) == 0)
}

// wanting lists the intents that the agent is to carry out now. One without the release finalizer could be gone before the agent has
// undone anything; the manager sets it, and that wakes the agent.
func (f facts) wanting() []*volumesv1alpha1.VolumeAttachmentIntent {
	if !f.attached() {
		return nil
	}
	var wanting []*volumesv1alpha1.VolumeAttachmentIntent
	for _, i := range f.intents {
		if i.DeletionTimestamp.IsZero() && status.Finalized(i) && i.Spec.Publisher != volumesv1alpha1.PublisherKubelet &&
			level(i.Spec.DesiredState) > 0 && i.Status.UniqueVolumeName == f.name &&
			i.Status.VolumeName == f.entry.PersistentVolumeName {
			wanting = append(wanting, i)
		}
	}
	return wanting
}

// joinChanges says whether the record does not yet say what the intents want.
func (f facts) joinChanges() bool {
	unread := func(u Use) bool { return f.wants(u) && u.Want == volumesv1alpha1.DesiredStaged && !u.Live }
	return f.usable() && (!reflect.DeepEqual(f.joined(), f.record.Uses) || slices.ContainsFunc(f.record.Uses, unread))
}

// joined is the record's uses with what the wanting intents want. A use that the driver was asked for keeps
// its parameters until it is undone; one whose intent is gone is adopted by an intent of the same name.
func (f facts) joined() []Use {
	var uses []Use
	if f.record != nil {
		uses = slices.Clone(f.record.Uses)
	}
	for _, i := range f.wanting() {
		k := slices.IndexFunc(uses, func(u Use) bool { return u.Intent.UID == i.UID })
		if k < 0 {
			k = slices.IndexFunc(uses, func(u Use) bool {
				return f.orphan(u) && u.Intent.Namespace == i.Namespace && u.Intent.Name == i.Name
			})
		}
		if k < 0 {
			uses = append(uses, Use{})
			k = len(uses) - 1
		}
		if uses[k].Phase == PhaseNone {
			live := uses[k].Live && uses[k].Intent.UID == i.UID
			uses[k] = f.wish(i)
			uses[k].Live = live && uses[k].Want == volumesv1alpha1.DesiredStaged
		} else {
			uses[k].Intent = referenceTo(i)
		}
	}
	return uses
}

// wish is the use that the intent asks for.
func (f facts) wish(i *volumesv1alpha1.VolumeAttachmentIntent) Use {
	u := Use{Intent: referenceTo(i), Want: volumesv1alpha1.DesiredStaged}
	if level(i.Spec.DesiredState) < level(volumesv1alpha1.DesiredPublished) {
		return u
	}
	u.Want = volumesv1alpha1.DesiredPublished
	u.Path = f.paths.published(i.Namespace, i.Name)
	u.Target = u.Path
	u.Type = volumesv1alpha1.PublicationMount
	u.ReadOnly = i.Spec.ReadOnly
	u.Mount = i.Spec.Mount.DeepCopy()
	if f.entry.VolumeMode == corev1.PersistentVolumeBlock {
		u.Type = volumesv1alpha1.PublicationDevice
		if u.ReadOnly {
			u.Target = f.paths.hidden(i.UID) // until the kernel refuses writes
		}
	} else if u.Mount != nil && u.Mount.SubPath != "" {
		u.Target = f.paths.hidden(i.UID)
	}
	return u
}

func referenceTo(i *volumesv1alpha1.VolumeAttachmentIntent) volumesv1alpha1.IntentReference {
	return volumesv1alpha1.IntentReference{Namespace: i.Namespace, Name: i.Name, UID: i.UID}
}

// sorted puts the oldest intent first, so that plans do not depend on the cache's order.
func sorted(intents []*volumesv1alpha1.VolumeAttachmentIntent) []*volumesv1alpha1.VolumeAttachmentIntent {
	slices.SortFunc(intents, func(x, y *volumesv1alpha1.VolumeAttachmentIntent) int {
		if c := x.CreationTimestamp.Compare(y.CreationTimestamp.Time); c != 0 {
			return c
		}
		return slices.Compare([]string{x.Namespace, x.Name}, []string{y.Namespace, y.Name})
	})
	return intents
}
