/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package fences

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/metrics"
	"github.com/hawser-io/hawser/internal/controller/nodestate"
	"github.com/hawser-io/hawser/internal/fencing"
	"github.com/hawser-io/hawser/internal/handshake"
)

// EventLifted is the reason of an event on a node state: a fence on which volumes were detached does not hold any more.
const EventLifted = "FenceLifted"

// Lifts finds fences that cut access and were lifted before the node's agent has reported that nothing of the volume is
// left. It writes that into the evidence, sends an event, and counts it.
type Lifts struct {
	Fences interface {
		// Lifted reads the fences live, and returns the cause of each lift.
		Lifted(ctx context.Context, node string, kept []Kept) ([]string, error)
	}
	// Client reads from the cache.
	Client   client.Reader
	Writer   *nodestate.Writer
	Events   events.EventRecorder
	Protocol handshake.Protocol
}

// lift of the fence by which an attachment was kept from its node.
type lift struct {
	attachment types.UID
	by         volumesv1alpha1.FenceReference
	cause      string
}

// of reports whether the entry, which may be nil, is that of the attachment and rests on that fence.
func (l lift) of(e *volumesv1alpha1.NodeAttachment) bool {
	return e != nil && e.AttachmentUID == l.attachment && e.Evidence != nil && e.Evidence.Fence != nil &&
		*e.Evidence.Fence == l.by
}

// Concerned reports whether any volume is kept from the node by a fence alone.
func (l *Lifts) Concerned(nvs *volumesv1alpha1.NodeVolumeState) bool {
	for i := range nvs.Spec.Attachments {
		if e := &nvs.Spec.Attachments[i]; l.Protocol.CutOf(handshake.NodeOf(nvs, e.VolumeName), e, false) != nil {
			return true
		}
	}
	return false
}

// Lifted reads live, after nvs, whether the fence was lifted that alone keeps the volume from the node; false where
// there is none.
func (l *Lifts) Lifted(ctx context.Context, nvs *volumesv1alpha1.NodeVolumeState, volume string) (bool, error) {
	found, err := l.lifted(ctx, nvs, volume)
	return found != nil, err
}

func (l *Lifts) lifted(ctx context.Context, nvs *volumesv1alpha1.NodeVolumeState, volume string) (*lift, error) {
	ref, err := l.keeps(ctx, nvs, volume)
	if ref == nil || err != nil {
		return nil, err
	}
	entry := handshake.AttachmentOf(nvs, volume)
	causes, err := l.Fences.Lifted(ctx, nvs.Name, []Kept{{By: *ref, Volume: VolumeOf(entry)}})
	if err != nil || causes[0] == "" {
		return nil, err
	}
	return &lift{attachment: entry.AttachmentUID, by: *ref, cause: causes[0]}, nil
}

// keeps is the fence that alone keeps the volume from the node; nil where there is none.
func (l *Lifts) keeps(
	ctx context.Context, nvs *volumesv1alpha1.NodeVolumeState, volume string,
) (*volumesv1alpha1.FenceReference, error) {
	if nvs == nil {
		return nil, nil
	}
	entry, state := handshake.AttachmentOf(nvs, volume), handshake.NodeOf(nvs, volume)
	if l.Protocol.CutOf(state, entry, false) == nil {
		return nil, nil
	}
	driverCuts, err := l.driverCuts(ctx, entry.Driver)
	if err != nil {
		return nil, err
	}
	return l.Protocol.CutOf(state, entry, driverCuts), nil
}

// driverCuts reports whether the driver is known to cut a node's access by itself.
func (l *Lifts) driverCuts(ctx context.Context, name string) (bool, error) {
	driver := &storagev1.CSIDriver{}
	if err := l.Client.Get(ctx, client.ObjectKey{Name: name}, driver); client.IgnoreNotFound(err) != nil {
		return false, fmt.Errorf("reading driver %s: %w", name, err)
	}
	return driver.Annotations[volumesv1alpha1.CutsAccessAnnotation] == "true", nil
}

// Note writes into the evidence that the fence was lifted, if it was. It returns the newest node state, where another
// writer may have been first.
func (l *Lifts) Note(ctx context.Context, node, volume string) (*volumesv1alpha1.NodeVolumeState, error) {
	return l.note(ctx, node,
		func(ctx context.Context, nvs *volumesv1alpha1.NodeVolumeState) (map[string]lift, error) {
			found, err := l.lifted(ctx, nvs, volume)
			if found == nil || err != nil {
				return nil, err
			}
			return map[string]lift{volume: *found}, nil
		})
}

// NoteAll does so for all volumes of the node, of which nvs is known: each source is read once, and one write shows all
// lifts. A fence that was lifted after nvs was lifted before the agent's report, if a later state has none either.
func (l *Lifts) NoteAll(ctx context.Context, nvs *volumesv1alpha1.NodeVolumeState) error {
	known, failure := l.allLifted(ctx, nvs)
	if len(known) == 0 {
		return failure
	}
	_, err := l.note(ctx, nvs.Name,
		func(ctx context.Context, nvs *volumesv1alpha1.NodeVolumeState) (map[string]lift, error) {
			still := map[string]lift{}
			for volume, found := range known {
				ref, err := l.keeps(ctx, nvs, volume)
				if err != nil {
					return nil, err
				}
				if ref != nil && found.of(handshake.AttachmentOf(nvs, volume)) {
					still[volume] = found
				}
			}
			return still, nil
		})
	return errors.Join(failure, err)
}

// allLifted are the lifts by volume. What an error is about is not among them.
func (l *Lifts) allLifted(ctx context.Context, nvs *volumesv1alpha1.NodeVolumeState) (map[string]lift, error) {
	var (
		volumes  []string
		kept     []Kept
		failures []error
	)
	for i := range nvs.Spec.Attachments {
		e := &nvs.Spec.Attachments[i]
		ref, err := l.keeps(ctx, nvs, e.VolumeName)
		if ref == nil || err != nil {
			failures = append(failures, err)
			continue
		}
		volumes, kept = append(volumes, e.VolumeName), append(kept, Kept{By: *ref, Volume: VolumeOf(e)})
	}
	if len(kept) == 0 {
		return nil, errors.Join(failures...)
	}
	causes, err := l.Fences.Lifted(ctx, nvs.Name, kept)
	found := map[string]lift{}
	for i, cause := range causes {
		if cause != "" {
			uid := handshake.AttachmentOf(nvs, volumes[i]).AttachmentUID
			found[volumes[i]] = lift{attachment: uid, by: kept[i].By, cause: cause}
		}
	}
	return found, errors.Join(append(failures, err)...)
}

// note writes the lifts that find returns for the node's state, and announces those that it was the first to write.
func (l *Lifts) note(ctx context.Context, node string,
	find func(context.Context, *volumesv1alpha1.NodeVolumeState) (map[string]lift, error),
) (*volumesv1alpha1.NodeVolumeState, error) {
	noted := map[string]string{}
	nvs, err := l.Writer.Apply(ctx, node,
		func(ctx context.Context, nvs *volumesv1alpha1.NodeVolumeState) (nodestate.Change, error) {
			clear(noted)
			lifts, err := find(ctx, nvs)
			if len(lifts) == 0 || err != nil {
				return nil, err
			}
			return func(nvs *volumesv1alpha1.NodeVolumeState) {
				for volume, found := range lifts {
					// Another change of the same write may have been first.
					if e := handshake.AttachmentOf(nvs, volume); found.of(e) && !e.Evidence.Unprotected {
						e.Evidence.Unprotected = true
						noted[volume] = found.cause
					}
				}
			}, nil
		})
	if err != nil {
		return nil, err
	}
	for _, volume := range slices.Sorted(maps.Keys(noted)) {
		l.announce(nvs, volume, noted[volume])
	}
	return nvs, nil
}

func (l *Lifts) announce(nvs *volumesv1alpha1.NodeVolumeState, volume, cause string) {
	e := handshake.AttachmentOf(nvs, volume)
	if e == nil || e.Evidence == nil || e.Evidence.Fence == nil {
		return
	}
	metrics.AccessReturned(e.Evidence)
	l.Events.Eventf(nvs, &corev1.ObjectReference{
		APIVersion: "storage.k8s.io/v1", Kind: "VolumeAttachment", Name: e.AttachmentName, UID: e.AttachmentUID,
	}, corev1.EventTypeWarning, EventLifted, "Detach",
		"fence %s of source %s %s. The agent of node %s has not reported before that nothing of %s is left: what is still "+
			"mounted may write to it. Where it was not handed over yet, the volume waits for the report",
		e.Evidence.Fence.Name, e.Evidence.Fence.Source, cause, nvs.Name, e.VolumeName)
}

// VolumeOf the entry, which may be nil.
func VolumeOf(e *volumesv1alpha1.NodeAttachment) fencing.Volume {
	if e == nil {
		return fencing.Volume{}
	}
	return fencing.Volume{Driver: e.Driver, Handle: e.VolumeHandle, Attributes: e.VolumeAttributes}
}
