/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package agent

import (
	"reflect"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
)

// Changes of a situation in which a volume is published for intent-1 and all is well.
var (
	detached    = func(f *facts) { f.entry = nil }
	detaching   = func(f *facts) { f.entry.State = volumesv1alpha1.AttachmentDetaching }
	otherUID    = func(f *facts) { f.entry.AttachmentUID = "uid-2" }
	notInUse    = func(f *facts) { f.record.InUse = false }
	noRecord    = func(f *facts) { f.record = nil }
	unconfirmed = func(f *facts) { f.unsettled = true }
	nobody      = func(f *facts) { f.intents = nil }
	unstaged    = func(f *facts) { f.record.Stage.Phase, f.stage, f.reference = PhaseNone, missing, missing }
	otherBoot   = func(f *facts) { f.record.Stage.BootID, f.record.Uses[0].BootID = "earlier", "earlier" }
	noUses      = func(f *facts) { f.record.Uses = nil }
	kubelets    = func(f *facts) { f.kubelet = &kubeletUse{AttachmentUID: "uid", mounts: []string{"/k/stage"}} }
	lowered     = func(f *facts) { f.intents[0].Spec.DesiredState = volumesv1alpha1.DesiredStaged }
	attachedNow = func(f *facts) { f.intents[0].Spec.DesiredState = volumesv1alpha1.DesiredAttached }
	deviceMode  = func(f *facts) {
		f.record.Mode, f.entry.VolumeMode = corev1.PersistentVolumeBlock, corev1.PersistentVolumeBlock
	}
	wantsStage = func(f *facts) { f.record.Uses[0].Want = volumesv1alpha1.DesiredStaged }
)

func unpublishedUse(f *facts) { f.record.Uses[0].Phase, f.uses["intent-1"] = PhaseNone, missing }

func forcedAway(of volumesv1alpha1.EvidenceType) func(*facts) {
	return func(f *facts) {
		detaching(f)
		f.entry.Evidence = &volumesv1alpha1.DetachEvidence{Type: of}
	}
}

// fact is what is known in a situation after some changes.
type fact struct {
	name    string
	changes []func(*facts)
	want    any
}

func with(changes ...func(*facts)) []func(*facts) { return changes }

func TestFacts(t *testing.T) {
	quantity := func(s string) *resource.Quantity { return ptr.To(resource.MustParse(s)) }
	use := func(f facts) Use { return f.record.Uses[0] }
	capacity := func(entry, record, from string) func(*facts) {
		return func(f *facts) {
			f.expands = true
			for to, s := range map[**resource.Quantity]string{&f.entry.Capacity: entry, &f.record.Capacity: record, &f.entry.ExpandFrom: from} {
				if *to = nil; s != "" {
					*to = quantity(s)
				}
			}
		}
	}
	for what, test := range map[string]struct {
		of   func(facts) any
		rows []fact
	}{
		"usable": {func(f facts) any { return f.usable() }, []fact{
			{"all is well", nil, true}, {"detached", with(detached), false}, {"detaching", with(detaching), false},
			{"another attachment", with(otherUID), false}, {"not in use", with(notInUse), false}, {"no record", with(noRecord), false},
		}},
		"waits for its session": {func(f facts) any { return f.waitsForSession() }, []fact{
			{"all is well", nil, false}, {"it is in use", with(unconfirmed), false}, {"it is not", with(unconfirmed, notInUse), true},
			{"there is no record", with(unconfirmed, noRecord), true}, {"nobody wants it", with(unconfirmed, notInUse, nobody), false},
			{"the session is confirmed", with(notInUse), false},
		}},
		"held back": {func(f facts) any {
			var verbs []verb
			for _, v := range []verb{doTake, doJoin, doStage, doPublish, doExpand, doUnpublish, doUnstage, doRefer, doClear} {
				if waitsForConfirmation(f, act{verb: v}) {
					verbs = append(verbs, v)
				}
			}
			return verbs
		}, []fact{
			{"the session is confirmed", nil, []verb(nil)}, {"it is not", with(unconfirmed), []verb{doStage, doPublish, doExpand}},
		}},
		"stale": {func(f facts) any { return f.stale() }, []fact{
			{"all is well", nil, false}, {"detaching", with(detaching), true}, {"another attachment", with(otherUID), true},
			{"detached", with(detached), false}, {"detached and declared", with(detached, declared("uid")), true},
			{"another one was declared", with(detached, declared("uid-2")), false}, {"the session is not confirmed", with(detaching, unconfirmed), false},
			{"nothing is held", with(detaching, notInUse, unstaged, unpublishedUse), false},
		}},
		"yields to the kubelet": {func(f facts) any { return f.yields() }, []fact{
			{"it does not use it", with(noUses), false}, {"it does", with(noUses, kubelets), true}, {"the agent does, too", with(kubelets), false},
			{"there is doubt", with(noUses, kubelets, func(f *facts) { f.kubelet.doubt = "x" }), false},
			{"its device is held", with(noUses, kubelets, func(f *facts) { f.kubelet.held = &volumesv1alpha1.OperationError{} }), false},
			{"the agent never staged", with(noUses, kubelets, unstaged), false}, {"it was taken away", with(noUses, kubelets, detaching), false},
		}},
		"released": {func(f facts) any { return f.released() }, []fact{
			{"the kubelet alone uses it", with(noUses, kubelets, func(f *facts) { f.reference = missing }), true},
			{"the kubelet is still shown that the agent does", with(noUses, kubelets), false},
			{"the disk does not know", with(noUses, kubelets, func(f *facts) { f.reference, f.unsaved = missing, true }), false},
			{"the agent uses it", with(func(f *facts) { f.reference = missing }), false},
		}},
		"a mount of the agent's own": {func(f facts) any { return f.ownMount() }, []fact{
			{"the reference", nil, paths{root: "/r"}.reference(planVolume)},
			{"the publication", with(func(f *facts) { f.reference = missing }), "/r/published/ns/intent-1"},
			{"the stage", with(noUses, func(f *facts) { f.reference = missing }), "/k/stage"},
			{"the stage may be the kubelet's", with(noUses, kubelets, func(f *facts) { f.reference = missing }), ""},
			{"the publication is not there", with(func(f *facts) { f.reference, f.uses["intent-1"] = missing, missing }), "/k/stage"},
			{"nothing was published", with(kubelets, func(f *facts) { f.reference, f.record.Uses[0].Phase = missing, PhaseNone }), ""},
			{"all is of another boot", with(otherBoot), ""}, {"nothing was staged, and yet something is there", with(noUses, func(f *facts) { f.record.Stage.Phase = PhaseNone }), ""},
			{"the publication is of another boot", with(kubelets, func(f *facts) { f.reference, f.record.Uses[0].BootID = missing, "earlier" }), ""},
			{"nothing is mounted", with(noUses, func(f *facts) { f.reference, f.stage = missing, missing }), ""},
		}},
		"the kubelet has an earlier attachment": {func(f facts) any { return f.kubeletStale() }, []fact{
			{"it has none", nil, false}, {"the same", with(kubelets), false}, {"another", with(kubelets, otherUID), true},
			{"nobody knows which", with(kubelets, otherUID, func(f *facts) { f.kubelet.AttachmentUID = "" }), false},
			{"nothing is attached now", with(kubelets, otherUID, detaching), false},
		}},
		"the kubelet's attachment was forced away": {func(f facts) any { return f.kubeletAway() }, []fact{
			{"no", with(kubelets), false}, {"yes", with(kubelets, forcedAway(volumesv1alpha1.EvidenceOutOfServiceTaint)), true},
			{"the session is not confirmed", with(kubelets, forcedAway(volumesv1alpha1.EvidenceOutOfServiceTaint), unconfirmed), false},
			{"the agent let it go", with(kubelets, forcedAway(volumesv1alpha1.EvidenceAgentReleased)), false},
			{"it was lost", with(kubelets, forcedAway(volumesv1alpha1.EvidenceAttachmentLost)), false},
			{"it is being detached without evidence", with(kubelets, detaching), false},
			{"it is attached, with evidence of before", with(kubelets, forcedAway(volumesv1alpha1.EvidenceOutOfServiceTaint), func(f *facts) { f.entry.State = volumesv1alpha1.AttachmentAttached }), false},
			{"it is shut down", with(kubelets, forcedAway(volumesv1alpha1.EvidenceOutOfServiceTaint), func(f *facts) { f.kubelet.ShutDown = true }), false},
			{"there is doubt", with(kubelets, forcedAway(volumesv1alpha1.EvidenceOutOfServiceTaint), func(f *facts) { f.kubelet.doubt = "x" }), false},
			{"it has nothing mounted", with(kubelets, forcedAway(volumesv1alpha1.EvidenceOutOfServiceTaint), func(f *facts) { f.kubelet.mounts = nil }), false},
			{"a device needs no mount", with(kubelets, forcedAway(volumesv1alpha1.EvidenceOutOfServiceTaint), func(f *facts) { f.kubelet.mounts, f.kubelet.Block = nil, true }), true},
			{"another one was", with(kubelets, forcedAway(volumesv1alpha1.EvidenceOutOfServiceTaint), otherUID), false},
			{"nobody knows which", with(kubelets, forcedAway(volumesv1alpha1.EvidenceOutOfServiceTaint), func(f *facts) { f.kubelet.AttachmentUID = "" }), true},
			{"nobody knows which, and it is gone", with(kubelets, forcedAway(volumesv1alpha1.EvidenceOutOfServiceTaint), func(f *facts) {
				f.kubelet.AttachmentUID, f.entry.DetachedTime = "", ptr.To(metav1.Now())
			}), false},
			{"it is gone, and declared", with(kubelets, detached, declared("uid")), true}, {"it is gone", with(kubelets, detached), false},
		}},
		"mounted": {func(f facts) any { return f.mounted() }, []fact{
			{"all is well", nil, true}, {"nothing", with(func(f *facts) { f.stage, f.reference, f.uses["intent-1"] = missing, missing, missing }), false},
			{"the stage", with(func(f *facts) { f.reference, f.uses["intent-1"] = missing, missing }), true},
			{"the reference", with(func(f *facts) { f.stage, f.uses["intent-1"] = missing, missing }), true},
			{"another mount as the reference", with(func(f *facts) { f.stage, f.reference, f.uses["intent-1"] = missing, foreign, missing }), true},
			{"the device nodes", with(deviceMode, func(f *facts) { f.stage, f.uses["intent-1"] = missing, missing }), false},
			{"the publication", with(func(f *facts) { f.stage, f.reference = missing, missing }), true},
			{"a stage that is the kubelet's", with(kubelets, func(f *facts) { f.reference, f.uses["intent-1"], f.record.Stage.Phase = missing, missing, PhaseNone }), false},
			{"a stage that nobody explains", with(func(f *facts) { f.reference, f.uses["intent-1"], f.record.Stage.Phase = missing, missing, PhaseNone }), true},
			{"the agent's, and the kubelet uses it", with(kubelets, func(f *facts) { f.reference, f.uses["intent-1"] = missing, missing }), true},
			{"the kubelet's use has ended and its device is held", with(kubelets, func(f *facts) {
				f.reference, f.uses["intent-1"], f.record.Stage.Phase, f.kubelet.held = missing, missing, PhaseNone, &volumesv1alpha1.OperationError{}
			}), true},
		}},
		"published": {func(f facts) any { return f.published(use(f)) }, []fact{
			{"all is well", nil, true}, {"in another boot", with(otherBoot), false}, {"it is not mounted", with(func(f *facts) { f.uses["intent-1"] = missing }), false},
			{"the end is not known", with(func(f *facts) { f.record.Uses[0].Phase = PhaseUncertain }), false},
		}},
		"lost": {func(f facts) any { return f.lost() }, []fact{
			{"all is well", nil, []string(nil)}, {"no record", with(noRecord), []string(nil)},
			{"both", with(func(f *facts) { f.stage, f.uses["intent-1"] = missing, missing }), []string{"/k/stage", "/r/published/ns/intent-1"}},
			{"another mount took their places", with(func(f *facts) { f.stage, f.uses["intent-1"] = foreign, foreign }), []string{"/k/stage", "/r/published/ns/intent-1"}},
			{"the end is not known", with(func(f *facts) {
				f.stage, f.uses["intent-1"], f.record.Stage.Phase, f.record.Uses[0].Phase = missing, missing, PhaseUncertain, PhaseUncertain
			}), []string(nil)},
			{"in another boot", with(otherBoot, func(f *facts) { f.stage, f.uses["intent-1"] = missing, missing }), []string(nil)},
			{"the driver mounts nothing at the stage", with(func(f *facts) { f.stage, f.record.Stage.Source = missing, "" }), []string(nil)},
		}},
		"the capacity that is seen": {func(f facts) any { return f.seen(false).String() }, []fact{
			{"by the record", with(capacity("3Gi", "1Gi", "2Gi")), "1Gi"}, {"before the expansion", with(capacity("3Gi", "", "2Gi")), "2Gi"},
			{"by the entry", with(capacity("3Gi", "", "")), "3Gi"},
		}},
		"the capacity, where the node has no part": {func(f facts) any { return f.seen(true).String() }, []fact{
			{"by the entry", with(capacity("3Gi", "1Gi", "2Gi")), "3Gi"},
		}},
		"grows": {func(f facts) any { return f.grows() }, []fact{
			{"it is larger", with(capacity("2Gi", "1Gi", "")), true}, {"it is the same", with(capacity("1Gi", "1Gi", "")), false},
			{"it is smaller", with(capacity("1Gi", "2Gi", "")), false}, {"nobody knows what it was", with(capacity("1Gi", "", "")), false},
			{"nobody knows what it is", with(capacity("", "1Gi", "")), false},
			{"the driver does not expand", with(capacity("2Gi", "1Gi", ""), func(f *facts) { f.expands = false }), false},
			{"all have it read-only", with(capacity("2Gi", "1Gi", ""), func(f *facts) { f.record.Uses[0].ReadOnly = true }), false},
			{"nobody has it", with(capacity("2Gi", "1Gi", ""), noUses), false},
		}},
		"ends although nobody asks": {func(f facts) any { return f.ending(use(f)) }, []fact{
			{"its intent is there", with(unpublishedUse), false}, {"it is published", with(nobody), false}, {"it never was", with(nobody, unpublishedUse), true},
			{"the session is not confirmed", with(nobody, unpublishedUse, unconfirmed), false}, {"it was being unpublished", with(nobody, unpublishing), true},
			{"its end is not known", with(nobody, unpublishing, func(f *facts) { f.record.Unfinished = nil }), false},
			{"something else was going on", with(nobody, unpublishing, func(f *facts) { f.record.Unfinished.Operation = "publish" }), false},
			{"another was unpublished", with(nobody, unpublishing, func(f *facts) { f.record.Unfinished.Target = "/other" }), false},
			{"it is done", with(nobody, unpublishing, func(f *facts) { f.record.Uses[0].Phase = PhaseDone }), false},
			{"it is mounted", with(nobody, unpublishing, func(f *facts) { f.uses["intent-1"] = present }), false},
		}},
		"asks for its end": {func(f facts) any { return f.releases(use(f)) }, []fact{
			{"no", nil, false}, {"nobody is there", with(nobody), false}, {"deleted", with(deleting), true}, {"lowered", with(lowered), true},
			{"raised", with(wantsStage), false}, {"lowered, and the session is not confirmed", with(lowered, unconfirmed), false},
			{"deleted, and the session is not confirmed", with(deleting, unconfirmed), true},
		}},
		"wants": {func(f facts) any { return f.wants(use(f)) }, []fact{
			{"yes", nil, true}, {"another does", with(func(f *facts) { f.intents[0].UID = "2" }), false}, {"nobody", with(nobody), false},
		}},
		"differs": {func(f facts) any { return f.differs(use(f)) }, []fact{
			{"no", nil, false}, {"it is to be read-only", with(func(f *facts) { f.intents[0].Spec.ReadOnly = true }), true},
			{"it is to be mounted otherwise", with(func(f *facts) { f.intents[0].Spec.Mount = &volumesv1alpha1.MountSpec{SubPath: "x"} }), true},
			{"nothing was published yet", with(unpublishedUse, func(f *facts) { f.intents[0].Spec.ReadOnly = true }), false},
			{"it was for the stage only", with(wantsStage, func(f *facts) { f.intents[0].Spec.ReadOnly = true }), false},
			{"it is lowered", with(lowered, func(f *facts) { f.intents[0].Spec.ReadOnly = true }), false}, {"nobody is there", with(nobody), false},
		}},
		"kept": {func(f facts) any { return f.kept() }, []fact{
			{"it is wanted", nil, true}, {"its only one is deleted", with(deleting), false}, {"its only one is not there", with(nobody), true},
			{"nobody has it, and somebody wants it", with(noUses), true}, {"and it is not in use", with(noUses, notInUse), false}, {"nobody has it", with(noUses, nobody), false},
		}},
		"gone": {func(f facts) any { return f.gone(use(f)) }, []fact{
			{"no", nil, false}, {"not there", with(nobody), false}, {"deleted", with(deleting), true}, {"no more than attached", with(attachedNow), true},
			{"no more than attached, and the session is not confirmed", with(attachedNow, unconfirmed), false}, {"lowered", with(lowered), false},
		}},
		"wanting": {func(f facts) any { return len(f.wanting()) }, []fact{
			{"one", nil, 1}, {"another volume", with(func(f *facts) { f.intents[0].Status.UniqueVolumeName = "other" }), 0},
			{"another PersistentVolume of it", with(func(f *facts) { f.intents[0].Status.VolumeName = "other" }), 0}, {"detaching", with(detaching), 0},
			{"deleted", with(deleting), 0}, {"unprotected", with(unfinalized), 0}, {"attached only", with(attachedNow), 0}, {"staged", with(lowered), 1},
			{"the kubelet's", with(func(f *facts) { f.intents[0].Spec.Publisher = volumesv1alpha1.PublisherKubelet }), 0},
		}},
		"joins": {func(f facts) any { return f.joinChanges() }, []fact{
			{"it has", nil, false}, {"it is new", with(noUses), true}, {"it is new, and the volume is not in use", with(noUses, notInUse), false},
			{"it was never read live", with(lowered, wantsStage, unpublishedUse, func(f *facts) { f.record.Uses[0] = f.wish(f.intents[0]) }), true},
			{"it was", with(lowered, func(f *facts) { f.record.Uses[0] = f.wish(f.intents[0]); f.record.Uses[0].Live = true }), false},
			{"it was never read live, and does not want it any more", with(func(f *facts) {
				lowered(f)
				f.record.Uses[0] = f.wish(f.intents[0])
				f.intents[0].Status.UniqueVolumeName = "other"
			}), false},
		}},
		"the uses that are joined": {func(f facts) any {
			var uids []string
			for _, u := range f.joined() {
				uids = append(uids, string(u.Intent.UID)+" "+string(u.Phase)+" "+string(u.Want))
			}
			return uids
		}, []fact{
			{"one", nil, []string{"intent-1 Done Published"}}, {"without a record", with(noRecord), []string{"intent-1  Published"}},
			{"an orphan is adopted under its name", with(func(f *facts) { f.intents[0].UID = "2" }), []string{"2 Done Published"}},
			{"not under another one", with(func(f *facts) { f.intents[0].UID, f.intents[0].Name = "2", "other" }), []string{"intent-1 Done Published", "2  Published"}},
			{"nor in another namespace", with(func(f *facts) { f.intents[0].UID, f.intents[0].Namespace = "2", "other" }), []string{"intent-1 Done Published", "2  Published"}},
			{"nor is one that is no orphan", with(func(f *facts) {
				second := planIntent("2")
				second.Name = "intent-1"
				f.intents = append(f.intents, second)
			}), []string{"intent-1 Done Published", "2  Published"}},
			{"one that is not published yet is asked anew", with(lowered, unpublishedUse), []string{"intent-1  Staged"}},
		}},
		"read live": {func(f facts) any { return f.joined()[0].Live }, []fact{
			{"stays so", with(lowered, unpublishedUse, func(f *facts) { f.record.Uses[0].Live = true }), true},
			{"not for another of its name", with(lowered, unpublishedUse, func(f *facts) { f.record.Uses[0].Live, f.intents[0].UID = true, "2" }), false},
			{"not for one that is raised", with(unpublishedUse, func(f *facts) { f.record.Uses[0].Live = true }), false},
		}},
		"not shown to the kubelet": {func(f facts) any { return f.unreferred() }, []fact{
			{"it is", nil, false}, {"it is not", with(func(f *facts) { f.reference = missing }), true}, {"another mount is", with(func(f *facts) { f.reference = foreign }), true},
			{"nothing is staged", with(unstaged), false}, {"the driver mounts nothing", with(func(f *facts) { f.reference, f.record.Stage.Source = missing, "" }), false},
			{"a device is", with(deviceMode, func(f *facts) { f.nodes = []string{"intent-1"} }), false},
			{"a device is not", with(deviceMode), true}, {"a device is for another", with(deviceMode, func(f *facts) { f.nodes = []string{"2"} }), true},
			{"a device is, as an earlier agent did it", with(deviceMode, func(f *facts) { f.nodes, f.record.Uses[0].Bound = []string{"intent-1"}, "/b" }), true},
			{"a device is before it is staged", with(deviceMode, unstaged, func(f *facts) { f.nodes = []string{"intent-1"} }), false},
		}},
		"planned": {func(f facts) any {
			var verbs []verb
			for _, a := range plan(f) {
				verbs = append(verbs, a.verb)
			}
			return verbs
		}, []fact{
			{"nothing", nil, []verb(nil)},
			{"nothing, while it waits for its session", with(notInUse, unconfirmed, unstaged, unpublishedUse), []verb(nil)},
			{"it is taken again", with(notInUse), []verb{doTake}},
			{"it is not while nobody wants it", with(notInUse, nobody), []verb(nil)},
			{"it is cleared", with(notInUse, unstaged, noUses, nobody), []verb{doClear}},
			{"it is not, where somebody wants it", with(notInUse, unstaged, noUses), []verb{doTake}},
			{"it is not taken where it is not attached", with(notInUse, detached, deleting), []verb{doUnpublish}},
			{"the stage is undone, also where only the reference is there", with(noUses, nobody, func(f *facts) { f.record.Stage.Phase, f.stage = PhaseNone, missing }), []verb{doUnstage}},
			{"the stage is undone, also where the reference is not there", with(noUses, nobody, func(f *facts) { f.reference = missing }), []verb{doUnstage}},
			{"it is published", with(func(f *facts) { f.uses["intent-1"] = missing }), []verb{doPublish}},
			{"only staged", with(lowered, func(f *facts) { f.record.Uses[0] = f.wish(f.intents[0]); f.record.Uses[0].Live = true }), []verb(nil)},
			{"it is not published otherwise before that is undone", with(func(f *facts) { f.uses["intent-1"], f.intents[0].Spec.ReadOnly = missing, true }), []verb{doUnpublish}},
			{"it is not published for one that is not there", with(func(f *facts) {
				f.uses["intent-1"] = missing
				second := planIntent("2")
				f.intents = []*volumesv1alpha1.VolumeAttachmentIntent{second}
				f.record.Uses = f.joined()
				f.record.Uses[1].Phase, f.record.Uses[1].BootID, f.uses["2"] = PhaseDone, "boot", present
			}), []verb(nil)},
			{"what was taken away is shut down first", with(detaching), []verb{doShutdown}},
			{"it is not brought further on another attachment before the session is confirmed", with(otherUID, unconfirmed, unstaged), []verb(nil)},
			{"it is not published otherwise on another attachment before the session is confirmed", with(otherUID, unconfirmed, func(f *facts) {
				f.intents[0].Spec.ReadOnly = true
			}), []verb(nil)},
		}},
	} {
		t.Run(what, func(t *testing.T) {
			for _, row := range test.rows {
				f := situation()
				for _, change := range row.changes {
					change(f)
				}
				if got := test.of(*f); !reflect.DeepEqual(got, row.want) {
					t.Errorf("%s: %v, want %v", row.name, got, row.want)
				}
			}
		})
	}
}
