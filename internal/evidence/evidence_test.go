/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package evidence

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/machine"
)

const uuid, otherUUID = "11111111-2222-4333-8444-555555555555", "66666666-7777-4888-8999-aaaaaaaaaaaa"

// dead is node n, whose agent is unreachable while volume v is attached.
func dead(changes ...func(*Ground)) Ground {
	g := Ground{Renewal: "1", Node: &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}},
		State: &volumesv1alpha1.NodeVolumeState{ObjectMeta: metav1.ObjectMeta{Name: "n"}}}
	g.Node.Status.NodeInfo.SystemUUID = uuid
	g.State.Spec.Attachments = []volumesv1alpha1.NodeAttachment{{VolumeName: "v", AttachmentUID: "va",
		State: volumesv1alpha1.AttachmentAttached}}
	g.State.Status.Machine = machine.New(uuid, "")
	g.State.Status.Conditions = []metav1.Condition{{Type: volumesv1alpha1.ConditionReady,
		Status: metav1.ConditionUnknown, Reason: volumesv1alpha1.ReasonAgentUnreachable,
		LastTransitionTime: metav1.NewTime(time.Date(2026, 11, 25, 12, 0, 0, 0, time.UTC))}}
	for _, change := range changes {
		change(&g)
	}
	return g
}

func fenced(renewal string) func(*Ground) {
	return func(g *Ground) {
		g.State.Status.Node.Fences = []volumesv1alpha1.FenceObservation{{LastRenewal: renewal,
			FenceReference: volumesv1alpha1.FenceReference{Source: "bmc", Namespace: "hosts", Name: "h", UID: "1",
				Proves: volumesv1alpha1.FencePowerOff}}}
	}
}

// tainted when the Lease was last renewed so.
func tainted(renewal string) func(*Ground) {
	return func(g *Ground) {
		g.Node.Spec.Taints = []corev1.Taint{{Key: corev1.TaintNodeOutOfService}}
		g.State.Status.Node.OutOfService = &volumesv1alpha1.OutOfServiceObservation{LastRenewal: renewal}
	}
}

// gone for that long, as is its agent, whose Lease was last renewed so when a manager saw the Node go.
func gone(silence time.Duration, renewal string) func(*Ground) {
	return func(g *Ground) {
		g.Node, g.Silence = nil, silence
		g.State.Status.Node.Absence = &volumesv1alpha1.AbsenceObservation{LastRenewal: renewal}
	}
}

func unseen(g *Ground) { g.State.Status.Node.Absence = nil }

func mayBePast(g *Ground) { g.MayBePast = true }

func known(g *Ground) { g.Restore = "this-restore" }

func managedBy(spec volumesv1alpha1.VolumeManagerSpec) func(*Ground) {
	return func(g *Ground) { g.Manager = &spec }
}

func usedByAnotherMachine(g *Ground) {
	other := machine.New(otherUUID, "")
	g.State.Status.Volumes = []volumesv1alpha1.NodeVolume{{VolumeName: "v", AttachmentUID: "va", InUse: true,
		Machine: &other}}
}

func registers(systemUUID string) func(*Ground) {
	return func(g *Ground) { g.Node.Status.NodeInfo.SystemUUID = systemUUID }
}

func bootsAgain(g *Ground) { g.State.Status.BootID, g.Node.Status.NodeInfo.BootID = "1", "2" }

func TestTheConditionNamesTheEvidenceOrWhatIsMissing(t *testing.T) {
	for name, c := range map[string]struct {
		ground  Ground
		sources []string
		status  metav1.ConditionStatus
		reason  string
		want    []string
	}{
		"nothing is asserted": {dead(), nil, metav1.ConditionFalse, volumesv1alpha1.ReasonEvidenceMissing,
			[]string{"unreachable since 2026-11-25T12:00:00Z", "set the taint", "No fence source is configured"}},
		"a source is configured": {dead(), []string{"bmc", "capi"}, metav1.ConditionFalse,
			volumesv1alpha1.ReasonEvidenceMissing, []string{"Configured fence sources: bmc, capi"}},
		"a source is configured, and no fence would count": {dead(registers("")), []string{"bmc"}, metav1.ConditionFalse,
			volumesv1alpha1.ReasonEvidenceMissing, []string{"do not count", "cannot be recognized"}},
		"a fence holds": {dead(fenced("1")), []string{"bmc"}, metav1.ConditionTrue, volumesv1alpha1.ReasonEvidenceGiven,
			[]string{"hosts/h of fence source bmc proves PowerOff"}},
		"a fence that the agent contradicted": {dead(fenced("0")), []string{"bmc"}, metav1.ConditionFalse,
			volumesv1alpha1.ReasonEvidenceMissing, []string{"hosts/h of fence source bmc", "the agent has reported since"}},
		"a fence of another machine": {dead(fenced("1"), registers(otherUUID)), []string{"bmc"}, metav1.ConditionFalse,
			volumesv1alpha1.ReasonEvidenceMissing, []string{"another machine has registered the Node"}},
		"the taint": {dead(tainted("1"), fenced("0")), nil, metav1.ConditionTrue, volumesv1alpha1.ReasonEvidenceGiven,
			[]string{"out-of-service"}},
		"a taint that the agent contradicted": {dead(tainted("0")), nil, metav1.ConditionFalse,
			volumesv1alpha1.ReasonEvidenceMissing, []string{"carries the taint", "the agent has reported since"}},
		"a taint of another machine": {dead(tainted("1"), registers(otherUUID)), nil, metav1.ConditionFalse,
			volumesv1alpha1.ReasonEvidenceMissing, []string{"carries the taint", "another machine has registered the Node"}},
		"a taint, and the machine has booted since": {dead(tainted("1"), bootsAgain), nil, metav1.ConditionFalse,
			volumesv1alpha1.ReasonEvidenceMissing, []string{"carries the taint", "has booted since its agent reported"}},
		"a fence, and the machine has booted since": {dead(fenced("1"), bootsAgain), []string{"bmc"}, metav1.ConditionFalse,
			volumesv1alpha1.ReasonEvidenceMissing, []string{"hosts/h", "has booted since its agent reported"}},
		"the Node is gone": {dead(fenced("1"), gone(5*time.Minute, "1")), nil, metav1.ConditionTrue,
			volumesv1alpha1.ReasonEvidenceGiven, []string{"does not exist"}},
		"the Node is gone, and its agent was heard just now": {dead(fenced("1"), gone(5*time.Minute-1, "1")), nil,
			metav1.ConditionFalse, volumesv1alpha1.ReasonEvidenceMissing,
			[]string{"does not exist, but is no evidence: its agent has not been silent for 5m0s yet"}},
		"the Node is gone, and no manager saw it go": {dead(gone(time.Hour, "1"), unseen), nil, metav1.ConditionFalse,
			volumesv1alpha1.ReasonEvidenceMissing, []string{"does not exist, but is no evidence: no manager saw",
				"restart its kubelet", "declare them released"}},
		"the Node is gone, and its agent was heard since": {dead(gone(time.Hour, "0")), nil, metav1.ConditionFalse,
			volumesv1alpha1.ReasonEvidenceMissing, []string{"the machine may run on", "restart its kubelet"}},
		"a taint that may be of before a restore": {dead(tainted("1"), mayBePast), nil, metav1.ConditionFalse,
			volumesv1alpha1.ReasonEvidenceMissing, []string{"carries the taint", "restored from a backup"}},
		"a restore whose ID is known": {dead(tainted("1"), mayBePast, known), nil, metav1.ConditionFalse,
			volumesv1alpha1.ReasonEvidenceMissing, []string{"restored from a backup", "excused-from-restore=this-restore)"}},
		"a fence that may be of before a restore": {dead(fenced("1"), mayBePast), []string{"bmc"}, metav1.ConditionFalse,
			volumesv1alpha1.ReasonEvidenceMissing, []string{"hosts/h", "restored from a backup"}},
		"an absence that may be of before a restore": {dead(gone(time.Hour, "1"), mayBePast), nil, metav1.ConditionFalse,
			volumesv1alpha1.ReasonEvidenceMissing, []string{"does not exist", "restored from a backup"}},
		"another machine uses the volume": {dead(tainted("1"), usedByAnotherMachine), nil, metav1.ConditionFalse,
			volumesv1alpha1.ReasonAnotherMachine, []string{"uses v", "declaration"}},
	} {
		t.Run(name, func(t *testing.T) {
			got := c.ground.Condition(c.sources)
			if got == nil || got.Status != c.status || got.Reason != c.reason {
				t.Fatalf("condition of node n: %+v, want %s with reason %s", got, c.status, c.reason)
			}
			for _, want := range c.want {
				if !strings.Contains(got.Message, want) {
					t.Errorf("message of the condition: %q, want %q in it", got.Message, want)
				}
			}
		})
	}
}

func TestANodeFromWhichNothingWaitsToBeDetachedHasNoCondition(t *testing.T) {
	for name, change := range map[string]func(*Ground){
		"the agent reports":   func(g *Ground) { g.State.Status.Conditions[0].Reason = volumesv1alpha1.ReasonReady },
		"nothing is attached": func(g *Ground) { g.State.Spec.Attachments = nil },
		"everything is being detached": func(g *Ground) {
			g.State.Spec.Attachments[0].State = volumesv1alpha1.AttachmentDetaching
		},
	} {
		if got := dead(change).Condition(nil); got != nil {
			t.Errorf("%s: condition %+v, want none", name, got)
		}
	}
}

func intent(name string, change func(*volumesv1alpha1.VolumeAttachmentIntent)) volumesv1alpha1.VolumeAttachmentIntent {
	i := volumesv1alpha1.VolumeAttachmentIntent{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}}
	i.Status.UniqueVolumeName = "v"
	change(&i)
	return i
}

func TestTheOutlookOfAVolumeIsWhatTheManagerWouldDo(t *testing.T) {
	nothing := func(*volumesv1alpha1.VolumeAttachmentIntent) {}
	leaves := func(i *volumesv1alpha1.VolumeAttachmentIntent) {
		i.DeletionTimestamp, i.Finalizers = &metav1.Time{}, []string{volumesv1alpha1.ReleaseFinalizer}
		i.Spec.DetachPolicy = &volumesv1alpha1.DetachPolicy{ForceAfter: metav1.Duration{Duration: time.Hour}}
	}
	detaching := func(g *Ground) {
		e := &g.State.Spec.Attachments[0]
		e.State = volumesv1alpha1.AttachmentDetaching
		e.Evidence = &volumesv1alpha1.DetachEvidence{Type: volumesv1alpha1.EvidenceFenced}
	}
	notAttached := func(g *Ground) { g.State.Spec.Attachments = nil }
	tainting := volumesv1alpha1.VolumeManagerSpec{Fencing: &volumesv1alpha1.Fencing{
		ManageOutOfServiceTaint: ptr.To(true)}}
	for name, c := range map[string]struct {
		ground  Ground
		intents []volumesv1alpha1.VolumeAttachmentIntent
		fate    Fate
		why     string
	}{
		"no intent is left": {dead(), nil, Detaches, "no intent wants it"},
		"an intent of another volume": {dead(), []volumesv1alpha1.VolumeAttachmentIntent{intent("i",
			func(i *volumesv1alpha1.VolumeAttachmentIntent) { i.Status.UniqueVolumeName = "w" })}, Detaches, "no intent"},
		"an intent wants it": {dead(), []volumesv1alpha1.VolumeAttachmentIntent{intent("i", nothing)}, NeedsDelete,
			"shop/i"},
		"the intent of a pod": {dead(), []volumesv1alpha1.VolumeAttachmentIntent{intent("i",
			func(i *volumesv1alpha1.VolumeAttachmentIntent) {
				i.Labels = map[string]string{volumesv1alpha1.PodUIDLabel: "1"}
			})}, Detaches, "its pods have to be deleted first"},
		"an intent with a policy is being deleted": {dead(), []volumesv1alpha1.VolumeAttachmentIntent{intent("i", leaves)},
			Detaches, "after 1h0m0s"},
		"the Node was seen to go out of reach": {dead(gone(time.Hour, "1")), nil, Detaches, "no intent wants it"},
		"no manager saw the Node go":           {dead(gone(time.Hour, "1"), unseen), nil, Stays, "no manager saw"},
		"no manager saw the Node go, and a policy forces": {dead(gone(time.Hour, "1"), unseen),
			[]volumesv1alpha1.VolumeAttachmentIntent{intent("i", leaves)}, Detaches, "after 1h0m0s"},
		"another machine uses it": {dead(usedByAnotherMachine), nil, Stays, "another machine"},
		"the machine goes on under another name": {dead(func(g *Ground) {
			g.State.Status.Conditions = append(g.State.Status.Conditions, metav1.Condition{Reason: "NodeRenamed",
				Type: volumesv1alpha1.ConditionAttachmentsHealthy, Message: "node m uses v"})
		}), nil, Stays, "another node name"},
		"Hawser did not attach it": {dead(notAttached), nil, DetachesByKubernetes, "where the manager sets that taint"},
		"Hawser did not attach it, and fences have the taint set": {dead(notAttached, managedBy(tainting)), nil,
			DetachesByKubernetes, "The manager sets that taint on a fence"},
		"Hawser did not attach it, and fences set no taint": {dead(notAttached,
			managedBy(volumesv1alpha1.VolumeManagerSpec{})), nil, DetachesByKubernetes, "A fence alone deletes no pod"},
		"Hawser did not attach it where no other does": {dead(notAttached, managedBy(volumesv1alpha1.VolumeManagerSpec{
			AttachMode: volumesv1alpha1.AttachReplace})), nil, Stays, "without an attachment"},
		"it is declared released": {dead(func(g *Ground) {
			g.State.Annotations = map[string]string{volumesv1alpha1.DeclaredReleasedPrefix + "va": "scrapped"}
		}), []volumesv1alpha1.VolumeAttachmentIntent{intent("i", nothing)}, Detaches, "declared"},
		"it is being detached": {dead(detaching), nil, Detaching, "being detached"},
		"its detach fails": {dead(detaching, func(g *Ground) { g.State.Spec.Attachments[0].DetachError = "busy" }), nil,
			Stays, "busy"},
	} {
		if got := c.ground.Outlook("v", c.intents); got.Fate != c.fate || !strings.Contains(got.Why, c.why) {
			t.Errorf("%s: %s, %q; want %s, %q", name, got.Fate, got.Why, c.fate, c.why)
		}
	}
}

// forcing has time alone force the detach after so long.
func forcing(after time.Duration) func(*volumesv1alpha1.VolumeAttachmentIntent) {
	return func(i *volumesv1alpha1.VolumeAttachmentIntent) {
		i.Spec.DetachPolicy = &volumesv1alpha1.DetachPolicy{ForceAfter: metav1.Duration{Duration: after}}
	}
}

func TestTheOutlookHasWhatTimeForcesOnceAllIntentsAreDeleted(t *testing.T) {
	type changes []func(*volumesv1alpha1.VolumeAttachmentIntent)
	leaving := func(i *volumesv1alpha1.VolumeAttachmentIntent) {
		i.DeletionTimestamp, i.Finalizers = &metav1.Time{}, []string{volumesv1alpha1.ReleaseFinalizer}
	}
	unfinalized := func(i *volumesv1alpha1.VolumeAttachmentIntent) { i.Finalizers = []string{"example.com/other"} }
	onlyAttaches := func(i *volumesv1alpha1.VolumeAttachmentIntent) {
		i.Spec.DesiredState = volumesv1alpha1.DesiredAttached
	}
	ofPod := func(i *volumesv1alpha1.VolumeAttachmentIntent) {
		i.Labels = map[string]string{volumesv1alpha1.PodUIDLabel: "1"}
		i.Spec.Publisher, i.Spec.DesiredState = volumesv1alpha1.PublisherKubelet, volumesv1alpha1.DesiredAttached
	}
	for name, c := range map[string]struct {
		intents []changes
		after   time.Duration // zero if time forces nothing
		why     string
	}{
		"one with a policy": {[]changes{{forcing(time.Hour)}}, time.Hour,
			"Deleting them forces the detach after 1h0m0s by time alone, also from a machine that still runs"},
		"one without a policy":          {[]changes{{}}, 0, ""},
		"the longest of two policies":   {[]changes{{forcing(time.Hour)}, {forcing(2 * time.Hour)}}, 2 * time.Hour, ""},
		"only one of two has a policy":  {[]changes{{forcing(time.Hour)}, {}}, 0, ""},
		"one that leaves has no policy": {[]changes{{forcing(time.Hour)}, {leaving}}, 0, ""},
		"one that leaves has a longer policy": {[]changes{{forcing(time.Hour)}, {leaving, forcing(2 * time.Hour)}},
			2 * time.Hour, ""},
		"only the one that leaves has a policy": {[]changes{{}, {leaving, forcing(time.Hour)}}, 0, ""},
		"one that leaves is released already":   {[]changes{{forcing(time.Hour)}, {leaving, unfinalized}}, time.Hour, ""},
		"one that goes at once has no policy":   {[]changes{{forcing(time.Hour)}, {onlyAttaches}}, time.Hour, ""},
		"a pod's intent that goes at once": {[]changes{{forcing(time.Hour)}, {ofPod}}, time.Hour,
			"them and its pods forces"},
		"a pod's intent with a longer policy": {[]changes{{forcing(time.Hour)}, {ofPod, forcing(2 * time.Hour)}},
			2 * time.Hour, "them and its pods forces"},
		"only a pod's intent, with a policy": {[]changes{{ofPod, forcing(time.Hour)}}, time.Hour,
			"Deleting them forces the detach after 1h0m0s"},
		"only a pod's intent": {[]changes{{ofPod}}, 0, ""},
	} {
		var intents []volumesv1alpha1.VolumeAttachmentIntent
		for _, changes := range c.intents {
			intents = append(intents, intent("i", func(i *volumesv1alpha1.VolumeAttachmentIntent) {
				for _, change := range changes {
					change(i)
				}
			}))
		}
		got := dead().Outlook("v", intents)
		if forced := ptr.Deref(got.ForcedAfter, metav1.Duration{}).Duration; forced != c.after ||
			!strings.Contains(got.Why, c.why) || strings.Contains(got.Why, "by time alone") != (c.after > 0) {
			t.Errorf("%s: forced after %s, %q; want %s, %q", name, forced, got.Why, c.after, c.why)
		}
	}
}

func TestWhatIsNotWrittenYetIsLost(t *testing.T) {
	published := func(kind volumesv1alpha1.PublicationType, readOnly bool) *volumesv1alpha1.NodeVolume {
		return &volumesv1alpha1.NodeVolume{InUse: true, PublishedBy: volumesv1alpha1.PublisherAgent,
			Publications: []volumesv1alpha1.Publication{{Type: kind, ReadOnly: readOnly}}}
	}
	cut := published(volumesv1alpha1.PublicationMount, true)
	cut.PublicationCount = 20
	for name, c := range map[string]struct {
		line *volumesv1alpha1.NodeVolume
		want string
	}{
		"attached only":        {nil, "nothing: the volume is not in use"},
		"a filesystem":         {published(volumesv1alpha1.PublicationMount, false), "mounted read-write"},
		"read-only":            {published(volumesv1alpha1.PublicationMount, true), "nothing: it is published read-only"},
		"more than are listed": {cut, "mounted read-write"},
		"a device":             {published(volumesv1alpha1.PublicationDevice, false), "synced to the device"},
		"staged":               {&volumesv1alpha1.NodeVolume{InUse: true}, "mounted read-write"},
		"mounted by a kubelet": {&volumesv1alpha1.NodeVolume{InUse: true, PublishedBy: "Kubelet"}, "unless the pods"},
		"not mounted any more": {&volumesv1alpha1.NodeVolume{InUse: true, Waiting: true}, "nothing"},
	} {
		g := Ground{State: &volumesv1alpha1.NodeVolumeState{ObjectMeta: metav1.ObjectMeta{UID: "u"}}}
		g.State.Status.Protocol.ObservedUID = "u"
		if c.line != nil {
			c.line.VolumeName = "v"
			g.State.Status.Volumes = []volumesv1alpha1.NodeVolume{*c.line}
		}
		if got := g.Loss("v"); !strings.Contains(got, c.want) {
			t.Errorf("%s: lost is %q, want %q", name, got, c.want)
		}
		if strings.HasPrefix(c.want, "nothing: it is published") || !strings.HasPrefix(c.want, "nothing") {
			continue
		}
		g.Silence = time.Minute
		if got := g.Loss("v"); !strings.HasPrefix(got, "not known: the agent has been silent") {
			t.Errorf("%s, by the kubelet, with a silent agent: lost is %q, want that it is not known", name, got)
		}
		g.State.Spec.Attachments = []volumesv1alpha1.NodeAttachment{{VolumeName: "v"}}
		if got := g.Loss("v"); !strings.Contains(got, c.want) {
			t.Errorf("%s, by Hawser, with a silent agent: lost is %q, want %q", name, got, c.want)
		}
		g.State.UID = "created-again"
		if got := g.Loss("v"); !strings.HasPrefix(got, "not known: no agent has reported") {
			t.Errorf("%s, before an agent has reported: lost is %q, want that it is not known", name, got)
		}
	}
}
