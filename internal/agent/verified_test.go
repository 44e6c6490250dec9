/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package agent

import (
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/agent/operation"
	"github.com/hawser-io/hawser/internal/agent/plan"
	"github.com/hawser-io/hawser/internal/agent/record"
)

func TestAPublicationIsNotDoneBeforeTheVolumeIsSeenAtItsPath(t *testing.T) {
	t.Run("the driver mounts nothing", func(t *testing.T) {
		b := newBench(t, filesystem)
		b.want("intent")
		b.stage()
		b.driver.nothing = true
		err := b.act(plan.Publish)
		b.refused(err, volumesv1alpha1.ReasonPublishFailed)
		if !strings.Contains(err.Error(), "nothing is mounted") || b.use().Phase == record.PhaseDone {
			t.Errorf("intent intent: error %v and publication %+v, want one that says that nothing is mounted", err, b.use())
		}
	})
	for name, known := range map[string]bool{"of a stage that is known": true, "of a stage that was not seen": false} {
		t.Run("the driver publishes a directory of the node's disk, "+name, func(t *testing.T) {
			b := newBench(t, filesystem)
			b.want("intent")
			b.stage()
			if !known {
				b.volume.Record.Stage.Source = ""
			}
			b.driver.directory = b.agent.paths.Kubelet
			err := b.act(plan.Publish)
			b.refused(err, volumesv1alpha1.ReasonPublishFailed)
			if !errors.Is(err, operation.ErrOwnDisk) || !strings.Contains(err.Error(), "is not the volume") {
				t.Errorf("intent intent: error %v, want one that says that it is not the volume but the node's own disk", err)
			}
			if uncertain := b.volume.Record.Stage.Phase == record.PhaseUncertain; uncertain == known {
				t.Errorf("the stage, which is known: %t, is %+v, want it uncertain only where it is not known", known,
					b.volume.Record.Stage)
			}
		})
	}
}

func TestAnotherVolumeAtThePublishedPathIsLeftAloneUnlessThisCallHasPutItThere(t *testing.T) {
	for name, test := range map[string]struct {
		earlier      bool
		reason, says string
		phase        record.Phase
	}{
		"it came with the call":          {false, volumesv1alpha1.ReasonPublishFailed, "is not the volume", record.PhaseNone},
		"the volume was there before it": {true, volumesv1alpha1.ReasonPathOccupied, "is left alone", record.PhaseUncertain},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, filesystem)
			b.want("intent")
			b.stage()
			if test.earlier {
				b.done(plan.Publish)
			}
			b.driver.before = func(method, handle string) error {
				if method == "publish" {
					b.kernel.mount(b.kernel.filesystemOf("other", "ext4", b.use().Path))
				}
				return b.called(method, handle)
			}
			err := b.act(plan.Publish)
			b.refused(err, test.reason)
			for _, part := range []string{test.says, device("other"), b.use().Path} {
				if err == nil || !strings.Contains(err.Error(), part) {
					t.Errorf("publishing for intent intent, with another volume at its path: error %v, want %q in it", err, part)
				}
			}
			if u := b.use(); u.Phase != test.phase {
				t.Errorf("intent intent, with another volume at its path: phase %q, want %q", u.Phase, test.phase)
			}
		})
	}
}

func TestAVolumeForASinglePodThatTheNodeListsAsAttachedIsTheKubelets(t *testing.T) {
	single := func(e *volumesv1alpha1.NodeAttachment) {
		e.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOncePod}
	}
	for name, test := range map[string]struct {
		attached []corev1.UniqueVolumeName
		refused  bool
	}{
		"listed":        {[]corev1.UniqueVolumeName{"other", "it"}, true},
		"not listed":    {nil, false},
		"another is":    {[]corev1.UniqueVolumeName{"other"}, false},
		"only it is so": {[]corev1.UniqueVolumeName{"it"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, filesystem)
			b.unused()
			b.entry(single)
			it := corev1.UniqueVolumeName(b.of.name())
			b.node.Status.VolumesInUse = []corev1.UniqueVolumeName{it}
			for _, listed := range test.attached {
				if listed == "it" {
					listed = it
				}
				b.node.Status.VolumesAttached = append(b.node.Status.VolumesAttached, corev1.AttachedVolume{Name: listed})
			}
			err := b.act(plan.Unstage)
			if refused := err != nil; refused != test.refused {
				t.Errorf("unstaging volume %s: error %v, want refused %t", b.volume.Name, err, test.refused)
			}
		})
	}
}
