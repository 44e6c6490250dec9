/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package agent

import (
	"context"
	"path/filepath"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/handshake"
)

var clearStep = step{
	operation: "unstage", event: eventFailedUnmount,
	run: func(ctx context.Context, e *Environment, v *volume, f facts, _ types.UID) error {
		return e.clear(ctx, v, f)
	},
}

// clear takes inUse back: when everything is known to be undone, no call can still be running, and the
// mount table agrees. From the moment it is tried the volume has to be taken anew to be used.
func (a *Environment) clear(ctx context.Context, v *volume, f facts) error {
	r := v.record
	if !r.callsEnded(f.now) {
		return inFlight(r.Unfinished, a.Clock.Now().Add(r.Unfinished.remaining(f.now)))
	}
	if err := a.checkFree(ctx, v); err != nil {
		return err
	}
	held := handshake.Held{Released: !r.touched(), CallsEnded: r.callsEnded(f.now), Mounted: f.mounted() || a.mountsBusy(v)}
	if g := (handshake.Protocol{}).MayClearInUse(held); g != handshake.GuardNone {
		return problemf(volumesv1alpha1.ReasonUnstageFailed, "the volume is still in use: refused by %s", g)
	}
	if r.block() {
		if err := a.referencer().unrefer(ctx, v); err != nil {
			return err
		}
	}
	// Also where no call was made: the agent may have died between making the directory and noting the call.
	a.removeEmpty(ctx, r.Stage.Path)
	if !r.block() {
		a.removeEmpty(ctx, filepath.Dir(r.Stage.Path))
	}
	// The disk need not know: a process that comes after believes the API, see recoverRecords.
	r.InUse = false
	if r.MountTableOnly && len(r.Devices) == 0 {
		a.Node.restOnMountTable(v.name, r.AttachmentUID)
	}
	a.Step("before clear")
	if err := a.State.urgent(ctx, change{volume: v.name}); err != nil {
		return err
	}
	a.Step("after clear")
	if err := a.Store.remove(v.name); err != nil {
		return &problem{reason: volumesv1alpha1.ReasonRecordFailed, message: "the record cannot be removed", err: err}
	}
	a.Step("after forget")
	v.record, v.unsaved = nil, false
	v.failures = map[act]*failure{}
	v.unprotected = false
	return nil
}

// mountsBusy says whether a call into the kernel that was given up may still mount something.
func (a *Environment) mountsBusy(v *volume) bool {
	places := []string{v.record.Stage.Path, a.Paths.reference(v.name)}
	return slices.ContainsFunc(places, func(p string) bool { _, busy := a.Mounts.Busy(p); return busy })
}
