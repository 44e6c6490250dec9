/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package agent

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/handshake"
	"github.com/hawser-io/hawser/internal/mount"
	"github.com/hawser-io/hawser/internal/status"
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
	f.overdue = f.unsettled && a.overdue.Load()
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

// compare looks the record's places up in the mount table.
func (f *facts) compare(table *mount.Table) {
	f.stage, f.reference, f.uses = missing, missing, map[types.UID]presence{}
	r := f.record
	if r == nil {
		return
	}
	f.stage = presenceOf(table, r.Stage.Path, r.Stage.Source)
	f.reference = presenceOf(table, f.paths.reference(f.name), r.Stage.Source)
	for _, u := range r.Uses {
		f.uses[u.Intent.UID] = presenceOf(table, u.Path, u.Source)
	}
}

// intentsOf lists the intents that name the volume, and those for which the record says it is here.
func (a *Agent) intentsOf(ctx context.Context, v *volume) ([]*volumesv1alpha1.VolumeAttachmentIntent, error) {
	var list volumesv1alpha1.VolumeAttachmentIntentList
	if err := a.Cache.List(ctx, &list, client.MatchingFields{volumeIndex: v.name}); err != nil {
		return nil, fmt.Errorf("listing intents: %w", err)
	}
	var intents []*volumesv1alpha1.VolumeAttachmentIntent
	for i := range list.Items {
		intents = append(intents, a.newestIntent(&list.Items[i]))
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
			intents = append(intents, a.newestIntent(&i))
		}
	}
	return sorted(intents), nil
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

// newestIntent is the intent as this process wrote it last, where the watch has not brought that yet.
func (a *Agent) newestIntent(i *volumesv1alpha1.VolumeAttachmentIntent) *volumesv1alpha1.VolumeAttachmentIntent {
	a.mu.Lock()
	defer a.mu.Unlock()
	if w, ok := a.written[i.UID]; ok {
		if newer(w.ResourceVersion, i.ResourceVersion) {
			return w.DeepCopy()
		}
		delete(a.written, i.UID)
	}
	return i
}

func (a *Agent) forgetIntent(uid types.UID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.written, uid)
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

// seed takes over the attempts that an earlier process counted, so that a restart does not forget the backoff.
func (v *volume) seed(intents []*volumesv1alpha1.VolumeAttachmentIntent, now time.Time) {
	maps.DeleteFunc(v.seeded, func(uid types.UID, _ bool) bool {
		return !slices.ContainsFunc(intents, func(i *volumesv1alpha1.VolumeAttachmentIntent) bool { return i.UID == uid })
	})
	for _, i := range intents {
		e := i.Status.LastError
		if v.seeded[i.UID] {
			continue
		}
		v.seeded[i.UID] = true
		if e == nil || i.Generation != i.Status.ObservedGeneration {
			continue
		}
		for _, a := range []act{
			{verb: doStage}, {verb: doUnstage}, {verb: doExpand},
			{verb: doPublish, intent: i.UID}, {verb: doUnpublish, intent: i.UID},
		} {
			if operationOf[a.verb] != e.Operation || v.failures[a] != nil {
				continue
			}
			failed := &failure{OperationError: *e.DeepCopy(), act: a, reason: failedReason[e.Operation], announced: true}
			// A clock that was set back must not keep the volume waiting longer than the backoff would.
			if n := failed.NextAttemptTime; n != nil && n.Sub(now) > status.LongestBackoff {
				failed.NextAttemptTime = nil
			}
			v.failures[a] = failed
		}
	}
}

// ordered lists the failures of what is planned, in the plan's order.
func (v *volume) ordered(f facts) []*failure {
	var failures []*failure
	for _, a := range plan(f) {
		if failed := v.failures[a]; failed != nil {
			failures = append(failures, failed)
		}
	}
	return failures
}
