/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package agent

import (
	"context"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/handshake"
)

// gather collects everything that is known of the volume now.
func (a *Agent) gather(ctx context.Context, v *volume) (facts, error) {
	nvs := a.state.newest()
	if nvs == nil {
		return facts{}, errNoState
	}
	f := facts{name: v.name, paths: a.paths, now: a.now(), record: v.record, unsaved: v.unsaved, busy: v.hanging() != ""}
	f.node = handshake.NodeOf(nvs, v.name)
	f.unsettled = !a.state.confirmed()
	f.overdue = f.unsettled && a.session.overdue.Load()
	f.entry = handshake.AttachmentOf(nvs, v.name)
	f.kubelet = a.observer.use(v.name)
	if r := v.record; r != nil {
		v.takeInherited(a.bootID)
		// What no write of this process stands for has to be taken anew: its outcome may be unknown, or the
		// object made anew.
		acked := handshake.NodeOf(a.state.acknowledged(), v.name).Use
		r.InUse = r.InUse && acked == handshake.Use{UID: r.AttachmentUID, InUse: true}
		f.mountsGroup = a.capable(r.Driver, "VOLUME_MOUNT_GROUP")
		f.expands = a.capable(r.Driver, "EXPAND_VOLUME")
		if _, known := a.Registry.Get(r.Driver); f.entry != nil && r.Stage.Phase == PhaseDone {
			r.Capacity = f.seen(known && !f.expands)
		}
	}
	var err error
	if f.intents, err = a.intentsOf(ctx, v); err != nil {
		return facts{}, err
	}
	v.seed(f.intents, a.Clock.Now())
	table, err := a.Mounts.Table()
	if err != nil {
		return facts{}, err
	}
	f.compare(table)
	if f.record == nil || !f.record.block() {
		return f, nil
	}
	if f.nodes, err = a.Mounts.DeviceNodes(f.paths.globalMap(f.record.PersistentVolume)); err != nil {
		return facts{}, err
	}
	if len(f.nodes) > 0 {
		f.reference = present
	}
	return f, nil
}

// intentsOf lists the intents that name the volume, and those for which the record says it is here.
func (a *Agent) intentsOf(ctx context.Context, v *volume) ([]*volumesv1alpha1.VolumeAttachmentIntent, error) {
	var list volumesv1alpha1.VolumeAttachmentIntentList
	if err := a.Cache.List(ctx, &list, client.MatchingFields{volumeIndex: v.name}); err != nil {
		return nil, fmt.Errorf("listing intents: %w", err)
	}
	var intents []*volumesv1alpha1.VolumeAttachmentIntent
	for i := range list.Items {
		intents = append(intents, a.intents.newest(&list.Items[i]))
	}
	if v.record == nil {
		return sorted(intents), nil
	}
	for _, u := range v.record.Uses {
		if slices.ContainsFunc(intents, func(i *volumesv1alpha1.VolumeAttachmentIntent) bool { return i.UID == u.Intent.UID }) {
			continue
		}
		var i volumesv1alpha1.VolumeAttachmentIntent
		err := a.Cache.Get(ctx, types.NamespacedName{Namespace: u.Intent.Namespace, Name: u.Intent.Name}, &i)
		if err != nil && !apierrors.IsNotFound(err) {
			return nil, fmt.Errorf("reading intent: %w", err)
		}
		if err == nil && i.UID == u.Intent.UID {
			intents = append(intents, a.intents.newest(&i))
		}
	}
	return sorted(intents), nil
}

// capable says whether the driver has said that it can do this.
func (a *Agent) capable(driverName, capability string) bool {
	for _, d := range a.Registry.Drivers() {
		if d.Name == driverName {
			return slices.Contains(d.Capabilities, capability)
		}
	}
	return false
}
