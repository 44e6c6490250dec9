/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package main

import (
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/test/csiloop/ledger"
	"github.com/hawser-io/hawser/test/system"
)

const volumeName = "kubernetes.io/csi/loop.csi.hawser.io^v"

// nodeState of a node with the volume's attachment.
func nodeState(name string, uid types.UID, state volumesv1alpha1.AttachmentState, inUse bool,
	evidence *volumesv1alpha1.DetachEvidence) *volumesv1alpha1.NodeVolumeState {
	return &volumesv1alpha1.NodeVolumeState{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: volumesv1alpha1.NodeVolumeStateSpec{Attachments: []volumesv1alpha1.NodeAttachment{
			{VolumeName: volumeName, VolumeHandle: "v", AttachmentUID: uid, State: state, Evidence: evidence},
		}},
		Status: volumesv1alpha1.NodeVolumeStateStatus{
			Volumes: []volumesv1alpha1.NodeVolume{{VolumeName: volumeName, AttachmentUID: uid, InUse: inUse}}},
	}
}

// judgeOf returns a judge of an exclusive or shared volume that has seen these states.
func judgeOf(t *testing.T, exclusive bool, states ...*volumesv1alpha1.NodeVolumeState) (j *judge, wrong *[]string) {
	t.Helper()
	j, wrong = newJudge(&system.System{Options: system.Options{Dir: t.TempDir()}}, nil), &[]string{}
	if err := os.MkdirAll(j.sys.BackingDir(), 0o755); err != nil {
		t.Fatal(err)
	}
	j.know([]*claim{{handle: "v", volume: volumeName, exclusive: exclusive}})
	for _, s := range states {
		j.see(watch.Event{Type: watch.Modified, Object: s}, func(err error) { *wrong = append(*wrong, err.Error()) })
	}
	return j, wrong
}

func TestTheJudgeFindsAVolumeThatIsUsableOnTwoNodes(t *testing.T) {
	a, b := nodeState("a", "1", volumesv1alpha1.AttachmentAttached, true, nil),
		nodeState("b", "2", volumesv1alpha1.AttachmentAttached, true, nil)
	for _, c := range []struct {
		name      string
		exclusive bool
		second    *volumesv1alpha1.NodeVolumeState
		want      int
	}{
		{"an exclusive volume in use on both", true, b, 1},
		{"a shared volume", false, b, 0},
		{"one that is not in use on the second", true,
			nodeState("b", "2", volumesv1alpha1.AttachmentAttached, false, nil), 0},
		{"one that is being detached from the second", true,
			nodeState("b", "2", volumesv1alpha1.AttachmentDetaching, true, nil), 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			if _, wrong := judgeOf(t, c.exclusive, a, c.second); len(*wrong) != c.want {
				t.Errorf("violations: %q, want %d", *wrong, c.want)
			}
		})
	}
}

// calls of the driver, in order. Each took effect.
func calls(t *testing.T, j *judge, made ...[2]string) {
	t.Helper()
	for i, c := range made {
		for _, phase := range []ledger.Phase{ledger.Start, ledger.Effect, ledger.End} {
			e := ledger.Entry{Call: int64(3*i + 1), Phase: phase, Method: c[0], Node: c[1], Volume: "v", StagingPath: "/staging",
				AccessMode: "SINGLE_NODE_WRITER"}
			if phase != ledger.Start {
				e.Code = "OK"
			}
			if _, err := ledger.Append(j.sys.BackingDir(), e); err != nil {
				t.Fatal(err)
			}
		}
	}
}

const (
	publish, unpublish = "ControllerPublishVolume", "ControllerUnpublishVolume"
	stage, unstage     = "NodeStageVolume", "NodeUnstageVolume"
)

func TestTheJudgeReadsTheLedger(t *testing.T) {
	taint := &volumesv1alpha1.DetachEvidence{Type: volumesv1alpha1.EvidenceOutOfServiceTaint, Time: metav1.Now()}
	released := &volumesv1alpha1.DetachEvidence{Type: volumesv1alpha1.EvidenceAgentReleased, Time: metav1.Now()}
	early := &volumesv1alpha1.DetachEvidence{Type: volumesv1alpha1.EvidenceOutOfServiceTaint,
		Time: metav1.NewTime(time.Now().Add(time.Hour))}
	for _, c := range []struct {
		name     string
		evidence *volumesv1alpha1.DetachEvidence
		calls    [][2]string
		wrong    bool
	}{
		{"a life in good order", nil,
			[][2]string{{publish, "a"}, {stage, "a"}, {unstage, "a"}, {unpublish, "a"}, {publish, "b"}, {stage, "b"}}, false},
		{"detached while staged", nil, [][2]string{{publish, "a"}, {stage, "a"}, {unpublish, "a"}}, true},
		{"used where it is not attached", nil, [][2]string{{stage, "a"}}, true},
		{"published on two nodes", nil, [][2]string{{publish, "a"}, {publish, "b"}}, true},
		{"staged on two nodes", nil,
			[][2]string{{publish, "a"}, {stage, "a"}, {unpublish, "a"}, {publish, "b"}, {stage, "b"}}, true},
		{"detached while staged, after the agent's report", released,
			[][2]string{{publish, "a"}, {stage, "a"}, {unpublish, "a"}}, true},
		{"forced away and staged elsewhere", taint,
			[][2]string{{publish, "a"}, {stage, "a"}, {unpublish, "a"}, {publish, "b"}, {stage, "b"}}, false},
		{"detached before the forced detach", early, [][2]string{{publish, "a"}, {stage, "a"}, {unpublish, "a"}}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			j, _ := judgeOf(t, true, nodeState("a", "1", volumesv1alpha1.AttachmentDetaching, true, c.evidence))
			calls(t, j, c.calls...)
			var wrong []string
			for range 2 {
				j.check(func(err error) { wrong = append(wrong, err.Error()) })
			}
			if (len(wrong) > 0) != c.wrong {
				t.Errorf("violations: %q, want some: %t", wrong, c.wrong)
			}
			slices.Sort(wrong)
			if n := len(wrong); len(slices.Compact(wrong)) != n {
				t.Errorf("violations: %q, want each reported once", wrong)
			}
		})
	}
}

func TestAForcedDetachExcusesNothingAfterItsEnd(t *testing.T) {
	taint := &volumesv1alpha1.DetachEvidence{Type: volumesv1alpha1.EvidenceOutOfServiceTaint, Time: metav1.Now()}
	j, _ := judgeOf(t, true,
		nodeState("a", "1", volumesv1alpha1.AttachmentDetaching, true, taint),
		&volumesv1alpha1.NodeVolumeState{ObjectMeta: metav1.ObjectMeta{Name: "a"}},
	)
	calls(t, j, [2]string{publish, "a"}, [2]string{stage, "a"}, [2]string{unpublish, "a"})
	reported := 0
	j.check(func(error) { reported++ })
	if reported == 0 {
		t.Errorf("violations after the forced detach ended: %d, want some", reported)
	}
}

func TestTheJudgeFindsATaintThatOverrulesALiveAgent(t *testing.T) {
	taint := &volumesv1alpha1.DetachEvidence{Type: volumesv1alpha1.EvidenceOutOfServiceTaint, Time: metav1.Now()}
	in := func(session int64, evidence *volumesv1alpha1.DetachEvidence) *volumesv1alpha1.NodeVolumeState {
		s := nodeState("a", "1", volumesv1alpha1.AttachmentDetaching, true, evidence)
		s.Status.Protocol.Session = session
		return s
	}
	for _, c := range []struct {
		name    string
		lost    bool
		session int64
		wrong   int
	}{
		{"a node that was never lost", false, 1, 1},
		{"a node that is lost", true, 1, 0},
		{"a node that is back", true, 2, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			j, wrong := judgeOf(t, true, in(1, nil))
			if c.lost {
				j.lost("a")
			}
			j.see(watch.Event{Type: watch.Modified, Object: in(c.session, taint)},
				func(err error) { *wrong = append(*wrong, err.Error()) })
			if len(*wrong) != c.wrong {
				t.Errorf("violations: %q, want %d", *wrong, c.wrong)
			}
		})
	}
}

func TestTheSameSeedChoosesTheSame(t *testing.T) {
	chosen := func(seed uint64) (names []string) {
		s, err := newSoak(Options{Seed: seed}, &system.System{}, nil)
		if err != nil {
			t.Fatal(err)
		}
		for range 50 {
			names = append(names, s.choose(s.actions()).name)
		}
		return names
	}
	if first, again := fmt.Sprint(chosen(1)), fmt.Sprint(chosen(1)); first != again {
		t.Errorf("actions of seed 1:\n%s, want the same again\n%s", again, first)
	}
	if fmt.Sprint(chosen(1)) == fmt.Sprint(chosen(2)) {
		t.Error("actions of seeds 1 and 2 are the same, want others")
	}
}

func TestLeftoversOfUpstreamAloneAreDistinguishedFromHawsers(t *testing.T) {
	for name, c := range map[string]struct {
		managers []string
		alone    bool
	}{
		"made by upstream":                    {[]string{"kube-controller-manager", "csi-attacher"}, true},
		"made by upstream, written by Hawser": {[]string{"kube-controller-manager", "manager"}, false},
		"made by Hawser":                      {[]string{"manager", "csi-attacher"}, false},
		"of an unknown creator":               {nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			va := &storagev1.VolumeAttachment{}
			for _, m := range c.managers {
				va.ManagedFields = append(va.ManagedFields, metav1.ManagedFieldsEntry{Manager: m})
			}
			if got := upstreamAlone(va); got != c.alone {
				t.Errorf("VolumeAttachment %s is upstream's alone: %t, want %t", name, got, c.alone)
			}
		})
	}
}
