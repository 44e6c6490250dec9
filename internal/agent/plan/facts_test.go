/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package plan_test

import (
	"reflect"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	"github.com/hawser-io/hawser/internal/agent/kubelet"
	"github.com/hawser-io/hawser/internal/agent/plan"
	"github.com/hawser-io/hawser/internal/agent/plan/plantest"
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
	stageless  = func(f *plan.Facts) { f.Stage, f.Reference, f.Record.Stage.Source = record.Missing, record.Missing, "" }
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

// hold checks a fact in each situation.
func hold(t *testing.T, of func(plan.Facts) any, facts []fact) {
	t.Helper()
	for _, fact := range facts {
		f := plantest.Situation()
		for _, change := range fact.changes {
			change(f)
		}
		if got := of(*f); !reflect.DeepEqual(got, fact.want) {
			t.Errorf("where %s: %v, want %v", fact.name, got, fact.want)
		}
	}
}

// first is the use of intent-1.
func first(f plan.Facts) record.Use { return f.Record.Uses[0] }

// capacity sets the quantities of entry and record, and the one before an expansion; empty is none.
func capacity(entry, record, from string) func(*plan.Facts) {
	return func(f *plan.Facts) {
		f.Expands = true
		for to, s := range map[**resource.Quantity]string{&f.Entry.Capacity: entry, &f.Record.Capacity: record,
			&f.Entry.ExpandFrom: from} {
			if *to = nil; s != "" {
				*to = ptr.To(resource.MustParse(s))
			}
		}
	}
}

func TestWhenAVolumeIsUsable(t *testing.T) {
	hold(t, func(f plan.Facts) any { return f.Usable() }, []fact{
		{"all is well", nil, true}, {"detached", with(detached), false}, {"detaching", with(detaching), false},
		{"another attachment", with(otherUID), false}, {"not in use", with(notInUse), false},
		{"no record", with(noRecord), false},
	})
}

func TestWhatWaitsForTheSession(t *testing.T) {
	hold(t, func(f plan.Facts) any { return f.WaitsForSession() }, []fact{
		{"all is well", nil, false}, {"it is in use", with(unconfirmed), false},
		{"it is not", with(unconfirmed, notInUse), true},
		{"there is no record", with(unconfirmed, noRecord), true},
		{"nobody wants it", with(unconfirmed, notInUse, nobody), false},
		{"the session is confirmed", with(notInUse), false},
	})
}

func TestWhatIsOfAnEarlierAttachment(t *testing.T) {
	hold(t, func(f plan.Facts) any { return f.Stale() }, []fact{
		{"all is well", nil, false}, {"detaching", with(detaching), true},
		{"another attachment", with(otherUID), true},
		{"detached", with(detached), false}, {"detached and declared", with(detached, declared("uid")), true},
		{"another one was declared", with(detached, declared("uid-2")), false},
		{"the session is not confirmed", with(detaching, unconfirmed), false},
		{"nothing is held", with(detaching, notInUse, unstaged, unpublishedUse), false},
	})
}

func TestWhatIsLeftToTheKubelet(t *testing.T) {
	hold(t, func(f plan.Facts) any { return f.YieldsToKubelet() }, []fact{
		{"it does not use it", with(noUses), false}, {"it does", with(noUses, kubelets), true},
		{"the agent does, too", with(kubelets), false},
		{"there is doubt", with(noUses, kubelets, func(f *plan.Facts) { f.Kubelet.Doubt = "x" }), false},
		{"its device is held", with(noUses, kubelets,
			func(f *plan.Facts) { f.Kubelet.Held = &volumesv1alpha1.OperationError{} }), false},
		{"the agent never staged", with(noUses, kubelets, unstaged), false},
		{"it was taken away", with(noUses, kubelets, detaching), false},
	})
}

func TestWhatIsReleased(t *testing.T) {
	hold(t, func(f plan.Facts) any { return f.Released() }, []fact{
		{"the kubelet alone uses it", with(noUses, kubelets, func(f *plan.Facts) { f.Reference = record.Missing }),
			true},
		{"the kubelet is still shown that the agent does", with(noUses, kubelets), false},
		{"the disk does not know", with(noUses, kubelets,
			func(f *plan.Facts) { f.Reference, f.Unsaved = record.Missing, true }), false},
		{"the agent uses it", with(func(f *plan.Facts) { f.Reference = record.Missing }), false},
		{"the agent has undone the stage that the kubelet takes for made", with(undone), false},
	})
}

func TestWhichMountIsTheAgentsOwn(t *testing.T) {
	hold(t, func(f plan.Facts) any { return f.OwnMount() }, []fact{
		{"the reference", nil, record.Paths{Root: "/r"}.Reference(plantest.Volume)},
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
	})
}

func TestWhenTheKubeletHasAnEarlierAttachment(t *testing.T) {
	hold(t, func(f plan.Facts) any { return f.KubeletStale() }, []fact{
		{"it has none", nil, false}, {"the same", with(kubelets), false},
		{"another", with(kubelets, otherUID), true},
		{"nobody knows which", with(kubelets, otherUID, func(f *plan.Facts) { f.Kubelet.AttachmentUID = "" }),
			false},
		{"nothing is attached now", with(kubelets, otherUID, detaching), false},
	})
}

func TestWhenTheAttachmentOfTheKubeletWasForcedAway(t *testing.T) {
	hold(t, func(f plan.Facts) any { return f.KubeletForcedAway() }, []fact{
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
	})
}

func TestWhatIsMounted(t *testing.T) {
	hold(t, func(f plan.Facts) any { return f.Mounted() }, []fact{
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
	})
}

func TestWhatIsPublished(t *testing.T) {
	hold(t, func(f plan.Facts) any { return f.Published(first(f)) }, []fact{
		{"all is well", nil, true}, {"in another boot", with(otherBoot), false},
		{"it is not mounted", with(func(f *plan.Facts) { f.Uses["intent-1"] = record.Missing }), false},
		{"the end is not known", with(func(f *plan.Facts) { f.Record.Uses[0].Phase = record.PhaseUncertain }),
			false},
	})
}

func TestWhatIsLost(t *testing.T) {
	hold(t, func(f plan.Facts) any { return f.Lost() }, []fact{
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
	})
}

func TestWhichCapacityIsSeen(t *testing.T) {
	hold(t, func(f plan.Facts) any { return f.SeenCapacity(false).String() }, []fact{
		{"by the record", with(capacity("3Gi", "1Gi", "2Gi")), "1Gi"},
		{"before the expansion", with(capacity("3Gi", "", "2Gi")), "2Gi"},
		{"by the entry", with(capacity("3Gi", "", "")), "3Gi"},
	})
}

func TestWhichCapacityIsSeenWhereTheNodeHasNoPart(t *testing.T) {
	hold(t, func(f plan.Facts) any { return f.SeenCapacity(true).String() }, []fact{
		{"by the entry", with(capacity("3Gi", "1Gi", "2Gi")), "3Gi"},
	})
}

func TestWhenAVolumeGrows(t *testing.T) {
	hold(t, func(f plan.Facts) any { return f.Grows() }, []fact{
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
		{"it is staged only", with(capacity("2Gi", "1Gi", ""), unpublishedUse), true},
		{"nothing shows it", with(capacity("2Gi", "1Gi", ""), stageless, unpublishedUse), false},
		{"a raw device is staged, and not shown", with(capacity("2Gi", "1Gi", ""), deviceMode, unpublishedUse), false},
	})
}

func TestWhereAVolumeIsExpanded(t *testing.T) {
	target := func(f *plan.Facts) { f.Record.Uses[0].Target = "/r/target" }
	hold(t, func(f plan.Facts) any { return f.ExpandPath() }, []fact{
		{"it is published", with(target), "/r/target"}, {"it is staged only", with(target, unpublishedUse), "/k/stage"},
		{"a driver that stages nothing has published it", with(target, stageless), "/r/target"},
		{"a driver that stages nothing has yet to publish it", with(stageless, unpublishedUse), ""},
		{"the stage was lost", with(unpublishedUse, func(f *plan.Facts) { f.Stage = record.Missing }), ""},
		{"a raw device is at the staging path", with(deviceMode, unpublishedUse,
			func(f *plan.Facts) { f.Record.Stage.Device = "/dev/a" }), "/k/stage"},
		{"something else than the raw device is there", with(deviceMode, unpublishedUse), ""},
		{"all have it read-only", with(func(f *plan.Facts) { f.Record.Uses[0].ReadOnly = true }), ""},
	})
}

func TestWhatTheKubeletIsNotShown(t *testing.T) {
	hold(t, func(f plan.Facts) any { return f.Unreferenced() }, []fact{
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
	})
}
