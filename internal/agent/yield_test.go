/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package agent

import (
	"testing"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/agent/kubelet"
	"github.com/hawser-io/hawser/internal/agent/plan"
	"github.com/hawser-io/hawser/internal/agent/record"
)

// The manager takes intents to be released where only the kubelet uses the volume. So the agent may not publish for
// another one before the node's state says that the agent uses it too.
func TestAVolumeThatWasLeftToTheKubeletIsMarkedAgainBeforeItIsPublished(t *testing.T) {
	b := newBench(t, filesystem)
	b.unused()
	b.kubelet = &kubelet.TrackedUse{AttachmentUID: "uid-1", Mounts: []string{b.volume.Record.Stage.Path}}
	b.agent.steps.Inform(b.volume, b.facts())
	if !b.volume.Record.InUse {
		t.Errorf("volume %s: not marked any more while the agent refers to its stage, want it marked", b.volume.Name)
	}
	b.done(plan.Dereference, plan.Persist)
	f := b.facts()
	if !f.Released() {
		t.Fatalf("volume %s, which only the kubelet uses: not released, want that; record %+v", b.volume.Name, f.Record)
	}
	b.agent.steps.Inform(b.volume, f)
	b.want("other")
	for _, ends := range []string{"while the kubelet uses it", "once the kubelet has ended"} {
		next, ok := b.volume.Next(b.facts(), nil, b.clock.Now())
		if want := (plan.Step{Kind: plan.MarkInUse}); !ok || next != want {
			t.Fatalf("volume %s, %s: the next step is %v, want %v", b.volume.Name, ends, next, want)
		}
		b.kubelet = nil
	}
	b.done(plan.MarkInUse)
	if l := b.api(); l == nil || !l.InUse || l.PublishedBy != volumesv1alpha1.PublisherAgent || len(l.Publications) != 1 {
		t.Errorf("volume %s: the node's state has %+v, want it in use by the agent with one publication", b.volume.Name, l)
	}
}

func TestOnlyAMarkOfTheAgentsOwnCounts(t *testing.T) {
	marked := volumesv1alpha1.NodeVolume{VolumeName: "vol", AttachmentUID: "uid", InUse: true,
		PublishedBy: volumesv1alpha1.PublisherAgent}
	for name, c := range map[string]struct {
		change func(*volumesv1alpha1.NodeVolume)
		want   bool
	}{
		"the agent's":           {func(*volumesv1alpha1.NodeVolume) {}, true},
		"of another volume":     {func(l *volumesv1alpha1.NodeVolume) { l.VolumeName = "other" }, false},
		"of another attachment": {func(l *volumesv1alpha1.NodeVolume) { l.AttachmentUID = "other" }, false},
		"not in use":            {func(l *volumesv1alpha1.NodeVolume) { l.InUse = false }, false},
		"waiting":               {func(l *volumesv1alpha1.NodeVolume) { l.Waiting = true }, false},
		"the kubelet's": {func(l *volumesv1alpha1.NodeVolume) {
			l.PublishedBy = volumesv1alpha1.PublisherKubelet
		}, false},
	} {
		line := marked
		c.change(&line)
		nvs := &volumesv1alpha1.NodeVolumeState{}
		nvs.Status.Volumes = []volumesv1alpha1.NodeVolume{line}
		if got := markedInUse(nvs, &record.Record{VolumeName: "vol", AttachmentUID: "uid"}); got != c.want {
			t.Errorf("a line that is %s: marked %v, want %v", name, got, c.want)
		}
	}
	if markedInUse(nil, &record.Record{VolumeName: "vol", AttachmentUID: "uid"}) {
		t.Error("without a node state: marked, want not")
	}
}
