/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package agent

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/handshake"
)

var takeStep = step{
	operation: "stage", event: eventFailedMount,
	run: func(ctx context.Context, e *Environment, v *volume, f facts, _ types.UID) error {
		return e.take(ctx, v, f)
	},
}

var joinStep = step{
	operation: "publish", event: eventFailedMount,
	run: func(ctx context.Context, e *Environment, v *volume, f facts, _ types.UID) error {
		return e.join(ctx, v, f)
	},
}

// take takes the volume into use: the record first, so that no crash leaves a use that nobody remembers, then
// inUse with the publications that are about to be made, at a version at which the entry is Attached.
func (a *Environment) take(ctx context.Context, v *volume, f facts) error {
	if f.kubeletStale() {
		return problemf(volumesv1alpha1.ReasonSharedByKubelet, "the kubelet still has the volume mounted from an earlier attachment (%s)", f.kubelet.AttachmentUID)
	}
	before := v.record
	r := before.copy()
	if r == nil || !r.held(f.now) {
		r = a.newRecord(f)
	}
	for what, name := range map[string]string{"driver": r.Driver, "persistent volume": r.PersistentVolume} {
		if err := onePart(what, name); err != nil {
			return &problem{reason: volumesv1alpha1.ReasonStageFailed, message: err.Error(), stalled: true}
		}
	}
	f.record = r
	r.Uses = f.joined()
	v.record = r
	a.Node.restOnMountTable(v.name, "")
	if err := a.save(v); err != nil {
		v.record = before
		return err
	}
	line := lineOf(v.snapshot(), f)
	line.line.InUse = true
	uid := r.AttachmentUID
	a.Step("before inUse")
	err := a.State.urgent(ctx, change{
		volume: v.name, report: &line, fence: true,
		check: func(nvs *volumesv1alpha1.NodeVolumeState) error {
			if g := (handshake.Protocol{}).MaySetInUse(handshake.NodeOf(nvs, v.name), uid); g != handshake.GuardNone {
				return fmt.Errorf("taking the volume into use: refused by %s: %w", g, errAgain)
			}
			return nil
		},
	})
	a.Step("after inUse")
	if err != nil {
		return err
	}
	r.InUse = true
	return nil
}

func (a *Environment) newRecord(f facts) *Record {
	e := f.entry
	mode := e.VolumeMode
	if mode == "" {
		mode = corev1.PersistentVolumeFilesystem
	}
	return &Record{
		Schema: recordSchema, VolumeName: f.name, AttachmentUID: e.AttachmentUID,
		Driver: e.Driver, Handle: e.VolumeHandle, PersistentVolume: e.PersistentVolumeName, Mode: mode,
		Stage: Stage{Path: a.Paths.staging(e.Driver, e.VolumeHandle, e.PersistentVolumeName, mode)},
	}
}

// join notes what the intents want of a volume that is in use already. The disk is written before the next
// driver call; the API learns of the publication in company of what is written next.
func (a *Environment) join(ctx context.Context, v *volume, f facts) error {
	v.record.Uses = f.joined()
	a.Inform(v, f)
	for i := range v.record.Uses {
		if err := a.readLive(ctx, &v.record.Uses[i]); err != nil {
			return err
		}
	}
	return nil
}

// readLive reads an intent live that wants the volume staged and not published: the cache may still have it when it is gone. One that is
// there while the volume is in use stays until the agent has answered. What wants it published is read before that, see mayPublish.
func (a *Environment) readLive(ctx context.Context, u *Use) error {
	if u.Want != volumesv1alpha1.DesiredStaged || u.Live {
		return nil
	}
	i := &volumesv1alpha1.VolumeAttachmentIntent{}
	err := a.Live.Get(ctx, types.NamespacedName{Namespace: u.Intent.Namespace, Name: u.Intent.Name}, i)
	if client.IgnoreNotFound(err) != nil {
		return &unwrittenError{fmt.Errorf("reading intent: %w", err)}
	}
	u.Live = i.UID == u.Intent.UID
	return nil
}
