/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package handshake

import (
	"reflect"
	"testing"
	"time"

	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
)

const volume = "kubernetes.io/csi/loop.csi.hawser.io^vol-1"

func volumeState(change func(*volumesv1alpha1.NodeVolumeState)) *volumesv1alpha1.NodeVolumeState {
	nvs := &volumesv1alpha1.NodeVolumeState{
		ObjectMeta: metav1.ObjectMeta{Name: "node-a", UID: "object-1", Generation: 3},
		Status: volumesv1alpha1.NodeVolumeStateStatus{
			ObservedGeneration: 2, Protocol: volumesv1alpha1.AgentProtocol{ObservedUID: "object-1"},
		},
	}
	change(nvs)
	return nvs
}

func entryOf(a volumesv1alpha1.NodeAttachment) func(*volumesv1alpha1.NodeVolumeState) {
	a.VolumeName = volume
	return func(nvs *volumesv1alpha1.NodeVolumeState) {
		nvs.Spec.Attachments = []volumesv1alpha1.NodeAttachment{{VolumeName: "another"}, a}
	}
}

func TestANodesViewOfOneVolume(t *testing.T) {
	now := metav1.NewTime(time.Unix(0, 0))
	for _, test := range []struct {
		name string
		nvs  *volumesv1alpha1.NodeVolumeState
		want Node
	}{
		{"no state", nil, Node{}},
		{"nothing of the volume", volumeState(func(*volumesv1alpha1.NodeVolumeState) {}), Node{Exists: true, Reported: true}},
		{
			"a report under another object's UID is none",
			volumeState(func(nvs *volumesv1alpha1.NodeVolumeState) {
				nvs.UID, nvs.Status.ObservedGeneration = "object-2", 3
			}),
			Node{Exists: true, Blank: true},
		},
		{
			"never reported",
			volumeState(func(nvs *volumesv1alpha1.NodeVolumeState) { nvs.Status = volumesv1alpha1.NodeVolumeStateStatus{} }),
			Node{Exists: true, Blank: true},
		},
		{
			"reported, and doubted since",
			volumeState(func(nvs *volumesv1alpha1.NodeVolumeState) {
				nvs.Status.Protocol.ObservedUID, nvs.Status.Protocol.Session = "", 1
			}),
			Node{Exists: true, Unconfirmed: true},
		},
		{
			"doubted since, before its first session",
			volumeState(func(nvs *volumesv1alpha1.NodeVolumeState) {
				nvs.Status.Protocol.ObservedUID, nvs.Status.Protocol.Reports = "", 1
			}),
			Node{Exists: true},
		},
		{
			"another machine uses the volume",
			volumeState(func(nvs *volumesv1alpha1.NodeVolumeState) {
				nvs.Status.Volumes = []volumesv1alpha1.NodeVolume{{VolumeName: volume, AttachmentUID: "u1", InUse: true,
					Machine: &volumesv1alpha1.MachineIdentity{SystemUUID: "other"}}}
			}),
			Node{Exists: true, Reported: true, Use: Use{UID: "u1", InUse: true, Foreign: true}},
		},
		{
			"the taint has forced it away",
			volumeState(entryOf(volumesv1alpha1.NodeAttachment{AttachmentUID: "u1",
				State:    volumesv1alpha1.AttachmentDetaching,
				Evidence: &volumesv1alpha1.DetachEvidence{Type: volumesv1alpha1.EvidenceOutOfServiceTaint}})),
			Node{Exists: true, Reported: true,
				Entry: Entry{State: Detaching, UID: "u1", Forced: true, Declared: true}},
		},
		{
			"a fence has forced it away",
			volumeState(entryOf(volumesv1alpha1.NodeAttachment{AttachmentUID: "u1",
				State:    volumesv1alpha1.AttachmentDetaching,
				Evidence: &volumesv1alpha1.DetachEvidence{Type: volumesv1alpha1.EvidenceFenced}})),
			Node{Exists: true, Reported: true,
				Entry: Entry{State: Detaching, UID: "u1", Forced: true, Declared: true}},
		},
		{
			"an administrator has forced it away",
			volumeState(entryOf(volumesv1alpha1.NodeAttachment{AttachmentUID: "u1",
				State:    volumesv1alpha1.AttachmentDetaching,
				Evidence: &volumesv1alpha1.DetachEvidence{Type: volumesv1alpha1.EvidenceDeclaredByAdministrator}})),
			Node{Exists: true, Reported: true,
				Entry: Entry{State: Detaching, UID: "u1", Forced: true, Declared: true}},
		},
		{
			"the agent has looked since the volume was unlisted",
			volumeState(func(nvs *volumesv1alpha1.NodeVolumeState) {
				entryOf(volumesv1alpha1.NodeAttachment{
					AttachmentUID: "u1", State: volumesv1alpha1.AttachmentDetaching,
					Protocol: volumesv1alpha1.AttachmentProtocol{UnlistedGeneration: 3},
				})(nvs)
				nvs.Status.ObservedGeneration = 3
			}),
			Node{Exists: true, Reported: true, Looked: true, Entry: Entry{State: Detaching, UID: "u1"}},
		},
		{
			"the agent has looked before the volume was unlisted",
			volumeState(func(nvs *volumesv1alpha1.NodeVolumeState) {
				entryOf(volumesv1alpha1.NodeAttachment{
					AttachmentUID: "u1", State: volumesv1alpha1.AttachmentDetaching,
					Protocol: volumesv1alpha1.AttachmentProtocol{UnlistedGeneration: 3},
				})(nvs)
				nvs.Status.ObservedGeneration = 2
			}),
			Node{Exists: true, Reported: true, Entry: Entry{State: Detaching, UID: "u1"}},
		},
		{
			"the agent of another boot has looked once more, and the kubelet waits",
			volumeState(func(nvs *volumesv1alpha1.NodeVolumeState) {
				entryOf(volumesv1alpha1.NodeAttachment{
					AttachmentUID: "u1", State: volumesv1alpha1.AttachmentDetaching,
					Protocol: volumesv1alpha1.AttachmentProtocol{UnlistedBootID: "boot-1", RebootGeneration: 3},
				})(nvs)
				nvs.Status.ObservedGeneration, nvs.Status.BootID = 3, "boot-2"
				nvs.Status.Volumes = []volumesv1alpha1.NodeVolume{{VolumeName: volume, InUse: true, Waiting: true}}
			}),
			Node{
				Exists: true, Reported: true, LookedAgain: true, Boot: "boot-2", Use: Use{InUse: true, Waiting: true},
				Entry: Entry{State: Detaching, UID: "u1", Boot: "boot-1", Asked: true},
			},
		},
		{
			"the agent has not looked once more",
			volumeState(entryOf(volumesv1alpha1.NodeAttachment{
				AttachmentUID: "u1", State: volumesv1alpha1.AttachmentDetaching,
				Protocol: volumesv1alpha1.AttachmentProtocol{UnlistedBootID: "boot-1", RebootGeneration: 3},
			})),
			Node{Exists: true, Reported: true, Entry: Entry{State: Detaching, UID: "u1", Boot: "boot-1", Asked: true}},
		},
		{
			"the volume was not unlisted",
			volumeState(func(nvs *volumesv1alpha1.NodeVolumeState) {
				entryOf(volumesv1alpha1.NodeAttachment{AttachmentUID: "u1", State: volumesv1alpha1.AttachmentDetaching})(nvs)
				nvs.Status.ObservedGeneration = 3
			}),
			Node{Exists: true, Reported: true, Entry: Entry{State: Detaching, UID: "u1"}},
		},
		{
			"attached and in use",
			volumeState(func(nvs *volumesv1alpha1.NodeVolumeState) {
				entryOf(volumesv1alpha1.NodeAttachment{AttachmentUID: "u1", State: volumesv1alpha1.AttachmentAttached})(nvs)
				nvs.Status.Volumes = []volumesv1alpha1.NodeVolume{{VolumeName: volume, AttachmentUID: "u1", InUse: true}}
			}),
			Node{Exists: true, Reported: true, Entry: Entry{State: Attached, UID: "u1"}, Use: Use{UID: "u1", InUse: true}},
		},
		{
			"in use by one of two lines",
			volumeState(func(nvs *volumesv1alpha1.NodeVolumeState) {
				nvs.Status.Volumes = []volumesv1alpha1.NodeVolume{
					{VolumeName: volume, AttachmentUID: "u1"}, {VolumeName: volume, AttachmentUID: "u2", InUse: true},
					{VolumeName: volume, AttachmentUID: "u3"},
				}
			}),
			Node{Exists: true, Reported: true, Use: Use{UID: "u2", InUse: true}},
		},
		{
			"released by the agent is not forced",
			volumeState(entryOf(volumesv1alpha1.NodeAttachment{
				AttachmentUID: "u1", State: volumesv1alpha1.AttachmentDetaching,
				Evidence: &volumesv1alpha1.DetachEvidence{Type: volumesv1alpha1.EvidenceAgentReleased},
			})),
			Node{Exists: true, Reported: true, Entry: Entry{State: Detaching, UID: "u1"}},
		},
		{
			"forced and detached",
			volumeState(entryOf(volumesv1alpha1.NodeAttachment{
				AttachmentUID: "u1", State: volumesv1alpha1.AttachmentDetaching, DetachedTime: &now,
				Evidence: &volumesv1alpha1.DetachEvidence{Type: volumesv1alpha1.EvidenceNodeGone},
			})),
			Node{Exists: true, Reported: true, Entry: Entry{State: Detaching, UID: "u1", Detached: true, Forced: true}},
		},
		{
			"declared released, among other annotations",
			volumeState(func(nvs *volumesv1alpha1.NodeVolumeState) {
				nvs.Annotations = map[string]string{
					volumesv1alpha1.DeclaredReleasedPrefix + "u2": "scrapped",
					volumesv1alpha1.DeclaredReleasedPrefix + "u1": "sold", "other": "u3",
				}
			}),
			Node{Exists: true, Reported: true, Declared: []Declaration{{"u1", "sold"}, {"u2", "scrapped"}}},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := NodeOf(test.nvs, volume); !reflect.DeepEqual(got, test.want) {
				t.Errorf("node's view of volume %s (%s): got %+v, want %+v", volume, test.name, got, test.want)
			}
		})
	}
}

func TestAVolumeAttachmentIsGoneOnlyWhenItsAttacherIsDone(t *testing.T) {
	const attacher, ours = "external-attacher/loop-csi-hawser-io", volumesv1alpha1.ForcedAwayFinalizer
	now := metav1.NewTime(time.Unix(0, 0))
	for _, test := range []struct {
		name       string
		deleted    *metav1.Time
		finalizers []string
		want       Attachment
		gone       bool
	}{
		{"live", nil, []string{attacher}, Attachment{}, false},
		{"new, without a finalizer", nil, nil, Attachment{}, false},
		{"live, its name held", nil, []string{attacher, ours}, Attachment{NameHeld: true}, false},
		{"terminating", &now, []string{attacher}, Attachment{Terminating: true}, false},
		{"terminating, held by both", &now, []string{ours, attacher}, Attachment{Terminating: true, NameHeld: true}, false},
		{"only its name is held", &now, []string{ours},
			Attachment{Terminating: true, NameHeld: true, Unpublished: true}, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			va := &storagev1.VolumeAttachment{
				ObjectMeta: metav1.ObjectMeta{UID: "u1", DeletionTimestamp: test.deleted, Finalizers: test.finalizers},
				Status:     storagev1.VolumeAttachmentStatus{Attached: true},
			}
			test.want.Exists, test.want.UID, test.want.Attached = true, "u1", true
			got := AttachmentFrom(va)
			if got != test.want {
				t.Errorf("view of a VolumeAttachment that is %s: got %+v, want %+v", test.name, got, test.want)
			}
			if got.Gone() != test.gone {
				t.Errorf("VolumeAttachment that is %s is gone: %t, want %t", test.name, got.Gone(), test.gone)
			}
		})
	}
	if got := AttachmentFrom(nil); got != (Attachment{}) || !got.Gone() {
		t.Errorf("view of no VolumeAttachment: %+v, want an empty one that is gone", got)
	}
}

func TestADeclarationAboutTwoMachinesWaitsForTheOneThatReports(t *testing.T) {
	other := &volumesv1alpha1.MachineIdentity{SystemUUID: "other"}
	type lines []volumesv1alpha1.NodeVolume
	line := func(uid types.UID, machine *volumesv1alpha1.MachineIdentity, inUse bool) volumesv1alpha1.NodeVolume {
		return volumesv1alpha1.NodeVolume{VolumeName: "v", AttachmentUID: uid, InUse: inUse, Machine: machine}
	}
	for _, c := range []struct {
		name  string
		lines lines
		inUse bool
	}{
		{"both use the attachment", lines{line("1", other, true), line("1", nil, true)}, true},
		{"the other one uses it", lines{line("1", other, true)}, false},
		{"the one that reports has ended", lines{line("1", other, true), line("1", nil, false)}, false},
		{"the one that reports uses it", lines{line("1", nil, true)}, false},
		{"the one that reports uses another attachment", lines{line("1", other, true), line("2", nil, true)}, false},
	} {
		nvs := &volumesv1alpha1.NodeVolumeState{}
		nvs.Annotations = map[string]string{volumesv1alpha1.DeclaredReleasedPrefix + "1": "off"}
		nvs.Spec.Attachments = []volumesv1alpha1.NodeAttachment{
			{VolumeName: "v", AttachmentUID: "1", State: volumesv1alpha1.AttachmentAttached}}
		nvs.Status.Volumes = c.lines
		n := NodeOf(nvs, "v")
		if n.InUse() != c.inUse {
			t.Errorf("%s, and a declaration: in use %t, want %t", c.name, n.InUse(), c.inUse)
		}
		if _, declared := n.Declares("1"); declared == c.inUse {
			t.Errorf("%s, and a declaration: it counts %t, want %t", c.name, declared, !c.inUse)
		}
	}
}
