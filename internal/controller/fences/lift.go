/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package fences

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/nodestate"
	"github.com/hawser-io/hawser/internal/fencing"
	"github.com/hawser-io/hawser/internal/handshake"
)

// EventLifted is the reason of an event on a node state: a fence on which volumes were detached does not hold any more.
const EventLifted = "FenceLifted"

// Lifts finds fences that cut access and were lifted before the node's agent has reported that nothing of the volume is
// left. It writes that into the evidence, and sends an event.
type Lifts struct {
	Fences interface {
		// StillCuts reads the fence live.
		StillCuts(ctx context.Context, ref volumesv1alpha1.FenceReference, node string, v fencing.Volume) (bool, error)
	}
	// Client reads from the cache.
	Client   client.Reader
	Writer   *nodestate.Writer
	Events   events.EventRecorder
	Protocol handshake.Protocol
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
	if nvs == nil {
		return false, nil
	}
	entry, state := handshake.AttachmentOf(nvs, volume), handshake.NodeOf(nvs, volume)
	if l.Protocol.CutOf(state, entry, false) == nil {
		return false, nil
	}
	driverCuts, err := l.driverCuts(ctx, entry.Driver)
	if err != nil {
		return false, err
	}
	ref := l.Protocol.CutOf(state, entry, driverCuts)
	if ref == nil {
		return false, nil
	}
	holds, err := l.Fences.StillCuts(ctx, *ref, nvs.Name, VolumeOf(entry))
	return !holds && err == nil, err
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
	noted := false
	nvs, err := l.Writer.Apply(ctx, node,
		func(ctx context.Context, nvs *volumesv1alpha1.NodeVolumeState) (nodestate.Change, error) {
			var err error
			if noted, err = l.Lifted(ctx, nvs, volume); !noted || err != nil {
				return nil, err
			}
			return Mark(volume), nil
		})
	if err != nil {
		return nil, err
	}
	if noted {
		l.Announce(nvs, volume)
	}
	return nvs, nil
}

// Mark is the change by which the evidence shows that nothing keeps the volume from the node any more.
func Mark(volume string) nodestate.Change {
	return func(nvs *volumesv1alpha1.NodeVolumeState) {
		handshake.AttachmentOf(nvs, volume).Evidence.Unprotected = true
	}
}

// Announce what Mark has written.
func (l *Lifts) Announce(nvs *volumesv1alpha1.NodeVolumeState, volume string) {
	e := handshake.AttachmentOf(nvs, volume)
	if e == nil || e.Evidence == nil || e.Evidence.Fence == nil {
		return
	}
	l.Events.Eventf(nvs, &corev1.ObjectReference{
		APIVersion: "storage.k8s.io/v1", Kind: "VolumeAttachment", Name: e.AttachmentName, UID: e.AttachmentUID,
	}, corev1.EventTypeWarning, EventLifted, "Detach",
		"fence %s of source %s was lifted, or does not have every address of node %s any more, before the agent has "+
			"reported "+
			"that nothing of %s is left: what is still mounted may write to it. Where it was not handed over yet, the volume "+
			"waits for the report", e.Evidence.Fence.Name, e.Evidence.Fence.Source, nvs.Name, e.VolumeName)
}

// VolumeOf the entry, which may be nil.
func VolumeOf(e *volumesv1alpha1.NodeAttachment) fencing.Volume {
	if e == nil {
		return fencing.Volume{}
	}
	return fencing.Volume{Driver: e.Driver, Handle: e.VolumeHandle, Attributes: e.VolumeAttributes}
}
