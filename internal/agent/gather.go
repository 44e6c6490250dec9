/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package agent

import (
	"context"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/agent/operation"
	"github.com/hawser-io/hawser/internal/agent/plan"
	"github.com/hawser-io/hawser/internal/agent/record"
	"github.com/hawser-io/hawser/internal/agent/report"
	"github.com/hawser-io/hawser/internal/handshake"
	"github.com/hawser-io/hawser/internal/mount"
	"github.com/hawser-io/hawser/internal/selinux"
)

// gather collects everything that is known of the volume now.
func (a *Agent) gather(ctx context.Context, v *operation.Volume) (plan.Facts, error) {
	nvs := a.state.Newest()
	if nvs == nil {
		return plan.Facts{}, report.ErrNoState
	}
	f := plan.Facts{Name: v.Name, Paths: a.paths, Now: a.now(), Record: v.Record, Unsaved: v.Unsaved,
		CallHangs: v.HangingCall() != ""}
	f.Node = handshake.NodeOf(nvs, v.Name)
	f.Unconfirmed = !a.state.Confirmed()
	f.Overdue = f.Unconfirmed && a.session.Overdue.Load()
	f.Entry = handshake.AttachmentOf(nvs, v.Name)
	f.Kubelet = a.observer.Use(v.Name)
	f.Pods = a.pods.OfVolume(v.Name)
	if r := v.Record; r != nil {
		v.RecordInherited(a.bootID)
		v.RecordExamination()
		// InUse counts only if this process wrote it. Otherwise the outcome of the write may be unknown, or the object
		// may have been created again.
		r.InUse = r.InUse && markedInUse(a.state.Acknowledged(), r)
		f.DriverSetsGroup = a.capable(r.Driver, "VOLUME_MOUNT_GROUP")
		f.Expands = a.capable(r.Driver, "EXPAND_VOLUME")
		if _, known := a.Registry.Get(r.Driver); f.Entry != nil && r.Stage.Phase == record.PhaseDone {
			r.Capacity = f.SeenCapacity(known && !f.Expands)
		}
	}
	var err error
	if f.Intents, err = a.intentsOf(ctx, v); err != nil {
		return plan.Facts{}, err
	}
	f.Complete()
	v.Seed(f.Intents, a.Clock.Now())
	err = a.find(ctx, &f)
	return f, err
}

// find finds the volume's places in the mount table. For what is to be undone or made again they are read once more, as
// they are now.
func (a *Agent) find(ctx context.Context, f *plan.Facts) error {
	if err := a.compare(f, mount.Recent); err != nil {
		return err
	}
	a.findMoved(ctx, *f)
	if plan.Forward(*f) {
		return nil
	}
	return a.compare(f, 0)
}

// findMoved finds out which publications show another directory than their sub path names now. Pods that have one keep
// it.
func (a *Agent) findMoved(ctx context.Context, f plan.Facts) {
	if f.Record == nil || f.Record.Sick != nil {
		return
	}
	for i := range f.Record.Uses {
		if u := &f.Record.Uses[i]; f.Published(*u) {
			u.Moved = a.moved(ctx, *u)
		}
	}
}

// moved reports whether what is published shows another directory than the sub path names now. Where that cannot be
// found out, it is as it was.
func (a *Agent) moved(ctx context.Context, u record.Use) bool {
	if u.SubPath() == "" {
		return false
	}
	shows, err := a.Mounts.Shows(ctx, u.Path, u.Target, u.SubPath())
	if err != nil {
		a.Log.V(1).Info("sub path not compared", "path", u.Path, "subPath", u.SubPath(), "error", err.Error())
		return u.Moved
	}
	return !shows
}

// compare finds them in a table of at most that age, 0 for that of now.
func (a *Agent) compare(f *plan.Facts, age time.Duration) error {
	read := a.Mounts.Table
	if age > 0 {
		read = func() (*mount.Table, error) { return a.Mounts.TableWithin(age) }
	}
	table, err := read()
	if err != nil {
		return err
	}
	f.Compare(table)
	f.SELinux = a.selinux(table, *f)
	if f.Record == nil || !f.Record.Block() {
		return nil
	}
	if f.DeviceNodes, err = a.Mounts.DeviceNodes(f.Paths.GlobalMap(f.Record.VolumeSource())); err != nil {
		return err
	}
	if len(f.DeviceNodes) > 0 {
		f.Reference = record.Present
	}
	return nil
}

// selinux is what is known of SELinux on the node; nil where it has none, or where nothing of the volume depends on it.
func (a *Agent) selinux(table *mount.Table, f plan.Facts) *plan.SELinux {
	asks := func(u record.Use) bool { return u.Mount != nil && u.Mount.SELinuxOptions != nil }
	if f.Record == nil || f.Entry == nil || !f.Entry.SELinuxMount && !slices.ContainsFunc(f.Record.Uses, asks) ||
		!table.SELinux() {
		return nil
	}
	label, err := selinux.FileLabel(a.NodeFiles)
	return &plan.SELinux{Files: label, Err: err}
}

// fileLabel is the SELinux label of the node's container files; empty without SELinux.
func (a *Agent) fileLabel() (string, error) {
	table, err := a.Mounts.TableWithin(mount.Recent)
	if err != nil || !table.SELinux() {
		return "", err
	}
	return selinux.FileLabel(a.NodeFiles)
}

// markedInUse reports whether the node's state has the volume in use by the agent. The manager takes intents to be
// released where it has the volume in use by the kubelet, so that is no mark of the agent's.
func markedInUse(nvs *volumesv1alpha1.NodeVolumeState, r *record.Record) bool {
	if nvs == nil {
		return false
	}
	line := handshake.VolumeOf(nvs, r.VolumeName)
	return line != nil && line.InUse && !line.Waiting && line.AttachmentUID == r.AttachmentUID &&
		line.Machine == nil && line.PublishedBy != volumesv1alpha1.PublisherKubelet
}

// intentsOf lists the intents that name the volume, and those that the record names as its users.
func (a *Agent) intentsOf(ctx context.Context, v *operation.Volume) ([]*volumesv1alpha1.VolumeAttachmentIntent, error) {
	var list volumesv1alpha1.VolumeAttachmentIntentList
	if err := a.Cache.List(ctx, &list, client.MatchingFields{volumeIndex: v.Name}); err != nil {
		return nil, fmt.Errorf("listing intents: %w", err)
	}
	var intents []*volumesv1alpha1.VolumeAttachmentIntent
	for i := range list.Items {
		intents = append(intents, a.intents.Newest(&list.Items[i]))
	}
	if v.Record == nil {
		return plan.Sorted(intents), nil
	}
	for _, u := range v.Record.Uses {
		if slices.ContainsFunc(intents, func(i *volumesv1alpha1.VolumeAttachmentIntent) bool {
			return i.UID == u.Intent.UID
		}) {
			continue
		}
		var i volumesv1alpha1.VolumeAttachmentIntent
		err := a.Cache.Get(ctx, types.NamespacedName{Namespace: u.Intent.Namespace, Name: u.Intent.Name}, &i)
		if err != nil && !apierrors.IsNotFound(err) {
			return nil, fmt.Errorf("reading intent: %w", err)
		}
		if err == nil && i.UID == u.Intent.UID {
			intents = append(intents, a.intents.Newest(&i))
		}
	}
	return plan.Sorted(intents), nil
}

// capable reports whether the driver announces the capability.
func (a *Agent) capable(driverName, capability string) bool {
	for _, d := range a.Registry.Drivers() {
		if d.Name == driverName {
			return slices.Contains(d.Capabilities, capability)
		}
	}
	return false
}
