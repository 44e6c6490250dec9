/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package plan_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/hawser-io/hawser/internal/agent/kubelet"
	"github.com/hawser-io/hawser/internal/agent/plan"
	"github.com/hawser-io/hawser/internal/agent/plan/plantest"
	"github.com/hawser-io/hawser/internal/agent/record"
	"github.com/hawser-io/hawser/internal/handshake"
)

// unpublished: the intent was gone before the driver was asked to publish for it.
func unpublished(f *plan.Facts) {
	f.Record.Uses[0].Phase, f.Uses["intent-1"] = record.PhaseNone, record.Missing
}

func fresh(f *plan.Facts) {
	f.Record = nil
	f.Stage, f.Reference, f.Uses = record.Missing, record.Missing, nil
}

func declared(uid types.UID) func(*plan.Facts) {
	return func(f *plan.Facts) { f.Node.Declared = []handshake.Declaration{{UID: uid}} }
}

// kubeletAway: the kubelet alone has the volume mounted, and its attachment was forced away.
func kubeletAway(f *plan.Facts) {
	fresh(f)
	f.Kubelet = &kubelet.TrackedUse{AttachmentUID: "uid", Mounts: []string{"/k/stage"}}
	f.Entry.State = volumesv1alpha1.AttachmentDetaching
	f.Entry.Evidence = &volumesv1alpha1.DetachEvidence{Type: volumesv1alpha1.EvidenceForcedAfterTimeout}
}

// unowned: the driver has published the use, and its files are to be given to a group.
func unowned(f *plan.Facts) {
	f.Record.Uses[0].Phase = record.PhaseUnowned
	f.Record.Uses[0].Mount = &volumesv1alpha1.MountSpec{FSGroup: ptr.To(int64(7))}
	f.Intents[0].Spec.Mount = f.Record.Uses[0].Mount.DeepCopy()
}

// undone: the agent has unstaged, and the kubelet has begun to use the volume meanwhile.
func undone(f *plan.Facts) {
	plantest.Unused(f)
	f.Kubelet = &kubelet.TrackedUse{AttachmentUID: "uid"}
	f.Stage, f.Reference = record.Missing, record.Missing
	f.Record.Stage.Phase, f.Record.Stage.Unstaging = record.PhaseUncertain, true
}

func TestPlans(t *testing.T) {
	for _, test := range []struct {
		name   string
		change func(*plan.Facts)
		want   string
	}{
		{"nothing to do when all is well", func(*plan.Facts) {}, ""},
		{"nothing while a call hangs", func(f *plan.Facts) { f.CallHangs = true; plantest.Deleting(f) }, ""},
		{"a wanted volume is taken into use first", fresh, "mark-in-use"},
		{"not without an entry", func(f *plan.Facts) { fresh(f); f.Entry = nil }, ""},
		{"not while it is being detached", func(f *plan.Facts) {
			fresh(f)
			f.Entry.State = volumesv1alpha1.AttachmentDetaching
		}, ""},
		{"not for an intent that is being deleted", func(f *plan.Facts) { fresh(f); plantest.Deleting(f) }, ""},
		{"not for an intent with another volume pinned",
			func(f *plan.Facts) { fresh(f); f.Intents[0].Status.VolumeName = "other" }, ""},
		{"not for the kubelet", func(f *plan.Facts) {
			fresh(f)
			f.Intents[0].Spec.Publisher = volumesv1alpha1.PublisherKubelet
		}, ""},
		{"not for Attached", func(f *plan.Facts) {
			fresh(f)
			f.Intents[0].Spec.DesiredState = volumesv1alpha1.DesiredAttached
		}, ""},
		{"not for an intent that could be gone at once", func(f *plan.Facts) { fresh(f); plantest.Unfinalized(f) }, ""},
		{"one that lost its finalizer stays published", plantest.Unfinalized, ""},
		{"but is not published again",
			func(f *plan.Facts) { plantest.Unfinalized(f); f.Uses["intent-1"] = record.Missing }, ""},
		{"nor staged again", func(f *plan.Facts) { plantest.Unfinalized(f); f.Stage = record.Missing }, ""},
		{"and is unpublished when it asks for that", func(f *plan.Facts) { plantest.Unfinalized(f); plantest.Deleting(f) },
			"unpublish intent-1"},
		{"what no acknowledged write stands for is taken anew", func(f *plan.Facts) { f.Record.InUse = false },
			"mark-in-use"},
		{"stage before publish", func(f *plan.Facts) {
			f.Record.Stage, f.Record.Uses, f.Stage, f.Reference = record.Stage{Path: "/k/stage"}, nil, record.Missing,
				record.Missing
			f.Record.Uses = f.Joined()
		}, "stage"},
		{"an uncertain stage is staged again", func(f *plan.Facts) { f.Record.Stage.Phase = record.PhaseUncertain },
			"stage"},
		{"an uncertain publication is published again",
			func(f *plan.Facts) { f.Record.Uses[0].Phase = record.PhaseUncertain }, "publish intent-1"},
		{"what is published only lacks its group", unowned, "set-ownership intent-1"},
		{"also while its sub path is not seen", func(f *plan.Facts) {
			unowned(f)
			f.Record.Uses[0].Target, f.Uses["intent-1"] = "/p/hidden", record.Missing
		}, "set-ownership intent-1"},
		{"another boot has nothing to give to a group", func(f *plan.Facts) { unowned(f); f.Record.Uses[0].BootID = "last" },
			"publish intent-1"},
		{"nor has a path where nothing is mounted", func(f *plan.Facts) { unowned(f); f.Uses["intent-1"] = record.Missing },
			"publish intent-1"},
		{"or something else", func(f *plan.Facts) { unowned(f); f.Uses["intent-1"] = record.Foreign },
			"publish intent-1"},
		{"what is to be released needs no group", func(f *plan.Facts) { unowned(f); plantest.Deleting(f) },
			"unpublish intent-1"},
		{"nor what is wanted with another one", func(f *plan.Facts) {
			unowned(f)
			f.Intents[0].Spec.Mount = &volumesv1alpha1.MountSpec{FSGroup: ptr.To(int64(8))}
		}, "unpublish intent-1"},
		{"nor what was taken away", func(f *plan.Facts) {
			unowned(f)
			f.Entry.State = volumesv1alpha1.AttachmentDetaching
		}, "shutdown"},
		{"nor what has no intent", func(f *plan.Facts) { unowned(f); f.Intents = nil }, ""},
		{"another intent is published before files are given to a group", func(f *plan.Facts) {
			unowned(f)
			f.Intents = append(f.Intents, plantest.Intent("intent-2"))
			f.Record.Uses = f.Joined()
		}, "publish intent-2, set-ownership intent-1"},
		{"what was undone while the kubelet began to use it is staged again", undone, "stage"},
		{"also while it may be there", func(f *plan.Facts) { undone(f); f.Stage = record.Present }, ""},
		{"not what failed to be staged", func(f *plan.Facts) { undone(f); f.Record.Stage.Unstaging = false }, ""},
		{"nor what the reboot has undone", func(f *plan.Facts) { undone(f); f.Record.Stage.BootID = "last" }, ""},
		{"nor on an attachment that is not the record's", func(f *plan.Facts) { undone(f); f.Record.InUse = false }, ""},
		{"a lost stage is put back", func(f *plan.Facts) { f.Stage = record.Missing }, "stage"},
		{"a lost publication is put back", func(f *plan.Facts) { f.Uses["intent-1"] = record.Missing },
			"publish intent-1"},
		{"a lost reference is put back", func(f *plan.Facts) { f.Reference = record.Missing }, "reference"},
		{"another boot has nothing mounted", func(f *plan.Facts) { f.Now.BootID = "next" }, "stage"},
		{"another intent joins", func(f *plan.Facts) { f.Intents = append(f.Intents, plantest.Intent("intent-2")) }, "join"},
		{"a deleted intent is unpublished", plantest.Deleting, "unpublish intent-1"},
		{"a deleted intent beside another is unpublished alone", func(f *plan.Facts) {
			f.Intents = append(f.Intents, plantest.Intent("intent-2"))
			f.Record.Uses = f.Joined()
			plantest.Deleting(f)
		}, "unpublish intent-1, publish intent-2"},
		{"an intent that is not there asks for nothing", func(f *plan.Facts) { f.Intents = nil }, ""},
		{"an entry that is not there asks for nothing", func(f *plan.Facts) { f.Entry = nil }, ""},
		{"a release needs no entry", func(f *plan.Facts) { f.Entry = nil; plantest.Deleting(f) }, "unpublish intent-1"},
		{"an orphan that was being unpublished is finished once it is not mounted",
			func(f *plan.Facts) { f.Intents = nil; plantest.Unpublishing(f) }, "unpublish intent-1"},
		{"not while it is mounted", func(f *plan.Facts) {
			f.Intents = nil
			plantest.Unpublishing(f)
			f.Uses["intent-1"] = record.Present
		}, ""},
		{"nor one that another call was about", func(f *plan.Facts) {
			f.Intents = nil
			plantest.Unpublishing(f)
			f.Record.Unfinished.Target = "/other"
		}, ""},
		{"nor one that was being published", func(f *plan.Facts) {
			f.Intents = nil
			plantest.Unpublishing(f)
			f.Record.Unfinished.Operation = "publish"
		}, ""},
		{"nor one that is only not mounted", func(f *plan.Facts) {
			f.Intents, f.Uses["intent-1"] = nil,
				record.Missing
		}, ""},
		{"one for which nothing was published ends", func(f *plan.Facts) { f.Intents = nil; unpublished(f) },
			"unpublish intent-1"},
		{"not while something is mounted at its path", func(f *plan.Facts) {
			f.Intents = nil
			unpublished(f)
			f.Uses["intent-1"] = record.Present
		}, ""},
		{"nor before it is known whether the API was restored", func(f *plan.Facts) {
			f.Intents, f.Unconfirmed = nil, true
			unpublished(f)
		}, ""},
		{"nor one that asked for no more than the stage", func(f *plan.Facts) {
			f.Intents = nil
			unpublished(f)
			f.Record.Uses[0].Want, f.Record.Uses[0].Live = volumesv1alpha1.DesiredStaged, true
		}, ""},
		{"but it does where that was gone before the volume was in use", func(f *plan.Facts) {
			f.Intents = nil
			unpublished(f)
			f.Record.Uses[0].Want = volumesv1alpha1.DesiredStaged
		}, "unpublish intent-1"},
		{"an end that the disk does not know is written before it is told", func(f *plan.Facts) {
			plantest.Unused(f)
			f.Kubelet, f.Reference, f.Unsaved = &kubelet.TrackedUse{}, record.Missing, true
		}, "persist"},
		{"but by the next call where there is one", func(f *plan.Facts) { plantest.Unused(f); f.Unsaved = true },
			"unstage, persist"},
		{"without uses the stage is undone", plantest.Unused, "unstage"},
		{"a reference alone is undone",
			func(f *plan.Facts) { plantest.Unused(f); f.Record.Stage = record.Stage{Path: "/k/stage"} },
			"unstage"},
		{"without a stage inUse is cleared", func(f *plan.Facts) {
			plantest.Unused(f)
			f.Record.Stage, f.Stage, f.Reference = record.Stage{Path: "/k/stage"}, record.Missing, record.Missing
		}, "clear-in-use"},
		{"a record of a use that never began is dropped", func(f *plan.Facts) {
			f.Record = &record.Record{VolumeName: plantest.Volume, AttachmentUID: "uid",
				Uses: []record.Use{{Intent: f.Record.Uses[0].Intent}}}
			f.Intents = nil
		}, "clear-in-use"},
		{"lowered to Staged", func(f *plan.Facts) { f.Intents[0].Spec.DesiredState = volumesv1alpha1.DesiredStaged },
			"unpublish intent-1"},
		{"lowered to Attached", func(f *plan.Facts) { f.Intents[0].Spec.DesiredState = volumesv1alpha1.DesiredAttached },
			"unpublish intent-1"},
		{"other parameters are unpublished first", func(f *plan.Facts) { f.Intents[0].Spec.ReadOnly = true },
			"unpublish intent-1"},
		{"other mount options too", func(f *plan.Facts) {
			f.Intents[0].Spec.Mount = &volumesv1alpha1.MountSpec{Options: []string{"nodev"}}
		}, "unpublish intent-1"},
		{"and a sub path that names another directory by now",
			func(f *plan.Facts) { f.Record.Uses[0].Moved = true }, "unpublish intent-1"},
		{"while the kubelet uses the stage the agent's reference goes",
			func(f *plan.Facts) { plantest.Unused(f); f.Kubelet = &kubelet.TrackedUse{} }, "dereference"},
		{"and then the kubelet is waited for", func(f *plan.Facts) {
			plantest.Unused(f)
			f.Kubelet,
				f.Reference = &kubelet.TrackedUse{}, record.Missing
		}, ""},
		{"not for one that is only suspected", func(f *plan.Facts) {
			plantest.Unused(f)
			f.Kubelet = &kubelet.TrackedUse{Doubt: "a record"}
		}, "unstage"},
		{"not while it is used", func(f *plan.Facts) { f.Kubelet = &kubelet.TrackedUse{} }, ""},
		{"a stage of the kubelet does not keep a record that has none", func(f *plan.Facts) {
			plantest.Unused(f)
			f.Kubelet, f.Reference, f.Record.Stage = &kubelet.TrackedUse{}, record.Missing, record.Stage{Path: "/k/stage"}
		}, "clear-in-use"},
		{"what the kubelet has mounted of a forced away attachment is shut down", kubeletAway, "shutdown-kubelet"},
		{"but once", func(f *plan.Facts) { kubeletAway(f); f.Kubelet.ShutDown = true }, ""},
		{"not when nothing is mounted", func(f *plan.Facts) { kubeletAway(f); f.Kubelet.Mounts = nil }, ""},
		{"not when it was released", func(f *plan.Facts) {
			kubeletAway(f)
			f.Entry.Evidence.Type = volumesv1alpha1.EvidenceAgentReleased
		}, ""},
		{"what may be is told before the attachment was known, while it is there",
			func(f *plan.Facts) { kubeletAway(f); f.Kubelet.AttachmentUID = "" }, "shutdown-kubelet"},
		{"not when it may be the next life", func(f *plan.Facts) {
			kubeletAway(f)
			f.Kubelet.AttachmentUID, f.Entry.DetachedTime = "", ptr.To(metav1.Now())
		}, ""},
		{"nor when the attachment was lost and its name free", func(f *plan.Facts) {
			kubeletAway(f)
			f.Kubelet.AttachmentUID, f.Entry.Evidence.Type = "", volumesv1alpha1.EvidenceAttachmentLost
		}, ""},
		{"not beside another attachment", func(f *plan.Facts) {
			kubeletAway(f)
			f.Entry.State, f.Entry.AttachmentUID = volumesv1alpha1.AttachmentAttached, "other"
			f.Intents = nil
		}, ""},
		{"nor that of one while another is forced away",
			func(f *plan.Facts) { kubeletAway(f); f.Kubelet.AttachmentUID = "other" }, ""},
		{"a taken away filesystem is shut down first",
			func(f *plan.Facts) { f.Entry.State = volumesv1alpha1.AttachmentDetaching }, "shutdown"},
		{"one of another attachment too", func(f *plan.Facts) { f.Entry.AttachmentUID = "other" }, "shutdown"},
		{"one that was declared released and whose entry is gone too",
			func(f *plan.Facts) { f.Entry = nil; declared("uid")(f) }, "shutdown"},
		{"not when another was declared", func(f *plan.Facts) { f.Entry = nil; declared("other")(f) }, ""},
		{"what the kubelet has mounted and was declared released is shut down", func(f *plan.Facts) {
			kubeletAway(f)
			f.Entry = nil
			declared("uid")(f)
		}, "shutdown-kubelet"},
		{"shut down, it is undone", func(f *plan.Facts) {
			f.Entry.State, f.Record.ShutDown = volumesv1alpha1.AttachmentDetaching, true
		}, "unpublish intent-1"},
		{"what is not mounted need not be shut down", func(f *plan.Facts) {
			f.Entry.State, f.Stage, f.Reference, f.Uses = volumesv1alpha1.AttachmentDetaching, record.Missing, record.Missing,
				nil
		}, "unpublish intent-1"},
		{"a taken away device cannot be shut down", func(f *plan.Facts) {
			f.Entry.State, f.Record.Mode = volumesv1alpha1.AttachmentDetaching, corev1.PersistentVolumeBlock
		}, "unpublish intent-1"},
		{"in use and never touched, taken away, is cleared", func(f *plan.Facts) {
			f.Record = &record.Record{VolumeName: plantest.Volume, AttachmentUID: "uid", InUse: true}
			f.Stage, f.Reference = record.Missing, record.Missing
			f.Entry.State = volumesv1alpha1.AttachmentDetaching
		}, "clear-in-use"},
		{"a larger capacity is brought to the node", func(f *plan.Facts) {
			f.Expands, f.Entry.Capacity, f.Record.Capacity = true, ptr.To(resource.MustParse("2Gi")),
				ptr.To(resource.MustParse("1Gi"))
		}, "expand"},
		{"not by a driver that cannot", func(f *plan.Facts) { f.Entry.Capacity = ptr.To(resource.MustParse("2Gi")) },
			""},
		{"not through a read-only publication", func(f *plan.Facts) {
			f.Expands, f.Entry.Capacity = true, ptr.To(resource.MustParse("2Gi"))
			f.Record.Uses[0].ReadOnly, f.Intents[0].Spec.ReadOnly = true, true
		}, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := plantest.Situation()
			test.change(f)
			var got []string
			for _, a := range plan.Of(*f) {
				got = append(got, strings.TrimSpace(string(a.Kind)+" "+string(a.Intent)))
			}
			if s := strings.Join(got, ", "); s != test.want {
				t.Errorf("plan of volume %s: %q, want %q", plantest.Volume, s, test.want)
			}
		})
	}
}

func TestAnOrphanIsAdoptedByAnIntentOfItsName(t *testing.T) {
	f := plantest.Situation()
	successor := plantest.Intent("successor")
	successor.Name = "intent-1"
	f.Intents = []*volumesv1alpha1.VolumeAttachmentIntent{successor}
	uses := f.Joined()
	if len(uses) != 1 || uses[0].Intent.UID != "successor" || uses[0].Phase != record.PhaseDone {
		t.Errorf("uses after intent successor came: %+v, want one, published, for it", uses)
	}
}

// TestRecordsOfAnEarlierVersionAreRead: it set the group within the publication, and knew of no phase between.
func TestRecordsOfAnEarlierVersionAreRead(t *testing.T) {
	for phase, want := range map[record.Phase][]plan.Kind{
		record.PhaseNone:      {plan.Join, plan.Publish},
		record.PhaseUncertain: {plan.Publish},
		record.PhaseDone:      nil,
	} {
		f := plantest.Situation()
		unowned(f)
		f.Record.Uses[0].Phase = phase
		data, err := json.Marshal(f.Record)
		if err != nil {
			t.Fatal(err)
		}
		earlier := &record.Record{}
		if err := json.Unmarshal(data, earlier); err != nil {
			t.Fatal(err)
		}
		f.Record = earlier
		var got []plan.Kind
		for _, s := range plan.Of(*f) {
			got = append(got, s.Kind)
		}
		if !slices.Equal(got, want) {
			t.Errorf("a record of %s with phase %q: the plan is %v, want %v", f.Name, phase, got, want)
		}
	}
}
