/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package survey

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/explain/facts"
)

func quantity(s string) *resource.Quantity {
	q := resource.MustParse(s)
	return &q
}

func state(node string, entries []volumesv1alpha1.NodeAttachment, lines ...volumesv1alpha1.NodeVolume,
) volumesv1alpha1.NodeVolumeState {
	s := volumesv1alpha1.NodeVolumeState{ObjectMeta: metav1.ObjectMeta{Name: node}}
	s.Spec.Attachments, s.Status.Volumes = entries, lines
	return s
}

func TestTopHasTheFullestVolumeFirstByBytesOrInodes(t *testing.T) {
	inodes, few, all := int64(100), int64(1), int64(99)
	got := Top([]volumesv1alpha1.NodeVolumeState{state("node-a", nil,
		volumesv1alpha1.NodeVolume{VolumeName: "half", Used: quantity("1Gi"), Available: quantity("1Gi"), Inodes: &inodes,
			InodesUsed: &few},
		volumesv1alpha1.NodeVolume{VolumeName: "block"},
		volumesv1alpha1.NodeVolume{VolumeName: "inodes", Used: quantity("1Gi"), Available: quantity("9Gi"),
			Inodes: &inodes, InodesUsed: &all})}, nil)
	for i, want := range []Use{{Volume: "inodes", Percent: 10, InodesPercent: 99},
		{Volume: "half", Percent: 50, InodesPercent: 1}, {Volume: "block", Percent: -1, InodesPercent: -1}} {
		u := got[i]
		if u.Volume != want.Volume || u.Percent != want.Percent || u.InodesPercent != want.InodesPercent {
			t.Errorf("place %d: volume %s with %d%% of bytes and %d%% of inodes, want %s with %d%% and %d%%",
				i, u.Volume, u.Percent, u.InodesPercent, want.Volume, want.Percent, want.InodesPercent)
		}
	}
}

func TestAFullVolumeIsNotRoundedDown(t *testing.T) {
	if got := percent(999, 1000, true); got != 100 {
		t.Errorf("999 of 1000 are %d%%, want 100: a user acts on what is nearly full", got)
	}
}

func TestOrphansAreLostIntentsAndForcedDetaches(t *testing.T) {
	now := metav1.Now()
	lifted := &volumesv1alpha1.DetachEvidence{Type: volumesv1alpha1.EvidenceFenced, Unprotected: true,
		Fence: &volumesv1alpha1.FenceReference{Proves: volumesv1alpha1.FenceAccessCut}}
	got := Orphans([]volumesv1alpha1.NodeVolumeState{state("node-a",
		[]volumesv1alpha1.NodeAttachment{
			{VolumeName: "forced", AttachmentUID: "va-1", State: volumesv1alpha1.AttachmentDetaching, DetachedTime: &now},
			{VolumeName: "kept"},
			{VolumeName: "lifted", AttachmentUID: "va-2", State: volumesv1alpha1.AttachmentDetaching, DetachedTime: &now,
				Evidence: lifted}},
		volumesv1alpha1.NodeVolume{VolumeName: "lost", Publications: []volumesv1alpha1.Publication{
			{Intent: volumesv1alpha1.IntentReference{Namespace: "shop", Name: "gone"}, Path: "/p", Orphan: true},
			{Intent: volumesv1alpha1.IntentReference{Namespace: "shop", Name: "here"}, Path: "/q"}}})}, nil)
	if len(got) != 3 || got[0].Intent != "shop/gone" || got[1].Volume != "forced" || got[2].Volume != "lifted" {
		t.Fatalf("orphans %+v, want that of intent shop/gone and two forced detaches", got)
	}
	if run := got[1].Run; len(run) != 2 || !strings.HasSuffix(run[1], "va-1 --reason=... --dry-run") {
		t.Errorf("way out of a forced detach: %q, want a declaration that only shows what it would declare", run)
	}
	if run := got[2].Run; len(run) != 1 {
		t.Errorf("way out where the access of the machine is not cut any more: %q, want no declaration", run)
	}
}

func TestOrphansThatANodeStateDoesNotListAreCounted(t *testing.T) {
	published := func(orphans ...bool) volumesv1alpha1.NodeVolume {
		l := volumesv1alpha1.NodeVolume{VolumeName: "v", PublicationCount: 9}
		for _, orphan := range orphans {
			l.Publications = append(l.Publications, volumesv1alpha1.Publication{Orphan: orphan})
		}
		return l
	}
	for what, c := range map[string]struct {
		line volumesv1alpha1.NodeVolume
		want int
	}{
		"only orphans are listed":     {published(true, true), 3},
		"nothing is listed":           {published(), 1},
		"the last one has an intent":  {published(true, false), 1},
		"none of those that are seen": {published(false), 0},
	} {
		got := Orphans([]volumesv1alpha1.NodeVolumeState{state("node-a", nil, c.line)}, nil)
		if len(got) != c.want || c.want == 3 && !strings.HasPrefix(got[2].Why, "7 more publications") {
			t.Errorf("%s: orphans %+v, want %d, the last one for those that are not listed", what, got, c.want)
		}
	}
}

func TestADrainNamesWhatMovesWhatNeedsADeleteAndWhatHangs(t *testing.T) {
	onHostA := []corev1.NodeSelectorRequirement{{Key: "host", Operator: corev1.NodeSelectorOpIn, Values: []string{"a"}}}
	only := &corev1.PersistentVolume{Spec: corev1.PersistentVolumeSpec{NodeAffinity: &corev1.VolumeNodeAffinity{
		Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: onHostA}}}}}}
	node := func(name, host string) corev1.Node {
		return corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"host": host}}}
	}
	intent := volumesv1alpha1.VolumeAttachmentIntent{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "data"}}
	intent.Status.UniqueVolumeName = "wanted"
	s := state("node-a", []volumesv1alpha1.NodeAttachment{{VolumeName: "moves"}, {VolumeName: "wanted"},
		{VolumeName: "local", PersistentVolumeName: "pv-local"}, {VolumeName: "stuck", DetachError: "no attacher"}},
		volumesv1alpha1.NodeVolume{VolumeName: "upstream", InUse: true},
		volumesv1alpha1.NodeVolume{VolumeName: "small", InUse: true,
			Error: &volumesv1alpha1.OperationError{Operation: "expand", Message: "no space"}},
		volumesv1alpha1.NodeVolume{VolumeName: "busy", InUse: true,
			Error: &volumesv1alpha1.OperationError{Operation: "unstage", Message: "target is busy"}})
	only.Spec.ClaimRef = &corev1.ObjectReference{Namespace: "shop", Name: "local"}
	ground := Ground{State: &s, Intents: []volumesv1alpha1.VolumeAttachmentIntent{intent},
		Volumes: map[string]*corev1.PersistentVolume{"pv-local": only},
		Nodes:   []corev1.Node{node("node-a", "a"), node("node-b", "b")}}
	want := map[string]Fate{"moves": Moves, "upstream": Moves, "wanted": NeedsDelete, "local": Hangs, "stuck": Hangs,
		"small": Moves, "busy": Hangs}
	d := PlanDrain(ground)
	for _, v := range d.Volumes {
		if v.Fate != want[v.Volume] {
			t.Errorf("volume %s: %s (%s), want %s", v.Volume, v.Fate, v.Why, want[v.Volume])
		}
	}
	if d.Count(Hangs) != 3 || d.Volumes[0].Fate != Hangs || d.Volumes[0].Claim != "shop/local" {
		t.Errorf("%d hang, the first is %+v; want 3, and these first, with the claim", d.Count(Hangs), d.Volumes[0])
	}
	ground.Nodes = append(ground.Nodes, node("node-c", "a"))
	for _, v := range PlanDrain(ground).Volumes {
		if v.Volume == "local" && v.Fate != Moves {
			t.Errorf("with another node of its affinity: %s (%s), want %s", v.Fate, v.Why, Moves)
		}
	}
	ground.Volumes["pv-wanted"], s.Spec.Attachments[1].PersistentVolumeName = &corev1.PersistentVolume{}, "pv-wanted"
	ground.Endings = map[string]facts.Ending{"pv-wanted": {Why: "its claim is being deleted"}}
	if d = PlanDrain(ground); d.Volumes[0].Fate != LosesData || len(d.Volumes[0].Run) != 2 ||
		!strings.Contains(d.Volumes[0].Run[0], "Retain") || d.Findings() != d.Count(Hangs)+1 {
		t.Errorf("the first is %+v, want %s, with the way to keep the data before the deletion; %d findings", d.Volumes[0],
			LosesData, d.Findings())
	}
	ground.Blocked = "the agent is silent"
	if d := PlanDrain(ground); d.Count(Hangs) != len(d.Volumes) {
		t.Errorf("on a node that releases nothing %d of %d volumes hang, want all", d.Count(Hangs), len(d.Volumes))
	}
}
