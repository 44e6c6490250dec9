/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package handshake

import (
	"testing"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
)

func TestEachConditionOfAccessThatIsCutCounts(t *testing.T) {
	var p Protocol
	gone := Attachment{UID: "u1"}
	held := Attachment{Exists: true, UID: "u1", Attached: true, NameHeld: true}
	lock := Lock{Exists: true, Holder: "node-a"}
	cut := with(forcedN, func(n *Node) { n.Use = Use{UID: "u1", InUse: true} })
	lifted := with(cut, func(n *Node) { n.Entry.Lifted = true })
	released := with(lifted, func(n *Node) { n.Use = Use{} })
	silent := with(released, func(n *Node) { n.Reported = false })
	check(t, []verdict{
		{"the machine that reports uses the volume", p.MayRelyOnCut(inUseN), GuardNone},
		{"another one does", p.MayRelyOnCut(with(inUseN, func(n *Node) { n.Use.Foreign = true })), GuardSameMachine},
		{"it holds: it is deleted", p.MayDelete(cut, held), GuardNone},
		{"it was lifted", p.MayDelete(lifted, held), GuardCutHolds},
		{"the agent has reported since", p.MayDelete(released, held), GuardNone},
		{"nothing was reported to this state", p.MayDelete(silent, held), GuardCutHolds},
		{"it was declared", p.MayDelete(declare(lifted, "u1"), held), GuardNone},
		{"also for the kubelet", Protocol{Kubelet: true}.MayDeleteUnderKubelet(lifted, held), GuardCutHolds},
		{"the lock leaves while it holds", p.MayMoveLock(lock, cut, gone), GuardNone},
		{"not once it was lifted", p.MayMoveLock(lock, lifted, gone), GuardCutHolds},
		{"but after a report", p.MayMoveLock(lock, released, gone), GuardNone},
		{"another node gets it while it holds", p.CutHolds(cut), GuardNone},
		{"not once it was lifted", p.CutHolds(lifted), GuardCutHolds},
		{"but after a report", p.CutHolds(released), GuardNone},
	})
}

func TestWhichFenceAloneKeepsAVolumeFromItsNode(t *testing.T) {
	fence := func(proves volumesv1alpha1.FenceProof, unprotected bool) *volumesv1alpha1.DetachEvidence {
		return &volumesv1alpha1.DetachEvidence{Type: volumesv1alpha1.EvidenceFenced, Unprotected: unprotected,
			Fence: &volumesv1alpha1.FenceReference{Name: "f", Proves: proves}}
	}
	cut, unprotected := fence(volumesv1alpha1.FenceAccessCut, false), fence(volumesv1alpha1.FenceAccessCut, true)
	off, unprotectedOff := fence(volumesv1alpha1.FencePowerOff, false), fence(volumesv1alpha1.FencePowerOff, true)
	used := []volumesv1alpha1.NodeVolume{{VolumeName: volume, AttachmentUID: "u1", InUse: true}}
	for name, c := range map[string]struct {
		evidence *volumesv1alpha1.DetachEvidence
		used     []volumesv1alpha1.NodeVolume
		// cuts: the driver cuts access itself; detached: the attachment is gone.
		cuts, detached   bool
		want             bool
		declared, lifted bool
	}{
		"access that is cut":                   {evidence: cut, used: used, want: true},
		"the agent has reported":               {evidence: cut},
		"it was lifted":                        {evidence: unprotected, used: used, lifted: true},
		"a machine that is off":                {evidence: off, used: used, declared: true},
		"a machine that is off, unprotected":   {evidence: unprotectedOff, used: used, declared: true},
		"no evidence":                          {used: used},
		"the driver is about to cut it itself": {evidence: cut, used: used, cuts: true, want: true},
		"the driver has cut it":                {evidence: cut, used: used, cuts: true, detached: true},
		"a driver that cuts nothing has unpublished it": {evidence: cut, used: used,
			detached: true, want: true},
	} {
		t.Run(name, func(t *testing.T) {
			nvs := volumeState(entryOf(volumesv1alpha1.NodeAttachment{State: volumesv1alpha1.AttachmentDetaching,
				AttachmentUID: "u1", Evidence: c.evidence}))
			nvs.Status.Volumes = c.used
			n := NodeOf(nvs, volume)
			n.Entry.Detached = c.detached
			if n.Entry.Declared != c.declared || n.Entry.Lifted != c.lifted {
				t.Errorf("entry %+v; want declared %t, lifted %t", n.Entry, c.declared, c.lifted)
			}
			got := Protocol{}.CutOf(n, AttachmentOf(nvs, volume), c.cuts)
			if (got != nil) != c.want || got != nil && got.Name != "f" {
				t.Errorf("fence %+v, want one: %t", got, c.want)
			}
		})
	}
	if got := (Protocol{}).CutOf(Node{}, nil, false); got != nil {
		t.Errorf("fence %+v without an entry, want none", got)
	}
}
