/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package operation

import (
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/agent/failure"
	"github.com/hawser-io/hawser/internal/agent/plan"
	"github.com/hawser-io/hawser/internal/agent/report"
	"github.com/hawser-io/hawser/internal/handshake"
)

var clearInUseStep = step{
	operation: "unstage", event: eventFailedUnmount, inputs: podInputs,
	run: func(ctx context.Context, env *Environment, v *Volume, f plan.Facts, _ types.UID) error {
		return env.clearInUse(ctx, v, f)
	},
}

// clearInUse takes inUse back: when everything is known to be undone, no call can still be running, and the mount table
// agrees. From the attempt on, the volume has to be marked as in use again before it is used.
func (env *Environment) clearInUse(ctx context.Context, v *Volume, f plan.Facts) error {
	r := v.Record
	if !r.CallsEnded(f.Now) {
		return inFlight(r.Unfinished, env.Clock.Now().Add(r.Unfinished.Remaining(f.Now)))
	}
	if pods := f.PodsOfVolume(); len(pods) > 0 {
		return usedByPods(pods)
	}
	leftToKubelet, err := env.checkFree(ctx, v)
	if err != nil {
		return err
	}
	held := handshake.Held{Released: !r.MayHaveMounts(), CallsEnded: r.CallsEnded(f.Now), Mounted: f.Mounted() ||
		env.mountsBusy(v)}
	if g := (handshake.Protocol{}).MayClearInUse(held); g != handshake.GuardNone {
		return failure.Problemf(volumesv1alpha1.ReasonUnstageFailed, "the volume is still in use: refused by %s", g)
	}
	if r.Block() {
		if err := env.removeReference(ctx, v); err != nil {
			return err
		}
	}
	// Also where no call was made: the agent may have died between making the directory and noting the call.
	env.removeEmpty(ctx, env.Paths.StagingDirs(r.VolumeSource(), r.Stage.Path)...)
	// The disk forgets first: a record that outlives the release would have the next process report the use again, beside
	// an attachment that was made meanwhile. One that is lost before the release is rebuilt from the API.
	env.Step("before forget")
	if err := env.checkLeft(ctx, v, leftToKubelet); err != nil {
		return err
	}
	if err := env.Store.Remove(v.Name); err != nil {
		env.Store.Note(r)
		return &failure.Problem{Reason: volumesv1alpha1.ReasonRecordFailed, Message: "the record cannot be removed",
			Err: err}
	}
	r.InUse, v.Unsaved = false, false
	if r.MountTableOnly && len(r.Devices) == 0 {
		env.Node.NoteMountTableRelease(v.Name, r.AttachmentUID)
	}
	env.Step("before clear")
	if err := env.State.WriteNow(ctx, report.Change{Volume: v.Name}); err != nil {
		return err
	}
	env.Step("after clear")
	v.Record = nil
	v.Failures = map[plan.Step]*failure.Failure{}
	v.Unprotected = false
	return nil
}

// checkLeft asks again about the devices that were left to the end of the kubelet's use, which may have left them to
// this release meanwhile. From here on it does not: it does so only for volumes that have a record.
func (env *Environment) checkLeft(ctx context.Context, v *Volume, leftToKubelet bool) error {
	env.Store.Forget(v.Name)
	inherited := v.RecordInherited(env.Now().BootID)
	if !inherited && !leftToKubelet {
		return nil
	}
	_, err := env.checkFree(ctx, v)
	if err != nil {
		env.Store.Note(v.Record)
		v.Unsaved = v.Unsaved || inherited
	}
	return err
}

// mountsBusy reports whether a call into the kernel that was given up may still mount something.
func (env *Environment) mountsBusy(v *Volume) bool {
	places := []string{v.Record.Stage.Path, env.Paths.Reference(v.Name)}
	return slices.ContainsFunc(places, func(p string) bool { _, busy := env.Mounts.Busy(p); return busy })
}
