/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package agent

import (
	"reflect"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/agent/failure"
	"github.com/hawser-io/hawser/internal/agent/kubelet"
	"github.com/hawser-io/hawser/internal/agent/operation"
	"github.com/hawser-io/hawser/internal/agent/plan"
	"github.com/hawser-io/hawser/internal/agent/record"
	"github.com/hawser-io/hawser/internal/agent/report"
	"github.com/hawser-io/hawser/internal/handshake"
)

const planVolume = "kubernetes.io/csi/fake^vol"

// situation is a volume that is published for intent-1, and all is well; tests change it.
func situation() *plan.Facts {
	f := &plan.Facts{
		Name: planVolume, Paths: record.Paths{Root: "/r", Kubelet: "/k"},
		Now: record.Moment{BootID: "boot", Uptime: time.Hour},
		Entry: &volumesv1alpha1.NodeAttachment{
			VolumeName: planVolume, AttachmentUID: "uid", State: volumesv1alpha1.AttachmentAttached,
			PersistentVolumeName: "pv",
			VolumeMode:           corev1.PersistentVolumeFilesystem,
		},
		Stage: record.Present, Reference: record.Present,
		Uses: map[types.UID]record.Presence{"intent-1": record.Present},
	}
	f.Intents = []*volumesv1alpha1.VolumeAttachmentIntent{planIntent("intent-1")}
	f.Record = &record.Record{
		VolumeName: planVolume, AttachmentUID: "uid", InUse: true, Mode: corev1.PersistentVolumeFilesystem,
		Stage: record.Stage{Phase: record.PhaseDone, Path: "/k/stage", Source: "7:1/", BootID: "boot"},
	}
	f.Record.Uses = f.Joined()
	f.Record.Uses[0].Phase, f.Record.Uses[0].BootID, f.Record.Uses[0].Source = record.PhaseDone, "boot", "7:1/"
	return f
}

func planIntent(uid types.UID) *volumesv1alpha1.VolumeAttachmentIntent {
	return &volumesv1alpha1.VolumeAttachmentIntent{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: string(uid), UID: uid,
			Finalizers: []string{volumesv1alpha1.ReleaseFinalizer}},
		Spec:   volumesv1alpha1.VolumeAttachmentIntentSpec{DesiredState: volumesv1alpha1.DesiredPublished},
		Status: volumesv1alpha1.VolumeAttachmentIntentStatus{UniqueVolumeName: planVolume, VolumeName: "pv"},
	}
}

func deleting(f *plan.Facts) { f.Intents[0].DeletionTimestamp = ptr.To(metav1.Now()) }

func unused(f *plan.Facts) {
	f.Record.Uses, f.Uses = nil, nil
	deleting(f)
}

// unpublishing: the agent died over the call that unpublishes, which has done its work.
func unpublishing(f *plan.Facts) {
	f.Record.Uses[0].Phase, f.Uses["intent-1"] = record.PhaseUncertain, record.Missing
	f.Record.Unfinished = &record.Call{Operation: "unpublish", Target: f.Record.Uses[0].Target, BootID: "boot"}
}

// unpublished: the intent was gone before the driver was asked to publish for it.
func unpublished(f *plan.Facts) {
	f.Record.Uses[0].Phase, f.Uses["intent-1"] = record.PhaseNone, record.Missing
}

// unfinalized: nothing keeps the intent until its volume is released.
func unfinalized(f *plan.Facts) { f.Intents[0].Finalizers = []string{"example.com/other"} }

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

func TestNothingIsStagedOrPublishedBeforeTheSessionIsConfirmed(t *testing.T) {
	for verb, change := range map[plan.Kind]func(*plan.Facts){
		plan.Stage:   func(f *plan.Facts) { f.Record.Stage, f.Stage = record.Stage{}, record.Missing },
		plan.Publish: func(f *plan.Facts) { f.Uses["intent-1"] = record.Missing },
	} {
		f := situation()
		change(f)
		v := &operation.Volume{Name: planVolume, Record: f.Record}
		if a, ok := v.Next(*f, nil, time.Now()); !ok || a.Kind != verb {
			t.Errorf("session confirmed: the next step is %v, want %v", a, verb)
		}
		f.Unconfirmed = true
		if a, ok := v.Next(*f, nil, time.Now()); ok {
			t.Errorf("session not confirmed: the next step is %v, want none", a)
		}
		if d := v.RequeueAfter(*f, nil, time.Now()); d != 0 {
			t.Errorf("session not confirmed: requeued after %s, want no time", d)
		}
	}
}

// unowned: the driver has published the use, and its files are to be given to a group.
func unowned(f *plan.Facts) {
	f.Record.Uses[0].Phase = record.PhaseUnowned
	f.Record.Uses[0].Mount = &volumesv1alpha1.MountSpec{FSGroup: ptr.To(int64(7))}
	f.Intents[0].Spec.Mount = f.Record.Uses[0].Mount.DeepCopy()
}

func TestAttemptsAreForgottenOnlyOfWhatWillNotBeTried(t *testing.T) {
	unstaged := func(f *plan.Facts) { f.Record.Stage, f.Stage = record.Stage{}, record.Missing }
	for name, test := range map[string]struct {
		change            func(*plan.Facts)
		stages, publishes bool
	}{
		"all is well":          {func(*plan.Facts) {}, false, false},
		"the stage is planned": {unstaged, true, true},
		"a call hangs":         {func(f *plan.Facts) { f.CallHangs = true }, true, true},
		"the session waits to be confirmed": {func(f *plan.Facts) { f.Record.InUse, f.Unconfirmed = false, true }, true,
			true},
		"the volume is to be taken into use":   {func(f *plan.Facts) { f.Record.InUse = false }, true, true},
		"the intent does not want it any more": {func(f *plan.Facts) { unstaged(f); deleting(f) }, false, false},
	} {
		f := situation()
		test.change(f)
		v := &operation.Volume{Name: planVolume, Record: f.Record, Failures: map[plan.Step]*failure.Failure{
			{Kind: plan.Stage}: {}, {Kind: plan.Publish, Intent: "intent-1"}: {},
		}}
		v.Prune(*f)
		stages := v.Failures[plan.Step{Kind: plan.Stage}] != nil
		publishes := v.Failures[plan.Step{Kind: plan.Publish, Intent: "intent-1"}] != nil
		if stages != test.stages || publishes != test.publishes {
			t.Errorf("%s: the failed stage is remembered: %t, the failed publication: %t, want %t and %t", name, stages,
				publishes, test.stages, test.publishes)
		}
	}
}

func TestPlans(t *testing.T) {
	for _, test := range []struct {
		name   string
		change func(*plan.Facts)
		want   string
	}{
		{"nothing to do when all is well", func(*plan.Facts) {}, ""},
		{"nothing while a call hangs", func(f *plan.Facts) { f.CallHangs = true; deleting(f) }, ""},
		{"a wanted volume is taken into use first", fresh, "mark-in-use"},
		{"not without an entry", func(f *plan.Facts) { fresh(f); f.Entry = nil }, ""},
		{"not while it is being detached", func(f *plan.Facts) {
			fresh(f)
			f.Entry.State = volumesv1alpha1.AttachmentDetaching
		}, ""},
		{"not for an intent that is being deleted", func(f *plan.Facts) { fresh(f); deleting(f) }, ""},
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
		{"not for an intent that could be gone at once", func(f *plan.Facts) { fresh(f); unfinalized(f) }, ""},
		{"one that lost its finalizer stays published", unfinalized, ""},
		{"but is not published again", func(f *plan.Facts) { unfinalized(f); f.Uses["intent-1"] = record.Missing }, ""},
		{"nor staged again", func(f *plan.Facts) { unfinalized(f); f.Stage = record.Missing }, ""},
		{"and is unpublished when it asks for that", func(f *plan.Facts) { unfinalized(f); deleting(f) },
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
		{"what is to be released needs no group", func(f *plan.Facts) { unowned(f); deleting(f) },
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
			f.Intents = append(f.Intents, planIntent("intent-2"))
			f.Record.Uses = f.Joined()
		}, "publish intent-2, set-ownership intent-1"},
		{"a lost stage is put back", func(f *plan.Facts) { f.Stage = record.Missing }, "stage"},
		{"a lost publication is put back", func(f *plan.Facts) { f.Uses["intent-1"] = record.Missing },
			"publish intent-1"},
		{"a lost reference is put back", func(f *plan.Facts) { f.Reference = record.Missing }, "reference"},
		{"another boot has nothing mounted", func(f *plan.Facts) { f.Now.BootID = "next" }, "stage"},
		{"another intent joins", func(f *plan.Facts) { f.Intents = append(f.Intents, planIntent("intent-2")) }, "join"},
		{"a deleted intent is unpublished", deleting, "unpublish intent-1"},
		{"a deleted intent beside another is unpublished alone", func(f *plan.Facts) {
			f.Intents = append(f.Intents, planIntent("intent-2"))
			f.Record.Uses = f.Joined()
			deleting(f)
		}, "unpublish intent-1, publish intent-2"},
		{"an intent that is not there asks for nothing", func(f *plan.Facts) { f.Intents = nil }, ""},
		{"an entry that is not there asks for nothing", func(f *plan.Facts) { f.Entry = nil }, ""},
		{"a release needs no entry", func(f *plan.Facts) { f.Entry = nil; deleting(f) }, "unpublish intent-1"},
		{"an orphan that was being unpublished is finished once it is not mounted",
			func(f *plan.Facts) { f.Intents = nil; unpublishing(f) }, "unpublish intent-1"},
		{"not while it is mounted", func(f *plan.Facts) {
			f.Intents = nil
			unpublishing(f)
			f.Uses["intent-1"] = record.Present
		}, ""},
		{"nor one that another call was about", func(f *plan.Facts) {
			f.Intents = nil
			unpublishing(f)
			f.Record.Unfinished.Target = "/other"
		}, ""},
		{"nor one that was being published", func(f *plan.Facts) {
			f.Intents = nil
			unpublishing(f)
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
			unused(f)
			f.Kubelet, f.Reference, f.Unsaved = &kubelet.TrackedUse{}, record.Missing, true
		}, "persist"},
		{"but by the next call where there is one", func(f *plan.Facts) { unused(f); f.Unsaved = true },
			"unstage, persist"},
		{"without uses the stage is undone", unused, "unstage"},
		{"a reference alone is undone", func(f *plan.Facts) { unused(f); f.Record.Stage = record.Stage{Path: "/k/stage"} },
			"unstage"},
		{"without a stage inUse is cleared", func(f *plan.Facts) {
			unused(f)
			f.Record.Stage, f.Stage, f.Reference = record.Stage{Path: "/k/stage"}, record.Missing, record.Missing
		}, "clear-in-use"},
		{"a record of a use that never began is dropped", func(f *plan.Facts) {
			f.Record = &record.Record{VolumeName: planVolume, AttachmentUID: "uid",
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
		{"while the kubelet uses the stage the agent's reference goes",
			func(f *plan.Facts) { unused(f); f.Kubelet = &kubelet.TrackedUse{} }, "dereference"},
		{"and then the kubelet is waited for", func(f *plan.Facts) {
			unused(f)
			f.Kubelet,
				f.Reference = &kubelet.TrackedUse{}, record.Missing
		}, ""},
		{"not for one that is only suspected", func(f *plan.Facts) {
			unused(f)
			f.Kubelet = &kubelet.TrackedUse{Doubt: "a record"}
		}, "unstage"},
		{"not while it is used", func(f *plan.Facts) { f.Kubelet = &kubelet.TrackedUse{} }, ""},
		{"a stage of the kubelet does not keep a record that has none", func(f *plan.Facts) {
			unused(f)
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
			f.Record = &record.Record{VolumeName: planVolume, AttachmentUID: "uid", InUse: true}
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
			f := situation()
			test.change(f)
			var got []string
			for _, a := range plan.Of(*f) {
				got = append(got, strings.TrimSpace(string(a.Kind)+" "+string(a.Intent)))
			}
			if s := strings.Join(got, ", "); s != test.want {
				t.Errorf("plan of volume %s: %q, want %q", planVolume, s, test.want)
			}
		})
	}
}

func TestAnOrphanIsAdoptedByAnIntentOfItsName(t *testing.T) {
	f := situation()
	successor := planIntent("successor")
	successor.Name = "intent-1"
	f.Intents = []*volumesv1alpha1.VolumeAttachmentIntent{successor}
	uses := f.Joined()
	if len(uses) != 1 || uses[0].Intent.UID != "successor" || uses[0].Phase != record.PhaseDone {
		t.Errorf("uses after intent successor came: %+v, want one, published, for it", uses)
	}
}

func TestNobodyIsToldOfAnEndThatTheDiskDoesNotKnow(t *testing.T) {
	f := situation()
	unused(f)
	f.Kubelet, f.Reference = &kubelet.TrackedUse{}, record.Missing
	v := volumeWith(f.Record)
	for _, f.Unsaved = range []bool{true, false} {
		told := report.NewIntentReport(v.Snapshot(), *f, f.Intents[0]).Published != nil
		if left := report.NewVolumeReport(v.Snapshot(),
			*f).Line.PublishedBy == volumesv1alpha1.PublisherKubelet; told == f.Unsaved || left == f.Unsaved {
			t.Errorf("unsaved: %t; the intent's end is reported: %t, the line is the kubelet's: %t, want both only if it is "+
				"saved", f.Unsaved, told, left)
		}
	}
}

func TestCallsEndWithTheirDeadlineOrTheirBoot(t *testing.T) {
	r := &record.Record{}
	at := func(s int) record.Moment {
		return record.Moment{BootID: "boot", Uptime: time.Duration(s) * time.Second}
	}
	r.Begin(record.Call{Operation: "stage", BootID: "boot", Uptime: 10 * time.Second, Mounts: true})
	if r.CallsEnded(at(20)) {
		t.Errorf("call %+v in flight counts as ended, want that it goes on", r.InFlight)
	}
	r.Abandon()
	r.Begin(record.Call{Operation: "unstage", BootID: "boot", Uptime: 15 * time.Second})
	r.Abandon()
	if r.CallsEnded(at(14)) || !r.MayMount(at(14)) {
		t.Errorf("call %+v counts as ended before the later deadline, want that it may mount until then", r.Unfinished)
	}
	if !r.CallsEnded(at(15)) || r.MayMount(at(15)) {
		t.Errorf("call %+v counts as going on at its deadline, want that it has ended", r.Unfinished)
	}
	if !r.CallsEnded(record.Moment{BootID: "next"}) {
		t.Errorf("call %+v counts as going on in the next boot, want that it has ended", r.Unfinished)
	}
	r.Begin(record.Call{Operation: "publish", BootID: "boot", Uptime: 99 * time.Second})
	r.Finish()
	if !r.CallsEnded(at(15)) {
		t.Errorf("call %+v counts as going on after it finished, want that it has ended", r.Unfinished)
	}
}

func TestRecordsAreReplacedAsAWhole(t *testing.T) {
	s, err := record.OpenStore(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	f := situation()
	r := f.Record
	r.Schema = record.Schema
	for range 2 {
		if err := s.Save(r); err != nil {
			t.Fatal(err)
		}
	}
	again, err := record.OpenStore(s.Dir)
	if err != nil {
		t.Fatal(err)
	}
	records, broken, err := again.Load()
	if err != nil || len(broken) > 0 || len(records) != 1 || !reflect.DeepEqual(records[0], r) {
		t.Errorf("records %+v, broken %v, error %v, want %+v alone", records, broken, err, r)
	}
	if !reflect.DeepEqual(r.Copy(), r) {
		t.Errorf("the copy %+v differs, want %+v", r.Copy(), r)
	}
	for range 2 {
		if err := s.Remove(r.VolumeName); err != nil {
			t.Fatal(err)
		}
	}
}

func TestTheEntrysCapacityIsOnlyRead(t *testing.T) {
	f, shared := situation(), resource.MustParse("2Gi")
	seen := resource.MustParse("1.5Gi") // a fraction has another form inside, into which a comparison brings both
	f.Expands, f.Entry.Capacity, f.Record.Capacity = true, &shared, &seen
	f.Intents[0].Status.Capacity = &seen
	if !f.Grows() || volumeWith(f.Record).Snapshot().ExpandedVerdict(*f, f.Intents[0]) == nil {
		t.Errorf("volume %s of %s, with %s on the node: it does not grow, want that it does", f.Name, shared.String(),
			seen.String())
	}
	f.Record.Capacity = &shared
	volumeWith(f.Record).Snapshot().ExpandedVerdict(*f, f.Intents[0])
	if !reflect.DeepEqual(shared, resource.MustParse("2Gi")) {
		t.Errorf("the entry's capacity became %#v, want 2Gi unchanged", shared)
	}
}

func volumeWith(r *record.Record) *operation.Volume {
	v := operation.NewVolume(planVolume)
	v.Record = r
	return v
}
