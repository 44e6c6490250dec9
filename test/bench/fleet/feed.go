/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package fleet

import (
	"context"
	"fmt"
	"time"

	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/handshake"
	"github.com/hawser-io/hawser/test/bench/attach/feed"
	"github.com/hawser-io/hawser/test/bench/attach/judge"
	"github.com/hawser-io/hawser/test/bench/attach/stage"
)

// failing reports whether the driver of an attachment fails.
func failing(broken map[string]bool) func(*storagev1.VolumeAttachment) bool {
	return func(va *storagev1.VolumeAttachment) bool { return broken[va.Name] }
}

// listen reports to the races what the watches show.
func (b *bench) listen(ctx context.Context, f *feed.Feed) error {
	if err := feed.On(ctx, f, &volumesv1alpha1.VolumeAttachmentIntent{}, b.intentSeen,
		func(i *volumesv1alpha1.VolumeAttachmentIntent) { b.detaching.Load().Saw(i.Name, "intent") }); err != nil {
		return err
	}
	if err := feed.On(ctx, f, &volumesv1alpha1.NodeVolumeState{}, func(nvs *volumesv1alpha1.NodeVolumeState) {
		if handshake.Silent(nvs) {
			b.marked.Load().Saw(nvs.Name, "mark")
		}
	}, nil); err != nil {
		return err
	}
	return feed.On(ctx, f, &storagev1.VolumeAttachment{}, nil, func(va *storagev1.VolumeAttachment) {
		b.detaching.Load().Saw(b.names[va.Name], "attachment")
	})
}

func (b *bench) intentSeen(i *volumesv1alpha1.VolumeAttachmentIntent) {
	if i.DeletionTimestamp != nil {
		return
	}
	attached := meta.FindStatusCondition(i.Status.Conditions, volumesv1alpha1.ConditionAttached)
	if attached != nil && (attached.Status == "True" || attached.Reason == volumesv1alpha1.ReasonAttachFailed) {
		b.attaching.Load().Saw(i.Name, "Attached")
	}
	ready := meta.FindStatusCondition(i.Status.Conditions, volumesv1alpha1.ConditionReady)
	if ready != nil && ready.Reason == volumesv1alpha1.ReasonAgentUnreachable {
		b.unknown.Load().Saw(i.Name, "Unknown")
	}
}

// intent for the volume: in the zone one that the agent would publish, elsewhere one that is only attached.
func (b *bench) intent(v *stage.Volume) *volumesv1alpha1.VolumeAttachmentIntent {
	i := v.Intent()
	if b.inZone(v.Node) {
		i.Spec.DesiredState = volumesv1alpha1.DesiredPublished
	}
	return i
}

// attach the volumes at once.
func (b *bench) attach(ctx context.Context, volumes []*stage.Volume) (judge.Result, error) {
	race := judge.NewRace(len(volumes), 1)
	b.attaching.Store(race)
	return b.finish(ctx, race, stage.Each(ctx, volumes, func(ctx context.Context, v *stage.Volume) error {
		race.Begin(v.Name)
		if err := b.load.Create(ctx, b.intent(v)); err != nil {
			return fmt.Errorf("creating the intent for volume %s: %w", v.Name, err)
		}
		return nil
	}))
}

// detach the volumes at once: each is through when its intent and its attachment are gone.
func (b *bench) detach(ctx context.Context, volumes []*stage.Volume) (judge.Result, error) {
	race := judge.NewRace(len(volumes), 2)
	b.detaching.Store(race)
	return b.finish(ctx, race, stage.Each(ctx, volumes, func(ctx context.Context, v *stage.Volume) error {
		race.Begin(v.Name)
		if err := b.load.Delete(ctx, v.Intent()); err != nil {
			return fmt.Errorf("deleting the intent for volume %s: %w", v.Name, err)
		}
		return nil
	}))
}

// stalled is how long nothing may get through.
const stalled = 150 * time.Second

// finish waits until all are through. That some are left behind is an error.
func (b *bench) finish(ctx context.Context, race *judge.Race, err error) (judge.Result, error) {
	if err != nil {
		return judge.Result{}, err
	}
	if err := race.Wait(ctx, stalled, 20*time.Second, func(through int) { b.say("  %d", through) }); err != nil {
		return judge.Result{}, err
	}
	result := race.Result()
	if result.LeftBehind > 0 {
		return result, fmt.Errorf("%d of %d were not seen within %s after the last one", result.LeftBehind,
			result.LeftBehind+result.Through, stalled)
	}
	return result, nil
}
