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
	"github.com/hawser-io/hawser/internal/handshake"
)

const planVolume = "kubernetes.io/csi/fake^vol"

// situation is a volume that is published for intent-1, and all is well; tests change it.
func situation() *facts {
	f := &facts{
		name: planVolume, paths: paths{root: "/r", kubelet: "/k"}, now: moment{bootID: "boot", uptime: time.Hour},
		entry: &volumesv1alpha1.NodeAttachment{
			VolumeName: planVolume, AttachmentUID: "uid", State: volumesv1alpha1.AttachmentAttached, PersistentVolumeName: "pv",
			VolumeMode: corev1.PersistentVolumeFilesystem,
		},
		stage: present, reference: present, uses: map[types.UID]presence{"intent-1": present},
	}
	f.intents = []*volumesv1alpha1.VolumeAttachmentIntent{planIntent("intent-1")}
	f.record = &Record{
		VolumeName: planVolume, AttachmentUID: "uid", InUse: true, Mode: corev1.PersistentVolumeFilesystem,
		Stage: Stage{Phase: PhaseDone, Path: "/k/stage", Source: "7:1/", BootID: "boot"},
	}
	f.record.Uses = f.joined()
	f.record.Uses[0].Phase, f.record.Uses[0].BootID, f.record.Uses[0].Source = PhaseDone, "boot", "7:1/"
	return f
}

func planIntent(uid types.UID) *volumesv1alpha1.VolumeAttachmentIntent {
	return &volumesv1alpha1.VolumeAttachmentIntent{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: string(uid), UID: uid, Finalizers: []string{volumesv1alpha1.ReleaseFinalizer}},
		Spec:       volumesv1alpha1.VolumeAttachmentIntentSpec{DesiredState: volumesv1alpha1.DesiredPublished},
		Status:     volumesv1alpha1.VolumeAttachmentIntentStatus{UniqueVolumeName: planVolume, VolumeName: "pv"},
	}
}

func deleting(f *facts) { f.intents[0].DeletionTimestamp = ptr.To(metav1.Now()) }

func unused(f *facts) {
	f.record.Uses, f.uses = nil, nil
	deleting(f)
}

// unpublishing: the agent died over the call that unpublishes, which has done its work.
func unpublishing(f *facts) {
	f.record.Uses[0].Phase, f.uses["intent-1"] = PhaseUncertain, missing
	f.record.Unfinished = &Call{Operation: "unpublish", Target: f.record.Uses[0].Target, BootID: "boot"}
}

// unpublished: the intent was gone before the driver was asked to publish for it.
func unpublished(f *facts) { f.record.Uses[0].Phase, f.uses["intent-1"] = PhaseNone, missing }

// unfinalized: nothing keeps the intent until its volume is released.
func unfinalized(f *facts) { f.intents[0].Finalizers = []string{"example.com/other"} }

func fresh(f *facts) {
	f.record = nil
	f.stage, f.reference, f.uses = missing, missing, nil
}

func declared(uid types.UID) func(*facts) {
	return func(f *facts) { f.node.Declared = []handshake.Declaration{{UID: uid}} }
}

// kubeletAway: the kubelet alone has the volume mounted, and its attachment was forced away.
func kubeletAway(f *facts) {
	fresh(f)
	f.kubelet = &kubeletUse{AttachmentUID: "uid", mounts: []string{"/k/stage"}}
	f.entry.State = volumesv1alpha1.AttachmentDetaching
	f.entry.Evidence = &volumesv1alpha1.DetachEvidence{Type: volumesv1alpha1.EvidenceForcedAfterTimeout}
}

func TestNothingIsStagedOrPublishedBeforeTheSessionIsConfirmed(t *testing.T) {
	for verb, change := range map[verb]func(*facts){
		doStage:   func(f *facts) { f.record.Stage, f.stage = Stage{}, missing },
		doPublish: func(f *facts) { f.uses["intent-1"] = missing },
	} {
		f := situation()
		change(f)
		v := &volume{name: planVolume, record: f.record}
		if a, ok := v.next(*f, nil, time.Now()); !ok || a.verb != verb {
			t.Errorf("confirmed: next is %v, not %v", a, verb)
		}
		f.unsettled = true
		if a, ok := v.next(*f, nil, time.Now()); ok {
			t.Errorf("not confirmed: next is %v", a)
		}
		if d := v.rest(*f, nil, time.Now()); d != 0 {
			t.Errorf("not confirmed: looks again after %s", d)
		}
	}
}

func TestAttemptsAreForgottenOnlyOfWhatWillNotBeTried(t *testing.T) {
	unstaged := func(f *facts) { f.record.Stage, f.stage = Stage{}, missing }
	for name, test := range map[string]struct {
		change            func(*facts)
		stages, publishes bool
	}{
		"all is well":                          {func(*facts) {}, false, false},
		"the stage is planned":                 {unstaged, true, true},
		"a call hangs":                         {func(f *facts) { f.busy = true }, true, true},
		"the session waits to be confirmed":    {func(f *facts) { f.record.InUse, f.unsettled = false, true }, true, true},
		"the volume is to be taken into use":   {func(f *facts) { f.record.InUse = false }, true, true},
		"the intent does not want it any more": {func(f *facts) { unstaged(f); deleting(f) }, false, false},
	} {
		f := situation()
		test.change(f)
		v := &volume{name: planVolume, record: f.record, failures: map[act]*failure{
			{verb: doStage}: {}, {verb: doPublish, intent: "intent-1"}: {},
		}}
		v.prune(*f)
		stages, publishes := v.failures[act{verb: doStage}] != nil, v.failures[act{verb: doPublish, intent: "intent-1"}] != nil
		if stages != test.stages || publishes != test.publishes {
			t.Errorf("%s: the failed stage is remembered: %t, the failed publication: %t", name, stages, publishes)
		}
	}
}

func TestPlans(t *testing.T) {
	for _, test := range []struct {
		name   string
		change func(*facts)
		want   string
	}{
		{"nothing to do when all is well", func(*facts) {}, ""},
		{"nothing while a call hangs", func(f *facts) { f.busy = true; deleting(f) }, ""},
		{"a wanted volume is taken into use first", fresh, "take"},
		{"not without an entry", func(f *facts) { fresh(f); f.entry = nil }, ""},
		{"not while it is being detached", func(f *facts) { fresh(f); f.entry.State = volumesv1alpha1.AttachmentDetaching }, ""},
		{"not for an intent that is being deleted", func(f *facts) { fresh(f); deleting(f) }, ""},
		{"not for an intent with another volume pinned", func(f *facts) { fresh(f); f.intents[0].Status.VolumeName = "other" }, ""},
		{"not for the kubelet", func(f *facts) { fresh(f); f.intents[0].Spec.Publisher = volumesv1alpha1.PublisherKubelet }, ""},
		{"not for Attached", func(f *facts) { fresh(f); f.intents[0].Spec.DesiredState = volumesv1alpha1.DesiredAttached }, ""},
		{"not for an intent that could be gone at once", func(f *facts) { fresh(f); unfinalized(f) }, ""},
		{"one that lost its finalizer stays published", unfinalized, ""},
		{"but is not published again", func(f *facts) { unfinalized(f); f.uses["intent-1"] = missing }, ""},
		{"nor staged again", func(f *facts) { unfinalized(f); f.stage = missing }, ""},
		{"and is unpublished when it asks for that", func(f *facts) { unfinalized(f); deleting(f) }, "unpublish intent-1"},
		{"what no acknowledged write stands for is taken anew", func(f *facts) { f.record.InUse = false }, "take"},
		{"stage before publish", func(f *facts) {
			f.record.Stage, f.record.Uses, f.stage, f.reference = Stage{Path: "/k/stage"}, nil, missing, missing
			f.record.Uses = f.joined()
		}, "stage"},
		{"an uncertain stage is staged again", func(f *facts) { f.record.Stage.Phase = PhaseUncertain }, "stage"},
		{"an uncertain publication is published again", func(f *facts) { f.record.Uses[0].Phase = PhaseUncertain }, "publish intent-1"},
		{"a lost stage is put back", func(f *facts) { f.stage = missing }, "stage"},
		{"a lost publication is put back", func(f *facts) { f.uses["intent-1"] = missing }, "publish intent-1"},
		{"a lost reference is put back", func(f *facts) { f.reference = missing }, "refer"},
		{"another boot has nothing mounted", func(f *facts) { f.now.bootID = "next" }, "stage"},
		{"another intent joins", func(f *facts) { f.intents = append(f.intents, planIntent("intent-2")) }, "join"},
		{"a deleted intent is unpublished", deleting, "unpublish intent-1"},
		{"a deleted intent beside another is unpublished alone", func(f *facts) {
			f.intents = append(f.intents, planIntent("intent-2"))
			f.record.Uses = f.joined()
			deleting(f)
		}, "unpublish intent-1, publish intent-2"},
		{"an intent that is not there asks for nothing", func(f *facts) { f.intents = nil }, ""},
		{"an entry that is not there asks for nothing", func(f *facts) { f.entry = nil }, ""},
		{"a release needs no entry", func(f *facts) { f.entry = nil; deleting(f) }, "unpublish intent-1"},
		{"an orphan that was being unpublished is finished once it is not mounted", func(f *facts) { f.intents = nil; unpublishing(f) }, "unpublish intent-1"},
		{"not while it is mounted", func(f *facts) {
			f.intents = nil
			unpublishing(f)
			f.uses["intent-1"] = present
		}, ""},
		{"nor one that another call was about", func(f *facts) {
			f.intents = nil
			unpublishing(f)
			f.record.Unfinished.Target = "/other"
		}, ""},
		{"nor one that was being published", func(f *facts) {
			f.intents = nil
			unpublishing(f)
			f.record.Unfinished.Operation = "publish"
		}, ""},
		{"nor one that is only not mounted", func(f *facts) { f.intents, f.uses["intent-1"] = nil, missing }, ""},
		{"one for which nothing was published ends", func(f *facts) { f.intents = nil; unpublished(f) }, "unpublish intent-1"},
		{"not while something is mounted at its path", func(f *facts) {
			f.intents = nil
			unpublished(f)
			f.uses["intent-1"] = present
		}, ""},
		{"nor before it is known whether the API was restored", func(f *facts) {
			f.intents, f.unsettled = nil, true
			unpublished(f)
		}, ""},
		{"nor one that asked for no more than the stage", func(f *facts) {
			f.intents = nil
			unpublished(f)
			f.record.Uses[0].Want, f.record.Uses[0].Live = volumesv1alpha1.DesiredStaged, true
		}, ""},
		{"but it does where that was gone before the volume was in use", func(f *facts) {
			f.intents = nil
			unpublished(f)
			f.record.Uses[0].Want = volumesv1alpha1.DesiredStaged
		}, "unpublish intent-1"},
		{"an end that the disk does not know is written before it is told", func(f *facts) {
			unused(f)
			f.kubelet, f.reference, f.unsaved = &kubeletUse{}, missing, true
		}, "record"},
		{"but by the next call where there is one", func(f *facts) { unused(f); f.unsaved = true }, "unstage, record"},
		{"without uses the stage is undone", unused, "unstage"},
		{"a reference alone is undone", func(f *facts) { unused(f); f.record.Stage = Stage{Path: "/k/stage"} }, "unstage"},
		{"without a stage inUse is cleared", func(f *facts) {
			unused(f)
			f.record.Stage, f.stage, f.reference = Stage{Path: "/k/stage"}, missing, missing
		}, "clear"},
		{"a record of a use that never began is dropped", func(f *facts) {
			f.record = &Record{VolumeName: planVolume, AttachmentUID: "uid", Uses: []Use{{Intent: f.record.Uses[0].Intent}}}
			f.intents = nil
		}, "clear"},
		{"lowered to Staged", func(f *facts) { f.intents[0].Spec.DesiredState = volumesv1alpha1.DesiredStaged }, "unpublish intent-1"},
		{"lowered to Attached", func(f *facts) { f.intents[0].Spec.DesiredState = volumesv1alpha1.DesiredAttached }, "unpublish intent-1"},
		{"other parameters are unpublished first", func(f *facts) { f.intents[0].Spec.ReadOnly = true }, "unpublish intent-1"},
		{"other mount options too", func(f *facts) {
			f.intents[0].Spec.Mount = &volumesv1alpha1.MountSpec{Options: []string{"nodev"}}
		}, "unpublish intent-1"},
		{"while the kubelet uses the stage the agent's reference goes", func(f *facts) { unused(f); f.kubelet = &kubeletUse{} }, "unrefer"},
		{"and then the kubelet is waited for", func(f *facts) { unused(f); f.kubelet, f.reference = &kubeletUse{}, missing }, ""},
		{"not for one that is only suspected", func(f *facts) { unused(f); f.kubelet = &kubeletUse{doubt: "a record"} }, "unstage"},
		{"not while it is used", func(f *facts) { f.kubelet = &kubeletUse{} }, ""},
		{"a stage of the kubelet does not keep a record that has none", func(f *facts) {
			unused(f)
			f.kubelet, f.reference, f.record.Stage = &kubeletUse{}, missing, Stage{Path: "/k/stage"}
		}, "clear"},
		{"what the kubelet has mounted of a forced away attachment is shut down", kubeletAway, "shutdown-kubelet"},
		{"but once", func(f *facts) { kubeletAway(f); f.kubelet.ShutDown = true }, ""},
		{"not when nothing is mounted", func(f *facts) { kubeletAway(f); f.kubelet.mounts = nil }, ""},
		{"not when it was released", func(f *facts) { kubeletAway(f); f.entry.Evidence.Type = volumesv1alpha1.EvidenceAgentReleased }, ""},
		{"what may be is told before the attachment was known, while it is there", func(f *facts) { kubeletAway(f); f.kubelet.AttachmentUID = "" }, "shutdown-kubelet"},
		{"not when it may be the next life", func(f *facts) {
			kubeletAway(f)
			f.kubelet.AttachmentUID, f.entry.DetachedTime = "", ptr.To(metav1.Now())
		}, ""},
		{"nor when the attachment was lost and its name free", func(f *facts) {
			kubeletAway(f)
			f.kubelet.AttachmentUID, f.entry.Evidence.Type = "", volumesv1alpha1.EvidenceAttachmentLost
		}, ""},
		{"not beside another attachment", func(f *facts) {
			kubeletAway(f)
			f.entry.State, f.entry.AttachmentUID = volumesv1alpha1.AttachmentAttached, "other"
			f.intents = nil
		}, ""},
		{"nor that of one while another is forced away", func(f *facts) { kubeletAway(f); f.kubelet.AttachmentUID = "other" }, ""},
		{"a taken away filesystem is shut down first", func(f *facts) { f.entry.State = volumesv1alpha1.AttachmentDetaching }, "shutdown"},
		{"one of another attachment too", func(f *facts) { f.entry.AttachmentUID = "other" }, "shutdown"},
		{"one that was declared released and whose entry is gone too", func(f *facts) { f.entry = nil; declared("uid")(f) }, "shutdown"},
		{"not when another was declared", func(f *facts) { f.entry = nil; declared("other")(f) }, ""},
		{"what the kubelet has mounted and was declared released is shut down", func(f *facts) {
			kubeletAway(f)
			f.entry = nil
			declared("uid")(f)
		}, "shutdown-kubelet"},
		{"shut down, it is undone", func(f *facts) {
			f.entry.State, f.record.ShutDown = volumesv1alpha1.AttachmentDetaching, true
		}, "unpublish intent-1"},
		{"what is not mounted need not be shut down", func(f *facts) {
			f.entry.State, f.stage, f.reference, f.uses = volumesv1alpha1.AttachmentDetaching, missing, missing, nil
		}, "unpublish intent-1"},
		{"a taken away device cannot be shut down", func(f *facts) {
			f.entry.State, f.record.Mode = volumesv1alpha1.AttachmentDetaching, corev1.PersistentVolumeBlock
		}, "unpublish intent-1"},
		{"in use and never touched, taken away, is cleared", func(f *facts) {
			f.record = &Record{VolumeName: planVolume, AttachmentUID: "uid", InUse: true}
			f.stage, f.reference = missing, missing
			f.entry.State = volumesv1alpha1.AttachmentDetaching
		}, "clear"},
		{"a larger capacity is brought to the node", func(f *facts) {
			f.expands, f.entry.Capacity, f.record.Capacity = true, ptr.To(resource.MustParse("2Gi")), ptr.To(resource.MustParse("1Gi"))
		}, "expand"},
		{"not by a driver that cannot", func(f *facts) { f.entry.Capacity = ptr.To(resource.MustParse("2Gi")) }, ""},
		{"not through a read-only publication", func(f *facts) {
			f.expands, f.entry.Capacity = true, ptr.To(resource.MustParse("2Gi"))
			f.record.Uses[0].ReadOnly, f.intents[0].Spec.ReadOnly = true, true
		}, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := situation()
			test.change(f)
			var got []string
			for _, a := range plan(*f) {
				got = append(got, strings.TrimSpace(string(a.verb)+" "+string(a.intent)))
			}
			if s := strings.Join(got, ", "); s != test.want {
				t.Errorf("got %q, want %q", s, test.want)
			}
		})
	}
}

func TestAnOrphanIsAdoptedByAnIntentOfItsName(t *testing.T) {
	f := situation()
	successor := planIntent("successor")
	successor.Name = "intent-1"
	f.intents = []*volumesv1alpha1.VolumeAttachmentIntent{successor}
	uses := f.joined()
	if len(uses) != 1 || uses[0].Intent.UID != "successor" || uses[0].Phase != PhaseDone {
		t.Errorf("uses: %+v", uses)
	}
}

func TestNobodyIsToldOfAnEndThatTheDiskDoesNotKnow(t *testing.T) {
	f := situation()
	unused(f)
	f.kubelet, f.reference = &kubeletUse{}, missing
	v := newVolume(planVolume).withRecord(f.record)
	for _, f.unsaved = range []bool{true, false} {
		told := viewOf(v.snapshot(), *f, f.intents[0]).published != nil
		if left := lineOf(v.snapshot(), *f).line.PublishedBy == volumesv1alpha1.PublisherKubelet; told == f.unsaved || left == f.unsaved {
			t.Errorf("unsaved: %v, the intent is told: %v, the line is the kubelet's: %v", f.unsaved, told, left)
		}
	}
}

func TestCallsEndWithTheirDeadlineOrTheirBoot(t *testing.T) {
	r := &Record{}
	at := func(s int) moment { return moment{bootID: "boot", uptime: time.Duration(s) * time.Second} }
	r.begin(Call{Operation: "stage", BootID: "boot", Uptime: 10 * time.Second, Mounts: true})
	if r.callsEnded(at(20)) {
		t.Error("a call in flight has ended")
	}
	r.abandon()
	r.begin(Call{Operation: "unstage", BootID: "boot", Uptime: 15 * time.Second})
	r.abandon()
	if r.callsEnded(at(14)) || !r.mayMount(at(14)) {
		t.Error("ended before the later deadline")
	}
	if !r.callsEnded(at(15)) || r.mayMount(at(15)) {
		t.Error("not ended at the deadline")
	}
	if !r.callsEnded(moment{bootID: "next"}) {
		t.Error("outlived the boot")
	}
	r.begin(Call{Operation: "publish", BootID: "boot", Uptime: 99 * time.Second})
	r.finish()
	if !r.callsEnded(at(15)) {
		t.Error("a finished call still counts")
	}
}

func TestRecordsAreReplacedAsAWhole(t *testing.T) {
	s, err := openStore(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	f := situation()
	r := f.record
	r.Schema = recordSchema
	for range 2 {
		if err := s.save(r); err != nil {
			t.Fatal(err)
		}
	}
	again, err := openStore(s.dir)
	if err != nil {
		t.Fatal(err)
	}
	records, broken, err := again.load()
	if err != nil || len(broken) > 0 || len(records) != 1 || !reflect.DeepEqual(records[0], r) {
		t.Errorf("%+v %v %v", records, broken, err)
	}
	if !reflect.DeepEqual(r.copy(), r) {
		t.Error("the copy differs")
	}
	for range 2 {
		if err := s.remove(r.VolumeName); err != nil {
			t.Fatal(err)
		}
	}
}

func TestTheEntrysCapacityIsOnlyRead(t *testing.T) {
	f, shared := situation(), resource.MustParse("2Gi")
	seen := resource.MustParse("1.5Gi") // a fraction has another form inside, into which a comparison brings both
	f.expands, f.entry.Capacity, f.record.Capacity = true, &shared, &seen
	f.intents[0].Status.Capacity = &seen
	if !f.grows() || newVolume(planVolume).withRecord(f.record).snapshot().expandedVerdict(*f, f.intents[0]) == nil {
		t.Error("it does not grow")
	}
	f.record.Capacity = &shared
	newVolume(planVolume).withRecord(f.record).snapshot().expandedVerdict(*f, f.intents[0])
	if !reflect.DeepEqual(shared, resource.MustParse("2Gi")) {
		t.Errorf("changed: %#v", shared)
	}
}

func (v *volume) withRecord(r *Record) *volume {
	v.record = r
	return v
}
