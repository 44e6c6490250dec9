/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package operation

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/agent/failure"
	"github.com/hawser-io/hawser/internal/agent/plan"
	"github.com/hawser-io/hawser/internal/agent/record"
	"github.com/hawser-io/hawser/internal/mount"
)

// setOwnershipStep is a part of the publication to users.
var setOwnershipStep = step{
	operation: "publish", event: eventFailedMount, logged: true, session: true, perIntent: true, seeded: true,
	supersedes: []plan.Kind{plan.Publish, plan.Unpublish},
	run: func(ctx context.Context, env *Environment, v *Volume, f plan.Facts, intent types.UID) error {
		return env.setOwnership(ctx, v, f, intent)
	},
}

// awaitOwnership notes that the driver has published e, and that the step is to come before users may rely on it.
func awaitOwnership(u *record.Use, e mount.Entry) {
	u.Phase = record.PhaseUnowned
	if u.Target == u.Path {
		u.Source = record.SourceOf(e)
	}
}

// setOwnership gives the published files to the intent's group and completes the publication. A process that is killed
// leaves the record as it was before, so the next one runs the step again: what has the group already is only read.
func (env *Environment) setOwnership(ctx context.Context, v *Volume, f plan.Facts, intent types.UID) error {
	u := v.Record.UseOf(intent)
	if err := env.mayCall(v, "set-ownership"); err != nil {
		return err
	}
	if err := env.Persist(v); err != nil { // with this phase, so that the driver is not called again
		return err
	}
	if err := env.checkOwnershipTarget(ctx, v, f, u); err != nil {
		return err
	}
	if f.SetsGroup(*u) { // otherwise the CSIDriver has changed meanwhile
		if err := env.walkToOwn(ctx, v, *u, *f.Group(*u)); err != nil {
			return err
		}
		env.Step("after ownership")
	}
	return env.completePublication(ctx, v, f, u)
}

// checkOwnershipTarget verifies that the publication is still there. The driver is called again where it is not.
func (env *Environment) checkOwnershipTarget(ctx context.Context, v *Volume, f plan.Facts, u *record.Use) error {
	_, _, mounted, err := env.Mounts.At(u.Target)
	if err != nil {
		return err
	}
	if !mounted {
		u.Phase = record.PhaseUncertain
		return fmt.Errorf("nothing is mounted any more at %s, which is to be given to a group: %w", u.Target,
			failure.ErrChanged)
	}
	if _, err = env.verifyPublication(ctx, v, f, u, u.Target); err != nil && u.Phase == record.PhaseUnowned {
		u.Phase = record.PhaseUncertain
	}
	return err
}

// walkToOwn changes the files. It reports how many it has changed, and ends early when the intent is to be released, or
// when anything else is to be done for the volume first.
func (env *Environment) walkToOwn(ctx context.Context, v *Volume, u record.Use, group int64) error {
	policy := corev1.FSGroupChangeAlways
	if u.Mount.FSGroupChangePolicy != nil {
		policy = *u.Mount.FSGroupChangePolicy
	}
	var files atomic.Int64
	since := env.Clock.Now().UTC().Format(time.TimeOnly)
	work := longWork{Environment: env, volume: v, name: "setting fsGroup", describe: func() string {
		return fmt.Sprintf("giving the files of intent %s/%s to fsGroup %d since %s: %d files so far; deleting the "+
			"intent ends it", u.Intent.Namespace, u.Intent.Name, group, since, files.Load())
	}}
	err := work.run(ctx, func(ctx context.Context) error {
		return env.Mounts.SetOwnership(ctx, u.Target, group, policy, func(n int) { files.Store(int64(n)) })
	})
	if err != nil {
		return &failure.Problem{Reason: volumesv1alpha1.ReasonPublishFailed, Message: "setting fsGroup", Err: err}
	}
	return nil
}
