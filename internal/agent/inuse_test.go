/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package agent

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/agent/failure"
	"github.com/hawser-io/hawser/internal/agent/kubelet"
	"github.com/hawser-io/hawser/internal/agent/plan"
	"github.com/hawser-io/hawser/internal/agent/record"
)

func TestAVolumeIsTakenIntoUse(t *testing.T) {
	t.Run("with a record that the next agent understands", func(t *testing.T) {
		b := newBench(t, filesystem)
		b.want("intent")
		b.done(plan.MarkInUse)
		records, broken, err := b.agent.store.Load()
		if err != nil || len(broken) > 0 || len(records) != 1 {
			t.Fatalf("records on the disk %v, broken %v, error %v, want one record", records, broken, err)
		}
		r := records[0]
		want := &record.Record{
			Schema: record.Schema, VolumeName: b.of.name(), AttachmentUID: "uid-1", Driver: fakeDriverName,
			Handle: "vol", PersistentVolume: "pv-vol",
			Mode:  "Filesystem",
			Stage: record.Stage{Path: b.agent.paths.Staging(filesystem.source())},
			Uses:  r.Uses,
		}
		if !reflect.DeepEqual(r, want) || len(r.Uses) != 1 {
			t.Errorf("record on the disk %+v, want %+v", r, want)
		}
	})
	t.Run("by a write, although the API says so already", func(t *testing.T) {
		b := newBench(t, filesystem)
		b.want("intent")
		b.done(plan.MarkInUse)
		writes := b.has("report")
		b.volume.Record.InUse = false
		b.done(plan.MarkInUse)
		if b.has("report") != writes+1 {
			t.Errorf("operations of volume %s: %v, want one more report", b.volume.Name, b.operations())
		}
	})
	t.Run("anew, with nothing of an earlier attachment", func(t *testing.T) {
		b := newBench(t, filesystem)
		b.want("old")
		b.done(plan.MarkInUse)
		b.volume.Record.InUse = false
		b.intents = nil
		b.want("intent")
		b.entry(func(e *volumesv1alpha1.NodeAttachment) { e.AttachmentUID = "uid-2" })
		b.done(plan.MarkInUse)
		if r := b.disk(); r.AttachmentUID != "uid-2" || len(r.Uses) != 1 || r.Uses[0].Intent.UID != "intent" {
			t.Errorf("volume vol, attached again: record on the disk %+v, want attachment uid-2 and the use of the intent", r)
		}
	})
	t.Run("with what is held of it", func(t *testing.T) {
		b := newBench(t, filesystem)
		b.want("intent")
		b.stage()
		b.volume.Record.InUse = false
		b.done(plan.MarkInUse)
		if r := b.disk(); r.Stage.Phase != record.PhaseDone {
			t.Errorf("volume vol: record on the disk %+v, want the stage done as before", r)
		}
	})
	t.Run("and rests on more than the mount table again", func(t *testing.T) {
		b := newBench(t, filesystem)
		b.want("intent")
		b.agent.node.NoteMountTableRelease(b.of.name(), "uid-1")
		b.done(plan.MarkInUse)
		if len(b.agent.node.TableReleases) > 0 {
			t.Errorf("volumes whose end the mount table alone showed: %v, want none", b.agent.node.TableReleases)
		}
	})
	t.Run("not while the kubelet has it mounted from an earlier attachment", func(t *testing.T) {
		b := newBench(t, filesystem)
		b.want("intent")
		b.kubelet = &kubelet.TrackedUse{AttachmentUID: "uid-0"}
		err := b.act(plan.MarkInUse)
		b.refused(err, volumesv1alpha1.ReasonSharedByKubelet)
		if !strings.Contains(err.Error(), "uid-0") || len(b.operations()) > 0 {
			t.Errorf("volume vol, which the kubelet has from uid-0: error %v and operations %v, want one that names it, and "+
				"none", err, b.operations())
		}
	})
	t.Run("not by a name that is no name", func(t *testing.T) {
		for name, change := range map[string]func(*volumesv1alpha1.NodeAttachment){
			"driver":            func(e *volumesv1alpha1.NodeAttachment) { e.Driver = "../x" },
			"persistent volume": func(e *volumesv1alpha1.NodeAttachment) { e.PersistentVolumeName = ".." },
		} {
			b := newBench(t, filesystem)
			b.want("intent", func(i *volumesv1alpha1.VolumeAttachmentIntent) {
				if name == "persistent volume" {
					i.Status.VolumeName = ".."
				}
			})
			b.entry(change)
			err := b.act(plan.MarkInUse)
			b.refused(err, volumesv1alpha1.ReasonStageFailed)
			var p *failure.Problem
			if !errors.As(err, &p) || !p.Stalled || !strings.Contains(p.Message, name) || len(b.operations()) > 0 {
				t.Errorf("volume with the name %q: error %v and operations %v, want it stalled with that name, and none", name,
					err, b.operations())
			}
		}
	})
	t.Run("not before the disk knows", func(t *testing.T) {
		b := newBench(t, filesystem)
		b.want("intent")
		b.failures["write volumes"] = errInjected
		err := b.act(plan.MarkInUse)
		b.refused(err, volumesv1alpha1.ReasonRecordFailed)
		if b.volume.Record != nil || b.api() != nil {
			t.Errorf("volume vol: record %+v, reported %+v, want none of them", b.volume.Record, b.api())
		}
	})
	t.Run("not when the attachment is not there any more", func(t *testing.T) {
		for name, change := range map[string]func(*volumesv1alpha1.NodeAttachment){
			"it is being detached": func(e *volumesv1alpha1.NodeAttachment) { e.State = volumesv1alpha1.AttachmentDetaching },
			"it is another one":    func(e *volumesv1alpha1.NodeAttachment) { e.AttachmentUID = "uid-2" },
		} {
			b := newBench(t, filesystem)
			b.want("intent")
			f := b.facts()
			old := *f.Entry
			f.Entry = &old
			b.entry(change)
			if err := b.agent.steps.MarkInUse(t.Context(), b.volume, f); !errors.Is(err, failure.ErrChanged) ||
				b.volume.Record.InUse || b.api() != nil {
				t.Errorf("%s: error %v, record %+v, reported %+v, want changed facts, and the volume not in use", name, err,
					b.volume.Record, b.api())
			}
		}
	})
	t.Run("not when the API server does not take it", func(t *testing.T) {
		b := newBench(t, filesystem)
		b.want("intent")
		b.failures["report"] = errInjected
		if err := b.act(plan.MarkInUse); err == nil || b.volume.Record.InUse {
			t.Errorf("volume vol, whose report failed: error %v, record %+v, want an error, and the volume not in use", err,
				b.volume.Record)
		}
	})
}

func TestEachIntentThatWantsTheStageIsReadLive(t *testing.T) {
	b := newBench(t, filesystem)
	for _, uid := range []types.UID{"intent", "second"} {
		b.want(uid, func(i *volumesv1alpha1.VolumeAttachmentIntent) { i.Spec.DesiredState = volumesv1alpha1.DesiredStaged })
	}
	b.done(plan.MarkInUse, plan.Join)
	if uses := b.volume.Record.Uses; len(uses) != 2 || !uses[0].Live || !uses[1].Live {
		t.Errorf("uses of volume %s: %+v, want two whose intents were read live", b.volume.Name, uses)
	}
}

func TestAnotherIntentJoinsAVolumeThatIsInUse(t *testing.T) {
	b := newBench(t, filesystem)
	b.want("intent")
	b.stage()
	b.want("second")
	writes := b.has("report")
	b.done(plan.Join)
	if uses := b.volume.Record.Uses; len(uses) != 2 || uses[1].Intent.UID != "second" ||
		uses[1].Want != volumesv1alpha1.DesiredPublished {
		t.Errorf("uses of volume %s: %+v, want two, the second one for intent second and published", b.volume.Name, uses)
	}
	if b.has("report") != writes || slices.Contains(b.operations(), "get intent") {
		t.Errorf("operations of volume %s: %v, want no report and no intent read", b.volume.Name, b.operations())
	}
	r, _ := b.agent.state.ReportOf(b.of.name())
	line := r.Line
	if len(line.Publications) != 2 {
		t.Errorf("volume vol: to be reported is %+v, want two publications", line)
	}
}
