/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package plan_test

import (
	"testing"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/agent/plan"
	"github.com/hawser-io/hawser/internal/agent/plan/plantest"
	"github.com/hawser-io/hawser/internal/agent/record"
)

func TestWhichUseEndsAlthoughNoIntentAsks(t *testing.T) {
	hold(t, func(f plan.Facts) any { return f.Ending(first(f)) }, []fact{
		{"its intent is there", with(unpublishedUse), false}, {"it is published", with(nobody), false},
		{"it never was", with(nobody, unpublishedUse), true},
		{"the session is not confirmed", with(nobody, unpublishedUse, unconfirmed), false},
		{"it was being unpublished", with(nobody, plantest.Unpublishing), true},
		{"its end is not known", with(nobody, plantest.Unpublishing, func(f *plan.Facts) { f.Record.Unfinished = nil }),
			false},
		{"something else was going on", with(nobody, plantest.Unpublishing,
			func(f *plan.Facts) { f.Record.Unfinished.Operation = "publish" }), false},
		{"another was unpublished", with(nobody, plantest.Unpublishing,
			func(f *plan.Facts) { f.Record.Unfinished.Target = "/other" }), false},
		{"it is done", with(nobody, plantest.Unpublishing,
			func(f *plan.Facts) { f.Record.Uses[0].Phase = record.PhaseDone }), false},
		{"it is mounted", with(nobody, plantest.Unpublishing, func(f *plan.Facts) { f.Uses["intent-1"] = record.Present }),
			false},
	})
}

func TestWhichIntentAsksForTheEndOfItsUse(t *testing.T) {
	hold(t, func(f plan.Facts) any { return f.Releases(first(f)) }, []fact{
		{"no", nil, false}, {"nobody is there", with(nobody), false}, {"deleted", with(plantest.Deleting), true},
		{"lowered", with(lowered), true},
		{"raised", with(wantsStage), false},
		{"lowered, and the session is not confirmed", with(lowered, unconfirmed), false},
		{"deleted, and the session is not confirmed", with(plantest.Deleting, unconfirmed), true},
	})
}

func TestWhetherAUseIsWanted(t *testing.T) {
	hold(t, func(f plan.Facts) any { return f.Wants(first(f)) }, []fact{
		{"yes", nil, true}, {"another does", with(func(f *plan.Facts) { f.Intents[0].UID = "2" }), false},
		{"nobody", with(nobody), false},
	})
}

func TestWhenAUseDiffersFromItsIntent(t *testing.T) {
	hold(t, func(f plan.Facts) any { return f.Differs(first(f)) }, []fact{
		{"no", nil, false},
		{"it is to be read-only", with(func(f *plan.Facts) { f.Intents[0].Spec.ReadOnly = true }), true},
		{"it is to be mounted otherwise", with(func(f *plan.Facts) {
			f.Intents[0].Spec.Mount = &volumesv1alpha1.MountSpec{SubPath: "x"}
		}), true},
		{"its sub path names another directory by now", with(func(f *plan.Facts) { f.Record.Uses[0].Moved = true }), true},
		{"nothing was published yet", with(unpublishedUse,
			func(f *plan.Facts) { f.Intents[0].Spec.ReadOnly = true }), false},
		{"it was for the stage only", with(wantsStage, func(f *plan.Facts) { f.Intents[0].Spec.ReadOnly = true }),
			false},
		{"it is lowered", with(lowered, func(f *plan.Facts) { f.Intents[0].Spec.ReadOnly = true }), false},
		{"nobody is there", with(nobody), false},
	})
}

func TestWhenTheStageIsKept(t *testing.T) {
	hold(t, func(f plan.Facts) any { return f.Kept() }, []fact{
		{"it is wanted", nil, true}, {"its only one is deleted", with(plantest.Deleting), false},
		{"its only one is not there", with(nobody), true},
		{"nobody has it, and somebody wants it", with(noUses), true},
		{"and it is not in use", with(noUses, notInUse), false}, {"nobody has it", with(noUses, nobody), false},
	})
}

func TestWhichUseEnds(t *testing.T) {
	hold(t, func(f plan.Facts) any { return f.Ends(first(f)) }, []fact{
		{"no", nil, false}, {"not there", with(nobody), false}, {"deleted", with(plantest.Deleting), true},
		{"no more than attached", with(attachedNow), true},
		{"no more than attached, and the session is not confirmed", with(attachedNow, unconfirmed), false},
		{"lowered", with(lowered), false},
	})
}

func TestWhichIntentsWantTheVolume(t *testing.T) {
	hold(t, func(f plan.Facts) any { return len(f.Wanting()) }, []fact{
		{"one", nil, 1},
		{"another volume", with(func(f *plan.Facts) { f.Intents[0].Status.UniqueVolumeName = "other" }), 0},
		{"another PersistentVolume of it", with(func(f *plan.Facts) { f.Intents[0].Status.VolumeName = "other" }),
			0}, {"detaching", with(detaching), 0},
		{"deleted", with(plantest.Deleting), 0}, {"unprotected", with(plantest.Unfinalized), 0},
		{"attached only", with(attachedNow), 0}, {"staged", with(lowered), 1},
		{"the kubelet's", with(func(f *plan.Facts) { f.Intents[0].Spec.Publisher = volumesv1alpha1.PublisherKubelet }), 0},
	})
}

func TestWhenAnIntentJoins(t *testing.T) {
	hold(t, func(f plan.Facts) any { return f.JoinChanges() }, []fact{
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
	})
}

func TestWhichUsesAreJoined(t *testing.T) {
	hold(t, func(f plan.Facts) any {
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
			second := plantest.Intent("2")
			second.Name = "intent-1"
			f.Intents = append(f.Intents, second)
		}), []string{"intent-1 Done Published", "2  Published"}},
		{"one that is not published yet is asked anew", with(lowered, unpublishedUse),
			[]string{"intent-1  Staged"}},
	})
}

func TestWhichUseCountsAsReadLive(t *testing.T) {
	hold(t, func(f plan.Facts) any { return f.Joined()[0].Live }, []fact{
		{"stays so", with(lowered, unpublishedUse, func(f *plan.Facts) { f.Record.Uses[0].Live = true }), true},
		{"not for another of its name", with(lowered, unpublishedUse,
			func(f *plan.Facts) { f.Record.Uses[0].Live, f.Intents[0].UID = true, "2" }), false},
		{"not for one that is raised", with(unpublishedUse, func(f *plan.Facts) { f.Record.Uses[0].Live = true }),
			false},
	})
}

func TestWhatIsPlanned(t *testing.T) {
	hold(t, func(f plan.Facts) any {
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
		{"it is not taken where it is not attached", with(notInUse, detached, plantest.Deleting),
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
			second := plantest.Intent("2")
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
	})
}
