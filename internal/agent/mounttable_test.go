/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package agent

import (
	"context"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/agent/operation"
	"github.com/hawser-io/hawser/internal/agent/plan"
	"github.com/hawser-io/hawser/internal/agent/record"
	"github.com/hawser-io/hawser/internal/mount"
)

// agedMounts report of what age each table may be, and whether the observer of the kubelet was signalled already.
type agedMounts struct {
	operation.Mounts
	observer chan struct{}
	asked    chan asked
}

type asked struct {
	age      time.Duration
	observed bool
}

func (m agedMounts) TableWithin(age time.Duration) (*mount.Table, error) {
	m.asked <- asked{age, len(m.observer) > 0}
	return mount.NewTable(nil), nil
}

// The observer takes a table of a moment ago. What was moved shows in it once the agent has read the table of now.
func TestWhatHasGoneIsFoundAtOnceAndWhatBecameOfTheRestOnceASecond(t *testing.T) {
	b := newBench(t, testVolume{handle: "volume"})
	changes, observer := make(chan struct{}), b.agent.observer.Mounted
	m := agedMounts{b.agent.Mounts, observer, make(chan asked)}
	b.agent.Mounts, b.agent.MountChanges = m, changes
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); b.agent.watchMounts(ctx) }()
	for round := range 2 {
		for range 3 {
			changes <- struct{}{}
			if got := <-m.asked; got != (asked{age: anyAge}) {
				t.Errorf("round %d: a change is compared with %+v, want a table of age %s, and the observer later", round, got,
					anyAge)
			}
			<-observer
		}
		b.clock.Step(mount.Recent)
		if got := <-m.asked; got != (asked{}) {
			t.Errorf("round %d: a second later: %+v, want a table of now, and the observer later", round, got)
		}
		<-observer
	}
	cancel()
	<-ended
}

// staleMounts show at first what is no more.
type staleMounts struct {
	operation.Mounts
	stale *mount.Table
}

func (m staleMounts) TableWithin(time.Duration) (*mount.Table, error) { return m.stale, nil }

func TestNothingIsUndoneByWhatWasKnownAMomentAgo(t *testing.T) {
	for name, change := range map[string]func(*bench, *volumesv1alpha1.VolumeAttachmentIntent){
		"an intent that is deleted": func(_ *bench, i *volumesv1alpha1.VolumeAttachmentIntent) {
			i.DeletionTimestamp = ptr.To(metav1.Now())
		},
		"an intent that is gone":  func(b *bench, _ *volumesv1alpha1.VolumeAttachmentIntent) { b.intents = nil },
		"a mount that seems lost": func(*bench, *volumesv1alpha1.VolumeAttachmentIntent) {},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, testVolume{handle: "volume"})
			intent := b.want("intent")
			b.stage()
			b.done(plan.Join, plan.Publish)
			change(b, intent)
			f := b.facts()
			b.agent.Mounts = staleMounts{b.agent.Mounts, mount.NewTable(nil)}
			b.must(b.agent.find(t.Context(), &f))
			if f.Stage != record.Present || f.Uses["intent"] != record.Present {
				t.Errorf("stage and publication in the mount table: %v, %v; want both found", f.Stage, f.Uses["intent"])
			}
		})
	}
}

// A driver may mount elsewhere and move the mount into place. What was known of the mount before is not where it is
// now.
func TestWhatADriverMovedIntoPlaceIsNotTakenForNothing(t *testing.T) {
	b := newBench(t, testVolume{handle: "volume"})
	b.want("intent")
	b.done(plan.MarkInUse)
	b.agent.steps.Mounts = staleMounts{b.agent.steps.Mounts, mount.NewTable(nil)}
	b.done(plan.Stage, plan.Reference, plan.Join, plan.Publish)
	r := b.volume.Record
	if u := r.UseOf("intent"); r.Stage.Source == "" || u == nil || u.Source == "" || len(r.Devices) == 0 {
		t.Errorf("record %+v: want what is mounted at the stage and for the intent, and its device", r)
	}
}

func TestWhatOnlyGoesForwardRestsOnWhatWasKnownAMomentAgo(t *testing.T) {
	b := newBench(t, testVolume{handle: "volume"})
	b.want("intent")
	b.stage()
	table, err := b.kernel.Table()
	b.must(err)
	f := b.facts()
	before := b.has("Table")
	b.agent.Mounts = staleMounts{b.agent.Mounts, table}
	b.must(b.agent.find(t.Context(), &f))
	if n := b.has("Table") - before; n != 0 || f.Stage != record.Present {
		t.Errorf("stage: %v, with %d reads of the whole mount table; want it found without any", f.Stage, n)
	}
}
