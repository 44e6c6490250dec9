/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package operation

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/agent/failure"
	"github.com/hawser-io/hawser/internal/agent/plan"
	"github.com/hawser-io/hawser/internal/agent/record"
	"github.com/hawser-io/hawser/internal/agent/report"
	"github.com/hawser-io/hawser/internal/handshake"
)

var markInUseStep = step{
	operation: "stage", event: eventFailedMount,
	run: func(ctx context.Context, env *Environment, v *Volume, f plan.Facts, _ types.UID) error {
		return env.MarkInUse(ctx, v, f)
	},
}

var joinStep = step{
	operation: "publish", event: eventFailedMount,
	run: func(ctx context.Context, env *Environment, v *Volume, f plan.Facts, _ types.UID) error {
		return env.join(ctx, v, f)
	},
}

// MarkInUse marks the volume as in use: in the record first, so that no crash leaves a use without a record, then inUse
// with the publications that are about to be made, at a version at which the entry is Attached.
func (env *Environment) MarkInUse(ctx context.Context, v *Volume, f plan.Facts) error {
	if f.KubeletStale() {
		return failure.Problemf(volumesv1alpha1.ReasonSharedByKubelet,
			"the kubelet still has the volume mounted from an earlier attachment (%s)", f.Kubelet.AttachmentUID)
	}
	if f.Node.Use.Foreign {
		return failure.Problemf(volumesv1alpha1.ReasonAnotherMachine,
			"another machine under the name of node %s uses the volume through attachment %s; condition %s of the node state "+
				"names both machines and the way out", env.NodeName, f.Node.Use.UID, volumesv1alpha1.ConditionSameMachine)
	}
	before := v.Record
	r := before.Copy()
	if r == nil || !r.CountsAsInUse(f.Now) {
		r = env.newRecord(f)
	}
	if err := r.VolumeSource().Check(); err != nil {
		return &failure.Problem{Reason: volumesv1alpha1.ReasonStageFailed, Message: err.Error(), Stalled: true}
	}
	f.Record = r
	r.Uses = f.Joined()
	v.Record = r
	env.Node.NoteMountTableRelease(v.Name, "")
	if err := env.Persist(v); err != nil {
		v.Record = before
		return err
	}
	line := report.NewVolumeReport(v.Snapshot(), f)
	line.Line.InUse = true
	uid := r.AttachmentUID
	env.Step("before inUse")
	err := env.State.WriteNow(ctx, report.Change{
		Volume: v.Name, Report: &line, Fence: true,
		Check: func(nvs *volumesv1alpha1.NodeVolumeState) error {
			if g := (handshake.Protocol{}).MaySetInUse(handshake.NodeOf(nvs, v.Name), uid); g != handshake.GuardNone {
				return fmt.Errorf("marking the volume as in use: refused by %s: %w", g, failure.ErrChanged)
			}
			return nil
		},
	})
	env.Step("after inUse")
	if err != nil {
		return err
	}
	r.InUse = true
	return nil
}

func (env *Environment) newRecord(f plan.Facts) *record.Record {
	s := f.VolumeSource()
	r := &record.Record{Schema: record.Schema, AttachmentUID: f.Entry.AttachmentUID,
		Stage: record.Stage{Path: env.Paths.Staging(s)}}
	r.SetVolumeSource(s)
	return r
}

// join notes what the intents want of a volume that is in use already. The disk is written before the next
// driver call; the API learns of the publication in company of what is written next.
func (env *Environment) join(ctx context.Context, v *Volume, f plan.Facts) error {
	v.Record.Uses = f.Joined()
	env.Inform(v, f)
	for i := range v.Record.Uses {
		if err := env.readLive(ctx, &v.Record.Uses[i]); err != nil {
			return err
		}
	}
	return nil
}

// readLive reads an intent live that wants the volume staged and not published: the cache may still have it when it is
// gone. One that is there while the volume is in use stays until the agent has answered. What wants it published is
// read before that, see mayPublish.
func (env *Environment) readLive(ctx context.Context, u *record.Use) error {
	if u.Want != volumesv1alpha1.DesiredStaged || u.Live {
		return nil
	}
	i := &volumesv1alpha1.VolumeAttachmentIntent{}
	err := env.Live.Get(ctx, types.NamespacedName{Namespace: u.Intent.Namespace, Name: u.Intent.Name}, i)
	if client.IgnoreNotFound(err) != nil {
		return &report.UnwrittenError{Err: fmt.Errorf("reading intent: %w", err)}
	}
	u.Live = i.UID == u.Intent.UID
	return nil
}
