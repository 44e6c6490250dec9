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
	"github.com/hawser-io/hawser/internal/agent/kubelet"
	"github.com/hawser-io/hawser/internal/agent/operation"
	"github.com/hawser-io/hawser/internal/agent/plan"
	"github.com/hawser-io/hawser/internal/agent/record"
)

// Changes of a situation in which a volume is published for intent-1 and all is well.
var (
	detached    = func(f *plan.Facts) { f.Entry = nil }
	detaching   = func(f *plan.Facts) { f.Entry.State = volumesv1alpha1.AttachmentDetaching }
	otherUID    = func(f *plan.Facts) { f.Entry.AttachmentUID = "uid-2" }
	notInUse    = func(f *plan.Facts) { f.Record.InUse = false }
	noRecord    = func(f *plan.Facts) { f.Record = nil }
	unconfirmed = func(f *plan.Facts) { f.Unconfirmed = true }
	nobody      = func(f *plan.Facts) { f.Intents = nil }
	unstaged    = func(f *plan.Facts) {
		f.Record.Stage.Phase, f.Stage, f.Reference = record.PhaseNone, record.Missing, record.Missing
	}
	otherBoot = func(f *plan.Facts) { f.Record.Stage.BootID, f.Record.Uses[0].BootID = "earlier", "earlier" }
	noUses    = func(f *plan.Facts) { f.Record.Uses = nil }
	kubelets  = func(f *plan.Facts) {
		f.Kubelet = &kubelet.TrackedUse{AttachmentUID: "uid", Mounts: []string{"/k/stage"}}
	}
	lowered     = func(f *plan.Facts) { f.Intents[0].Spec.DesiredState = volumesv1alpha1.DesiredStaged }
	attachedNow = func(f *plan.Facts) { f.Intents[0].Spec.DesiredState = volumesv1alpha1.DesiredAttached }
	deviceMode  = func(f *plan.Facts) {
		f.Record.Mode, f.Entry.VolumeMode = corev1.PersistentVolumeBlock, corev1.PersistentVolumeBlock
	}
	wantsStage = func(f *plan.Facts) { f.Record.Uses[0].Want = volumesv1alpha1.DesiredStaged }
)

func unpublishedUse(f *plan.Facts) {
	f.Record.Uses[0].Phase, f.Uses["intent-1"] = record.PhaseNone, record.Missing
}

func forcedAway(of volumesv1alpha1.EvidenceType) func(*plan.Facts) {
	return func(f *plan.Facts) {
		detaching(f)
		f.Entry.Evidence = &volumesv1alpha1.DetachEvidence{Type: of}
	}
}

// fact is what is known in a situation after some changes.
type fact struct {
	name    string
	changes []func(*plan.Facts)
	want    any
}

func with(changes ...func(*plan.Facts)) []func(*plan.Facts) { return changes }

func TestFacts(t *testing.T) {
	quantity := func(s string) *resource.Quantity { return ptr.To(resource.MustParse(s)) }
	use := func(f plan.Facts) record.Use { return f.Record.Uses[0] }
	capacity := func(entry, record, from string) func(*plan.Facts) {
		return func(f *plan.Facts) {
			f.Expands = true
			for to, s := range map[**resource.Quantity]string{&f.Entry.Capacity: entry, &f.Record.Capacity: record,
				&f.Entry.ExpandFrom: from} {
				if *to = nil; s != "" {
					*to = quantity(s)
				}
			}
		}
	}
	for what, test := range map[string]struct {
		of   func(plan.Facts) any
		rows []fact
	}{
		"usable": {func(f plan.Facts) any { return f.Usable() }, []fact{
			{"all is well", nil, true}, {"detached", with(detached), false}, {"detaching", with(detaching), false},
			{"another attachment", with(otherUID), false}, {"not in use", with(notInUse), false},
			{"no record", with(noRecord), false},
		}},
		"waits for its session": {func(f plan.Facts) any { return f.WaitsForSession() }, []fact{
			{"all is well", nil, false}, {"it is in use", with(unconfirmed), false},
			{"it is not", with(unconfirmed, notInUse), true},
			{"there is no record", with(unconfirmed, noRecord), true},
			{"nobody wants it", with(unconfirmed, notInUse, nobody), false},
			{"the session is confirmed", with(notInUse), false},
		}},
		"held back": {func(f plan.Facts) any {
			var verbs []plan.Kind
			for _, v := range []plan.Kind{plan.MarkInUse, plan.Join, plan.Stage, plan.Publish, plan.Expand,
				plan.Unpublish, plan.Unstage, plan.Reference, plan.ClearInUse} {
				if operation.AwaitsConfirmation(f, plan.Step{Kind: v}) {
					verbs = append(verbs, v)
				}
			}
			return verbs
		}, []fact{
			{"the session is confirmed", nil, []plan.Kind(nil)},
			{"it is not", with(unconfirmed), []plan.Kind{plan.Stage, plan.Publish, plan.Expand}},
		}},
		"stale": {func(f plan.Facts) any { return f.Stale() }, []fact{
			{"all is well", nil, false}, {"detaching", with(detaching), true},
			{"another attachment", with(otherUID), true},
			{"detached", with(detached), false}, {"detached and declared", with(detached, declared("uid")), true},
			{"another one was declared", with(detached, declared("uid-2")), false},
			{"the session is not confirmed", with(detaching, unconfirmed), false},
			{"nothing is held", with(detaching, notInUse, unstaged, unpublishedUse), false},
		}},
		"yields to the kubelet": {func(f plan.Facts) any { return f.YieldsToKubelet() }, []fact{
			{"it does not use it", with(noUses), false}, {"it does", with(noUses, kubelets), true},
			{"the agent does, too", with(kubelets), false},
			{"there is doubt", with(noUses, kubelets, func(f *plan.Facts) { f.Kubelet.Doubt = "x" }), false},
			{"its device is held", with(noUses, kubelets,
				func(f *plan.Facts) { f.Kubelet.Held = &volumesv1alpha1.OperationError{} }), false},
			{"the agent never staged", with(noUses, kubelets, unstaged), false},
			{"it was taken away", with(noUses, kubelets, detaching), false},
		}},
		"released": {func(f plan.Facts) any { return f.Released() }, []fact{
			{"the kubelet alone uses it", with(noUses, kubelets, func(f *plan.Facts) { f.Reference = record.Missing }),
				true},
			{"the kubelet is still shown that the agent does", with(noUses, kubelets), false},
			{"the disk does not know", with(noUses, kubelets,
				func(f *plan.Facts) { f.Reference, f.Unsaved = record.Missing, true }), false},
			{"the agent uses it", with(func(f *plan.Facts) { f.Reference = record.Missing }), false},
		}},
		"a mount of the agent's own": {func(f plan.Facts) any { return f.OwnMount() }, []fact{
			{"the reference", nil, record.Paths{Root: "/r"}.Reference(planVolume)},
			{"the publication", with(func(f *plan.Facts) { f.Reference = record.Missing }), "/r/published/ns/intent-1"},
			{"the stage", with(noUses, func(f *plan.Facts) { f.Reference = record.Missing }), "/k/stage"},
			{"the stage may be the kubelet's", with(noUses, kubelets,
				func(f *plan.Facts) { f.Reference = record.Missing }), ""},
			{"the publication is not there", with(func(f *plan.Facts) {
				f.Reference,
					f.Uses["intent-1"] = record.Missing, record.Missing
			}), "/k/stage"},
			{"nothing was published", with(kubelets,
				func(f *plan.Facts) { f.Reference, f.Record.Uses[0].Phase = record.Missing, record.PhaseNone }), ""},
			{"all is of another boot", with(otherBoot), ""},
			{"nothing was staged, and yet something is there",
				with(noUses, func(f *plan.Facts) { f.Record.Stage.Phase = record.PhaseNone }), ""},
			{"the publication is of another boot", with(kubelets,
				func(f *plan.Facts) { f.Reference, f.Record.Uses[0].BootID = record.Missing, "earlier" }), ""},
			{"nothing is mounted", with(noUses, func(f *plan.Facts) {
				f.Reference, f.Stage = record.Missing,
					record.Missing
			}), ""},
		}},
		"the kubelet has an earlier attachment": {func(f plan.Facts) any { return f.KubeletStale() }, []fact{
			{"it has none", nil, false}, {"the same", with(kubelets), false},
			{"another", with(kubelets, otherUID), true},
			{"nobody knows which", with(kubelets, otherUID, func(f *plan.Facts) { f.Kubelet.AttachmentUID = "" }),
				false},
			{"nothing is attached now", with(kubelets, otherUID, detaching), false},
		}},
		"the kubelet's attachment was forced away": {func(f plan.Facts) any { return f.KubeletForcedAway() }, []fact{
			{"no", with(kubelets), false},
			{"yes", with(kubelets, forcedAway(volumesv1alpha1.EvidenceOutOfServiceTaint)), true},
			{"the session is not confirmed", with(kubelets, forcedAway(volumesv1alpha1.EvidenceOutOfServiceTaint),
				unconfirmed), false},
			{"the agent let it go", with(kubelets, forcedAway(volumesv1alpha1.EvidenceAgentReleased)), false},
			{"it was lost", with(kubelets, forcedAway(volumesv1alpha1.EvidenceAttachmentLost)), false},
			{"it is being detached without evidence", with(kubelets, detaching), false},
			{"it is attached, with evidence of before", with(kubelets,
				forcedAway(volumesv1alpha1.EvidenceOutOfServiceTaint),
				func(f *plan.Facts) { f.Entry.State = volumesv1alpha1.AttachmentAttached }), false},
			{"it is shut down", with(kubelets, forcedAway(volumesv1alpha1.EvidenceOutOfServiceTaint),
				func(f *plan.Facts) { f.Kubelet.ShutDown = true }), false},
			{"there is doubt", with(kubelets, forcedAway(volumesv1alpha1.EvidenceOutOfServiceTaint),
				func(f *plan.Facts) { f.Kubelet.Doubt = "x" }), false},
			{"it has nothing mounted", with(kubelets, forcedAway(volumesv1alpha1.EvidenceOutOfServiceTaint),
				func(f *plan.Facts) { f.Kubelet.Mounts = nil }), false},
			{"a device needs no mount", with(kubelets, forcedAway(volumesv1alpha1.EvidenceOutOfServiceTaint),
				func(f *plan.Facts) { f.Kubelet.Mounts, f.Kubelet.Block = nil, true }), true},
			{"another one was", with(kubelets, forcedAway(volumesv1alpha1.EvidenceOutOfServiceTaint), otherUID), false},
			{"nobody knows which", with(kubelets, forcedAway(volumesv1alpha1.EvidenceOutOfServiceTaint),
				func(f *plan.Facts) { f.Kubelet.AttachmentUID = "" }), true},
			{"nobody knows which, and it is gone", with(kubelets, forcedAway(volumesv1alpha1.EvidenceOutOfServiceTaint),
				func(f *plan.Facts) {
					f.Kubelet.AttachmentUID, f.Entry.DetachedTime = "", ptr.To(metav1.Now())
				}), false},
			{"it is gone, and declared", with(kubelets, detached, declared("uid")), true},
			{"it is gone", with(kubelets, detached), false},
		}},
		"mounted": {func(f plan.Facts) any { return f.Mounted() }, []fact{
			{"all is well", nil, true}, {"nothing", with(func(f *plan.Facts) {
				f.Stage, f.Reference, f.Uses["intent-1"] = record.Missing, record.Missing, record.Missing
			}), false},
			{"the stage", with(func(f *plan.Facts) {
				f.Reference, f.Uses["intent-1"] = record.Missing,
					record.Missing
			}), true},
			{"the reference", with(func(f *plan.Facts) {
				f.Stage, f.Uses["intent-1"] = record.Missing,
					record.Missing
			}), true},
			{"another mount as the reference", with(func(f *plan.Facts) {
				f.Stage, f.Reference, f.Uses["intent-1"] = record.Missing, record.Foreign, record.Missing
			}), true},
			{"the device nodes", with(deviceMode, func(f *plan.Facts) {
				f.Stage, f.Uses["intent-1"] = record.Missing,
					record.Missing
			}), false},
			{"the publication", with(func(f *plan.Facts) { f.Stage, f.Reference = record.Missing, record.Missing }),
				true},
			{"a stage that is the kubelet's", with(kubelets, func(f *plan.Facts) {
				f.Reference, f.Uses["intent-1"], f.Record.Stage.Phase = record.Missing, record.Missing, record.PhaseNone
			}), false},
			{"a stage that nobody explains", with(func(f *plan.Facts) {
				f.Reference, f.Uses["intent-1"], f.Record.Stage.Phase = record.Missing, record.Missing, record.PhaseNone
			}), true},
			{"the agent's, and the kubelet uses it", with(kubelets,
				func(f *plan.Facts) { f.Reference, f.Uses["intent-1"] = record.Missing, record.Missing }), true},
			{"the kubelet's use has ended and its device is held", with(kubelets, func(f *plan.Facts) {
				f.Reference, f.Uses["intent-1"], f.Record.Stage.Phase, f.Kubelet.Held = record.Missing, record.Missing,
					record.PhaseNone, &volumesv1alpha1.OperationError{}
			}), true},
		}},
		"published": {func(f plan.Facts) any { return f.Published(use(f)) }, []fact{
			{"all is well", nil, true}, {"in another boot", with(otherBoot), false},
			{"it is not mounted", with(func(f *plan.Facts) { f.Uses["intent-1"] = record.Missing }), false},
			{"the end is not known", with(func(f *plan.Facts) { f.Record.Uses[0].Phase = record.PhaseUncertain }),
				false},
		}},
		"lost": {func(f plan.Facts) any { return f.Lost() }, []fact{
			{"all is well", nil, []string(nil)}, {"no record", with(noRecord), []string(nil)},
			{"both", with(func(f *plan.Facts) { f.Stage, f.Uses["intent-1"] = record.Missing, record.Missing }),
				[]string{"/k/stage", "/r/published/ns/intent-1"}},
			{"another mount took their places", with(func(f *plan.Facts) {
				f.Stage, f.Uses["intent-1"] = record.Foreign,
					record.Foreign
			}), []string{"/k/stage", "/r/published/ns/intent-1"}},
			{"the end is not known", with(func(f *plan.Facts) {
				f.Stage, f.Uses["intent-1"], f.Record.Stage.Phase, f.Record.Uses[0].Phase = record.Missing, record.Missing,
					record.PhaseUncertain, record.PhaseUncertain
			}), []string(nil)},
			{"in another boot", with(otherBoot, func(f *plan.Facts) {
				f.Stage, f.Uses["intent-1"] = record.Missing,
					record.Missing
			}), []string(nil)},
			{"the driver mounts nothing at the stage",
				with(func(f *plan.Facts) { f.Stage, f.Record.Stage.Source = record.Missing, "" }), []string(nil)},
		}},
		"the capacity that is seen": {func(f plan.Facts) any { return f.SeenCapacity(false).String() }, []fact{
			{"by the record", with(capacity("3Gi", "1Gi", "2Gi")), "1Gi"},
			{"before the expansion", with(capacity("3Gi", "", "2Gi")), "2Gi"},
			{"by the entry", with(capacity("3Gi", "", "")), "3Gi"},
		}},
		"the capacity, where the node has no part": {func(f plan.Facts) any { return f.SeenCapacity(true).String() }, []fact{
			{"by the entry", with(capacity("3Gi", "1Gi", "2Gi")), "3Gi"},
		}},
		"grows": {func(f plan.Facts) any { return f.Grows() }, []fact{
			{"it is larger", with(capacity("2Gi", "1Gi", "")), true},
			{"it is the same", with(capacity("1Gi", "1Gi", "")), false},
			{"it is smaller", with(capacity("1Gi", "2Gi", "")), false},
			{"nobody knows what it was", with(capacity("1Gi", "", "")), false},
			{"nobody knows what it is", with(capacity("", "1Gi", "")), false},
			{"the driver does not expand", with(capacity("2Gi", "1Gi", ""), func(f *plan.Facts) { f.Expands = false }),
				false},
			{"all have it read-only", with(capacity("2Gi", "1Gi", ""),
				func(f *plan.Facts) { f.Record.Uses[0].ReadOnly = true }), false},
			{"nobody has it", with(capacity("2Gi", "1Gi", ""), noUses), false},
		}},
		"ends although nobody asks": {func(f plan.Facts) any { return f.Ending(use(f)) }, []fact{
			{"its intent is there", with(unpublishedUse), false}, {"it is published", with(nobody), false},
			{"it never was", with(nobody, unpublishedUse), true},
			{"the session is not confirmed", with(nobody, unpublishedUse, unconfirmed), false},
			{"it was being unpublished", with(nobody, unpublishing), true},
			{"its end is not known", with(nobody, unpublishing, func(f *plan.Facts) { f.Record.Unfinished = nil }),
				false},
			{"something else was going on", with(nobody, unpublishing,
				func(f *plan.Facts) { f.Record.Unfinished.Operation = "publish" }), false},
			{"another was unpublished", with(nobody, unpublishing,
				func(f *plan.Facts) { f.Record.Unfinished.Target = "/other" }), false},
			{"it is done", with(nobody, unpublishing,
				func(f *plan.Facts) { f.Record.Uses[0].Phase = record.PhaseDone }), false},
			{"it is mounted", with(nobody, unpublishing, func(f *plan.Facts) { f.Uses["intent-1"] = record.Present }),
				false},
		}},
		"asks for its end": {func(f plan.Facts) any { return f.Releases(use(f)) }, []fact{
			{"no", nil, false}, {"nobody is there", with(nobody), false}, {"deleted", with(deleting), true},
			{"lowered", with(lowered), true},
			{"raised", with(wantsStage), false},
			{"lowered, and the session is not confirmed", with(lowered, unconfirmed), false},
			{"deleted, and the session is not confirmed", with(deleting, unconfirmed), true},
		}},
		"wants": {func(f plan.Facts) any { return f.Wants(use(f)) }, []fact{
			{"yes", nil, true}, {"another does", with(func(f *plan.Facts) { f.Intents[0].UID = "2" }), false},
			{"nobody", with(nobody), false},
		}},
		"differs": {func(f plan.Facts) any { return f.Differs(use(f)) }, []fact{
			{"no", nil, false},
			{"it is to be read-only", with(func(f *plan.Facts) { f.Intents[0].Spec.ReadOnly = true }), true},
			{"it is to be mounted otherwise", with(func(f *plan.Facts) {
				f.Intents[0].Spec.Mount = &volumesv1alpha1.MountSpec{SubPath: "x"}
			}), true},
			{"nothing was published yet", with(unpublishedUse,
				func(f *plan.Facts) { f.Intents[0].Spec.ReadOnly = true }), false},
			{"it was for the stage only", with(wantsStage, func(f *plan.Facts) { f.Intents[0].Spec.ReadOnly = true }),
				false},
			{"it is lowered", with(lowered, func(f *plan.Facts) { f.Intents[0].Spec.ReadOnly = true }), false},
			{"nobody is there", with(nobody), false},
		}},
		"kept": {func(f plan.Facts) any { return f.Kept() }, []fact{
			{"it is wanted", nil, true}, {"its only one is deleted", with(deleting), false},
			{"its only one is not there", with(nobody), true},
			{"nobody has it, and somebody wants it", with(noUses), true},
			{"and it is not in use", with(noUses, notInUse), false}, {"nobody has it", with(noUses, nobody), false},
		}},
		"gone": {func(f plan.Facts) any { return f.Ends(use(f)) }, []fact{
			{"no", nil, false}, {"not there", with(nobody), false}, {"deleted", with(deleting), true},
			{"no more than attached", with(attachedNow), true},
			{"no more than attached, and the session is not confirmed", with(attachedNow, unconfirmed), false},
			{"lowered", with(lowered), false},
		}},
		"wanting": {func(f plan.Facts) any { return len(f.Wanting()) }, []fact{
			{"one", nil, 1},
			{"another volume", with(func(f *plan.Facts) { f.Intents[0].Status.UniqueVolumeName = "other" }), 0},
			{"another PersistentVolume of it", with(func(f *plan.Facts) { f.Intents[0].Status.VolumeName = "other" }),
				0}, {"detaching", with(detaching), 0},
			{"deleted", with(deleting), 0}, {"unprotected", with(unfinalized), 0},
			{"attached only", with(attachedNow), 0}, {"staged", with(lowered), 1},
			{"the kubelet's", with(func(f *plan.Facts) { f.Intents[0].Spec.Publisher = volumesv1alpha1.PublisherKubelet }), 0},
		}},
		"joins": {func(f plan.Facts) any { return f.JoinChanges() }, []fact{
			{"it has", nil, false}, {"it is new", with(noUses), true},
			{"it is new, and the volume is not in use", with(noUses, notInUse), false},
			{"it was never read live", with(lowered, wantsStage, unpublishedUse,
				func(f *plan.Facts) { f.Record.Uses[0] = f.UseFor(f.Intents[0]) }), true},
			{"it was", with(lowered, func(f *plan.Facts) {
				f.Record.Uses[0] = f.UseFor(f.Intents[0])
				f.Record.Uses[0].Live = true
			}), false},
			{"it was never read live, and does not want it any more", with(func(f *plan.Facts) {
				lowered(f)
				f.Record.Uses[0] = f.UseFor(f.Intents[0])
				f.Intents[0].Status.UniqueVolumeName = "other"
			}), false},
		}},
		"the uses that are joined": {func(f plan.Facts) any {
			var uids []string
			for _, u := range f.Joined() {
				uids = append(uids, string(u.Intent.UID)+" "+string(u.Phase)+" "+string(u.Want))
			}
			return uids
		}, []fact{
			{"one", nil, []string{"intent-1 Done Published"}},
			{"without a record", with(noRecord), []string{"intent-1  Published"}},
			{"an orphan is adopted under its name", with(func(f *plan.Facts) { f.Intents[0].UID = "2" }),
				[]string{"2 Done Published"}},
			{"not under another one", with(func(f *plan.Facts) { f.Intents[0].UID, f.Intents[0].Name = "2", "other" }),
				[]string{"intent-1 Done Published", "2  Published"}},
			{"nor in another namespace", with(func(f *plan.Facts) {
				f.Intents[0].UID, f.Intents[0].Namespace = "2",
					"other"
			}), []string{"intent-1 Done Published", "2  Published"}},
			{"nor is one that is no orphan", with(func(f *plan.Facts) {
				second := planIntent("2")
				second.Name = "intent-1"
				f.Intents = append(f.Intents, second)
			}), []string{"intent-1 Done Published", "2  Published"}},
			{"one that is not published yet is asked anew", with(lowered, unpublishedUse),
				[]string{"intent-1  Staged"}},
		}},
		"read live": {func(f plan.Facts) any { return f.Joined()[0].Live }, []fact{
			{"stays so", with(lowered, unpublishedUse, func(f *plan.Facts) { f.Record.Uses[0].Live = true }), true},
			{"not for another of its name", with(lowered, unpublishedUse,
				func(f *plan.Facts) { f.Record.Uses[0].Live, f.Intents[0].UID = true, "2" }), false},
			{"not for one that is raised", with(unpublishedUse, func(f *plan.Facts) { f.Record.Uses[0].Live = true }),
				false},
		}},
		"not shown to the kubelet": {func(f plan.Facts) any { return f.Unreferenced() }, []fact{
			{"it is", nil, false}, {"it is not", with(func(f *plan.Facts) { f.Reference = record.Missing }), true},
			{"another mount is", with(func(f *plan.Facts) { f.Reference = record.Foreign }), true},
			{"nothing is staged", with(unstaged), false},
			{"the driver mounts nothing", with(func(f *plan.Facts) {
				f.Reference,
					f.Record.Stage.Source = record.Missing, ""
			}), false},
			{"a device is", with(deviceMode, func(f *plan.Facts) { f.DeviceNodes = []string{"intent-1"} }), false},
			{"a device is not", with(deviceMode), true},
			{"a device is for another", with(deviceMode, func(f *plan.Facts) { f.DeviceNodes = []string{"2"} }), true},
			{"a device is, as an earlier agent did it", with(deviceMode,
				func(f *plan.Facts) { f.DeviceNodes, f.Record.Uses[0].Bound = []string{"intent-1"}, "/b" }), true},
			{"a device is before it is staged", with(deviceMode, unstaged,
				func(f *plan.Facts) { f.DeviceNodes = []string{"intent-1"} }), false},
		}},
		"planned": {func(f plan.Facts) any {
			var verbs []plan.Kind
			for _, a := range plan.Of(f) {
				verbs = append(verbs, a.Kind)
			}
			return verbs
		}, []fact{
			{"nothing", nil, []plan.Kind(nil)},
			{"nothing, while it waits for its session", with(notInUse, unconfirmed, unstaged, unpublishedUse),
				[]plan.Kind(nil)},
			{"it is taken again", with(notInUse), []plan.Kind{plan.MarkInUse}},
			{"it is not while nobody wants it", with(notInUse, nobody), []plan.Kind(nil)},
			{"it is cleared", with(notInUse, unstaged, noUses, nobody), []plan.Kind{plan.ClearInUse}},
			{"it is not, where somebody wants it", with(notInUse, unstaged, noUses), []plan.Kind{plan.MarkInUse}},
			{"it is not taken where it is not attached", with(notInUse, detached, deleting),
				[]plan.Kind{plan.Unpublish}},
			{"the stage is undone, also where only the reference is there", with(noUses, nobody,
				func(f *plan.Facts) { f.Record.Stage.Phase, f.Stage = record.PhaseNone, record.Missing }),
				[]plan.Kind{plan.Unstage}},
			{"the stage is undone, also where the reference is not there",
				with(noUses, nobody, func(f *plan.Facts) { f.Reference = record.Missing }), []plan.Kind{plan.Unstage}},
			{"it is published", with(func(f *plan.Facts) { f.Uses["intent-1"] = record.Missing }),
				[]plan.Kind{plan.Publish}},
			{"only staged", with(lowered, func(f *plan.Facts) {
				f.Record.Uses[0] = f.UseFor(f.Intents[0])
				f.Record.Uses[0].Live = true
			}), []plan.Kind(nil)},
			{"it is not published otherwise before that is undone", with(func(f *plan.Facts) {
				f.Uses["intent-1"],
					f.Intents[0].Spec.ReadOnly = record.Missing, true
			}), []plan.Kind{plan.Unpublish}},
			{"it is not published for one that is not there", with(func(f *plan.Facts) {
				f.Uses["intent-1"] = record.Missing
				second := planIntent("2")
				f.Intents = []*volumesv1alpha1.VolumeAttachmentIntent{second}
				f.Record.Uses = f.Joined()
				f.Record.Uses[1].Phase, f.Record.Uses[1].BootID, f.Uses["2"] = record.PhaseDone, "boot", record.Present
			}), []plan.Kind(nil)},
			{"what was taken away is shut down first", with(detaching), []plan.Kind{plan.Shutdown}},
			{"it is not brought further on another attachment before the session is confirmed",
				with(otherUID, unconfirmed, unstaged), []plan.Kind(nil)},
			{"it is not published otherwise on another attachment before the session is confirmed",
				with(otherUID, unconfirmed, func(f *plan.Facts) {
					f.Intents[0].Spec.ReadOnly = true
				}), []plan.Kind(nil)},
		}},
	} {
		t.Run(what, func(t *testing.T) {
			for _, row := range test.rows {
				f := situation()
				for _, change := range row.changes {
					change(f)
				}
				if got := test.of(*f); !reflect.DeepEqual(got, row.want) {
					t.Errorf("facts of %q where %s: %v, want %v", what, row.name, got, row.want)
				}
			}
		})
	}
}
